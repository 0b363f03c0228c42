"""Captures of any shape against the slow reference."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobreport.readers.kineto import text as text_module
from jobrules.captures import kernels as kernel_module
from jobrules.model.captures import Capture, DeviceCapture, Partition
from tests.kineto import Recording, capture
from tests.rules.captures.reference import Call, Host, Moments, Work, moments

NAMES = {"compute": "gemm", "communication": "ncclDevKernel_AllReduce", "copy": "Memcpy DtoD"}
LOADER, ALLOCATION, BLOCKING = "enumerate(DataLoader)#_Iter.__next__", "cudaMalloc", "cudaStreamSynchronize"
START, LENGTH = 1000, 300

times = st.integers(START, START + LENGTH)
threads = st.sampled_from((1, 2))


@st.composite
def spans(draw: st.DrawFn, longest: int = 90) -> tuple[int, int]:
    start = draw(times)
    return start, start + draw(st.integers(0, longest))


@st.composite
def calls(draw: st.DrawFn, name: str) -> Call:
    return Call(name, *draw(spans()), draw(threads))


@st.composite
def work(draw: st.DrawFn) -> Work:
    start, end = draw(spans(60))
    launched = draw(st.none() | st.integers(-120, 20))
    launch = None
    if launched is not None:
        begun = start + launched
        launch = Call("cudaLaunchKernel", begun, begun + draw(st.integers(0, 90)), draw(threads))
    return Work(draw(st.sampled_from(tuple(NAMES))), start, end, draw(st.sampled_from((7, 8))), launch)


@st.composite
def steps(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Steps one after the other, with gaps, or with an overlap of a microsecond."""
    found, at = [], draw(times)
    for _ in range(draw(st.integers(0, 3))):
        end = at + draw(st.integers(2, 120))
        found.append((at, end))
        at = end + draw(st.integers(-1, 20))
    return found


@st.composite
def hosts(draw: st.DrawFn) -> Host:
    return Host(
        work=draw(st.lists(work(), min_size=1, max_size=12)),
        steps=draw(steps()),
        loading=draw(st.lists(calls(LOADER), max_size=3)),
        allocation=draw(st.lists(calls(ALLOCATION), max_size=2)),
        blocking=draw(st.lists(calls(BLOCKING), max_size=3)),
        overhead=draw(st.lists(spans(), max_size=2)),
    )


def recording(host: Host, seed: int = 0, clock: int = 0) -> Recording:
    """The trace, its events in any order."""
    trace = Recording(0, clock=clock)
    for number, (start, end) in enumerate(host.steps, 1):
        trace.step(number, start, end)
    for one in host.work:
        category = "gpu_memcpy" if one.kind == "copy" else "kernel"
        launch = (one.launch.start, one.launch.end) if one.launch else None
        thread = one.launch.thread if one.launch else 1
        trace.kernel(
            NAMES[one.kind], one.start, one.end, one.stream, launch, thread=thread, category=category
        )
    for call in (*host.allocation, *host.blocking):
        trace.call(call.name, call.start, call.end, call.thread)
    for call in host.loading:
        trace.mark(call.name, call.start, call.end, call.thread)
    for start, end in host.overhead:
        trace.add("overhead", "Buffer Flush", start, end, 0)
    Random(seed).shuffle(trace.events)
    return trace


def numbers(trace: Recording) -> Capture:
    with tempfile.TemporaryDirectory() as folder:
        return capture(Path(folder), trace)


def parts(one: Partition) -> dict[str, int]:
    """Parts and idle causes in microseconds, without those of no time."""
    named: dict[str, int] = {
        "compute": one.compute_ns,
        "communication": one.exposed_communication_ns,
        "copy": one.exposed_copies_ns,
        **{str(cause): ns for cause, ns in one.idle_by_cause_ns.items()},
    }
    assert sum(named.values()) == one.window_ns
    assert sum(one.idle_by_cause_ns.values()) == one.idle_ns
    return {name: ns // 1000 for name, ns in named.items() if ns}


def check(found: Capture, expected: Moments) -> None:
    (device,) = found.devices
    start, end = expected.window
    assert (device.start_ns, device.window_ns) == (1000 * start, 1000 * (end - start))
    assert parts(device) == expected.counted(start, end)
    assert [
        (one.start_ns // 1000, (one.start_ns + one.window_ns) // 1000, one.events, parts(one))
        for one in device.steps
    ] == [(begin, until, events, expected.counted(begin, until)) for begin, until, events in expected.steps]


@given(hosts(), st.integers(0, 1000))
def test_each_moment_has_the_part_and_the_cause_of_the_reference(host: Host, seed: int) -> None:
    check(numbers(recording(host, seed)), moments(host))


@pytest.mark.parametrize("seed", range(12))
def test_gaps_of_many_threads_have_the_causes_of_the_reference(seed: int) -> None:
    random, at, work = Random(seed), START, list[Work]()
    many = random.choice((2, 5, 40))

    def any_calls(name: str) -> list[Call]:
        starts = [random.randint(START - 40, START + 1500) for _ in range(random.choice((0, 12, 60)))]
        lengths = (0, 7, 60, random.choice((60, 400)))
        return [
            Call(name, t, t + random.choice(lengths), random.choice((1, random.randint(1, many))))
            for t in starts
        ]

    for _ in range(40):
        at += random.choice((3, 11, 40, 90))
        begun = at - random.choice((-1, 1, 9, 25, 70))
        launch = Call("cudaLaunchKernel", begun, begun + random.choice((2, 40)), random.randint(1, many))
        work.append(Work("compute", at, at + 9, 7, random.choice((launch, launch, launch, None))))
        at += 9
    host = Host(
        work=work,
        steps=random.choice(([], [(START - 9, START + 800), (START + 805, at + random.choice((-70, 30)))])),
        loading=any_calls(LOADER),
        allocation=any_calls(ALLOCATION),
        blocking=any_calls(BLOCKING),
        overhead=[(START + 300, START + 420)],
    )

    check(numbers(recording(host, seed)), moments(host))


@given(hosts(), st.integers(0, 1000), st.sampled_from((1, 64, 500)))
def test_blocks_of_any_size_give_the_same_numbers(host: Host, seed: int, block: int) -> None:
    trace = recording(host, seed)
    whole = numbers(trace)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_module, "_BLOCK", block)
        patch.setattr("jobreport.readers.text_files._CHUNK", block)
        split = numbers(trace)

    assert split == whole


def without_times(found: Capture) -> dict[str, Any]:
    (device,) = found.devices
    fields = {name: getattr(device, name) for name in DeviceCapture.__struct_fields__}
    steps = [(one.number, one.window_ns, parts(one)) for one in fields.pop("steps")]
    return fields | {"start_ns": 0, "steps": steps, "operators": found.operators}


@given(hosts(), st.sampled_from((1, 10**9, 1_700_000_000_000_000)))
def test_another_clock_changes_no_number(host: Host, clock: int) -> None:
    assert without_times(numbers(recording(host))) == without_times(numbers(recording(host, clock=clock)))


@given(
    st.lists(st.tuples(st.sampled_from("ABC"), spans(60), threads), min_size=1, max_size=12),
    st.lists(times, max_size=6),
)
def test_operators_lie_in_the_last_one_that_has_not_ended(
    operators: list[tuple[str, tuple[int, int], int]], launched: list[int]
) -> None:
    trace = Recording()
    for name, span, thread in operators:
        trace.operator(name, *span, thread)
    for number, at in enumerate(launched):
        trace.kernel("k", 5000 + 100 * number, 5010 + 100 * number + number, launch=(at, at + 1))

    found = numbers(trace)

    ordered = sorted(operators, key=lambda one: (one[2], one[1][0], -one[1][1]))
    own = {name: [0, 0, 0] for name, _, _ in operators}

    for index, (name, (start, end), thread) in enumerate(ordered):
        above = [o for o in range(index) if ordered[o][2] == thread and ordered[o][1][1] > start]
        row = own[name]
        row[0] += 1
        row[1] += end - start
        if above:
            _, (_, parent_end), _ = ordered[above[-1]]
            own[ordered[above[-1]][0]][1] -= min(end, parent_end) - start
    assert {one.name: (one.calls, one.self_ns // 1000) for one in found.operators} == {
        name: (row[0], row[1]) for name, row in own.items()
    }
    for number, at in enumerate(launched):
        inside = [o for o, (_, (start, end), lane) in enumerate(ordered) if lane == 1 and start <= at < end]
        if inside:
            own[ordered[inside[-1]][0]][2] += 10 + number
    assert {one.name: one.device_self_ns // 1000 for one in found.operators} == {
        n: r[2] for n, r in own.items()
    }


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 30), st.integers(7, 8)), min_size=1, max_size=30),
    st.sampled_from((1, 4, 1 << 14)),
)
def test_filled_sms_and_queues_are_those_of_each_moment(
    kernels: list[tuple[int, int, int]], many: int
) -> None:
    trace = Recording()
    known: dict[str, Any] = {"blocks per SM": 0.375}
    for start, length, stream in kernels:
        at = 1000 + start
        trace.kernel("k", at, at + length, stream, (at - 10, at - 9), **known)

    with mock.patch.object(kernel_module, "_MANY", many):
        (device,) = numbers(trace).devices

    begin = min(start for start, _, _ in kernels)
    end = max(start + length for start, length, _ in kernels)
    running = [sum(a <= at < a + length for a, length, _ in kernels) for at in range(begin, end)]
    queued: list[int] = []
    for stream in {stream for _, _, stream in kernels}:
        own = [(a - 10, a + length) for a, length, of in kernels if of == stream]
        moments = range(min(a for a, _ in own), max(b for _, b in own))
        queued += [sum(a <= at < b for a, b in own) for at in moments]
    assert device.sm_efficiency_percent == pytest.approx(
        100 * sum(min(1, 0.375 * one) for one in running) / len(running)
    )
    assert device.launches is not None
    assert device.launches.queued_max == max(queued)
    assert device.launches.queued_mean == round(sum(queued) / len(queued), 2)
