"""Rule results of SageMaker Debugger and samples of one job: facts of both, by node and metric."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobreport.document import Report
from jobreport.options import Options
from jobreport.output.summary import terminal
from jobreport.page import sections
from jobreport.page.sections.devices import devices as devices_section
from jobreport.page.sections.head import hardware
from jobreport.page.sections.head import head as head_section
from jobreport.pipeline import make_report
from jobrules.model import SECOND_US, ReasonKind, in_words
from tests.captured_jobs import training
from tests.copies import replace
from tests.more_sources import NAMED_PERCENT, causes, lost
from tests.once import slow_but
from tests.report.debugger_report.made_results import CAUSES, Made
from tests.report.page.sections.html import read
from tests.verdicts import found

pytestmark = pytest.mark.usefixtures("without_live_plots")


def all_sections(report: Report) -> str:
    return " ".join(read(one).text for one in sections.page(report).values())


def report_of(made: Made, folder: Path, *sources: str) -> Report:
    return report_in(made.write(folder / "-".join(sources), *sources))


def report_in(job: Path) -> Report:
    options = Options(formats=["json"], force=True, strict=True)
    return make_report(job, job.with_name("out"), options).report


def written(folder: Path, results: dict[str, Any], *rules: str) -> Path:
    """The folder with the results of these rules."""
    for rule in rules:
        (folder / f"{rule}.json").write_text(json.dumps(results[rule]))
    return folder


@pytest.mark.parametrize("cause", slow_but({"cpu-bottleneck", "gpu-never-used"}, CAUSES))
@pytest.mark.parametrize("seed", slow_but(1, [1, 2]))
def test_what_is_found_with_fewer_sources_is_not_lost_with_more(
    tmp_path: Path, cause: str, seed: int
) -> None:
    made, random = Made.of(cause, seed), np.random.default_rng(seed)
    left = ["results", str(random.choice(["gpu", "log"])), str(random.choice(["cpu", "mean"])), "io"]
    more = report_of(made, tmp_path, *left)
    assert causes(more.verdict).get(cause, 0.0) > NAMED_PERCENT

    while len(left) > 1:
        left.remove(str(random.choice(left)))
        fewer = report_of(made, tmp_path, *left)
        assert [*lost(fewer, more)] == [], left
        if "results" in left:
            # Without the number of cores, a saturated CPU is some cores.
            known = causes(fewer.verdict)
            coarse = known.get("saturated-process", 0.0) if cause == "cpu-bottleneck" else 0.0
            assert max(known.get(cause, 0.0), coarse) > NAMED_PERCENT, left
        more = fewer


@pytest.mark.parametrize("cpu", ["cpu", "mean"])
def test_gpus_of_results_are_those_of_a_job_with_samples_of_its_cores(tmp_path: Path, cpu: str) -> None:
    """Was: 1 node, no GPU, and a share of CPU time."""
    made = Made.of("gpu-never-used", 3)
    report = report_of(made, tmp_path, "results", cpu)
    (node,) = report.job.nodes

    assert (node.name, node.gpus) == (made.node, len(made.job.panels[0].devices))
    assert report.verdict.main_finding is not None
    assert report.verdict.main_finding.key == "gpu-never-used"
    assert "no GPU" not in hardware(report)
    assert "according to SageMaker Debugger" in terminal(report)[1]
    page = all_sections(report)
    assert "no GPU was sampled" not in page
    assert "GPU utilization was not recorded" not in page


def test_not_recorded_is_what_no_source_has(tmp_path: Path) -> None:
    """Was: record CPU utilization per core and I/O wait next; no steps were recorded."""
    made = Made.of("data-loading", 4)
    report = report_of(made, tmp_path, "results", "gpu")
    page = all_sections(report)

    assert report.job.steps == len(made.job.steps)
    assert f"{report.job.steps:,} step events" in read(head_section(report)).text
    for words in (
        "o steps were recorded",
        "Steps and events were not recorded",
        "No trace of the data loader",
    ):
        assert words not in page
    for one in report.verdict.not_evaluated:
        recorded = one.reason.what in ("I/O wait", "CPU utilization", "steps", "loader events")
        assert not recorded or one.reason.kind is not ReasonKind.NOT_RECORDED
    assert all("Not recorded" not in in_words(one.evidence) for one in report.verdict.findings)


def test_a_mean_of_the_cores_is_that_of_as_many_as_the_results_name(tmp_path: Path) -> None:
    """Was: 1 core, next to a finding on all of them; core-hours of one."""
    made = Made.of("data-loading", 5)
    folder = made.write(tmp_path / "job", "mean")
    report = report_in(written(folder, made.results(), "Dataloader", "MaxInitializationTime"))

    assert [node.cores for node in report.job.nodes] == [made.cores]
    assert report.verdict.use is not None
    length_h = (report.job.end_us - report.job.start_us) / 3.6e9
    assert report.verdict.use.hours == pytest.approx(made.cores * length_h, rel=0.01)
    assert f"Mean of {made.cores} cores: " in read(devices_section(report)).text


def test_a_rule_is_answered_by_results_where_the_work_is_too_short(tmp_path: Path) -> None:
    """Was: 0 of 17 rules triggered, where the results say that one did."""
    made = Made.of("data-loading", 6)
    results = made.results()
    results["LowGPUUtilization"]["Details"] = {
        made.node: {
            "gpu0": {"gpu_max": 96, "gpu_95": 66, "gpu_5": 0} | dict.fromkeys(("p25", "p50", "p95"), 1)
        }
    }
    results["LowGPUUtilization"] |= {"RuleTriggered": 3, "Violations": 3, "Datapoints": 1001}
    first = made.job.panels[0].time_us[0]
    short = replace(made, job=made.job.within({made.node: (first, first + 300_000_000)}))
    folder = short.write(tmp_path / "job", "gpu")
    report = report_in(written(folder, results, "LowGPUUtilization"))
    card = report.card("LowGPUUtilization")

    assert card is not None
    assert card.status == "triggered"
    assert card.notes[0] == "According to SageMaker Debugger's results."
    # That of a window is no p95 of the job.
    assert (
        card.headline
        == f"{card.headline.partition(' had')[0]} had low utilization, p95 66.0% in the last window"
    )
    assert any("low or fluctuating" in in_words(one.evidence) for one in report.verdict.findings)


def test_listed_stalls_name_their_source(tmp_path: Path) -> None:
    report = report_of(Made.of("saturated-process", 7), tmp_path, "results", "gpu")
    words = in_words(found(report.verdict, "saturated-process").evidence)

    assert "Inferred from SageMaker Debugger's results: entries of CPUBottleneck." in words
    assert "while GPUs were active, too, is not recorded" in words


@pytest.mark.parametrize("seed", [8, 9])
def test_fetches_that_fill_the_time_between_steps_are_waits(tmp_path: Path, seed: int) -> None:
    """Was: no cause found, with a fetch of 7.4 s and 47 steps, of which the results keep no times."""
    made = Made.of("data-loading", seed)
    folder = made.write(tmp_path / "job", "gpu")
    report = report_in(written(folder, made.results(), "Dataloader", "MaxInitializationTime"))

    waited = found(report.verdict, "data-loading")
    assert waited is report.verdict.main_finding
    loop = len(made.job.steps) * made.each_s * SECOND_US / (report.job.end_us - report.job.start_us)
    assert waited.share == pytest.approx(loop * made.fetch_s / made.each_s, abs=0.05)


def test_nodes_without_samples_are_those_of_the_results(tmp_path: Path) -> None:
    """Was: the nodes without samples were not there."""
    made = Made.of("cpu-bottleneck", 10)
    others = [replace(panel, node="other-1") for panel in made.job.panels]
    both = replace(made, job=replace(made.job, panels=(*made.job.panels, *others)))
    folder = made.write(tmp_path / "job", "gpu", "cpu", "io")
    both.write(folder, "results")
    report = report_in(folder)
    gpus = len(made.job.panels[0].devices)

    assert [(node.name, node.gpus) for node in report.job.nodes] == [(made.node, gpus), ("other-1", gpus)]
    assert report.verdict.use is not None
    assert report.verdict.use.count == 2 * gpus
    assert "according to samples and SageMaker Debugger" in terminal(report)[1]
    assert causes(report.verdict)["cpu-bottleneck"] > NAMED_PERCENT


@pytest.mark.parametrize(
    ("named", "cause"),
    slow_but(
        {("both", "io-bottleneck"), ("one", "cpu-bottleneck"), ("neither", "saturated-process")},
        product(("both", "one", "neither"), ("saturated-process", "io-bottleneck", "cpu-bottleneck")),
    ),
)
def test_listed_stalls_are_not_laid_on_nodes_that_they_may_not_be_of(
    tmp_path: Path, cause: str, named: str
) -> None:
    """Was: causes on the GPUs of each node."""
    made = Made.of(cause, 14)
    other = [
        replace(panel, node="other-1", values=panel.values if panel.metric.of_gpus else 0.1 * panel.values)
        for panel in made.job.panels
    ]
    folder = made.write(tmp_path / "job", "gpu")
    replace(made, node="other-1", job=replace(made.job, panels=tuple(other))).write(folder, "gpu")
    nodes = {"both": (made.node, "other-1"), "one": (made.node,), "neither": ("algo-7",)}[named]
    known = [panel for panel in (*made.job.panels, *other) if panel.node in nodes] or [
        replace(panel, node="algo-7") for panel in made.job.panels
    ]
    replace(made, job=replace(made.job, panels=tuple(known))).write(folder, "results")
    report = report_in(folder)

    assert not {"saturated-process", "io-bottleneck", "cpu-bottleneck"} & {*causes(report.verdict)}
    words = " ".join(in_words(one.evidence) for one in report.verdict.findings)
    # The results have it, whosever it is.
    assert "I/O wait" not in words.partition("Not recorded")[2].partition(".")[0]


def test_a_mean_of_the_cores_does_not_stand_against_listed_ones(tmp_path: Path) -> None:
    """Was: 0 of 1,465 snapshots are CPU bottlenecks, next to 594 of the results."""
    made = Made.of("saturated-process", 11)
    report = report_of(made, tmp_path, "results", "gpu", "mean")
    card = report.card("CPUBottleneck")

    assert card is not None
    assert card.violations == made.results()["CPUBottleneck"]["Violations"] > 0
    assert card.notes[0] == "According to SageMaker Debugger's results."
    assert not [one for one in report.bottlenecks if one.key == "cpu"]


def test_results_beside_traces_speak_of_the_job(tmp_path: Path) -> None:
    """Was: nothing is known of the rest of the job."""
    made = Made.of("data-loading", 12)
    folder = made.write(tmp_path / "job", "results")
    (folder / "rank0.pt.trace.json").write_bytes(training("data loading", 0.3).text())
    report = report_in(folder)
    alone = report_of(made, tmp_path, "results")

    assert [*lost(alone, report)] == []
    assert report.verdict.profiled
    assert "according to SageMaker Debugger" in terminal(report)[1]
    assert "only PyTorch traces were recorded" not in all_sections(report)


@pytest.mark.parametrize("cpu", ["cpu", "mean"])
def test_cores_that_steps_of_results_leave_free(tmp_path: Path, cpu: str) -> None:
    """Without GPUs, and without fetches."""
    made = Made.of("saturated-process", 13)
    only_cpus = replace(made.job, panels=made.job.panels[1:])
    made = replace(made, job=only_cpus)
    alone = report_of(made, tmp_path, "results")
    report = report_of(made, tmp_path, "results", cpu)
    words = found(report.verdict, "free-cores").title

    assert [*lost(alone, report)] == []
    assert found(alone.verdict, "free-cores")
    # Nothing names the cores of a mean.
    assert (f"of {made.cores}\u00a0cores were" if cpu == "cpu" else "of CPU time was") + " free" in words
    assert "a step takes" in words


def test_low_use_of_results_is_told_once_beside_samples_of_the_cores(tmp_path: Path) -> None:
    """Was: the small batch a second time, by itself, where the results alone have it in the finding on low use."""
    made = Made.of("data-loading", 15)
    known = made.results()
    del known["LoadBalancing"]
    gpus = {
        f"gpu{i}": {"gpu_max": 50, "gpu_95": 5, "gpu_5": 0} for i in range(len(made.job.panels[0].devices))
    }
    known["LowGPUUtilization"] |= {"Details": {made.node: gpus}, "RuleTriggered": 2, "Violations": 2}
    known["BatchSize"] |= {"RuleTriggered": 2, "Violations": 2}
    folder = made.write(tmp_path / "job", "cpu")
    for rule, one in known.items():
        (folder / f"{rule}.json").write_text(json.dumps(one))
    report = report_in(folder)

    low = found(report.verdict, "low-gpu-utilization")
    assert low.rules == ("LowGPUUtilization", "BatchSize")
    assert sum("BatchSize" in one.rules for one in report.verdict.findings) == 1


def test_a_fetch_whose_share_is_not_known_clears_nobody(tmp_path: Path) -> None:
    """Was: recorded, and not the cause: data loading, of a single fetch without any step."""
    made = Made.of("data-loading", 16)
    folder = made.write(tmp_path / "job", "gpu")
    (folder / "Dataloader.json").write_text(json.dumps(made.results()["Dataloader"]))
    report = report_in(folder)
    words = in_words(found(report.verdict, "unexplained").evidence)

    assert "data loading" not in words
    assert "steps" in words.partition("Not recorded")[2]
