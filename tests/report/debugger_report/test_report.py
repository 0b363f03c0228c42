from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobreport import build, document, pipeline
from jobreport.debugger_report import differences
from jobreport.debugger_report import rules as debugger_rules
from jobreport.document import Origin, Report, RuleCard
from jobreport.markdown import MAX_CHARACTERS
from jobreport.options import Options
from jobreport.output import summary
from jobreport.page import sections
from jobreport.readers.debugger_results.rule_results import NAMES
from jobreport.remarks import Quality
from jobrules.model import Finding, Job, ReasonKind, RuleResult, Severity, Status, in_words
from jobrules.rule import Rule, run_rules
from jobrules.rules.low_gpu_utilization import LowGPUUtilization
from jobrules.verdict.not_evaluated import by_reason
from tests.jobs import make_job
from tests.report.debugger_report.written_results import built
from tests.report.page.sections.html import Page
from tests.report.page.sections.test_sections import CALLS
from tests.report.readers.debugger_results.test_rule_results import result
from tests.report.readers.samples import FILE, sample, write

START = 1_700_000_000.0
SECOND = 1_000_000
HOSTILE = '</script><img src=x onerror="alert(1)">\u202e\n`code` *bold*'
USE = {
    "gpu_max": 90,
    "gpu_95": 40,
    "gpu_5": 0,
    "p25": 0,
    "p50": 5,
    "p75": 20,
    "p95": 40,
    "upper": 50,
    "lower": 0,
}


def job(first: float = 60, last: float = 500, end: float = 600) -> dict[str, Any]:
    step_num = {"first": int((START + first) * SECOND), "last": int((START + last) * SECOND)}
    details = {"step_num": step_num, "job_start": START, "job_end": START + end}
    return result(details, Datapoints=120, RuleParameters="threshold:20")


def usage(gpu: float | None = 20, *nodes: str) -> dict[str, Any]:
    def row(middle: float) -> dict[str, float]:
        return {"min": 0, "p50": middle, "p95": middle + 10, "p99": middle + 20, "max": middle + 30}

    names = nodes or ("algo-1",)
    gpus = {} if gpu is None else {name: row(gpu) for name in names}
    cpus, network = {name: row(30) for name in names}, {name: row(5e6) for name in names}
    return result({"GPU": gpus, "CPU": cpus, "Network": network, "I/O": {}}, Datapoints=1200)


def low(*gpus: str, triggered: int = 4, **keys: Any) -> dict[str, Any]:
    details = {"algo-1": dict.fromkeys(gpus, USE), "last_timestamp": int((START + 540) * SECOND)}
    content = {
        "Datapoints": 1200,
        "RuleParameters": "threshold_p95:70\nthreshold_p5:10\nwindow:500\npatience:1000",
    }
    return result(details, RuleTriggered=triggered, Violations=triggered) | content | keys


def workloads(**gpus: list[int]) -> dict[str, Any]:
    content = {"Datapoints": 1200, "RuleParameters": "threshold:0.2\npatience:1000"}
    return result({"algo-1": {"workloads": gpus}}, **content)


def bottleneck(hits: int = 900, datapoints: int = 1200, triggered: int = 2) -> dict[str, Any]:
    times = {f"{START + i}": {"GPUs": 1, "CPUs": 1} for i in range(3)}
    content = {"Datapoints": datapoints, "RuleParameters": "threshold:50\ncpu_threshold:90\npatience:1000"}
    details = {"low_gpu_utilization": 1000, "bottlenecks": times}
    return result(details, RuleTriggered=triggered, Violations=hits, **content)


@dataclass(frozen=True, kw_only=True)
class Own(Rule):
    """Own.

    What it checks
        Its own matter.

    Why it matters
        For the test.

    What to do
        Nothing.
    """

    title: ClassVar[str] = "Something of one's own"

    def check(self, job: Job) -> RuleResult:
        raise AssertionError("there is no job to check")


def card(report: Report, rule: str) -> RuleCard:
    return next(one for one in report.rules if one.name == rule)


def finding(report: Report, key: str) -> Finding:
    return next(one for one in report.verdict.findings if one.key == key)


def test_every_rule_has_a_card_and_missing_files_are_said(tmp_path: Path) -> None:
    report = built(tmp_path, MaxInitializationTime=job())

    assert {one.name for one in report.rules} >= set(NAMES)
    others = [one for one in report.rules if one.name != "MaxInitializationTime"]
    assert {one.status for one in others} == {Status.NOT_EVALUATED}
    of_debugger = {str(one.reason or "") for one in others if one.name in NAMES}
    assert of_debugger == {"SageMaker Debugger's result not recorded"}
    assert all(one.notes == () for one in others)
    assert [u.rule for u in report.verdict.not_evaluated] == [one.name for one in others if one.can_trigger]
    assert report.origin is Origin.DEBUGGER_RESULTS


def test_a_rule_that_sagemaker_debugger_does_not_have_is_not_evaluated(tmp_path: Path) -> None:
    report = built(tmp_path, own=(Own(),), BatchSize=result())

    mine = card(report, "Own")
    assert (mine.status, str(mine.reason or "")) == (Status.NOT_EVALUATED, "samples not recorded")
    assert report.verdict.not_evaluated[-1].rule == "Own"
    assert Own().name in Page.of(sections.rules(report).html).text


def test_a_result_that_cannot_be_read_costs_its_own_card_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("</script>")

    monkeypatch.setitem(debugger_rules._ANSWERS, "BatchSize", fail)
    write(
        tmp_path / "in",
        {"BatchSize.json": json.dumps(result()), "OverallSystemUsage.json": json.dumps(usage())},
    )

    outcome = pipeline.make_report(tmp_path / "in", tmp_path / "out", Options(formats=["json"]))

    failed = card(outcome.report, "BatchSize")
    assert (failed.status, str(failed.reason or "")) == (Status.ERROR, "ZeroDivisionError: </script>")
    assert card(outcome.report, "OverallSystemUsage").status is Status.PASSED
    assert "BatchSize" in str(outcome.failure)
    with pytest.raises(ZeroDivisionError):
        pipeline.make_report(
            tmp_path / "in", tmp_path / "out", Options(formats=["json"], strict=True, force=True)
        )


def test_times_and_phases_are_those_of_the_results(tmp_path: Path) -> None:
    report = built(tmp_path, MaxInitializationTime=job(first=60, last=500, end=600))

    seconds = [(p.key, (p.end_us - p.start_us) / SECOND, p.percent) for p in report.phases.phases]
    assert seconds == [("before", 60, 10.0), ("loop", 440, 73.3), ("after", 100, 16.7)]
    assert report.phases.basis == "steps"
    assert report.job.start_us == START * SECOND
    assert (
        "the training loop ends at the start of the last step" in Page.of(sections.summary(report).html).text
    )


def test_a_job_without_times_says_so(tmp_path: Path) -> None:
    report = built(tmp_path, OverallSystemUsage=usage())

    assert report.job.end_us == 0
    page = Page.of("".join(call(report).html for call in CALLS)).text
    assert "1970" not in page + summary.markdown(report)


@pytest.mark.parametrize(
    ("datapoints", "reason"),
    [
        (1000, "1,001 samples needed, 1,000 recorded"),
        (0, "1,001 samples needed, 0 recorded"),
        (1001, ""),
    ],
)
def test_a_rule_that_waited_for_more_samples_did_not_pass(
    tmp_path: Path, datapoints: int, reason: str
) -> None:
    report = built(
        tmp_path,
        OverallSystemUsage=usage(),
        LowGPUUtilization=low(triggered=0, Datapoints=datapoints),
        CPUBottleneck=bottleneck(hits=0, datapoints=datapoints, triggered=0),
    )

    for rule in ("LowGPUUtilization", "CPUBottleneck"):
        found = card(report, rule)
        assert str(found.reason or "") == reason
        assert found.status is (Status.NOT_EVALUATED if reason else Status.PASSED)


def test_without_a_gpu_no_rule_on_gpus_passes(tmp_path: Path) -> None:
    report = built(
        tmp_path,
        OverallSystemUsage=usage(None),
        LowGPUUtilization=low(triggered=0, Datapoints=0, Details={}),
        BatchSize=result(Datapoints=5000),
        GPUMemoryIncrease=result(Datapoints=0),
        LoadBalancing=result(Datapoints=0),
        CPUBottleneck=result({"low_gpu_utilization": 0, "bottlenecks": {}}, Datapoints=5000),
        IOBottleneck=result({"low_gpu_utilization": 0, "bottlenecks": {}}, Datapoints=5000),
    )

    about_gpus = [one for one in report.rules if one.name in NAMES and (one.datapoints or "GPU" in one.name)]
    judged = {one.name: str(one.reason or "") for one in about_gpus if one.can_trigger}
    assert set(judged.values()) == {"no GPU was sampled"}
    assert len(judged) == 5
    assert re.search(r"CPU.*30\.0", summary.headline(report))


def test_rules_on_gpus_do_not_apply_to_a_job_without_and_all_reasons_have_a_kind(tmp_path: Path) -> None:
    for gpu, kind in ((None, ReasonKind.NOT_APPLICABLE), (20, ReasonKind.NOT_RECORDED)):
        content = {
            "OverallSystemUsage": usage(gpu),
            "StepOutlier": result(Datapoints=40),
            "LoadBalancing": result(),
        }
        write(tmp_path / kind, {f"{rule}.json": json.dumps(one) for rule, one in content.items()})
        report = pipeline.make_report(
            tmp_path / kind, tmp_path / f"{kind}-out", Options(formats=["json"])
        ).report

        for rule in ("UnusedGPU", "ECCErrors", "PowerCap"):
            reason = card(report, rule).reason
            assert reason is not None
            assert reason.kind is kind
        groups = {group.head: str(group) for group in by_reason(report.verdict.not_evaluated)}
        assert "Other reasons" not in groups
        assert "StepOutlier needs 101 steps, this job has 40" in groups["Too short"]


def test_low_utilization_has_its_gpus_boxes_and_notes(tmp_path: Path) -> None:
    report = built(
        tmp_path,
        MaxInitializationTime=job(),
        LowGPUUtilization=low("gpu0", "gpu10", "gpu2"),
    )

    found = finding(report, "low-gpu-utilization")
    assert found.title == "All 3\u00a0GPUs had low utilization, p95 40.0% in the last window"
    assert found.devices == ("algo-1/gpu0", "algo-1/gpu10", "algo-1/gpu2")
    assert [(box.device, box.p50, box.mean, box.n) for box in report.boxes] == [
        (gpu, 5, None, None) for gpu in ("gpu0", "gpu2", "gpu10")
    ]
    # 600 s of 1200 samples, the first 1000 of them patience: two checks of each GPU.
    assert "4\u00a0times in about 6\u00a0checks" in in_words(found.evidence)
    assert found.severity is Severity.CRITICAL
    assert card(report, "LowGPUUtilization").notes == differences.notes("LGU-1", "LGU-4")
    assert "triggered 4, violations 4, data points 1,200" in Page.of(sections.rules(report).html).text


def test_a_small_batch_that_explains_low_use_is_one_finding(tmp_path: Path) -> None:
    batch = result({"algo-1": {"cpu": {}, "gpu0": {}, "gpu0_memory": {}}}, RuleTriggered=2, Datapoints=1200)

    joined = built(tmp_path, LowGPUUtilization=low("gpu0"), BatchSize=batch)
    separate = built(tmp_path, LowGPUUtilization=low("gpu0"), BatchSize=batch | {"RuleTriggered": 1})

    (found,) = joined.verdict.findings
    assert found.rules == ("LowGPUUtilization", "BatchSize")
    assert {one.key for one in separate.verdict.findings} == {"low-gpu-utilization", "batch-size"}


def of_gpus(**gpus: dict[str, int]) -> dict[str, Any]:
    return low() | {"Details": {"algo-1": gpus}}


def small(*gpus: str) -> dict[str, Any]:
    return result({"algo-1": {name: {} for name in ("cpu", *gpus)}}, RuleTriggered=4, Datapoints=1200)


NEVER = dict.fromkeys(USE, 0)


def test_almost_unused_gpus_need_no_larger_batches(tmp_path: Path) -> None:
    hardly = NEVER | {"gpu_max": 8}
    some = of_gpus(gpu0=USE, gpu1=hardly)
    every = of_gpus(gpu0=hardly, gpu1=hardly)

    partly = built(tmp_path / "a", LowGPUUtilization=some, BatchSize=small("gpu1")).verdict.findings
    wholly = built(tmp_path / "b", LowGPUUtilization=every, BatchSize=small("gpu1")).verdict.findings

    assert ["almost unused" in " ".join(f.advice) for f in (*partly, *wholly)] == [True, False]


@pytest.mark.parametrize(
    ("gpus", "title"),
    [(["gpu0"], "The GPU was never used"), (["gpu0", "gpu1"], "Both GPUs were never used")],
)
def test_never_used_gpus_are_one_finding_with_the_advice_of_samples(
    tmp_path: Path, gpus: list[str], title: str
) -> None:
    content = of_gpus(**dict.fromkeys(gpus, NEVER))

    report = built(
        tmp_path, LowGPUUtilization=content, BatchSize=small(*gpus), CPUBottleneck=bottleneck(hits=1199)
    )

    first, other = report.verdict.findings
    assert (first.key, first.title, first.severity) == ("gpu-never-used", title, Severity.CRITICAL)
    assert first.rules == ("LowGPUUtilization", "BatchSize")
    assert first.devices == tuple(f"algo-1/{gpu}" for gpu in gpus)
    assert "no sample above 0%" in in_words(first.evidence)
    assert other.key == "cpu-bottleneck"
    assert card(report, "LowGPUUtilization").headline == title
    rules = [LowGPUUtilization()]
    idle = make_job(gpu=[0.0] * 1500)
    samples = build.build_report(idle, Quality(), rules, run_rules(rules, idle, strict=True), "")
    assert " ".join(first.advice) == " ".join(finding(samples, "gpu-never-used").advice)


def test_never_used_gpus_are_no_low_ones(tmp_path: Path) -> None:
    content = of_gpus(gpu0=USE, gpu1=NEVER)

    separate = built(tmp_path / "a", LowGPUUtilization=content, BatchSize=small("gpu1"))
    joined = built(tmp_path / "b", LowGPUUtilization=content, BatchSize=small("gpu0", "gpu1"))
    crowded = built(
        tmp_path / "c", LowGPUUtilization=content, BatchSize=small("gpu1"), CPUBottleneck=bottleneck()
    )

    never, little = separate.verdict.findings
    assert (never.title, never.rules, never.devices) == (
        "1 of 2\u00a0GPUs was never used",
        ("BatchSize",),
        ("algo-1/gpu1",),
    )
    assert little.title == "1 of 2\u00a0GPUs had low utilization, p95 40.0% in the last window"
    assert (little.rules, little.devices) == (("LowGPUUtilization",), ("algo-1/gpu0",))
    assert "gpu1" not in in_words(little.evidence)
    assert "never used, too" in in_words(little.evidence)
    never, little = joined.verdict.findings
    assert (never.rules, little.rules) == ((), ("LowGPUUtilization", "BatchSize"))
    assert "gpu1" not in in_words(little.evidence)
    assert crowded.verdict.findings[0].key == "gpu-never-used"


def test_a_bottleneck_is_judged_by_its_share(tmp_path: Path) -> None:
    report = built(tmp_path, OverallSystemUsage=usage(), CPUBottleneck=bottleneck(hits=900))

    found = card(report, "CPUBottleneck")
    assert (found.status, found.evaluated, found.violating, found.severity) == (
        Status.TRIGGERED,
        1200,
        900,
        0.75,
    )
    assert (found.first_us, found.last_us) == (START * SECOND, (START + 2) * SECOND)
    assert found.measure is not None
    assert (found.measure.value, found.measure.limits) == (75.0, (50,))
    assert "in 1,000, 90.0% of them bottlenecks" in in_words(finding(report, "cpu-bottleneck").evidence)


def test_counters_that_contradict_each_other_are_no_answer(tmp_path: Path) -> None:
    report = built(tmp_path, OverallSystemUsage=usage(), IOBottleneck=bottleneck(hits=1201))

    assert str(card(report, "IOBottleneck").reason or "") == "the counters contradict each other"


def test_a_jump_of_memory_activity_is_info(tmp_path: Path) -> None:
    details = {"algo-1": {"gpu0": {"increase": 5.3, "gpu_max": 39}}, "last_timestamp": int(START * SECOND)}

    report = built(tmp_path, GPUMemoryIncrease=result(details, RuleTriggered=4, Datapoints=4525))

    found = finding(report, "gpu-memory-increase")
    assert found.severity is Severity.INFO
    assert "noise is counted" in in_words(found.evidence)
    assert "algo-1 gpu0 by 5.3 points" in in_words(found.evidence)


def slow_distance(p: list[int], q: list[int]) -> float:
    """Jensen-Shannon distance from its definition."""
    a, b = [x / sum(p) for x in p], [x / sum(q) for x in q]
    m = [(x + y) / 2 for x, y in zip(a, b, strict=True)]
    to_middle = [sum(x * math.log(x / y) for x, y in zip(one, m, strict=True) if x > 0) for one in (a, b)]
    return math.sqrt(max(0.0, sum(to_middle)) / 2)


NO_COMPARISON = "comparison of GPUs not recorded"
bins = st.lists(st.integers(0, 2000), min_size=49, max_size=49).filter(lambda counts: sum(counts) > 1000)


@given(gpus=st.lists(bins, min_size=2, max_size=4))
def test_balance_is_never_passed_and_its_histograms_are_read(
    tmp_path_factory: pytest.TempPathFactory, gpus: list[list[int]]
) -> None:
    named = {f"gpu{i}": counts for i, counts in enumerate(gpus)}

    report = built(tmp_path_factory.mktemp("lb"), LoadBalancing=workloads(**named))

    found = card(report, "LoadBalancing")
    assert (found.status, str(found.reason or "")) == (Status.NOT_EVALUATED, NO_COMPARISON)
    worst = max(slow_distance(p, q) for i, p in enumerate(gpus) for q in gpus[:i])
    assert float(re.findall(r"distance (\d\.\d\d)", found.notes[-1])[0]) == pytest.approx(worst, abs=6e-3)
    assert [(one.key, one.rules) for one in report.verdict.findings] == [("load-balancing", ())] * (
        worst > 0.2
    )


def test_without_enough_samples_no_histograms_are_compared(tmp_path: Path) -> None:
    report = built(tmp_path, LoadBalancing=workloads(gpu0=[10] + [0] * 48, gpu1=[10] + [0] * 48))

    assert str(card(report, "LoadBalancing").reason or "") == NO_COMPARISON
    assert card(report, "LoadBalancing").notes == differences.notes("LB-1", "LB-2")


def test_samples_missing_from_the_histograms_are_in_the_evidence(tmp_path: Path) -> None:
    idle, busy = [1200] + [0] * 48, [0] * 48 + [1080]

    report = built(tmp_path, LoadBalancing=workloads(gpu0=idle, gpu1=busy))

    assert "10.0% of a GPU's samples are missing" in in_words(finding(report, "load-balancing").evidence)


def test_one_gpu_a_node_has_nothing_to_balance(tmp_path: Path) -> None:
    report = built(tmp_path, LoadBalancing=workloads(gpu0=[1200] + [0] * 48))

    assert str(card(report, "LoadBalancing").reason or "") == "every node has 1 GPU"


def outliers(numbers: list[str], triggered: int = 3, datapoints: int = 2159) -> dict[str, Any]:
    stats = {"mean": 0.05, "max": 8.74, "p50": 0.021}
    series = {"step_stats": stats, "number_of_outliers": len(numbers), "step_numbers": numbers}
    series["phase"] = "Step:ModeKeys.EVAL"
    details = {"step_details": {"algo-1-33": series}} if numbers else {}
    content = {"Datapoints": datapoints, "RuleParameters": "threshold:3\nmode:None\nn_outliers:10\nstddev:3"}
    return result(details, RuleTriggered=triggered, Violations=38, **content)


def test_long_steps_that_were_counted_twice_are_info(tmp_path: Path) -> None:
    twice = built(tmp_path, StepOutlier=outliers([str(i // 2) for i in range(14)]))
    once = built(tmp_path, StepOutlier=outliers([str(i) for i in range(14)]))
    hidden = built(tmp_path, StepOutlier=outliers(["1"]))

    doubtful, sure = finding(twice, "step-outlier"), finding(once, "step-outlier")
    assert (doubtful.severity, sure.severity) == (Severity.INFO, Severity.WARNING)
    assert doubtful.title.startswith(
        "7\u00a0steps of algo-1-33 (EVAL) were outliers: the longest took 8.7\u00a0s"
    )
    assert "Without those counted twice, it would not trigger (threshold 10)" in in_words(doubtful.evidence)
    assert "longest took 8.7\u00a0s, the median 21\u00a0ms" in sure.title
    assert "another mode" in in_words(finding(hidden, "step-outlier").evidence)


@pytest.mark.parametrize(
    ("datapoints", "numbers", "reason"),
    [
        (0, [], "steps not recorded"),
        (100, [], "101 steps needed, 100 recorded"),
        (5000, [], "no rank has 101\u00a0steps of one mode"),
        (5000, ["1"], ""),
    ],
)
def test_steps_that_were_too_few_did_not_pass(
    tmp_path: Path, datapoints: int, numbers: list[str], reason: str
) -> None:
    report = built(tmp_path, StepOutlier=outliers(numbers, triggered=0, datapoints=datapoints))

    found = card(report, "StepOutlier")
    assert str(found.reason or "") == reason
    assert found.status is (Status.NOT_EVALUATED if reason else Status.PASSED)


@pytest.mark.parametrize(
    ("triggered", "datapoints", "loaders", "status", "reason"),
    [
        (0, 0, 1, Status.NOT_EVALUATED, "loader events not recorded"),
        (0, 10, 1, Status.NOT_EVALUATED, "11\u00a0s of data loading needed, 10\u00a0s recorded"),
        (0, 50, 1, Status.NOT_EVALUATED, "time of data loading not recorded"),
        (0, 40, 4, Status.NOT_EVALUATED, "11\u00a0s of data loading needed, 10\u00a0s recorded"),
        (0, 41, 4, Status.PASSED, ""),
        (0, 50, 4, Status.PASSED, ""),
        (1, 11, 1, Status.TRIGGERED, ""),
    ],
)
def test_loaders_are_evaluated_if_enough_seconds_were_recorded(
    tmp_path: Path, triggered: int, datapoints: int, loaders: int, status: Status, reason: str
) -> None:
    details = {"cores": 4, "dataloaders": loaders, "num_workers": 0}

    report = built(tmp_path, Dataloader=result(details, RuleTriggered=triggered, Datapoints=datapoints))

    found = card(report, "Dataloader")
    assert (found.status, str(found.reason or "")) == (status, reason)
    assert len(report.verdict.findings) == triggered


@pytest.mark.parametrize(("first", "status"), [(1260, Status.PASSED), (1261, Status.TRIGGERED)])
def test_the_first_step_is_compared_although_sagemaker_debugger_cannot(
    tmp_path: Path, first: float, status: Status
) -> None:
    report = built(tmp_path, MaxInitializationTime=job(first=first, last=7200, end=7260))

    found = card(report, "MaxInitializationTime")
    assert (found.status, found.triggered) == (status, 0)
    assert found.notes[:1] == differences.notes("MIT-1")
    assert len(report.verdict.findings) == (status is Status.TRIGGERED)


@given(tenths=st.integers(0, 400), waited=st.integers(1, 3000))
@example(tenths=212, waited=21 * 60 + 28)
def test_the_first_step_is_compared_once_per_minute_as_in_jobrules(
    tmp_path_factory: pytest.TempPathFactory, tenths: int, waited: int
) -> None:
    content = job(first=waited, last=7200, end=7260) | {"RuleParameters": f"threshold:{tenths / 10}"}

    report = built(tmp_path_factory.mktemp("mit"), MaxInitializationTime=content)

    # Minute k after the start is past the limit, and the step is still to come.
    late = any(600 * k > 60 * tenths and 60 * k < waited for k in range(1, 100))
    assert (card(report, "MaxInitializationTime").status is Status.TRIGGERED) == late


def test_without_steps_there_is_no_first_one(tmp_path: Path) -> None:
    content = result({"step_num": {}, "job_start": START, "job_end": START + 600})

    report = built(tmp_path, MaxInitializationTime=content)

    assert str(card(report, "MaxInitializationTime").reason or "") == "steps not recorded"
    assert report.phases.basis == "none"


def test_a_start_longer_than_the_training_is_a_finding(tmp_path: Path) -> None:
    report = built(tmp_path, MaxInitializationTime=job(first=400, last=550))

    assert finding(report, "late-first-step").share == pytest.approx(400 / 600)


def test_thresholds_are_those_of_the_results_next_to_the_defaults(tmp_path: Path) -> None:
    content = low("gpu0", RuleParameters="patience:500\nthreshold_p95:60.5\nnew:x")

    parameters = card(built(tmp_path, LowGPUUtilization=content), "LowGPUUtilization").parameters

    assert [(p.name, p.value, p.default, p.unit) for p in parameters] == [
        ("patience", 500, 1000, "samples"),
        ("threshold_p95", 60.5, 70, "%"),
        ("new", "x", "x", ""),
    ]


def test_the_documents_are_written_again_with_extra_keys(tmp_path: Path) -> None:
    content = low("gpu0") | {"Extra": {"kept": [1, None, "é"]}}
    write(tmp_path / "in", {"x/profiler-reports/LowGPUUtilization.json": json.dumps(content)})

    outcome = pipeline.make_report(tmp_path / "in", tmp_path / "out", Options(formats=["json", "md"]))

    names = {path.stem for path in (tmp_path / "out/rules").rglob("*.json")}
    assert names == {one.name for one in outcome.report.rules}
    written = json.loads((tmp_path / "out/rules/LowGPUUtilization.json").read_text("utf-8"))
    assert {key: written.pop(key) for key in (*document.EXTRA_KEYS, "Origin")} == {
        "Status": "triggered",
        "Reason": "",
        "Severity": 0.0,
        "Evaluated": 0,
        "InViolation": 0,
        "Counted": "",
        "DatapointsPerSeries": {},
        "Devices": {},
        "MoreDetails": {},
        "ParameterTimes": {},
        "Origin": "debugger_results",
    }
    assert written.pop("Notes") == list(card(outcome.report, "LowGPUUtilization").notes)
    assert written == content
    missing = json.loads((tmp_path / "out/rules/more/BatchSize.json").read_text("utf-8"))
    assert missing.keys() == {*result(), *document.EXTRA_KEYS, "Origin", "Notes"}
    assert missing["Reason"] == "SageMaker Debugger's result not recorded"
    assert [missing[key] for key in ("RuleTriggered", "Violations", "Details", "Datapoints")] == [0, 0, {}, 0]


def test_a_report_of_rule_results_can_be_read_as_rule_results_again(tmp_path: Path) -> None:
    write(tmp_path / "in", {"LowGPUUtilization.json": json.dumps(low("gpu0"))})
    first = pipeline.make_report(tmp_path / "in", tmp_path / "out", Options(formats=["json"]))

    second = pipeline.make_report(tmp_path / "out" / "rules", tmp_path / "again", Options(formats=["json"]))

    assert second.report.rules == first.report.rules


def test_samples_come_first(tmp_path: Path) -> None:
    lines = [sample(at=START + i) for i in range(1100)]
    write(tmp_path / "in", {FILE: lines, "LowGPUUtilization.json": json.dumps(low("gpu0"))})

    report = pipeline.make_report(tmp_path / "in", tmp_path / "out", Options(formats=["json"])).report

    assert report.origin is Origin.SAMPLES
    assert all(one.notes == () for one in report.rules)


def test_page_summary_and_terminal_name_the_source_of_the_numbers(tmp_path: Path) -> None:
    report = built(tmp_path, MaxInitializationTime=job(), LowGPUUtilization=low("gpu0"))

    page = Page.of(sections.head(report).html).text
    for text in (page, summary.markdown(report)):
        assert "SageMaker Debugger" in text


def everything(directory: Path, node: str = "algo-1", gpu: str = "gpu0") -> Report:
    """A report in which every rule says something."""
    other = gpu + "b"
    lower = {node: {gpu: USE | {"gpu_max": 0}, other: USE}}
    spread = {node: {"workloads": {gpu: [1200] + [0] * 48, other: [0] * 20 + [1100] + [0] * 28}}}
    return built(
        directory,
        name=node,
        MaxInitializationTime=job(first=400, last=550),
        OverallSystemUsage=usage(20, node, "algo-2"),
        OverallFrameworkMetrics=result({"phase": {"others": -1.5, node: 101.5}}),
        LowGPUUtilization=low() | {"Details": lower},
        BatchSize=result({node: {"cpu": {}, gpu: {}}}, RuleTriggered=3, Datapoints=1200),
        GPUMemoryIncrease=result(
            {node: {gpu: {"increase": 6, "gpu_max": 50}}}, RuleTriggered=1, Datapoints=1200
        ),
        LoadBalancing=result(spread, Datapoints=1200),
        CPUBottleneck=bottleneck(),
        IOBottleneck=bottleneck(hits=5, triggered=0),
        StepOutlier=outliers([str(i) for i in range(20)]),
        Dataloader=result({"cores": 8, "dataloaders": 1, "num_workers": 3}, RuleTriggered=1, Datapoints=40),
    )


@pytest.mark.parametrize("kind", ["everything", "hostile", "little", "nothing"])
def test_the_page_holds_together(tmp_path: Path, kind: str) -> None:
    report = {
        "everything": lambda: everything(tmp_path),
        "hostile": lambda: everything(tmp_path, HOSTILE, HOSTILE * 20),
        "little": lambda: built(tmp_path, MaxInitializationTime=job()),
        "nothing": lambda: built(tmp_path, LoadBalancing=result()),
    }[kind]()

    html = "".join(call(report).html for call in CALLS)
    page = Page.of(html)

    assert page.faults == []
    assert len(page.ids) == len(set(page.ids))
    assert page.all("img") == []
    assert "\u202e" not in html
    assert {link[1:] for link in page.links if not link.startswith("#i-")} <= set(page.ids)
    assert not re.search(r"\b(nan|inf)\b|=None|: None\b|\\xa0|\\u202f", page.text)
    assert "![" not in summary.markdown(report)
    assert len(summary.markdown(report)) < MAX_CHARACTERS


def test_differences_have_ids_of_their_own_and_three_columns() -> None:
    rows = [line.split("|") for line in differences.page().splitlines() if re.match(r"\| [A-Z]+-\d", line)]
    ids = [row[1].strip() for row in rows]

    assert len(ids) == len(set(ids)) > 50
    assert all(len(row) == 5 and row[2].endswith(". ") for row in rows)
    assert set(re.findall("^## (.+)$", differences.page(), re.MULTILINE)) == {"Every rule", *NAMES}


def test_a_rule_that_triggered_did_so_whatever_its_details_are(tmp_path: Path) -> None:
    damaged: Any = result({"algo-1": 7}, RuleTriggered=3, Violations=3, Datapoints=2000)
    rules = ("CPUBottleneck", "IOBottleneck", "LowGPUUtilization", "BatchSize", "GPUMemoryIncrease")

    report = built(tmp_path, **dict.fromkeys(rules, damaged))

    assert [(card(report, rule).status, card(report, rule).triggered) for rule in rules] == [
        (Status.TRIGGERED, 3)
    ] * len(rules)


@pytest.mark.parametrize("redact", [False, True])
def test_next_to_samples_results_answer_what_these_cannot(tmp_path: Path, redact: bool) -> None:
    write(
        tmp_path / "in",
        {
            FILE: [sample(90, at=START + i) for i in range(200)],
            "StepOutlier.json": json.dumps(outliers([str(i) for i in range(14)])),
            "Dataloader.json": json.dumps(result({"cores": 4, "dataloaders": 1}, Datapoints=5)),
            "LowGPUUtilization.json": json.dumps(low("gpu0")),
        },
    )
    report = pipeline.make_report(
        tmp_path / "in", tmp_path / "out", Options(formats=["json"], redact=redact)
    ).report

    steps = card(report, "StepOutlier")
    assert steps.status is Status.TRIGGERED
    assert steps.notes[0] == "According to SageMaker Debugger's results."
    assert steps.headline.startswith(
        f"14\u00a0steps of {'node-1' if redact else 'algo-1'}-33 (EVAL) were outliers"
    )
    written = json.loads((tmp_path / "out/rules/StepOutlier.json").read_text("utf-8"))
    assert (written["Status"], written["Origin"]) == ("triggered", "debugger_results")
    assert ("algo-1" in json.dumps(written)) is not redact
    # The samples are too few for the rule.
    assert card(report, "LowGPUUtilization").status is Status.TRIGGERED
    # What is too little says more than that it was not recorded.
    assert "11\u00a0s of data loading needed, 5\u00a0s recorded" in str(card(report, "Dataloader").reason)
    lacking = {one.rule for one in report.verdict.not_evaluated}
    assert "StepOutlier" not in lacking
    assert "Dataloader" in lacking
