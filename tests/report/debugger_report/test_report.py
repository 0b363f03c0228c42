"""The cards, findings, and files of rule results alone; and what they answer next to samples."""

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
from jobreport.document import Origin, Report
from jobreport.headline import headline
from jobreport.markdown import MAX_CHARACTERS
from jobreport.options import Options
from jobreport.output import summary
from jobreport.page import sections
from jobreport.readers.debugger_results.rule_results import NAMES
from jobreport.remarks import Quality
from jobrules.model import Job, ReasonKind, RuleResult, Severity, Status, in_words
from jobrules.rule import Rule, run_rules
from jobrules.rules.low_gpu_utilization import LowGPUUtilization
from jobrules.verdict.not_evaluated import by_reason
from tests.jobs import make_job
from tests.report.debugger_report.written_results import START, bottlenecks, built, card, micros, times, usage
from tests.report.page.sections.html import Page
from tests.report.readers.debugger_results.test_rule_results import result
from tests.report.readers.samples import FILE, sample, write
from tests.verdicts import found

HOSTILE = '</script><img src=x onerror="alert(1)">\u202e\n`code` *bold*'
FIGURES = ("gpu_max", "gpu_95", "gpu_5", "p25", "p50", "p75", "p95", "upper", "lower")
USE = dict(zip(FIGURES, (90, 40, 0, 0, 5, 20, 40, 50, 0), strict=True))
NEVER = dict.fromkeys(FIGURES, 0)
HARDLY = NEVER | {"gpu_max": 8}


def low(triggered: int = 4, **gpus: dict[str, int]) -> dict[str, Any]:
    details = {"algo-1": gpus, "last_timestamp": micros(540)}
    parameters = "threshold_p95:70\nthreshold_p5:10\nwindow:500\npatience:1000"
    counters = {"RuleTriggered": triggered, "Violations": triggered}
    return result(details, Datapoints=1200, RuleParameters=parameters, **counters)


def small(*gpus: str, triggered: int = 4) -> dict[str, Any]:
    return result({"algo-1": {name: {} for name in ("cpu", *gpus)}}, RuleTriggered=triggered, Datapoints=1200)


def workloads(**gpus: list[int]) -> dict[str, Any]:
    content = {"Datapoints": 1200, "RuleParameters": "threshold:0.2\npatience:1000"}
    return result({"algo-1": {"workloads": gpus}}, **content)


def bottleneck(hits: int = 900, datapoints: int = 1200, triggered: int = 2) -> dict[str, Any]:
    content = bottlenecks(range(3), Datapoints=datapoints, RuleTriggered=triggered, Violations=hits)
    content["Details"]["low_gpu_utilization"] = 1000
    return content


def outliers(numbers: list[str], triggered: int = 3, datapoints: int = 2159) -> dict[str, Any]:
    stats = {"mean": 0.05, "max": 8.74, "p50": 0.021}
    series = {"step_stats": stats, "number_of_outliers": len(numbers), "step_numbers": numbers}
    series["phase"] = "Step:ModeKeys.EVAL"
    details = {"step_details": {"algo-1-33": series}} if numbers else {}
    content = {"Datapoints": datapoints, "RuleParameters": "threshold:3\nmode:None\nn_outliers:10\nstddev:3"}
    return result(details, RuleTriggered=triggered, Violations=38, **content)


def loading(triggered: int, datapoints: int, loaders: int) -> dict[str, Any]:
    details = {"cores": 4, "dataloaders": loaders, "num_workers": 0}
    return result(details, RuleTriggered=triggered, Datapoints=datapoints)


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


def test_every_rule_has_a_card_and_missing_files_are_said(tmp_path: Path) -> None:
    report = built(tmp_path, own=(Own(),), MaxInitializationTime=times(60, 500))

    others = [one for one in report.rules if one.name != "MaxInitializationTime"]
    assert {one.status for one in others} == {Status.NOT_EVALUATED}
    assert {one.name for one in report.rules} >= set(NAMES)
    of_debugger = {str(one.reason or "") for one in others if one.name in NAMES}
    assert of_debugger == {"SageMaker Debugger's result not recorded"}
    # A rule that SageMaker Debugger does not have checks nothing.
    assert str(card(report, "Own").reason or "") == "samples not recorded"
    assert all(one.notes == () for one in others)
    assert [u.rule for u in report.verdict.not_evaluated] == [
        one.name for one in others if one.can_trigger and one.section not in {"learning", "trees"}
    ]
    assert report.origin is Origin.DEBUGGER_RESULTS
    assert "SageMaker Debugger" in Page.of(sections.head(report).html).text
    assert "SageMaker Debugger" in summary.markdown(report)


def test_a_result_that_cannot_be_read_costs_its_own_card_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("</script>")

    monkeypatch.setitem(debugger_rules._ANSWERS, "BatchSize", fail)
    content = {"BatchSize.json": json.dumps(result()), "OverallSystemUsage.json": json.dumps(usage())}
    write(tmp_path / "in", content)

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
    report = built(tmp_path, MaxInitializationTime=times(60, 500, end=600))

    seconds = [(p.key, (p.end_us - p.start_us) / 1e6, p.percent) for p in report.phases.phases]
    assert seconds == [("before", 60, 10.0), ("loop", 440, 73.3), ("after", 100, 16.7)]
    assert report.phases.basis == "steps"
    assert report.job.start_us == START * 1e6


def test_a_job_without_times_says_so(tmp_path: Path) -> None:
    report = built(tmp_path, OverallSystemUsage=usage())

    assert report.job.end_us == 0
    assert "1970" not in Page.of(
        "".join(one.html for one in sections.page(report).values())
    ).text + summary.markdown(report)


PASSED, NOT_EVALUATED, TRIGGERED = Status.PASSED, Status.NOT_EVALUATED, Status.TRIGGERED
IDLE, OTHER = [10] + [0] * 48, [0] * 20 + [1100] + [0] * 28

#: A rule, its result, and what its card says: whether it was evaluated, or why not.
ANSWERS: list[tuple[str, dict[str, Any], Status, str]] = [
    (
        "LowGPUUtilization",
        low(0) | {"Datapoints": 1000},
        NOT_EVALUATED,
        "1,001 samples needed, 1,000 recorded",
    ),
    ("LowGPUUtilization", low(0) | {"Datapoints": 0}, NOT_EVALUATED, "1,001 samples needed, 0 recorded"),
    ("LowGPUUtilization", low(0) | {"Datapoints": 1001}, PASSED, ""),
    ("CPUBottleneck", bottleneck(0, 1000, 0), NOT_EVALUATED, "1,001 samples needed, 1,000 recorded"),
    ("CPUBottleneck", bottleneck(0, 1001, 0), PASSED, ""),
    ("IOBottleneck", bottleneck(1201), NOT_EVALUATED, "the counters contradict each other"),
    ("LoadBalancing", workloads(gpu0=OTHER), NOT_EVALUATED, "every node has 1 GPU"),
    ("LoadBalancing", workloads(gpu0=IDLE, gpu1=IDLE), NOT_EVALUATED, "comparison of GPUs not recorded"),
    ("StepOutlier", outliers([], 0, 0), NOT_EVALUATED, "steps not recorded"),
    ("StepOutlier", outliers([], 0, 100), NOT_EVALUATED, "101 steps needed, 100 recorded"),
    ("StepOutlier", outliers([], 0, 5000), NOT_EVALUATED, "no rank has 101 steps of one mode"),
    ("StepOutlier", outliers(["1"], 0, 5000), PASSED, ""),
    ("Dataloader", loading(0, 0, 1), NOT_EVALUATED, "loader events not recorded"),
    ("Dataloader", loading(0, 10, 1), NOT_EVALUATED, "11 s of data loading needed, 10 s recorded"),
    ("Dataloader", loading(0, 50, 1), NOT_EVALUATED, "time of data loading not recorded"),
    ("Dataloader", loading(0, 40, 4), NOT_EVALUATED, "11 s of data loading needed, 10 s recorded"),
    ("Dataloader", loading(0, 41, 4), PASSED, ""),
    ("Dataloader", loading(1, 11, 1), TRIGGERED, ""),
    ("MaxInitializationTime", times(), NOT_EVALUATED, "steps not recorded"),
    ("MaxInitializationTime", times(1260, 7200, end=7260), PASSED, ""),
    ("MaxInitializationTime", times(1261, 7200, end=7260), TRIGGERED, ""),
    *(
        # A rule that triggered did so whatever its details are.
        (rule, result({"algo-1": 7}, RuleTriggered=3, Violations=3, Datapoints=2000), TRIGGERED, "")
        for rule in ("CPUBottleneck", "IOBottleneck", "LowGPUUtilization", "BatchSize", "GPUMemoryIncrease")
    ),
]


@pytest.mark.parametrize(("rule", "content", "status", "reason"), ANSWERS)
def test_a_rule_is_evaluated_if_its_result_is_an_answer(
    tmp_path: Path, rule: str, content: dict[str, Any], status: Status, reason: str
) -> None:
    report = built(tmp_path, **({"OverallSystemUsage": usage()} | {rule: content}))

    one = card(report, rule)
    assert (one.status, str(one.reason or "").replace("\u00a0", " ")) == (status, reason)
    assert any(rule in finding.rules for finding in report.verdict.findings) is (status is TRIGGERED)


@given(tenths=st.integers(0, 400), waited=st.integers(1, 3000))
@example(tenths=212, waited=21 * 60 + 28)
def test_the_first_step_is_compared_once_per_minute_as_in_jobrules(
    tmp_path_factory: pytest.TempPathFactory, tenths: int, waited: int
) -> None:
    content = times(waited, 7200, end=7260) | {"RuleParameters": f"threshold:{tenths / 10}"}

    report = built(tmp_path_factory.mktemp("mit"), MaxInitializationTime=content)

    # Minute k after the start is past the limit, and the step is still to come.
    late = any(600 * k > 60 * tenths and 60 * k < waited for k in range(1, 100))
    assert (card(report, "MaxInitializationTime").status is Status.TRIGGERED) == late


def test_without_a_gpu_no_rule_on_gpus_passes(tmp_path: Path) -> None:
    none = result({"low_gpu_utilization": 0, "bottlenecks": {}}, Datapoints=5000)
    about_gpus = {
        "LowGPUUtilization": low(0) | {"Datapoints": 0},
        "BatchSize": result(Datapoints=5000),
        "GPUMemoryIncrease": result(Datapoints=0),
        "CPUBottleneck": none,
        "IOBottleneck": none,
        "LoadBalancing": result(Datapoints=0),
    }
    report = built(tmp_path, OverallSystemUsage=usage(None, (30, 40, 60)), **about_gpus)

    assert {str(card(report, rule).reason or "") for rule in about_gpus} == {"no GPU was sampled"}
    assert re.search(r"30\.0.*CPU", headline(report).second)


@pytest.mark.parametrize(
    ("gpu", "kind"), [(None, ReasonKind.NOT_APPLICABLE), ((20, 30, 40), ReasonKind.NOT_RECORDED)]
)
def test_rules_on_gpus_do_not_apply_to_a_job_without_and_all_reasons_have_a_kind(
    tmp_path: Path, gpu: tuple[float, float, float] | None, kind: ReasonKind
) -> None:
    report = built(
        tmp_path, OverallSystemUsage=usage(gpu), StepOutlier=result(Datapoints=40), LoadBalancing=result()
    )

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
        MaxInitializationTime=times(60, 500, end=600),
        LowGPUUtilization=low(gpu0=USE, gpu10=USE, gpu2=USE),
    )

    one = found(report.verdict, "low-gpu-utilization")
    assert one.title == "All 3\u00a0GPUs had low utilization, p95 40.0% in the last window"
    assert one.devices == ("algo-1/gpu0", "algo-1/gpu10", "algo-1/gpu2")
    assert [(box.device, box.p50, box.mean, box.n) for box in report.boxes] == [
        (gpu, 5, None, None) for gpu in ("gpu0", "gpu2", "gpu10")
    ]
    # 600 s of 1200 samples, the first 1000 of them patience: two checks of each GPU.
    assert "4\u00a0times in about 6\u00a0checks" in in_words(one.evidence)
    assert one.severity is Severity.CRITICAL
    assert card(report, "LowGPUUtilization").notes == differences.notes("LGU-1", "LGU-4")
    assert "triggered 4, violations 4, data points 1,200" in Page.of(sections.rules(report).html).text


#: GPUs of LowGPUUtilization, those of BatchSize, other results; and of each finding its key, rules, and GPUs.
GPUS_OF_FINDINGS: list[tuple[dict[str, Any], dict[str, Any], list[tuple[str, str, str]]]] = [
    # Low use of everything is that of the GPU, if it was counted half as often.
    ({"gpu0": USE}, small("gpu0", "gpu0_memory", triggered=2), [("low-gpu-utilization", "LB", "0")]),
    (
        {"gpu0": USE},
        small("gpu0", triggered=1),
        [("low-gpu-utilization", "L", "0"), ("batch-size", "B", "0")],
    ),
    # GPUs that were never used are one finding, and no low ones.
    ({"gpu0": NEVER}, small("gpu0"), [("gpu-never-used", "LB", "0")]),
    ({"gpu0": NEVER, "gpu1": NEVER}, small("gpu0", "gpu1"), [("gpu-never-used", "LB", "01")]),
    (
        {"gpu0": USE, "gpu1": NEVER},
        small("gpu1"),
        [("gpu-never-used", "B", "1"), ("low-gpu-utilization", "L", "0")],
    ),
    (
        {"gpu0": USE, "gpu1": NEVER},
        small("gpu0", "gpu1"),
        [("gpu-never-used", "", "1"), ("low-gpu-utilization", "LB", "0")],
    ),
]


@pytest.mark.parametrize(("gpus", "batches", "expected"), GPUS_OF_FINDINGS)
@pytest.mark.parametrize("crowded", [False, True])
def test_findings_on_the_same_gpus_are_one(
    tmp_path: Path,
    gpus: dict[str, Any],
    batches: dict[str, Any],
    expected: list[tuple[str, str, str]],
    crowded: bool,
) -> None:
    """With never-used GPUs, how often a GPU was idle while a core was saturated says less."""
    more = {"CPUBottleneck": bottleneck(hits=1199)} if crowded else {}
    report = built(tmp_path, LowGPUUtilization=low(**gpus), BatchSize=batches, **more)

    rest = [one for one in report.verdict.findings if one.key != "cpu-bottleneck"]
    names = {"L": "LowGPUUtilization", "B": "BatchSize"}
    assert [(one.key, one.rules, one.devices) for one in rest] == [
        (key, tuple(names[rule] for rule in rules), tuple(f"algo-1/gpu{gpu}" for gpu in which))
        for key, rules, which in expected
    ]
    if never := [one for one in rest if one.key == "gpu-never-used"]:
        assert report.verdict.findings[0] is never[0]
        assert never[0].severity is Severity.CRITICAL
        assert "gpu1" not in in_words(rest[-1].evidence) or len(rest) == 1


def test_never_used_gpus_have_the_title_and_the_advice_of_samples(tmp_path: Path) -> None:
    report = built(tmp_path, LowGPUUtilization=low(gpu0=NEVER))
    rules = [LowGPUUtilization()]
    idle = make_job(gpu=[0.0] * 1500)
    samples = build.build_report(idle, Quality(), rules, run_rules(rules, idle, strict=True), "")

    one, other = (found(verdict, "gpu-never-used") for verdict in (report.verdict, samples.verdict))
    assert one.advice == other.advice
    assert other.title.startswith(one.title)
    assert card(report, "LowGPUUtilization").headline == one.title


@pytest.mark.parametrize(("gpus", "some"), [((USE, HARDLY), True), ((HARDLY, HARDLY), False)])
def test_almost_unused_gpus_need_no_larger_batches(
    tmp_path: Path, gpus: tuple[dict[str, int], dict[str, int]], some: bool
) -> None:
    content = low(gpu0=gpus[0], gpu1=gpus[1])
    report = built(tmp_path, LowGPUUtilization=content, BatchSize=small("gpu1"))

    assert ["almost unused" in " ".join(one.advice) for one in report.verdict.findings] == [some]


def test_a_bottleneck_is_judged_by_its_share(tmp_path: Path) -> None:
    report = built(tmp_path, OverallSystemUsage=usage(), CPUBottleneck=bottleneck(hits=900))

    one = card(report, "CPUBottleneck")
    assert (one.status, one.evaluated, one.violating, one.severity) == (Status.TRIGGERED, 1200, 900, 0.75)
    assert (one.first_us, one.last_us) == (START * 1e6, (START + 2) * 1e6)
    assert one.measure is not None
    assert (one.measure.value, one.measure.limits) == (75.0, (50,))
    seen = found(report.verdict, "cpu-bottleneck")
    assert seen.severity is Severity.CRITICAL
    assert "in 1,000, 90.0% of them" in in_words(seen.evidence)


def test_a_jump_of_memory_activity_is_info(tmp_path: Path) -> None:
    details = {"algo-1": {"gpu0": {"increase": 5.3, "gpu_max": 39}}, "last_timestamp": micros(0)}
    report = built(tmp_path, GPUMemoryIncrease=result(details, RuleTriggered=4, Datapoints=4525))

    one = found(report.verdict, "gpu-memory-increase")
    assert one.severity is Severity.INFO
    assert "algo-1 gpu0 by 5.3 points" in in_words(one.evidence)


def slow_distance(p: list[int], q: list[int]) -> float:
    """Jensen-Shannon distance from its definition."""
    a, b = [x / sum(p) for x in p], [x / sum(q) for x in q]
    m = [(x + y) / 2 for x, y in zip(a, b, strict=True)]
    to_middle = [sum(x * math.log(x / y) for x, y in zip(one, m, strict=True) if x > 0) for one in (a, b)]
    return math.sqrt(max(0.0, sum(to_middle)) / 2)


bins = st.lists(st.integers(0, 2000), min_size=49, max_size=49).filter(lambda counts: sum(counts) > 1000)


@given(gpus=st.lists(bins, min_size=2, max_size=4))
def test_balance_is_never_passed_and_its_histograms_are_read(
    tmp_path_factory: pytest.TempPathFactory, gpus: list[list[int]]
) -> None:
    named = {f"gpu{i}": counts for i, counts in enumerate(gpus)}

    report = built(tmp_path_factory.mktemp("lb"), LoadBalancing=workloads(**named))

    one = card(report, "LoadBalancing")
    assert one.status is Status.NOT_EVALUATED
    worst = max(slow_distance(p, q) for i, p in enumerate(gpus) for q in gpus[:i])
    assert float(re.findall(r"distance (\d\.\d\d)", one.notes[-1])[0]) == pytest.approx(worst, abs=6e-3)
    findings = [(finding.key, finding.rules) for finding in report.verdict.findings]
    assert findings == [("load-balancing", ())] * (worst > 0.2)


def test_samples_missing_from_the_histograms_are_in_the_evidence(tmp_path: Path) -> None:
    idle, busy = [1200] + [0] * 48, [0] * 48 + [1080]
    report = built(tmp_path, LoadBalancing=workloads(gpu0=idle, gpu1=busy))

    assert "10.0% of a GPU's samples" in in_words(found(report.verdict, "load-balancing").evidence)


@pytest.mark.parametrize(
    ("numbers", "severity", "title", "evidence"),
    [
        # Counted twice.
        (
            [str(i // 2) for i in range(14)],
            Severity.INFO,
            "7\u00a0steps of algo-1-33 (EVAL)",
            "(threshold 10)",
        ),
        (
            [str(i) for i in range(14)],
            Severity.WARNING,
            "took 8.7\u00a0s, the median 21\u00a0ms",
            "counts 14",
        ),
        (["1"], Severity.INFO, "", "another mode"),
    ],
)
def test_long_steps_are_named_as_far_as_the_result_has_them(
    tmp_path: Path, numbers: list[str], severity: Severity, title: str, evidence: str
) -> None:
    one = found(built(tmp_path, StepOutlier=outliers(numbers)).verdict, "step-outlier")

    assert one.severity is severity
    assert title in one.title
    assert evidence in in_words(one.evidence)


def test_a_late_start_is_the_finding_of_samples(tmp_path: Path) -> None:
    report = built(tmp_path, MaxInitializationTime=times(400, 550, end=600))

    assert found(report.verdict, "late-first-step").share == pytest.approx(400 / 600)


def test_thresholds_are_those_of_the_results_next_to_the_defaults(tmp_path: Path) -> None:
    content = low(gpu0=USE) | {"RuleParameters": "patience:500\nthreshold_p95:60.5\nnew:x"}

    parameters = card(built(tmp_path, LowGPUUtilization=content), "LowGPUUtilization").parameters

    assert [(p.name, p.value, p.default, p.unit) for p in parameters] == [
        ("patience", 500, 1000, "samples"),
        ("threshold_p95", 60.5, 70, "%"),
        ("new", "x", "x", ""),
    ]


def test_the_documents_are_written_again_with_extra_keys_and_can_be_read_again(tmp_path: Path) -> None:
    content = low(gpu0=USE) | {"Extra": {"kept": [1, None, "é"]}}
    write(tmp_path / "in", {"x/profiler-reports/LowGPUUtilization.json": json.dumps(content)})

    outcome = pipeline.make_report(tmp_path / "in", tmp_path / "out", Options(formats=["json", "md"]))

    rules = tmp_path / "out/rules"
    assert {path.stem for path in rules.rglob("*.json")} == {one.name for one in outcome.report.rules}
    written = json.loads((rules / "LowGPUUtilization.json").read_text("utf-8"))
    extra = {key: written.pop(key) for key in (*document.EXTRA_KEYS, "Origin", "Notes")}
    notes = list(card(outcome.report, "LowGPUUtilization").notes)
    given = {"Status": "triggered", "Origin": "debugger_results", "Notes": notes}
    assert {key: value for key, value in extra.items() if value not in ("", 0, {})} == given
    assert written == content
    missing = json.loads((rules / "more/BatchSize.json").read_text("utf-8"))
    assert missing.keys() == {*result(), *document.EXTRA_KEYS, "Origin", "Notes"}
    assert missing["Reason"] == "SageMaker Debugger's result not recorded"
    assert [missing[key] for key in ("RuleTriggered", "Violations", "Details", "Datapoints")] == [0, 0, {}, 0]
    again = pipeline.make_report(rules, tmp_path / "again", Options(formats=["json"]))
    assert again.report.rules == outcome.report.rules


def everything(directory: Path, node: str = "algo-1", gpu: str = "gpu0") -> Report:
    """A report in which every rule says something."""
    other = gpu + "b"
    lower = {node: {gpu: USE | {"gpu_max": 0}, other: USE}}
    spread = {node: {"workloads": {gpu: [1200] + [0] * 48, other: OTHER}}}
    return built(
        directory,
        name=node,
        MaxInitializationTime=times(400, 550, end=600),
        OverallSystemUsage=usage((20, 30, 50), (30, 40, 60), **{node: (20, 30, 50), "algo-2": (20, 30, 50)}),
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
        "little": lambda: built(tmp_path, MaxInitializationTime=times(60, 500)),
        "nothing": lambda: built(tmp_path, LoadBalancing=result()),
    }[kind]()

    html = "".join(one.html for one in sections.page(report).values())
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
    sections = set(re.findall("^## (.+)$", differences.page(), re.MULTILINE))
    assert sections == {"Every rule", *NAMES, "Rules on the training itself", "The library"}


def test_samples_come_first(tmp_path: Path) -> None:
    lines = [sample(at=START + i) for i in range(1100)]
    write(tmp_path / "in", {FILE: lines, "LowGPUUtilization.json": json.dumps(low(gpu0=USE))})

    report = pipeline.make_report(tmp_path / "in", tmp_path / "out", Options(formats=["json"])).report

    assert report.origin is Origin.SAMPLES
    assert all(one.notes == () for one in report.rules)


@pytest.mark.parametrize("redact", [False, True])
def test_next_to_samples_results_answer_what_these_cannot(tmp_path: Path, redact: bool) -> None:
    results = {
        "StepOutlier": outliers([str(i) for i in range(14)]),
        "Dataloader": result({"cores": 4, "dataloaders": 1}, Datapoints=5),
        "LowGPUUtilization": low(gpu0=USE),
    }
    files: dict[str, Any] = {f"{rule}.json": json.dumps(one) for rule, one in results.items()}
    write(tmp_path / "in", files | {FILE: [sample(90, at=START + i) for i in range(200)]})
    options = Options(formats=["json"], redact=redact)
    report = pipeline.make_report(tmp_path / "in", tmp_path / "out", options).report

    steps = card(report, "StepOutlier")
    assert steps.status is Status.TRIGGERED
    assert steps.notes[0] == "According to SageMaker Debugger's results."
    assert f"steps of {'node-1' if redact else 'algo-1'}-33 (EVAL) were outliers" in steps.headline
    written = json.loads((tmp_path / "out/rules/StepOutlier.json").read_text("utf-8"))
    assert (written["Status"], written["Origin"]) == ("triggered", "debugger_results")
    assert ("algo-1" in json.dumps(written)) is not redact
    # The samples are too few for the rule.
    assert card(report, "LowGPUUtilization").status is Status.TRIGGERED
    # What is too little says more than that it was not recorded.
    assert "11\u00a0s of data loading needed" in str(card(report, "Dataloader").reason)
    lacking = {one.rule for one in report.verdict.not_evaluated}
    assert "StepOutlier" not in lacking
    assert "Dataloader" in lacking
