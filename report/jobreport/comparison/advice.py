"""How far a comparison can be trusted, what would settle it, and what is left to win."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

from jobreport.comparison import words
from jobreport.comparison.comparing import RATES
from jobreport.comparison.document import LOST_DATA, NO_COST, Note, Word
from jobreport.comparison.measures import BY_KEY
from jobreport.comparison.real_difference import CHANGED_CORRELATION
from jobreport.comparison.runs import together
from jobreport.cost.billing import cost_of, missing, wrong_machine
from jobreport.cost.words import why_no_cost
from jobreport.remarks import LOST
from jobrules.model import Metric, Severity
from jobrules.text import capitalized, count, dated, join_names, percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from jobreport.comparison.comparing import Settings
    from jobreport.comparison.document import Comparison, Measure
    from jobreport.comparison.runs import RunOf, Together
    from jobreport.cost.prices import Prices

#: Sampling intervals may differ by this factor.
SAME_INTERVAL = 1.5
FULL_COVERAGE = 80.0
#: Rows that are lost count from this share of those that are read; so many kinds are named.
MIN_LOST, MAX_LOST = 0.001, 3
#: What is better of variants that are as fast.
OF_BEST = ("cost", "gpu_hours")
#: Why three runs, by the number of runs there are.
FEW = {1: "one run cannot show how much runs differ", 2: "two runs find less than one"}


def notes(
    variants: Mapping[str, Sequence[RunOf]],
    pairs: Mapping[str, Together],
    settings: Settings,
    measures: Sequence[Measure],
) -> Iterator[Note]:
    """Everything that a reader has to know, in the order of its weight."""
    runs = [run for own in variants.values() for run in own]
    if without := [run for run in runs if not run.cost]:
        yield Note(kind=NO_COST, text=_no_cost(without[0], settings.prices))
    yield from _lost_data(variants)
    for label, own in variants.items():
        for sentence in dict.fromkeys(wrong_machine(run, settings.prices) for run in own):
            if sentence:
                yield Note(kind="machine", text=f"{label}: {sentence}")
    single = [label for label, own in variants.items() if len(own) == 1]
    if any(change.run_noise is not None for measure in measures for change in measure.against.values()):
        yield Note(
            kind="single-runs",
            text=f"{join_names(single)} ran once. One run cannot show how much runs of the same code differ, so a "
            f"standard deviation of {settings.options.run_noise:g}% between runs is assumed (--run-noise). Three runs "
            "of each variant would do better.",
        )
    yield from _order(variants)
    yield from _overlap(runs)
    if shared := together(runs).crowded:
        yield Note(
            kind="crowded",
            text=f"Other processes used the cores of {join_names(shared)}: a difference may be theirs. Their reports "
            "show how many cores the jobs had.",
        )
    yield from _work(variants, pairs)
    if older := sorted({run.label for run in runs if run.is_older}):
        yield Note(
            kind="older-report",
            text=f"The report of {join_names(older)} was made by an older version, which kept no blocks: nothing of it "
            "is tested. Make it again to test it.",
        )
    for label in changed_course(measures):
        yield Note(kind="course", text=f"{label} changed its course: its step times have a trend or a jump.")
    intervals = [found for run in runs if (found := run.number("interval_s"))]
    if intervals and max(intervals) > SAME_INTERVAL * min(intervals):
        yield Note(
            kind="intervals",
            text=f"The sampling intervals differ ({min(intervals):g} to {max(intervals):g} s). Utilization and energy "
            "are compared; short gaps and what rules count in samples are not comparable.",
        )
    yield from _coverage(runs)
    yield from _traces(variants)
    if settings.co2_g is not None:
        yield from _emissions(measures, settings.co2_g, settings.pue)


def changed_course(measures: Sequence[Measure]) -> list[str]:
    """Labels of single runs whose step times have a trend or a jump, the base first."""
    steps = next((one for one in measures if one.key == "step_s"), None)
    if steps is None:
        return []
    base = next(iter(steps.values))
    changed = {
        name
        for label, change in steps.against.items()
        for name, correlation in zip((base, label), change.r, strict=False)
        if correlation > CHANGED_CORRELATION
    }
    return [name for name in steps.values if name in changed]


def _lost_data(variants: Mapping[str, Sequence[RunOf]]) -> Iterator[Note]:
    """What the reports of a variant say of data that could not be used, most of it first."""
    for label, runs in variants.items():
        counts: Counter[tuple[str, str]] = Counter()
        for quality in (run.report.quality for run in runs):
            rows = dict.fromkeys(quality.remarks, 0)
            rows |= {remark: source.rows for source in quality.sources for remark in source.remarks}
            for remark, of in rows.items():
                if remark.code in LOST and (remark.unit == "files" or remark.count > MIN_LOST * of):
                    counts[remark.unit, remark.reason] += remark.count
        named = "; ".join(f"{count(n, unit[:-1])}, {why}" for (unit, why), n in counts.most_common(MAX_LOST))
        if named:
            yield Note(kind=LOST_DATA, text=f"{label} lacks data that its recording has: {named}.")


def _no_cost(run: RunOf, prices: Prices | None) -> str:
    why = missing(run, prices) if cost_of(run, prices, "1s") is None else "span"
    machine, source = str(run.facts.get("instance_type") or ""), prices.source if prices else ""
    return why_no_cost(why, machine, source, run.label)


def _order(variants: Mapping[str, Sequence[RunOf]]) -> Iterator[Note]:
    repeats = {label: own for label, own in variants.items() if len(own) > 1}
    spans = sorted(
        (min(run.report.job.start_us for run in own), max(run.report.job.end_us for run in own))
        for own in repeats.values()
        if all(run.report.job.end_us for run in own)
    )
    if len(spans) > 1 and all(one[1] <= two[0] for one, two in pairwise(spans)):
        yield Note(
            kind="not-interleaved",
            text="The runs of one variant all ended before those of the next began: a drift of the machines would look "
            "the same as a difference of the variants. Run them in turn.",
        )


def _overlap(runs: Sequence[RunOf]) -> Iterator[Note]:
    jobs = sorted((run.report.job.start_us, run.report.job.end_us, run.label) for run in runs)
    pairs = [(a[2], b[2]) for a, b in pairwise(jobs) if dated(a[0]) and b[0] < a[1]]
    if pairs:
        shared = {label for pair in pairs for label in pair}
        labels = [label for label in dict.fromkeys(run.label for run in runs) if label in shared]
        yield Note(
            kind="overlap",
            text=f"Runs of {join_names(labels)} overlap in time. If they shared a machine, each slowed the other; if they "
            "are parts of one recording, they are one run.",
        )


def _work(variants: Mapping[str, Sequence[RunOf]], pairs: Mapping[str, Together]) -> Iterator[Note]:
    base = next(iter(variants))
    for label, pair in pairs.items():
        runs = [*variants[base], *variants[label]]
        if reason := pair.unrecorded:
            given = " ".join(
                f"--set {one}.finished=true"
                for one in dict.fromkeys(run.label for run in runs if run.finished is None)
            )
            yield Note(
                kind="unrecorded",
                text=f"{capitalized(reason)}: durations and costs of the runs are not compared, rates are. "
                f"If the recording holds the whole job, add {given}.",
            )
        elif pair.stopped:
            yield Note(
                kind="stopped",
                text=f"{pair.were_stopped}, or the end was not recorded: "
                "durations and costs of the runs are not compared, rates are.",
            )
        elif pair.same_work is None:
            missing = " ".join(
                f"--set {one}.{fact}=N"
                for fact in ("batch_size", "steps")
                for one in (base, label)
                if not all(run.number(fact) for run in variants[one])
            )
            yield Note(
                kind="work",
                text=f"Whether {label} did the same work as {base} is not known: add {missing}.",
            )
        elif not pair.same_work:
            yield Note(
                kind="work",
                text=f"{label} did not do the same work as {base}: compare it per step or per sample.",
            )


def _coverage(runs: Sequence[RunOf]) -> Iterator[Note]:
    for run in runs:
        for metric in (Metric.GPU_UTILIZATION, Metric.CPU_UTILIZATION):
            blocks = run.stretches(metric)
            loop = next((p for p in run.report.phases.phases if p.key in ("loop", "whole")), None)
            if blocks is None or loop is None or loop.end_us <= loop.start_us:
                continue
            covered = 100 * sum(blocks.covered_s) * 1e6 / (blocks.devices * (loop.end_us - loop.start_us))
            if covered < FULL_COVERAGE:
                yield Note(
                    kind="coverage",
                    text=f"{metric.quantity.noun} of {run.label} is that of {percent(covered)} of the training loop.",
                )


def _traces(variants: Mapping[str, Sequence[RunOf]]) -> Iterator[Note]:
    """How short profiled stretches are; said once."""
    longest: dict[str, float] = {}
    for run in (run for own in variants.values() for run in own):
        if profile := run.profile:
            longest[run.label] = max(longest.get(run.label, 0.0), profile.longest_s)
    if not longest:
        return
    shown = words.stretches(*longest.values())
    lengths = ", ".join(f"{label} {length}" for label, length in zip(longest, shown, strict=True))
    yield Note(
        kind="traces",
        text=f"What is profiled is a short stretch ({lengths}): it says nothing of the whole job, and is mixed with no "
        "measure of it.",
    )


def _emissions(measures: Sequence[Measure], grams: float, pue: float) -> Iterator[Note]:
    energy = next((one for one in measures if one.key == "energy_kwh"), None)
    if energy is None:
        yield Note(kind="co2", text="CO₂ is not known: GPU power was not recorded.")
        return
    amounts = [
        f"{label} {kwh * pue * grams / 1000:,.3g} kg"
        for label, kwh in energy.values.items()
        if kwh is not None
    ]
    yield Note(
        kind="co2",
        text=f"CO₂ of the GPU boards: {', '.join(amounts)} (kWh × {pue:g} × {grams:g} g/kWh, given on the command line).",
    )


# --- what to do next


def next_step(found: Comparison, variants: Mapping[str, Sequence[RunOf]]) -> str:
    """What would settle the headline; empty if nothing is open."""
    measure = found.find(found.headline)
    if measure is None:
        return (
            "Profile at least 0.1 s of GPU work, and call profiler.step() after each step."
            if found.profiled
            else "Record steps, to compare throughput."
        )
    open_words = {change.word for change in measure.against.values()}
    if open_words == {Word.NOT_MEASURED}:
        return "Record the same of all runs: samples with record-job, or traces of PyTorch's profiler."
    runs = [run for own in variants.values() for run in own]
    if older := sorted({run.label for run in runs if run.is_older}):
        return (
            f"Make the report of {join_names(older)} again: an older version kept nothing that can be tested."
        )
    fewest = min(len(own) for own in variants.values())
    if found.headline not in RATES and not BY_KEY[found.headline].is_profiled:
        return _to_judge_throughput(variants, fewest)
    return _to_test(found.headline, runs, open_words, fewest)


def _to_test(headline: str, runs: Sequence[RunOf], open_words: set[Word], fewest: int) -> str:
    """What would show whether a throughput differs, of all steps or of profiled ones: the first that holds."""
    every, profiled = together(runs), BY_KEY[headline].is_profiled
    untested = Word.NOT_TESTED in open_words and (profiled or Word.NOT_RESOLVED not in open_words)
    is_open = Word.NOT_RESOLVED in open_words
    cases = {
        "Run each variant three times, in turn, on cores that no other process uses.": (
            fewest == 1 and every.crowded and not profiled
        ),
        "Call profiler.step() after each step, to compare step times.": (
            untested and headline == "profiled_compute_percent"
        ),
        "Profile three runs of each variant, in turn: the few steps of one trace cannot be tested.": (
            untested and profiled
        ),
        f"Let each run do at least 110 steps, which are tested within a run: {every.were_stopped} before.": (
            untested and every.stopped
        ),
        "Record at least 100 steps of each run after the first 10, or run each variant three times.": untested,
        f"Run each variant three times, in turn: {FEW.get(fewest)}.": is_open and fewest in FEW,
        "Run each variant more often, in turn.": is_open,
    }
    return next((advice for advice, holds in cases.items() if holds), "")


def _to_judge_throughput(variants: Mapping[str, Sequence[RunOf]], fewest: int) -> str:
    runs = [run for own in variants.values() for run in own]
    if all(run.report.blocks for run in runs):
        given = " ".join(f"--set {label}.batch_size=N" for label in variants)
        return f"Give the batch sizes, to compare throughput: {given}."
    how = "Record steps (record-job finds those of PyTorch; others call jobrecord.step())"
    if cut := together(runs).stopped:
        return f"{how}: throughput can be compared of runs that were stopped. Or let {join_names(cut)} run to the end."
    if fewest == 1:
        return f"{how}: throughput is tested within a run. Durations are tested only of repeats: run each variant three times."
    return ""


def left_to_win(found: Comparison, variants: Mapping[str, Sequence[RunOf]]) -> str:
    """The main finding on the best run, with its advice; empty if it has none.

    Best is a variant that is shown to be better in the headline, otherwise in cost or GPU-hours, or the base.
    """
    best = found.base
    for measure in filter(None, map(found.find, (found.headline, *OF_BEST))):
        sign = 1 if measure.direction == "higher" else -1
        better = [label for label, change in measure.against.items() if change.word is Word.BETTER]
        if better:
            best = max(better, key=lambda one: sign * (measure.values[one] or 0.0))
        if better or any(change.word is Word.WORSE for change in measure.against.values()):
            break
    finding = variants[best][0].report.verdict.lead
    if finding is None or finding.severity is Severity.INFO:
        return ""
    return " ".join([f"{best}: {finding.title.rstrip('.')}.", *finding.advice[:1]])
