"""What would settle a comparison, and what is left to win."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport.comparison.document import Word
from jobreport.comparison.facts import is_older, together
from jobreport.comparison.measures import BY_KEY
from jobreport.comparison.verdict import RATES
from jobrules.model import Severity
from jobrules.text import join_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobreport.comparison.document import Comparison
    from jobreport.comparison.facts import RunOf

#: What is better of variants that are as fast.
OF_BEST = ("cost", "gpu_hours")
#: Why three runs, by the number of runs there are.
FEW = {1: "one run cannot show how much runs differ", 2: "two runs find less than one"}


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
    if older := sorted({run.label for run in runs if is_older(run.report)}):
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
    finding = variants[best][0].report.verdict.main_finding
    if finding is None or finding.severity is Severity.INFO:
        return ""
    return " ".join([f"{best}: {finding.title.rstrip('.')}.", *finding.advice[:1]])
