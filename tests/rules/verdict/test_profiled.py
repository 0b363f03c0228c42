"""The bar of the profiled time: what its parts are, and what it says of the job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobrules.model import JobInMemory, Metric, Reason, ReasonKind, Severity, in_words
from jobrules.rules.traces.data_loader_wait import DataLoaderWait
from jobrules.rules.traces.straggler_rank import StragglerRank
from jobrules.text import NBSP
from jobrules.verdict.profiled import ProfiledTime, coverage, profiled_lost, profiled_used
from tests.captured_jobs import LOADER, job_of, training
from tests.jobs import START_US, make_job, make_panel
from tests.kineto import Recording
from tests.rules.diagnosis_jobs import SHAPES, made
from tests.rules.rules.test_capture_rules import half_of_the_launches, late_rank
from tests.verdicts import found, keys, verdict_of


def profiled(job: Any) -> ProfiledTime:
    """The bar of a job, after the sums that any bar keeps."""
    one = verdict_of(job).profiled
    assert isinstance(one, ProfiledTime)
    assert sum(part.percent for part in one.parts) == pytest.approx(100)
    assert sum(part.amount for part in one.parts) == pytest.approx(one.gpu_s)
    for part in one.parts:
        assert part.amount == pytest.approx(one.gpu_s * part.percent / 100, abs=1.2 * 10**-one.digits)
    return one


def parts(one: ProfiledTime) -> dict[str, tuple[str, float]]:
    return {part.key: (part.finding, part.percent) for part in one.parts}


@pytest.mark.parametrize(
    ("cause", "share", "expected"),
    [
        ("", 0.0, {"computing": ("", 100.0)}),
        ("copy", 0.03, {"computing": ("", 97.0), "other-causes": ("", 3.0)}),
        ("copy", 0.2, {"computing": ("", 80.0), "copies": ("exposed-copies", 20.0)}),
        (
            "communication",
            0.2,
            {"computing": ("", 80.0), "communication": ("exposed-communication", 20.0)},
        ),
        ("host", 0.4, {"computing": ("", 60.0), "launches": ("launch-bound", 40.0)}),
        (
            "blocking",
            0.1,
            {"computing": ("", 90.0), "synchronization": ("synchronization-stall", 10.0)},
        ),
        ("profiler", 0.1, {"computing": ("", 90.0), "profiler": ("profiler-overhead", 10.0)}),
        # The first of ten steps does not count.
        (
            "allocation",
            0.1,
            {
                "computing": ("", 90.0),
                "memory-allocation": ("allocation-stall", 9.0),
                "other-causes": ("", 1.0),
            },
        ),
    ],
)
def test_a_loss_is_the_part_of_its_finding(
    tmp_path: Path, cause: str, share: float, expected: dict[str, tuple[str, float]]
) -> None:
    found = parts(profiled(job_of(tmp_path, training(cause, share))))

    # A launch takes 5 of 50,000 µs.
    assert {key: one for key, one in found.items() if one[1] > 0.05} == expected


def test_no_part_takes_the_rounding_of_all_others(tmp_path: Path) -> None:
    causes = ("copy", "communication", "host", "blocking", "profiler", "allocation")

    # Each loss of 0.055 s and some is rounded up to 0.06 s.
    one = profiled(job_of(tmp_path, *(training(cause, 0.111, rank=i) for i, cause in enumerate(causes))))

    assert len(one.parts) == 5


def test_idle_time_without_a_launch_is_not_known(tmp_path: Path) -> None:
    trace = training("host", 0.2)
    half_of_the_launches(trace)

    one = profiled(job_of(tmp_path, trace))

    assert parts(one) == {"computing": ("", 80.0), "idle-unknown": ("", 20.0)}
    assert profiled_lost(one) == "In 20.0% GPUs idled for a cause that is not known"
    verdict = verdict_of(job_of(tmp_path, trace))
    assert verdict.not_explained == "20.0% of the profiled time"
    assert (verdict.advice_head, verdict.advice[0][:27]) == ("Record next", "Traces with all events, to ")


def test_a_finding_known_for_some_gpus_claims_their_part(tmp_path: Path) -> None:
    traces = [training("host", 0.4, rank=rank) for rank in range(4)]
    for trace in traces[2:]:
        half_of_the_launches(trace)

    verdict = verdict_of(job_of(tmp_path, *traces))

    (finding,) = verdict.findings
    said = "GPUs waited for the host to launch work, known for 2 of 4 GPUs"
    assert (finding.title.replace(NBSP, " "), finding.share) == (said, 0.2)
    assert isinstance(verdict.profiled, ProfiledTime)
    assert parts(verdict.profiled)["idle-unknown"] == ("", 20.0)


def test_a_trace_of_another_time_is_named(tmp_path: Path) -> None:
    traces = late_rank("host", 0.3)
    for trace in traces:
        trace.top["baseTimeNanoseconds"] = START_US * 1000
    traces[3].top["baseTimeNanoseconds"] -= 5 * 3600 * 10**9

    verdict = verdict_of(job_of(tmp_path, *traces))

    assert isinstance(verdict.profiled, ProfiledTime)
    said = "1 trace was recorded at another time than those of the other ranks: check for files of an older attempt."
    assert said in [one.replace(NBSP, " ") for one in coverage(verdict.profiled)]
    finding = found(verdict, "straggler-rank")
    assert finding.title.startswith("Rank 2 is late")
    assert finding.share == 0.15
    assert "of the 3 of 4 ranks with a trace of the same time" in in_words(finding.evidence).replace(
        NBSP, " "
    )


#: By the share that the late rank loses: percent that is exposed, waiting, and transferring, and the findings on it.
@pytest.mark.parametrize(
    ("late", "percents", "expected"),
    [
        (
            0.2,
            (35.0, 15.0, 20.0),
            [("exposed-communication", Severity.WARNING, 0.2), ("straggler-rank", Severity.WARNING, 0.15)],
        ),
        (
            0.3,
            (32.5, 22.5, 10.0),
            [("straggler-rank", Severity.WARNING, 0.225), ("exposed-communication", Severity.INFO, 0.1)],
        ),
        # Transferring alone would be no finding; no rank is the reason for it.
        (0.38, (30.5, 28.5, 2.0), [("straggler-rank", Severity.WARNING, 0.285)]),
    ],
)
def test_waiting_for_a_late_rank_is_no_other_communication(
    tmp_path: Path,
    late: float,
    percents: tuple[float, float, float],
    expected: list[tuple[str, Severity, float]],
) -> None:
    verdict = verdict_of(job_of(tmp_path, *late_rank("host", late)))
    _, waiting, transferring = percents

    assert isinstance(verdict.profiled, ProfiledTime)
    of_parts = {part.key: (part.label, part.percent) for part in verdict.profiled.parts}
    assert of_parts["waiting"] == ("Lost: waiting for other ranks", waiting)
    assert of_parts["communication"] == ("Lost: exposed communication", transferring)
    assert [part.finding for part in verdict.profiled.parts][1 : 1 + len(expected)] == [
        key for key, *_ in expected
    ]
    of_ranks = [one for one in verdict.findings if one.key in {"straggler-rank", "exposed-communication"}]
    assert [(one.key, one.severity, one.share) for one in of_ranks] == expected


@pytest.mark.parametrize(
    ("computing", "expected", "rules"),
    [
        # It is late because it loads: what it lost so is lost to it, and a warning of both is critical.
        (0, [("straggler-rank", Severity.CRITICAL, 0.38)], ("StragglerRank", "DataLoaderWait")),
        # It is late because it computes, and loads slowly, too.
        (
            11_000,
            [("straggler-rank", Severity.WARNING, 0.285), ("data-loader-wait", Severity.INFO, 0.04)],
            ("StragglerRank",),
        ),
    ],
)
def test_only_what_makes_a_rank_late_is_part_of_that_finding(
    tmp_path: Path, computing: float, expected: list[tuple[str, Severity, float]], rules: tuple[str, ...]
) -> None:
    traces = late_rank("data loading", 0.38)
    for start in range(1000, 1000 + 60 * 50_000, 50_000):
        for trace in traces:
            trace.operator("aten::step", start, start + 49_999)
            trace.mark(LOADER, start + 5, start + 6)
        if computing:
            launch = (start + 16, start + 17)
            traces[2].kernel("gemm", start + 10_000, start + 10_000 + computing, launch=launch)

    verdict = verdict_of(job_of(tmp_path, *traces), StragglerRank(), DataLoaderWait(threshold=2.0))

    assert [(one.key, one.severity, one.share) for one in verdict.findings] == expected
    assert verdict.findings[0].rules == rules


def test_traces_alone_are_the_verdict_and_say_so(tmp_path: Path) -> None:
    verdict = verdict_of(job_of(tmp_path, training("data loading", 0.4, rank=0, world=8)))

    assert verdict.use is None
    assert verdict.is_cause(verdict.findings[0])
    assert isinstance(verdict.profiled, ProfiledTime)
    assert "1 GPU (0.5 s)" in profiled_used(verdict.profiled).replace(NBSP, " ")
    assert profiled_lost(verdict.profiled).startswith("40.0% was lost, 40.0% while the training loop fetched")
    of_job, of_ranks = coverage(verdict.profiled)
    assert of_job.startswith("Only traces were recorded")
    assert "1 of 8 ranks" in of_ranks.replace(NBSP, " ")


def test_first_iterations_are_not_taken_as_the_job(tmp_path: Path) -> None:
    trace = training(marked=False)
    end = 501_000
    trace.call("cudaMalloc", end, end + 95_000)
    trace.kernel("gemm", end + 100_000, end + 500_000, launch=(end + 95_000, end + 95_005))

    one = profiled(job_of(tmp_path, trace))

    assert parts(one)["first-iterations"] == ("", 9.5)
    assert (
        "The traces hold first iterations: memory allocation that does not recur took 9.5% of their time."
        in coverage(one)
    )


def test_counts_say_what_they_count(tmp_path: Path) -> None:
    short = Recording(2, world=16)
    short.kernel("gemm", 1000, 1000.02, launch=(980, 985))
    traces = [training("host", 0.4, rank=0, world=8), training("host", 0.4, rank=1, world=16), short]

    one = profiled(job_of(tmp_path, *traces))

    used = profiled_used(one).replace(NBSP, " ")
    assert used == "of the profiled time of 2 of 3 GPUs (1.00 GPU-s) was used for computing"
    assert (one.ranks, one.world_sizes) == (3, (8, 16))
    assert [sentence.replace(NBSP, " ") for sentence in coverage(one)][1:] == [
        "1 GPU has less than 0.1 s of profiled time and is not judged.",
        "The traces are of several jobs or attempts, which are added up: they name 8 and 16 ranks.",
    ]


def test_a_trace_without_a_rank_is_none_of_the_ranks(tmp_path: Path) -> None:
    traces = [training("host", 0.4, rank=0, world=8), training("host", 0.4)]

    assert "Traces are of 1 of 8 ranks." in [
        one.replace(NBSP, " ") for one in coverage(profiled(job_of(tmp_path, *traces)))
    ]


@pytest.mark.parametrize(("length_us", "said"), [(50_000, "50 ms"), (0.02, "less than 1 ms")])
def test_a_trace_of_some_milliseconds_is_too_short(tmp_path: Path, length_us: float, said: str) -> None:
    trace = Recording()
    trace.kernel("gemm", 1000, 1000 + length_us, launch=(980, 985))

    verdict = verdict_of(job_of(tmp_path, trace))

    assert not verdict.profiled
    assert (
        verdict.too_short.replace(NBSP, " ") == f"Too short to judge: {said} of profiled time, 0.1 s needed."
    )
    (advice,) = verdict.advice
    assert advice.startswith("A longer trace: at least 6 steps and 0.1")
    assert verdict.advice_head == "Record next"


@pytest.mark.parametrize(("needed", "said"), [(0.1, "less than 1 ms"), (60.0, "less than 1 s")])
def test_some_microseconds_are_not_none(needed: float, said: str) -> None:
    few, none = (
        str(Reason(kind=ReasonKind.TOO_SHORT, what="time", needed=needed, have=have)).replace(NBSP, " ")
        for have in (2e-6, 0.0)
    )

    assert few.endswith(f" of time needed, {said} recorded")
    assert "less than" not in none


#: Of samples every 0.1 s: when the traces begin, how busy the GPUs are then, and what is said.
@pytest.mark.parametrize(
    ("clock_s", "during", "expected"),
    [
        (100.0, 80.0, ", which looks typical: GPU utilization was 80.0% then and 80.0% during the work."),
        (100.0, 71.0, ", which looks typical: GPU utilization was 71.0% then and 80.0% during the work."),
        (100.0, 50.0, ", which is not typical: GPU utilization was 50.0% then and 79.8% during the work."),
        (4000.0, 80.0, "; by their clocks, they were recorded at another time."),
        (None, 80.0, "; when they were recorded is not known."),
        (399.7, 80.0, "; too few samples fall into them to say whether they are typical."),
    ],
)
def test_how_much_of_the_job_the_traces_cover(
    tmp_path: Path, clock_s: float | None, during: float, expected: str
) -> None:
    values = np.full(4000, 80.0)
    values[1000:1022] = during
    trace = training(steps=40)
    if clock_s is not None:
        trace.top["baseTimeNanoseconds"] = START_US * 1000 + int(clock_s * 1e9)
    job = make_job(gpu=values, interval_s=0.1)
    assert isinstance(job, JobInMemory)

    one = profiled(replace(job, captures=job_of(tmp_path, trace).captures))

    said = f"The traces cover 2 s of 6 min 40 s{expected}"
    assert [sentence.replace(NBSP, " ") for sentence in coverage(one)] == [said]


def test_a_trace_supports_what_samples_show(tmp_path: Path) -> None:
    job = made("loading-in-training", SHAPES[0], 1).job
    assert isinstance(job, JobInMemory)
    trace = training("data loading", 0.3)

    alone = verdict_of(job)
    both = verdict_of(replace(job, captures=job_of(tmp_path, trace).captures))

    assert keys(both) == keys(alone)
    assert both.use == alone.use
    finding = found(both, "data-loading")
    assert "DataLoaderWait" in finding.rules
    assert in_words(finding.evidence).count("30.0% of the profiled time") == 1
    assert isinstance(both.profiled, ProfiledTime)
    assert parts(both.profiled)["data-loading"] == ("data-loading", 30.0)


def test_a_trace_of_another_time_supports_no_sample(tmp_path: Path) -> None:
    job = made("loading-in-training", SHAPES[0], 1).job
    assert isinstance(job, JobInMemory)
    trace = training("data loading", 0.3)
    trace.top["baseTimeNanoseconds"] = START_US * 1000 + 90_000 * 10**9

    verdict = verdict_of(replace(job, captures=job_of(tmp_path, trace).captures))

    assert found(verdict, "data-loader-wait").rules == ("DataLoaderWait",)
    assert "DataLoaderWait" not in found(verdict, "data-loading").rules


@pytest.mark.parametrize(
    ("clock_s", "keys_found"),
    [(100.0, ["exposed-copies", "unexplained"]), (9000.0, ["unexplained", "exposed-copies"])],
)
def test_what_samples_do_not_explain_traces_may(
    tmp_path: Path, clock_s: float, keys_found: list[str]
) -> None:
    trace = training("copy", 0.2, steps=40)
    trace.top["baseTimeNanoseconds"] = START_US * 1000 + int(clock_s * 1e9)
    job = make_job(gpu=np.tile([95.0] * 9 + [0.0], 400), interval_s=0.1)
    assert isinstance(job, JobInMemory)

    verdict = verdict_of(replace(job, captures=job_of(tmp_path, trace).captures))

    assert [key for key in keys(verdict) if key in keys_found] == keys_found
    loss, copies = found(verdict, "unexplained"), found(verdict, "exposed-copies")
    hint = "The GPU was idle or low; the traces show a cause: in 20.0% of the profiled time GPUs only copied"
    assert (loss.title == hint, loss.advice == copies.advice) == ((clock_s == 100.0),) * 2


@pytest.mark.parametrize(
    ("during", "head", "advice"),
    [(60.0, "Try first", "Load into pinned memory"), (97.0, "Record next", "CPU utilization")],
)
def test_what_typical_traces_show_is_what_to_try(
    tmp_path: Path, during: float, head: str, advice: str
) -> None:
    trace = training("copy", 0.25, steps=240)
    trace.top["baseTimeNanoseconds"] = START_US * 1000 + 100 * 10**9
    values = np.full(4000, 60.0)
    values[1000:1130] = during
    job = make_job(gpu=values, interval_s=0.1)
    assert isinstance(job, JobInMemory)

    verdict = verdict_of(replace(job, captures=job_of(tmp_path, trace).captures))

    assert keys(verdict)[0] == "unexplained"
    assert verdict.advice_head == head
    assert verdict.advice[0].startswith(advice)


@pytest.mark.parametrize(
    ("slow", "host", "is_one"),
    [("gpu2", "algo-1", True), ("gpu1", "algo-1", False), ("gpu2", "other-{}", False)],
)
def test_a_slow_clock_explains_a_late_rank_of_that_gpu(
    tmp_path: Path, slow: str, host: str, is_one: bool
) -> None:
    traces = late_rank("host", 0.3)
    for rank, trace in enumerate(traces):
        trace.top |= {"hostname": host.format(rank), "baseTimeNanoseconds": START_US * 1000 + 100 * 10**9}
    clock = np.full((4000, 4), 1700.0)
    clock[:, int(slow[-1])] = 1200.0
    clocks = make_panel(Metric.GPU_CLOCK, clock, interval_s=0.1, prefix="gpu")
    # Kernels run for 70% of the time on rank 2, all the time on the others.
    job = make_job(gpu=np.full((4000, 4), 85.0), interval_s=0.1, extra=[clocks])
    assert isinstance(job, JobInMemory)
    of_traces = job_of(tmp_path, *traces)

    verdict = verdict_of(replace(job, captures=of_traces.captures, across_ranks=of_traces.across_ranks))

    assert "StragglerRank" in found(verdict, "slow-clock" if is_one else "straggler-rank").rules


def of_ranks(folder: Path, *hosts: str, clock_s: float = 100.0) -> Any:
    """The captures of ranks that only communicate for a fifth of 4 s."""
    traces = [training("communication", 0.2, rank=rank, steps=80) for rank in range(len(hosts))]
    for trace, host in zip(traces, hosts, strict=True):
        trace.top |= {"hostname": host, "baseTimeNanoseconds": START_US * 1000 + int(clock_s * 1e9)}
    return job_of(folder, *traces).captures


def sampled(
    folder: Path, hosts: list[str], gpus: dict[str, int], during: float = 97.0, **given: Any
) -> ProfiledTime:
    """The bar of a job of these nodes, whose GPUs are so busy while traces are recorded."""
    values = np.full(4000, 60.0)
    values[1000:1042] = during
    panels = [
        panel
        for node, count in gpus.items()
        for panel in make_job(gpu=np.repeat(values[:, None], count, axis=1), interval_s=0.1, node=node).panels
    ]
    return profiled(JobInMemory(name="job", panels=tuple(panels), captures=of_ranks(folder, *hosts, **given)))


@pytest.mark.parametrize(
    ("hosts", "gpus", "match", "expected"),
    [
        (["a", "a"], {"a": 2}, "node", {0: ("a", "gpu0"), 1: ("a", "gpu1")}),
        (["b", "a"], {"a": 1, "b": 1}, "node", {0: ("b", "gpu0"), 1: ("a", "gpu0")}),
        (["", ""], {"a": 2}, "order", {0: ("a", "gpu0"), 1: ("a", "gpu1")}),
        (["a"], {"a": 2}, "counts", {}),
        (["", ""], {"a": 1, "b": 1}, "counts", {}),
        (["a", "c"], {"a": 1, "b": 1}, "counts", {}),
    ],
)
def test_ranks_are_put_to_gpus_of_the_samples_where_numbers_agree(
    tmp_path: Path, hosts: list[str], gpus: dict[str, int], match: str, expected: dict[int, tuple[str, str]]
) -> None:
    found = sampled(tmp_path, hosts, gpus).sampled

    assert found is not None
    assert (found.match, found.gpus) == (match, expected)


@pytest.mark.parametrize(
    ("given", "match", "mean"),
    [
        ({}, "node", 97.0),
        ({"during": 86.0}, "node", 86.0),
        ({"during": 84.0}, "differs", None),
        # 3 samples at the end of the job, then none.
        ({"clock_s": 399.7, "during": 10.0}, "node", None),
    ],
)
def test_samples_check_which_gpu_a_rank_used(
    tmp_path: Path, given: dict[str, float], match: str, mean: float | None
) -> None:
    one = sampled(tmp_path, ["a"], {"a": 1}, **given)

    assert one.sampled is not None
    assert (one.sampled.match, one.sampled.utilization) == (match, mean and pytest.approx(mean, abs=1))
    said = "Utilization of the profiled GPUs, " + (f"{mean:.1f}% then, counts the 20.0%" if mean else "")
    assert any(sentence.startswith(said) for sentence in coverage(one)) == (mean is not None)


def test_traces_without_gpus_say_why_utilization_is_not_known(tmp_path: Path) -> None:
    trace = training()
    trace.events = [event for event in trace.events if event["cat"] not in ("kernel", "cuda_runtime")]

    of_samples = "neither GPU nor CPU samples were recorded over time"
    assert verdict_of(JobInMemory(name="job")).without_samples == of_samples
    assert verdict_of(job_of(tmp_path, trace)).without_samples == (
        f"{of_samples}, and the traces hold no GPU activity"
    )
