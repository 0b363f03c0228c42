"""Small traces made by hand, with every number worked out on paper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobrules.model.captures import Capture, DeviceCapture, Operators
from tests.kineto import Recording, across, capture

ALLREDUCE: dict[str, Any] = {"Collective name": "allreduce", "dtype": "Float", "In msg nelems": 1_000_000}


def device_of(found: Capture) -> DeviceCapture:
    (device,) = found.devices
    return device


def microseconds(device: DeviceCapture) -> dict[str, float]:
    parts = ("window", "compute", "exposed_communication", "exposed_copies", "idle")
    return {part: getattr(device, f"{part}_ns") / 1000 for part in parts}


def causes(device: Any) -> dict[str, float]:
    return {cause: ns / 1000 for cause, ns in device.idle_by_cause_ns.items() if ns}


def test_each_moment_belongs_to_the_first_part_that_holds_it(tmp_path: Path) -> None:
    trace = Recording()
    trace.kernel("gemm", 1000, 1100, 7, (900, 905))
    trace.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 1050, 1150, 20, (906, 910))
    trace.kernel("Memcpy HtoD (Pinned -> Device)", 1140, 1180, 21, (911, 915), category="gpu_memcpy")
    trace.kernel("add", 1200, 1220, 7, (916, 920))

    device = device_of(capture(tmp_path, trace))

    assert microseconds(device) == {
        "window": 220,
        "compute": 120,
        "exposed_communication": 50,
        "exposed_copies": 30,
        "idle": 20,
    }
    assert (device.communication_ns, device.copies_ns, device.overlap_percent) == (100_000, 40_000, 50)
    assert causes(device) == {"device_wait": 20}


def test_idle_time_has_the_causes_that_its_launch_shows(tmp_path: Path) -> None:
    trace = Recording()
    trace.kernel("k1", 1000, 1100, launch=(980, 990))
    trace.kernel("k2", 1105, 1200, launch=(1000, 1010))
    trace.kernel("k3", 1300, 1350, launch=(1295, 1302))
    trace.mark("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 1210, 1280)
    trace.call("cudaStreamSynchronize", 1320, 1352)
    trace.kernel("k4", 1400, 1450, launch=(1390, 1395))
    trace.kernel("k5", 1480, 1500, launch=(1200, 1205))
    trace.kernel("k6", 1600, 1610, launch=(1510, 1595))
    trace.kernel("k7", 1630, 1640)

    device = device_of(capture(tmp_path, trace))

    assert (device.window_ns, device.compute_ns, device.idle_ns) == (640_000, 335_000, 305_000)
    assert causes(device) == {
        "between_kernels": 5,
        "data_loading": 70,
        "synchronisation": 32,
        "host": 78,
        "launch_latency": 70,
        "device_wait": 30,
        "unlinked": 20,
    }
    assert not device.complete


@pytest.mark.parametrize("category", ["user_annotation", "Operator"])
def test_what_the_host_does_in_a_step_alone_is_python(tmp_path: Path, category: str) -> None:
    trace = Recording()
    trace.add(category, "ProfilerStep#1", 900, 1500)
    trace.operator("aten::item", 1110, 1150)
    trace.kernel("k1", 1000, 1100, launch=(980, 990))
    trace.kernel("k2", 1205, 1500, launch=(1200, 1204))

    parts = capture(tmp_path, trace).host_parts

    assert [(part.name, part.time_ns / 1000) for part in parts] == [("", 60), ("aten::item", 40)]


def test_the_windows_of_the_steps_add_up_to_that_of_the_device(tmp_path: Path) -> None:
    trace = Recording()
    trace.step(1, 1000, 1200)
    trace.step(2, 1200, 1400)
    trace.kernel("k1", 1060, 1150, launch=(1050, 1055))
    trace.kernel("k2", 1160, 1260, launch=(1150, 1155))
    trace.kernel("k3", 1270, 1380, launch=(1250, 1255))

    found = capture(tmp_path, trace)

    device = device_of(found)
    assert (found.steps, device.lead_in_ns, device.window_ns, device.compute_ns) == (
        2,
        60_000,
        340_000,
        300_000,
    )
    assert causes(device) == {"launch_latency": 10, "between_kernels": 10, "host": 20}
    assert [
        (one.number, one.start_ns, one.window_ns, one.compute_ns, one.idle_ns, one.events)
        for one in device.steps
    ] == [(1, 1_060_000, 200_000, 190_000, 10_000, 2), (2, 1_260_000, 140_000, 110_000, 30_000, 1)]
    assert device.incomplete_step == 2


def test_operators_own_what_is_launched_inside_them(tmp_path: Path) -> None:
    trace = Recording()
    for name, start, end in (("A", 1000, 1100), ("B", 1010, 1040), ("B", 1015, 1025), ("C", 1050, 1060)):
        trace.operator(name, start, end)
    for launched, length in ((1005, 10), (1020, 30), (1055, 5), (1150, 7)):
        trace.kernel("k", launched + 500, launched + 500 + length, launch=(launched, launched + 1))

    found = capture(tmp_path, trace)

    def row(one: Operators) -> tuple[int, float, float, float, float]:
        times = (one.self_ns, one.total_ns, one.device_self_ns, one.device_total_ns)
        return (one.calls, *(ns / 1000 for ns in times))  # type: ignore[return-value]

    assert {one.name: row(one) for one in found.operators} == {
        "A": (1, 60, 100, 10, 45),
        "B": (2, 30, 30, 30, 30),
        "C": (1, 10, 10, 5, 5),
    }
    assert found.no_operator_ns == 7000
    assert device_of(found).kernels[0].operators == ("A", "B")


def test_two_ranks_are_compared_without_their_clocks(tmp_path: Path) -> None:
    known: dict[str, Any] = {**ALLREDUCE, "Group size": 2, "Process Group Name": "0", "Seq": 7}
    first, second = Recording(0), Recording(1, clock=500_000)
    first.kernel("gemm", 900, 1030)
    first.kernel("ncclDevKernel_AllReduce", 1000, 1100, 20, **known)
    second.kernel("gemm", 900, 1050)
    second.kernel("ncclDevKernel_AllReduce", 1050, 1090, 20, **known)

    captures, ranks = across(tmp_path, first, second)

    devices = [device_of(one) for one in captures]
    assert [one.window_ns for one in devices] == [200_000, 190_000]
    assert [(one.exposed_transfer_ns, one.exposed_waiting_ns, one.not_matched_ns) for one in devices] == [
        (40_000, 30_000, 0),
        (40_000, 0, 0),
    ]
    assert [(one.rank, one.suffered_ns, one.caused_ns, one.last) for one in ranks.waiting] == [
        (0, 30_000, 0, 0),
        (1, 0, 30_000, 1),
    ]
    (row,) = ranks.collectives
    assert (row.median_transfer_ns, row.median_skew_ns) == (40_000, 60_000)
    assert (row.algorithm_bandwidth, row.bus_bandwidth) == (100, 100)
    assert 100 * 30_000 / ranks.window_ns == pytest.approx(7.6923, abs=1e-4)


def test_a_step_with_other_counts_on_a_rank_is_not_matched(tmp_path: Path) -> None:
    recordings = Recording(0, clock=1000), Recording(1, clock=9000)
    collectives = ((100, 50), (300, 80), (1100, 50), (1300, 60)), ((110, 40), (330, 50), (1130, 20))
    for trace, some in zip(recordings, collectives, strict=True):
        trace.step(1, 0, 1000)
        trace.step(2, 1000, 2000)
        for start, length in some:
            trace.kernel("ncclDevKernel_AllReduce", start, start + length, 20)

    captures, ranks = across(tmp_path, *recordings)

    devices = [device_of(one) for one in captures]
    assert [one.window_ns for one in devices] == [1_900_000, 1_890_000]
    assert [(one.exposed_transfer_ns, one.exposed_waiting_ns, one.not_matched_ns) for one in devices] == [
        (90_000, 40_000, 110_000),
        (90_000, 0, 20_000),
    ]
    assert [(one.caused_ns, one.last) for one in ranks.waiting] == [(0, 0), (40_000, 1)]
    assert (ranks.matched, ranks.not_matched) == (2, 3)
    assert 100 * 40_000 / ranks.window_ns == pytest.approx(1.0554, abs=1e-4)


def test_the_bandwidth_of_an_allgather_counts_what_it_gives_out(tmp_path: Path) -> None:
    trace = Recording(0)
    known: dict[str, Any] = {
        "Collective name": "_allgather_base",
        "dtype": "BFloat16",
        "Out msg nelems": 8_000_000,
        "Group size": 8,
    }
    trace.kernel("ncclDevKernel_AllGather", 1000, 1200, 20, **known)

    _, ranks = across(tmp_path, trace)

    (row,) = ranks.collectives
    assert (row.kind, row.bytes, row.algorithm_bandwidth, row.bus_bandwidth) == (
        "allgather",
        16_000_000,
        80,
        70,
    )
    assert row.median_skew_ns is None


@pytest.mark.parametrize("has_totals", [True, False])
def test_memory_has_a_peak_and_a_share_that_was_not_allocated(tmp_path: Path, has_totals: bool) -> None:
    trace = Recording()
    for time, size, allocated in ((1, 100, 1100), (2, 50, 1150), (3, -100, 1050), (4, 200, 1250)):
        totals = {"Total Allocated": allocated, "Total Reserved": 2000} if has_totals else {}
        trace.memory(time, size, **totals)
    trace.operator("aten::empty", 0, 1)

    (curve,) = capture(tmp_path, trace).memory

    assert (curve.allocated_peak, curve.allocated_peak_ns) == (1250 if has_totals else 250, 4000)
    assert (curve.reserved_peak, curve.fragmentation_percent) == (
        (2000, 37.5) if has_totals else (None, None)
    )
    assert curve.has_totals == has_totals
    assert curve.allocated[-1][1] == curve.allocated_peak


def test_an_event_over_whole_later_ones_of_its_stream_is_cut(tmp_path: Path) -> None:
    trace = Recording()
    for number, (start, end) in enumerate(((1000, 1010), (1020, 6000), (1030, 1040), (1050, 1060))):
        trace.kernel("k", start, end, launch=(900 + number, 900.5 + number))

    device = device_of(capture(tmp_path, trace))

    assert (device.window_ns, device.busy_ns, device.idle_ns) == (60_000, 40_000, 20_000)
    assert causes(device) == {"between_kernels": 20}


def test_sm_efficiency_and_occupancy_are_weighted_with_time(tmp_path: Path) -> None:
    trace = Recording()
    for start, end, stream, blocks, occupancy in ((1000, 1100, 7, 0.5, 20), (1050, 1150, 8, 0.8, 40)):
        known: dict[str, Any] = {"blocks per SM": blocks, "est. achieved occupancy %": occupancy}
        trace.kernel("k", start, end, stream, (start - 20, start - 10), **known)
    trace.kernel("short", 1199, 1200, launch=(1180, 1190))

    device = device_of(capture(tmp_path, trace))

    assert device.window_ns == 200_000
    assert device.sm_efficiency_percent == pytest.approx(57.5)
    assert device.occupancy_percent == pytest.approx(30)
    assert device.launches is not None
    assert (device.launches.linked, device.launches.below_10_us) == (3, 1)


def test_of_three_ranks_the_one_with_the_shortest_collective_came_last(tmp_path: Path) -> None:
    recordings = [Recording(rank, clock=1e6 + 1000 * rank) for rank in range(3)]
    collectives = ((100, 200), (1100, 150)), ((150, 150), (1150, 100)), ((250, 50), (1200, 50))
    for trace, some in zip(recordings, collectives, strict=True):
        trace.kernel("gemm", 0, 90)
        for sequence, (start, length) in enumerate(some):
            known: dict[str, Any] = {
                **ALLREDUCE,
                "In msg nelems": 1_000_000,
                "Group size": 3,
                "Seq": sequence,
            }
            trace.kernel("ncclDevKernel_AllReduce", start, start + length, 20, **known)

    captures, ranks = across(tmp_path, *recordings)

    devices = [device_of(one) for one in captures]
    assert [one.window_ns for one in devices] == [1_250_000, 1_250_000, 1_250_000]
    assert [one.exposed_waiting_ns for one in devices] == [250_000, 150_000, 0]
    assert [one.exposed_transfer_ns for one in devices] == [100_000] * 3
    assert [(one.caused_ns, one.last) for one in ranks.waiting] == [(0, 0), (0, 0), (400_000, 2)]
    assert 100 * 400_000 / ranks.window_ns == pytest.approx(10.6667, abs=1e-4)
    (row,) = ranks.collectives
    assert row.bus_bandwidth == pytest.approx(106.67, abs=0.01)


def test_the_kernels_of_a_graph_have_one_call(tmp_path: Path) -> None:
    trace = Recording()
    correlation = trace.kernel("g1", 1100, 1150)
    trace.call("cudaGraphLaunch", 1000, 1050, correlation=correlation)
    trace.kernel("g2", 1152, 1200, correlation=correlation)
    trace.kernel("g3", 1230, 1250, correlation=correlation)

    device = device_of(capture(tmp_path, trace))

    assert (device.window_ns, device.idle_ns) == (150_000, 32_000)
    assert causes(device) == {"between_kernels": 2, "device_wait": 30}
    assert device.launches is not None
    assert device.launches.linked == 3


@pytest.mark.parametrize(
    ("known", "name"),
    [(["MI300X", "MI300X"], "MI300X"), (["MI300X", "MI210"], ""), (["MI300X", "MI210", "MI250"], "MI250")],
)
def test_a_device_that_is_not_described_is_of_the_one_model_that_is(
    tmp_path: Path, known: list[str], name: str
) -> None:
    trace = Recording()
    trace.top["deviceProperties"] = [{"id": number, "name": model} for number, model in enumerate(known)]
    trace.kernel("gemm", 1000, 1100, device=2)

    assert device_of(capture(tmp_path, trace)).name == name


@pytest.mark.parametrize(
    "name",
    [
        "urEventWait",
        "urQueueFinish",
        "piEventsWait",
        "piQueueFinish",
        "zeEventHostSynchronize",
        "zeFenceHostSynchronize",
        "zeCommandListHostSynchronize",
        "zeCommandQueueSynchronize",
    ],
)
def test_calls_that_wait_for_an_intel_gpu_block(tmp_path: Path, name: str) -> None:
    trace = Recording()
    trace.kernel("gemm", 100, 200, launch=(90, 95))
    trace.add("xpu_runtime", name, 100, 205, 1)
    trace.kernel("gemm", 230, 300, launch=(215, 220))

    found = capture(tmp_path, trace)

    assert found.blocking_calls == ((name, 1),)
    assert found.devices[0].idle_by_cause_ns["synchronisation"] > 0
