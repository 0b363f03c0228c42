from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

import jobrules
from jobrules import RULES, GPUMemoryFull, StragglerRank, UnevenRanks
from jobrules.model import HowMuch, JobInMemory, Severity, Status, StepMark, Steps, in_words
from jobrules.rule import ONLY_TRACES, run_rules
from jobrules.rules.traces.shares import CaptureRule, ShareRule
from jobrules.text import NBSP
from tests.captured_jobs import NONE, OTHER, TENSOR_CORES, V100, job_of, training
from tests.jobs import START_US
from tests.kineto import Recording

SHARE_RULES: list[type[Any]] = [rule for rule in RULES if issubclass(rule, ShareRule)]
CAUSES = {
    "ExposedCommunication": "communication",
    "LaunchBound": "host",
    "DataLoaderWait": "data loading",
    "SynchronizationStall": "blocking",
    "ExposedCopies": "copy",
    "AllocationStall": "allocation",
    "ProfilerOverhead": "profiler",
}


def losing(rule: type[Any], percent: float) -> Recording:
    """A trace with so much of what a rule looks for."""
    # The first step of ten does not count for AllocationStall.
    counted = 0.9 if rule.__name__ == "AllocationStall" else 1.0
    return training(CAUSES[rule.__name__], percent / 100 / counted)


def limits(rule: type[Any]) -> list[tuple[float, Severity | None]]:
    """Just below and above each limit, and the severity there; None for none."""
    low, high = rule().threshold, rule().warning_threshold
    return [
        (low - 0.1, None),
        (low + 0.1, Severity.INFO),
        (high - 0.1, Severity.INFO),
        (high + 0.1, Severity.WARNING),
        *([(2 * high - 0.1, Severity.WARNING), (2 * high + 0.1, Severity.CRITICAL)] if high < 40 else []),
    ]


@pytest.mark.parametrize(
    ("rule", "percent", "severity"),
    [(rule, *limit) for rule in SHARE_RULES if rule.__name__ != "NoTensorCores" for limit in limits(rule)],
)
def test_severity_changes_at_the_limits(
    tmp_path: Path, rule: type[Any], percent: float, severity: Severity | None
) -> None:
    result = rule().check(job_of(tmp_path, losing(rule, percent)))

    assert [finding.severity for finding in result.findings] == ([severity] if severity else [])
    assert f"{percent:.1f}% of" in result.headline
    assert result.measure is not None
    assert result.measure.value == pytest.approx(percent, abs=0.05)


@pytest.mark.parametrize(("name", "cause"), CAUSES.items())
def test_one_cause_is_found_by_one_rule(tmp_path: Path, name: str, cause: str) -> None:
    job = job_of(tmp_path, training(cause, 0.32))

    found = {rule.__name__ for rule in RULES if issubclass(rule, CaptureRule) and rule().check(job).findings}

    assert found == {name}


@pytest.mark.parametrize(("iterations", "is_found"), [(3, False), (10, True)])
def test_without_steps_allocation_counts_where_it_recurs(
    tmp_path: Path, iterations: int, is_found: bool
) -> None:
    trace = training("allocation", 0.2, marked=False)
    calls = [event for event in trace.events if event["name"] == "cudaMalloc"]
    trace.events = [event for event in trace.events if event not in calls[iterations:]]
    job = job_of(tmp_path, trace)

    assert bool(jobrules.AllocationStall().check(job).findings) == is_found
    late = [
        finding.advice[0].startswith("Record later steps")
        for finding in jobrules.LaunchBound(threshold=10).check(job).findings
    ]
    assert late == [True] * (not is_found)


@pytest.mark.parametrize(
    ("without", "with_them", "severity"),
    [
        (0.19, 0.0, None),
        (0.21, 0.0, Severity.INFO),
        (0.51, 0.0, Severity.WARNING),
        (0.40, 0.19, Severity.INFO),
        # Half of the matrix kernels use tensor cores: the rest may be meant so.
        (0.40, 0.21, None),
    ],
)
def test_matrix_kernels_without_tensor_cores(
    tmp_path: Path, without: float, with_them: float, severity: Severity | None
) -> None:
    trace = Recording()
    trace.top["deviceProperties"] = [V100]
    start = 1000.0
    for kernel, part in ((NONE, without), (TENSOR_CORES, with_them), (OTHER, 1 - without - with_them)):
        if part:
            trace.kernel(kernel, start, start + 200_000 * part, launch=(start - 20, start - 15))
            start += 200_000 * part

    result = jobrules.NoTensorCores().check(job_of(tmp_path, trace))

    assert [finding.severity for finding in result.findings] == ([severity] if severity else [])


@pytest.mark.parametrize(("major", "is_said"), [(7, False), (8, True)])
def test_tf32_is_advised_for_gpus_that_have_it(tmp_path: Path, major: int, is_said: bool) -> None:
    trace = training(kernel=NONE)
    trace.top["deviceProperties"] = [V100 | {"computeMajor": major}]

    (finding,) = jobrules.NoTensorCores().check(job_of(tmp_path, trace)).findings

    assert any("TF32" in sentence for sentence in finding.advice) == is_said


def test_a_trace_of_one_rank_is_no_advice_on_communication_without_the_others(tmp_path: Path) -> None:
    rule = jobrules.ExposedCommunication()
    (alone,) = rule.check(job_of(tmp_path, training("communication", 0.2, rank=0, world=2))).findings
    (transfers,) = rule.check(job_of(tmp_path, *late_rank("host", 0.1))).findings

    assert alone.advice[-1].startswith("Record traces of all ranks")
    assert transfers.advice == jobrules.ExposedCommunication.documentation().advice


def edited(edit: Callable[[Recording], None], **given: Any) -> Recording:
    trace = training(**given)
    edit(trace)
    return trace


def without(*categories: str) -> Callable[[Recording], None]:
    def edit(trace: Recording) -> None:
        trace.events = [event for event in trace.events if event["cat"] not in categories]

    return edit


def device(**properties: Any) -> Callable[[Recording], None]:
    def edit(trace: Recording) -> None:
        trace.top["deviceProperties"] = [V100 | properties]

    return edit


def nameless(trace: Recording) -> None:
    del trace.top["deviceProperties"]


def half_of_the_launches(trace: Recording) -> None:
    launches = [event for event in trace.events if event["cat"] == "cuda_runtime"]
    for event in launches[1::2]:
        event["args"]["correlation"] += 1_000_000


ALL = [rule.__name__ for rule in RULES if issubclass(rule, CaptureRule)]
OF_HOST = ["LaunchBound", "DataLoaderWait", "SynchronizationStall", "AllocationStall"]
OF_SHARES = [name for name in ALL if name not in ("StragglerRank", "UnevenRanks")]
OF_RANKS = ["StragglerRank", "UnevenRanks"]


@pytest.mark.parametrize(
    ("traces", "rules", "reason"),
    [
        ([], ALL, "No PyTorch trace was found"),
        (
            [edited(without("kernel", "cuda_runtime"))],
            ALL,
            "GPU activity in the trace (ProfilerActivity.CUDA) was not recorded",
        ),
        (
            [training("communication", 0.1, steps=1)],
            OF_SHARES,
            "Needs 0.1 s of profiled time; this job has 50 ms",
        ),
        (
            [training(steps=1, length=200_000)],
            ["AllocationStall"],
            "Needs 2 profiled steps; this job has 1",
        ),
        (
            [edited(without("cuda_runtime"), cause="host", share=0.2)],
            OF_HOST,
            "Launches of kernels in the trace (ProfilerActivity.CPU) were not recorded",
        ),
        (
            [edited(half_of_the_launches, cause="host", share=0.2)],
            OF_HOST,
            "Events are missing: no launch explains 20.0% of the profiled time, in which the GPU was idle",
        ),
        ([training()], ["ExposedCommunication"], "The traces hold no communication between GPUs"),
        (
            [edited(without("cpu_op"))],
            ["DataLoaderWait"],
            "CPU activity in the trace (ProfilerActivity.CPU) was not recorded",
        ),
        (
            [edited(without("user_annotation"))],
            ["DataLoaderWait"],
            "The traces show no PyTorch DataLoader; other loaders leave no mark",
        ),
        ([edited(nameless)], ["NoTensorCores"], "The model of the GPU in the trace was not recorded"),
        (
            [edited(device(name="Tesla P100", computeMajor=6))],
            ["NoTensorCores"],
            "The profiled GPUs have no tensor cores",
        ),
        (
            [training()],
            ["NoTensorCores"],
            "Kernels for less than 20% of computing have names that show whether they use tensor cores",
        ),
        (
            [edited(without("overhead"))],
            ["ProfilerOverhead"],
            "The profiler's own activity in the trace was not recorded",
        ),
        (
            [training(collectives=5, rank=0, world=8)],
            OF_RANKS,
            "Traces of two or more ranks were not recorded",
        ),
        (
            [training(rank=0), training(rank=1)],
            OF_RANKS,
            "Communication between ranks in the traces was not recorded",
        ),
        (
            [training(collectives=4, rank=rank) for rank in (0, 1)],
            OF_RANKS,
            "Needs 50 collectives on all ranks; this job has 40",
        ),
        (
            [training(collectives=5 + rank, rank=rank) for rank in (0, 1)],
            OF_RANKS,
            "The traces of ranks hold different collectives",
        ),
    ],
)
def test_a_rule_says_what_it_lacks(
    tmp_path: Path, traces: list[Recording], rules: list[str], reason: str
) -> None:
    job = job_of(tmp_path, *traces)

    results = [rule().check(job) for rule in RULES if rule.__name__ in rules]

    found = {
        (one.rule, one.status, str(one.reason and one.reason.sentence).replace(NBSP, " ")) for one in results
    }
    assert found == {(name, Status.NOT_EVALUATED, reason) for name in rules}


@pytest.mark.parametrize(
    ("cause", "more", "look_at"),
    [
        ("host", "idle for want of launches", "the CPU of rank 2"),
        (
            "data loading",
            "idle during data loading",
            "the part of the data, the disk, and the loader processes of rank 2",
        ),
        ("copy", "copying", "what only rank 2 copies"),
    ],
)
def test_a_late_rank_is_named_with_what_it_has_more_of(
    tmp_path: Path, cause: str, more: str, look_at: str
) -> None:
    job = job_of(tmp_path, *late_rank(cause, 0.3))

    (finding,) = StragglerRank().check(job).findings

    assert finding.title.startswith("Rank 2 is late because ")
    assert finding.title.endswith(" (15.0 ms more in a step); the other ranks wait for it")
    assert finding.share == 0.225
    assert finding.severity is Severity.WARNING
    words = in_words(finding.evidence)
    assert f"Compared with the median of the others: {more}, 15.0 ms more in a step (30.0%)." in words
    assert words.startswith("Last to arrive: 100.0%. Of all waiting: 100.0%.")
    assert look_at in finding.advice[0]
    uneven = UnevenRanks().check(job)
    assert uneven.status is Status.PASSED
    assert uneven.headline.endswith("for rank 2 in 100.0% of it (see StragglerRank)")


def test_a_rank_late_for_most_of_the_waiting_is_named_with_its_part(tmp_path: Path) -> None:
    traces = late_rank("host", 0.3)
    # In every fourth step, rank 1 arrives last, and nothing of its own is longer.
    for rank, trace in enumerate(traces):
        for event in trace.events:
            if "AllReduce" in event["name"] and round(event["ts"] - trace.clock) // 50_000 % 4 == 0:
                event["dur"] = 1_000.0 if rank == 1 else 20_000.0 if rank != 2 else 5_000.0
                event["ts"] = (
                    trace.clock
                    + 51_000
                    + (event["ts"] - trace.clock - 1000) // 50_000 * 50_000
                    - event["dur"]
                )
    (finding,) = StragglerRank().check(job_of(tmp_path, *traces)).findings

    assert finding.title.startswith("Rank 2 is late because ")
    (of_all,) = [one for one in finding.evidence if isinstance(one, HowMuch) and one.what == "Of all waiting"]
    assert 50 < of_all.value < 100


def test_what_a_late_rank_has_hardly_more_of_explains_nothing(tmp_path: Path) -> None:
    traces = late_rank("host", 0.3)
    # The late rank's kernel was queued early, so its trace does not show what it waited for. It computes 0.2% more.
    for trace in traces:
        for event in trace.events:
            if event["name"] == "cudaLaunchKernel":
                event["ts"] = trace.clock + (event["ts"] - trace.clock) // 50_000 * 50_000
            if event["dur"] == 10_000 and trace is traces[2]:
                event["dur"] = 10_100
    job = job_of(tmp_path, *traces)

    (finding,) = StragglerRank().check(job).findings

    assert "Compared with" not in in_words(finding.evidence)
    assert finding.advice == StragglerRank.documentation().advice


def late_rank(cause: str, share: float) -> list[Recording]:
    """Four ranks with 60 all-reduces; rank 2 loses a share of its time, and the others wait for it."""
    traces = []
    for rank in range(4):
        trace = training(steps=0, rank=rank, world=4, clock=1e6 * rank)
        for number in range(60):
            start = 1000 + 50_000 * number
            trace.step(number, start, start + 50_000)
            late = share * 50_000 if rank == 2 else 0.0
            middle, ready = start + 10_000, start + 30_000
            trace.kernel(OTHER, start, middle, launch=(start - 3, start - 2))
            if late and cause == "copy":
                copy = ("Memcpy HtoD (Pinned -> Device)", middle, middle + late, 21, (start + 5, start + 6))
                trace.kernel(*copy, category="gpu_memcpy")
            call = (
                (middle + late - 5, middle + late) if late and cause != "copy" else (start + 10, start + 15)
            )
            if late and cause == "data loading":
                trace.mark("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", middle, call[0])
            trace.kernel(OTHER, middle + late, ready + late, launch=call)
            queued = (call[1] + 1, call[1] + 2)
            trace.kernel("ncclDevKernel_AllReduce_Sum_f32", ready + late, start + 50_000, 20, queued)
        traces.append(trace)
    return traces


def test_stacks_are_an_info_however_little_the_profiler_took(tmp_path: Path) -> None:
    trace = training()
    trace.top["record_shapes"] = 1
    trace.add("python_function", "train.py(7): step", 1100, 1200)

    (finding,) = jobrules.ProfilerOverhead().check(job_of(tmp_path, trace)).findings

    assert finding.severity is Severity.INFO
    assert finding.title.endswith("0.0% of the profiled time, and stacks were recorded")
    assert in_words(finding.evidence) == "Recorded in addition: stacks and shapes."


@pytest.mark.parametrize(
    ("ms", "severity", "said"),
    [(119, None, "1.19 times"), (121, Severity.WARNING, "1.21 times"), (300, Severity.WARNING, "3.00 times")],
)
@pytest.mark.parametrize("known_by", ["clock", "number", "mark"])
def test_steps_of_another_source_show_what_the_profiler_costs(
    tmp_path: Path, known_by: str, ms: int, severity: Severity | None, said: str
) -> None:
    trace = training(steps=6, length=ms * 1000.0)
    number = np.arange(100)
    is_profiled = (number >= 40) & (number < 46)
    trace.events = [event for event in trace.events if event["cat"] != "overhead"]
    duration_us = np.where(is_profiled, ms * 1000, 100_000)
    end_us = START_US + np.cumsum(duration_us)
    mark = np.where(is_profiled & (known_by == "mark"), StepMark.PROFILED, StepMark.NONE).astype(np.int8)
    if known_by == "clock":
        trace.top["baseTimeNanoseconds"] = int(end_us[39]) * 1000
    if known_by == "number":
        number -= 40
    steps = Steps.of(
        [("algo-1", "0", "TRAIN")],
        np.zeros(100, np.int32),
        number=number,
        start_us=end_us - duration_us,
        end_us=end_us,
        mark=mark,
    )
    job = JobInMemory(name="job", steps=steps, captures=job_of(tmp_path, trace).captures)

    result = jobrules.ProfilerOverhead().check(job)

    assert [finding.severity for finding in result.findings] == ([severity] if severity else [])
    assert f"Steps took {said} as long with the profiler as without" in result.headline


@pytest.mark.parametrize(
    ("reserved", "status", "headline"),
    [
        (30.0, Status.TRIGGERED, "PyTorch reserved up to 93.8% of GPU memory in the profiled time"),
        (29.0, Status.PASSED, "PyTorch reserved up to 90.6% of GPU memory in the profiled time"),
        (None, Status.NOT_EVALUATED, "Not evaluated: GPU memory in use not recorded"),
    ],
)
def test_full_memory_is_seen_in_a_trace(
    tmp_path: Path, reserved: float | None, status: Status, headline: str
) -> None:
    trace = training()
    if reserved is not None:
        totals = {"Total Allocated": 2**30, "Total Reserved": int(reserved * 2**30)}
        trace.memory(2000, 2**20, **totals)
    (result,) = run_rules([GPUMemoryFull()], job_of(tmp_path, trace), strict=True)

    assert (result.status, result.headline) == (status, headline)


def test_rules_on_other_sources_do_not_apply_to_traces(tmp_path: Path) -> None:
    rules = [
        rule() for rule in RULES if not (rule.of_learning or issubclass(rule, CaptureRule | GPUMemoryFull))
    ]

    found = run_rules(rules, job_of(tmp_path, training()), strict=True)

    assert {one.reason for one in found} == {ONLY_TRACES}


def test_of_many_gpus_those_with_most_are_listed(tmp_path: Path) -> None:
    (usual,), (late,) = (job_of(tmp_path, training("copy", share)).captures for share in (0.0, 0.4))
    captures = tuple(replace(late if rank % 10 == 0 else usual, rank=rank) for rank in range(200))

    result = jobrules.ExposedCopies().check(JobInMemory(name="job", captures=captures))

    assert (result.evaluated, result.violating, len(result.devices)) == (200, 20, 64)
    assert [one.name for one in result.devices if one.violating] == [f"rank {10 * i}" for i in range(20)]
    assert result.headline.startswith("In 4.0% of the profiled time GPUs only copied")
