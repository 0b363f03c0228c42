"""The first finding of a made job is its cause, nothing else is a warning, and the share is what the cause took.

``python -m tests.rules.test_diagnosis --seeds 1,2,3`` prints the matrix and what is wrong with each job that misses;
``--cause``, ``--shape`` and ``--seeds`` choose, ``--all`` prints all findings of each.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product

import pytest

from jobrules import RULES
from jobrules.model import Finding, Job, Severity
from jobrules.model.finding import in_words
from jobrules.rule import run_rules
from jobrules.verdict.findings import Verdict, judge
from jobrules.verdict.in_work import results_in_work
from jobrules.verdict.phases import job_phases
from jobrules.verdict.time_use import lost_sentence
from tests.rules.described_jobs import KINDS, Described, described
from tests.rules.diagnosis_jobs import CAUSES, OF_SEVERAL_GPUS, SHAPES, Loss, MadeJob, Shape, made

#: The causes of made jobs by the key of the finding, where that is another name.
CAUSE_OF = {
    "saturated-process": "one-core",
    "load-balancing": "imbalance",
    "batch-size": "small-batch",
    "gpu-never-used": "never-used",
    "step-outlier": "outlier-steps",
    "thermal-throttling": "throttled",
}
DESCRIBED_AS = {"gpu-never-used": "never-used"}
DESCRIBED_TOLERANCE = 0.04
#: Findings about samples that lack, which say nothing about the job.
OF_SAMPLES = ("not-measured",)
#: From these shares of GPU time a loss is a warning or critical; the start and the end also need so many minutes.
WARNING, CRITICAL = 0.05, 0.2
EDGES = {"start-up": (5, 15), "wind-down": (5, 15)}
#: How far a claimed share may be from the truth.
TOLERANCE = 0.02
#: A loss that is this close to a limit may be a finding or none.
CLOSE = 0.005
GOAL = 0.98
SEEDS = (1, 2, 3)
#: ``make test`` has the jobs of four GPUs.
FEW = (SHAPES[1],)
EACH = [(FEW, SEEDS[0]), *(pytest.param(SHAPES, seed, marks=pytest.mark.slow) for seed in SEEDS)]


def judged(job: Job) -> Verdict:
    """The verdict, with all rules at their defaults."""
    rules = [rule() for rule in RULES]
    results = results_in_work(rules, run_rules(rules, job, strict=True), job, strict=True)
    return judge(job, rules, results, job_phases(job))


def verdict_of(one: MadeJob) -> tuple[Finding, ...]:
    """All findings of a made job, whose shares are those of the bar."""
    verdict = judged(one.job)
    parts = verdict.use.parts if verdict.use else ()
    assert {part.finding for part in parts} - {""} <= {finding.key for finding in verdict.findings}, one
    for finding in verdict.findings:
        if linked := [part.percent for part in parts if part.finding == finding.key]:
            assert finding.share == pytest.approx(sum(linked) / 100, abs=0.001), one
    return verdict.findings


def grade(loss: Loss, share: float) -> int:
    """0 for critical, 1 for a warning, 2 below, of a cause that took ``share`` of the GPU time."""
    warning_min, critical_min = EDGES.get(loss.cause, (0, 0))
    if share >= CRITICAL and loss.seconds >= 60 * critical_min:
        return 0
    return 1 if share >= WARNING and loss.seconds >= 60 * warning_min else 2


def rank(loss: Loss, share: float) -> tuple[int, bool, float]:
    """Place of a cause that took ``share``, smallest first: by severity, causes before what has none, by share."""
    return grade(loss, share), loss.cause == "unexplained", -share


def may_be_found(one: MadeJob) -> set[str]:
    """The causes that may be findings above info: all that took enough, or nearly."""
    # A sensor that comes late is part of the start-up, and of no measured loss.
    late_s = one.unmeasured * 60 * _minutes(one)
    found = {
        loss.cause
        for loss in one.losses
        if grade(replace(loss, seconds=loss.seconds + late_s), loss.lost + CLOSE) < 2
    }
    return found | {one.cause} & {"throttled"}


def must_be_found(one: MadeJob) -> list[Loss]:
    """What is clearly above the limits."""
    sure = [loss for loss in one.losses if grade(loss, loss.taken - CLOSE) < 2]
    return [
        loss for loss in sure if loss.cause not in EDGES or loss.seconds > 60 * (EDGES[loss.cause][0] + 0.5)
    ]


def first_causes(one: MadeJob) -> set[str]:
    """The causes that may come first: the largest one, and those that differ from it by less than the tolerance."""
    if one.cause == "throttled" and one.shape.nodes * one.shape.gpus == 1:
        return {"throttled"}
    losses = must_be_found(one)
    if not losses:
        return set()
    worst = min(rank(loss, loss.taken - TOLERANCE) for loss in losses)
    return {loss.cause for loss in losses if rank(loss, loss.lost + TOLERANCE) <= worst}


def claimed(finding: Finding) -> float:
    """The share of GPU time that a finding claims."""
    of_gpu_time = finding.share_of.startswith(("of GPU time", "of the time of"))
    return (finding.share or 0.0) if of_gpu_time else 0.0


def cause_of(finding: Finding) -> str:
    return CAUSE_OF.get(finding.key, finding.key)


def faults(one: MadeJob, findings: Sequence[Finding]) -> list[str]:
    """What is wrong with the findings of a job."""
    allowed, first = may_be_found(one), first_causes(one)
    wrong = []
    if one.cause == "healthy":
        wrong += [
            f"finding: {f.key}" for f in findings if cause_of(f) not in allowed and f.key not in OF_SAMPLES
        ]
    if first and (not findings or cause_of(findings[0]) not in first):
        wrong.append(
            f"first: {findings[0].key if findings else 'nothing'} instead of {' or '.join(sorted(first))}"
        )
    warnings = [f for f in findings if f.severity is not Severity.INFO]
    wrong += [f"warning: {f.key}" for f in warnings if cause_of(f) not in allowed and f.key not in OF_SAMPLES]
    for loss in must_be_found(one):
        shares = [claimed(f) for f in findings if cause_of(f) == loss.cause]
        if not shares:
            wrong.append(f"missing: {loss.cause}, {loss.taken:.1%}")
        elif (
            not loss.taken - TOLERANCE
            <= sum(shares)
            <= loss.lost + TOLERANCE + one.noise * (loss.cause == "unexplained")
        ):
            wrong.append(
                f"share: {loss.cause} {sum(shares):.1%} instead of {loss.taken:.1%} to {loss.lost:.1%}"
            )
    return list(dict.fromkeys(wrong))


def jobs(
    causes: Iterable[str], shapes: Iterable[Shape], seeds: Iterable[int]
) -> list[tuple[str, Shape, int]]:
    """All combinations but those that are none."""
    every = product(causes, shapes, seeds)
    return [
        (cause, shape, seed) for cause, shape, seed in every if shape.gpus > 1 or cause not in OF_SEVERAL_GPUS
    ]


Wrong = dict[tuple[str, Shape, int], list[str]]


def graded(causes: Iterable[str], shapes: Iterable[Shape], seeds: Iterable[int]) -> Wrong:
    """What is wrong with the findings of each job."""
    return {
        (cause, shape, seed): faults(one := made(cause, shape, seed), verdict_of(one))
        for cause, shape, seed in jobs(causes, shapes, seeds)
    }


def matrix(wrong: Wrong) -> list[list[str]]:
    """Hits of each cause and shape, below a row of heads."""
    cells: defaultdict[tuple[str, Shape], list[bool]] = defaultdict(list)
    for (cause, shape, _), found in wrong.items():
        cells[cause, shape].append(not found)
    shapes = list(dict.fromkeys(shape for _, shape in cells))
    rows = [["cause", *map(str, shapes)]]
    for cause in dict.fromkeys(cause for cause, _ in cells):
        hits = [cells.get((cause, shape), []) for shape in shapes]
        rows.append([cause, *(f"{sum(c)}/{len(c)}" if c else "–" for c in hits)])
    return rows


def hits_of(wrong: Wrong) -> str:
    """``217 of 219 jobs``."""
    return f"{sum(not found for found in wrong.values())} of {len(wrong)} jobs"


def in_text(wrong: Wrong) -> str:
    """The matrix with columns of equal width, then in how many jobs each kind of fault is."""
    kinds = Counter(kind for found in wrong.values() for kind in {fault.partition(":")[0] for fault in found})
    rows = [f"{head:20}" + "".join(f"{cell:>9}" for cell in cells) for head, *cells in matrix(wrong)]
    return "\n".join([*rows, f"{hits_of(wrong)}; jobs with a fault: {dict(kinds)}"])


@pytest.mark.parametrize(("shapes", "seed"), EACH)
def test_the_first_finding_is_the_cause_with_its_share(shapes: Sequence[Shape], seed: int) -> None:
    wrong = graded(CAUSES, shapes, [seed])
    print(in_text(wrong))

    missed = {key: found for key, found in wrong.items() if found}
    assert len(missed) <= (1 - GOAL) * len(wrong), missed


def faults_of_described(one: Described, verdict: Verdict) -> list[str]:
    """What is wrong with the verdict on a job that was made from a description."""
    findings = verdict.findings
    above = [finding for finding in findings if finding.severity is not Severity.INFO]
    causes = [DESCRIBED_AS.get(finding.key, finding.key) for finding in above]
    wrong = []
    if one.cause and causes[:1] != [one.cause]:
        wrong.append(f"first: {causes[0] if causes else 'nothing'} instead of {one.cause}")
    wrong += [f"warning: {cause}" for cause in causes if cause not in {one.cause, *one.also}]
    if one.cause and one.share is not None and causes[:1] == [one.cause]:
        share = above[0].share or 0.0
        if abs(share - one.share) > DESCRIBED_TOLERANCE:
            wrong.append(f"share: {share:.1%} instead of {one.share:.1%}")
    said = "\n".join(
        text
        for finding in findings
        for text in (finding.title, *finding.advice, in_words(finding.evidence), finding.seen_as)
    )
    use = verdict.use
    headline = lost_sentence(use, verdict.main_finding) if use else ""
    wrong += [f"says: {words}" for words in one.never if words in f"{said}\n{headline}"]
    wrong += [f"headline: {headline}"] * (not findings and " of them " in headline)
    of_first = [p.when for p in use.parts if above and p.key == above[0].key] if use else []
    wrong += [
        f"headline: not {when}" for when in of_first if use and when not in lost_sentence(use, above[0])
    ]
    return wrong


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in SEEDS[1:])])
@pytest.mark.parametrize("kind", KINDS)
def test_a_described_job_has_the_finding_of_its_description(kind: str, seed: int) -> None:
    one = described(kind, seed)

    assert faults_of_described(one, judged(one.job)) == []


def _minutes(one: MadeJob) -> float:
    start_us, end_us = one.job.span_us
    return (end_us - start_us) / 60e6


def _show(one: MadeJob, findings: Sequence[Finding], wrong: Sequence[str], many: int | None) -> None:
    print(
        f"\n{one.cause} {one.shape} seed {one.seed}, {_minutes(one):.0f} min: {'; '.join(wrong) or 'right'}"
    )
    for loss in one.losses:
        print(f"   truth {loss.cause}: {loss.taken:.1%} to {loss.lost:.1%}, {loss.seconds / 60:.1f} min")
    print(f"   noise {one.noise:.1%}, unmeasured {one.unmeasured:.1%}")
    for f in findings[:many]:
        share = f"{f.share:.1%} {f.share_of}" if f.share is not None else "no share"
        print(f"   found {f.severity} {f.key}: {share}: {f.title}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the matrix and the jobs that miss."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--cause", choices=CAUSES, nargs="*", default=list(CAUSES))
    parser.add_argument("--shape", choices=[str(one) for one in SHAPES], nargs="*")
    parser.add_argument("--kind", choices=KINDS, nargs="*", default=list(KINDS))
    parser.add_argument("--all", action="store_true", help="show the jobs that hit too, with all findings")
    given = parser.parse_args(arguments)
    shapes = [one for one in SHAPES if not given.shape or str(one) in given.shape]
    wrong = {}
    for cause, shape, seed in jobs(given.cause, shapes, map(int, given.seeds.split(","))):
        one = made(cause, shape, seed)
        findings = verdict_of(one)
        found = wrong[cause, shape, seed] = faults(one, findings)
        if found or given.all:
            _show(one, findings, found, None if given.all else 3)
    if wrong:
        print("\n" + in_text(wrong))
    hits = []
    for kind, seed in product(given.kind, map(int, given.seeds.split(","))):
        described_job = described(kind, seed)
        verdict = judged(described_job.job)
        of_one = faults_of_described(described_job, verdict)
        hits.append(not of_one)
        if of_one or given.all:
            print(f"\n{kind} seed {seed}: {'; '.join(of_one) or 'right'}")
            for f in verdict.findings:
                print(f"   found {f.severity} {f.key}: {f.share or 0:.1%} {f.share_of}: {f.title}")
    print(f"\n{sum(hits)} of {len(hits)} jobs made from descriptions")


if __name__ == "__main__":
    main()
