"""Jobs on which an earlier verdict was wrong, made small; each test says how.

Jobs of which only rule results of SageMaker Debugger are left are in tests/report/debugger_report/test_account.py.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from jobreport.build import build_report
from jobreport.document import Report
from jobreport.output import summary
from jobreport.page.sections import findings as findings_section
from jobreport.page.sections import verdict as verdict_section
from jobreport.remarks import Quality
from jobrules import RULES
from jobrules.model import Job, JobInMemory, Loader, LoopFacts, Severity, in_words
from jobrules.rule import run_rules
from jobrules.verdict.phases import job_phases
from tests.jobs import START_US, make_events, make_job, make_steps
from tests.report.page.sections.html import read
from tests.verdicts import found, keys, parts, verdict_of


def report_of(job: Job) -> Report:
    rules = [rule() for rule in RULES]
    results = run_rules(rules, job, strict=True)
    return build_report(job, Quality(), rules, results, "make-report", strict=True)


def page_of(report: Report) -> str:
    """All that page, summary, and terminal say of the verdict."""
    page = read(verdict_section(report)).text + read(findings_section(report)).text
    return " ".join([page, summary.markdown(report), *summary.terminal(report)]).replace("\u00a0", " ")


def stalls_at_the_edges(n: int = 3600) -> Job:
    """Busy for 53 minutes; before and after a GPU idles beside a full core, or one that waits for a disk."""
    second = np.arange(n)
    edge = (second < 420) | (second >= n - 120)
    gpu = np.where(edge, 0.0, 95.0 + second % 4)
    gpu[400] = 1.0
    cpu = np.where(edge[:, None], [99.0] + [10.0] * 7, 30.0)
    return make_job(gpu=gpu, cpu=cpu, io_wait=cpu, interval_s=1)


def test_a_bottlenecks_before_and_after_the_work_are_no_cause() -> None:
    """Was: a GPU idled beside a full core in 11% of snapshots, all of them before and after the work."""
    job = stalls_at_the_edges()
    verdict = verdict_of(job)

    assert keys(verdict) == ["start-up"]
    assert {"saturated-process", "cpu-bottleneck", "io-bottleneck"}.isdisjoint(parts(verdict))
    # The rule counts them all the same, and its card says where.
    card = next(card for card in report_of(job).rules if card.name == "CPUBottleneck")
    assert card.violations == 540
    assert card.violating == 0


def test_b_the_last_window_is_not_the_job() -> None:
    """Was: GPU little used, p95 of 0%, which was the p95 of the last window."""
    gpu = [85.0, 99.0] * 1800 + [0.0] * 600
    job = make_job(gpu=gpu, cpu=[[20.0] * 8] * len(gpu), interval_s=1)
    report = report_of(job)
    said = page_of(report)

    assert [f.key for f in report.verdict.findings] == ["wind-down"]
    assert "p95" not in said
    assert "low" not in " ".join(f.title for f in report.verdict.findings)


def with_loop(gpu: np.ndarray | None, *, recorded_s: int, n: int = 1200) -> JobInMemory:
    """Steps of the first seconds, with 60% of the time between them and fetches by the training process."""
    facts = LoopFacts(
        source="SageMaker Debugger's results",
        steps_us=(START_US, START_US + recorded_s * 1_000_000),
        outside=0.6,
        step_s=0.4,
        fetch_s=0.6,
        fetches=10,
        num_workers=0,
        cores=8,
    )
    job = make_job(gpu=gpu, cpu=np.full((n, 8), 20.0), interval_s=1)
    return JobInMemory(name="job", panels=tuple(job.panels), loop_facts=facts)


@pytest.mark.parametrize(
    ("rest", "percent"),
    [
        # The rest of the work looks the same, or not.
        ([0.0, 0.0, 0.0, 95.0, 95.0], 60),
        ([0.0, 90.0, 90.0, 90.0, 90.0], 30),
    ],
)
def test_steps_of_a_part_speak_for_the_work_if_that_looks_the_same(rest: list[float], percent: float) -> None:
    gpu = np.array([0.0, 0.0, 0.0, 95.0, 95.0] * 120 + rest * 120)
    verdict = verdict_of(with_loop(gpu, recorded_s=600))

    assert parts(verdict)["data-loading"] == pytest.approx(percent, abs=0.4)


def test_a_job_without_gpus_waits_for_data_too() -> None:
    """Was: no rule was evaluated."""
    verdict = verdict_of(with_loop(None, recorded_s=1200))

    (main,) = verdict.findings
    assert (main.key, main.severity, main.share) == ("data-loading", Severity.CRITICAL, 0.6)
    assert main.share_of == "of the training loop"
    assert main.advice[0].startswith("Set ``num_workers`` above 0 (8")


def test_c_without_loader_workers_the_batch_is_not_too_small() -> None:
    """Was: raise the batch size, where a batch took 0.4 s to load and 0.01 s to train."""
    n = 1200
    single = "_SingleProcessDataLoaderIter"
    fetches = [("DataLoaderIter", f"{single}::fetch", 0.41 * i, 0.41 * i + 0.4) for i in range(2900)]
    steps = make_steps([(0.41 * i + 0.4, 0.41 * i + 0.41) for i in range(2900)])
    loader = Loader(
        node="algo-1", rank="33", iterator=single, start_us=START_US, num_workers=0, pin_memory=False
    )
    job = make_job(
        gpu=(np.arange(n) % 5 * 7.0 + 1),
        cpu=[[30.0] * 8] * n,
        memory=[5.0] * n,
        interval_s=1,
        steps=steps,
        events=make_events(fetches, loaders=[loader]),
    )
    verdict = verdict_of(job)

    (finding,) = verdict.findings
    assert finding.key == "data-loading"
    assert "0.4\u00a0s" in finding.title
    assert "``num_workers`` is 0" in in_words(finding.evidence)
    assert finding.advice[0].startswith("Set ``num_workers`` above 0")
    assert "batch size" not in " ".join(finding.advice)
    # All of the rest of it is a batch per step.
    assert parts(verdict)["data-loading"] == pytest.approx(100 - parts(verdict)["used"], abs=1)


def beside(job: Job, facts: LoopFacts) -> Job:
    assert isinstance(job, JobInMemory)
    return replace(job, loop_facts=facts)


def test_g_results_beside_samples_say_what_the_gpu_waited_for() -> None:
    """Was: rule results were not needed, though they hold the steps and fetches that the samples lack."""
    gpu = [0.0] * 600 + [0.0, 0.0, 0.0, 60.0] * 450
    job = make_job(gpu=gpu, cpu=[[30.0] * 8] * len(gpu), interval_s=1)
    facts = LoopFacts(
        source="SageMaker Debugger's results",
        steps_us=(START_US + 600_000_000, START_US + 2399_000_000),
        outside=0.5,
        step_s=0.02,
        fetch_s=0.4,
        fetches=10,
        num_workers=0,
        cores=8,
    )
    without, verdict = verdict_of(job), verdict_of(beside(job, facts))

    assert found(without, "unexplained").share == pytest.approx(0.64, abs=0.01)
    waited = found(verdict, "data-loading")
    assert waited is verdict.main_finding
    # Half of the 30 minutes of work, of 40.
    assert waited.share == pytest.approx(0.375, abs=0.002)
    assert "Inferred from SageMaker Debugger's results" in in_words(waited.evidence)
    assert waited.advice[0] == (
        "Set ``num_workers`` above 0 (8 to start with: cores divided by training processes)."
    )
    rest = found(verdict, "unexplained")
    assert rest.share == pytest.approx(0.64 - 0.375, abs=0.01)
    assert "data loading" not in in_words(rest.evidence)
    # Whole samples are given to the cause: what is left is as idle as before.
    assert "busy" not in parts(verdict)


def test_fetches_of_the_job_itself_are_better_than_those_of_results() -> None:
    fetches = [
        ("DataLoaderIter", "_SingleProcessDataLoaderIter::fetch", 1.0 * i, 1.0 * i + 0.01)
        for i in range(1200)
    ]
    steps = make_steps([(1.0 * i + 0.01, 1.0 * i + 1) for i in range(1200)])
    job = make_job(gpu=[30.0] * 1200, interval_s=1, steps=steps, events=make_events(fetches))
    facts = LoopFacts(source="results", outside=0.9, fetch_s=0.4, num_workers=0)

    assert "data-loading" not in keys(verdict_of(beside(job, facts)))


def test_steps_of_results_are_part_of_the_work() -> None:
    """Seven minutes pass between the first step and the first GPU work."""
    gpu = [0.0] * 600 + [90.0] * 1800
    job = make_job(gpu=gpu, interval_s=1)
    first = START_US + 180_000_000
    facts = LoopFacts(source="results", steps_us=(first, START_US + 9_000_000_000))

    before, *_ = job_phases(beside(job, facts)).phases

    assert (before.key, before.end_us) == ("before", first)


def test_d_a_single_sample_of_one_percent_is_no_begin_of_work() -> None:
    """Was: no GPU worked in the first 3 min, then 40% unexplained."""
    gpu = [0.0] * 180 + [1.0] + [0.0] * 179 + [95.0] * 540
    job = make_job(gpu=gpu, cpu=[[20.0] * 8] * len(gpu), interval_s=1)
    verdict = verdict_of(job)

    (finding,) = verdict.findings
    assert (finding.key, finding.severity) == ("start-up", Severity.CRITICAL)
    assert "first 6\u00a0min" in finding.title
    assert finding.share == pytest.approx(0.4, abs=0.002)
    assert {"idle", "low"}.isdisjoint(parts(verdict))
    phases = job_phases(job).phases
    assert phases[0].percent == pytest.approx(40, abs=0.1)


def test_e_a_share_stands_beside_what_it_is_the_share_of() -> None:
    """Was: 17.5% of GPU time beside three windows in violation, which held 7% of it."""
    minute = 60
    gpu = [80.0, 86.0] * (30 * minute) + [20.0] * (3 * minute)
    job = make_job(gpu=gpu, cpu=[[20.0] * 8] * len(gpu), interval_s=1)
    report = report_of(job)

    verdict = report.verdict
    assert verdict.use is not None
    for finding in verdict.findings:
        claimed = sum(part.percent for part in verdict.use.parts if part.finding == finding.key)
        assert finding.share == pytest.approx(claimed / 100, abs=0.001)
    # Of the 21% that were lost, 17% are usual; the last minutes alone are no finding.
    assert "window" not in " ".join(f.title for f in verdict.findings)


def test_i_a_gpu_that_was_never_used_for_fourteen_minutes_is_a_finding() -> None:
    """Was: none, since the rule wants 15 minutes."""
    n = 14 * 60
    beside = verdict_of(make_job(gpu=[[95.0, 0.0]] * n, interval_s=1))
    alone = verdict_of(make_job(gpu=[0.0] * n, interval_s=1))

    for verdict, share in ((beside, 0.5), (alone, 1.0)):
        assert keys(verdict) == ["gpu-never-used"]
        assert (verdict.findings[0].severity, verdict.findings[0].share) == (Severity.CRITICAL, share)
        assert "never used" in verdict.findings[0].title


def test_j_page_summary_and_cards_agree_on_the_cores() -> None:
    """Was: the verdict said that the CPU is little used too, a section that busy cores are the likely limit."""
    n = 2400
    low = np.arange(n) % 2 == 0
    gpu = np.where(low, 2.0, 50.0)
    cpu = np.where(low[:, None], [97.0] * 6 + [20.0] * 2, 40.0)
    report = report_of(make_job(gpu=gpu, cpu=cpu, memory=[10.0] * n, interval_s=1))
    said = page_of(report)

    assert report.verdict.findings[0].key == "cpu-bottleneck"
    for excluded in ("CPU had room", "CPU and GPU were both low", "batch size", "CPU is little used"):
        assert excluded not in said
