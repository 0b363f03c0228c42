"""Which process, thread, and call of a trace its numbers are of."""

from __future__ import annotations

import time
from pathlib import Path

from tests.kineto import PROCESS, Recording, capture


def test_steps_count_in_any_process_with_launches_also_if_what_they_launched_is_missing(
    tmp_path: Path,
) -> None:
    trace = Recording()
    trace.step(1, 1000, 2000)
    trace.call("cudaLaunchKernel", 1100, 1110, correlation=999)
    trace.kernel("gemm", 1200, 1300, launch=(1150, 1160))
    trace.events[-2]["pid"] = PROCESS + 1

    found = capture(tmp_path, trace)

    assert (found.steps, found.steps_elsewhere) == (1, 0)


def test_of_threads_with_as_many_steps_the_first_counts(tmp_path: Path) -> None:
    trace = Recording()
    trace.mark("ProfilerStep#8", 1500, 1900, thread=2)
    trace.mark("ProfilerStep#1", 1000, 1400, thread=1)
    trace.operator("ProfilerStep#5", 1200, 1300, thread=3)
    trace.kernel("gemm", 1200, 1300, launch=(1150, 1160))

    assert [one.number for one in capture(tmp_path, trace).step_times] == [1]


def test_a_copy_without_a_launch_makes_no_call_a_blocking_one(tmp_path: Path) -> None:
    trace = Recording()
    trace.kernel("gemm", 1000, 1100, launch=(990, 995))
    trace.kernel("Memcpy HtoD (Pageable -> Device)", 1000, 1010, 20, category="gpu_memcpy", correlation=0)
    trace.call("hipMalloc", 1050, 1150)
    trace.kernel("gemm", 1300, 1400, launch=(1290, 1295))

    (device,) = capture(tmp_path, trace).devices

    assert {cause: ns for cause, ns in device.idle_by_cause_ns.items() if ns} == {
        "memory_allocation": 50_000,
        "host": 140_000,
        "launch_latency": 10_000,
    }


def test_equal_events_of_merged_files_count_once_on_each_device(tmp_path: Path) -> None:
    trace = Recording()
    for device in (0, 1, 0):
        trace.kernel("ncclDevKernel_Generic", 1000, 1100, device=device, correlation=0)

    assert [one.events for one in capture(tmp_path, trace).devices] == [1, 1]


def test_many_threads_cost_what_their_events_cost(tmp_path: Path) -> None:
    def spent_s(threads: int, folder: Path) -> float:
        trace = Recording()
        folder.mkdir()
        for i in range(4000):
            trace.operator("aten::mm", 1000 + 90 * i, 1060 + 90 * i, thread=i % threads)
            trace.kernel(
                "gemm",
                1020 + 90 * i,
                1070 + 90 * i,
                launch=(1002 + 90 * i, 1004 + 90 * i),
                thread=i % threads,
            )
        begin = time.process_time()
        found = capture(folder, trace)
        spent = time.process_time() - begin
        (mm,) = found.operators
        assert (mm.calls, mm.self_ns, mm.device_self_ns) == (4000, 4000 * 60_000, 4000 * 50_000)
        return spent

    few, many = (spent_s(threads, tmp_path / str(threads)) for threads in (3, 4000))
    assert many < 4 * few
