"""How often compare-reports finds a difference between equal runs, and how often one that exists.

    python -m benchmarks.false_alarms [--pairs 40] [--seed 20261128] [--store]

Twelve shapes of step times, runs of one code that differ by a known standard deviation, and 1, 2, or 3 runs of each
variant, or one against three. Reports are filled in without system samples, which a test compares with those of whole
jobs. Throughput of two variants is judged as by the command, all else by the command's comparison. ``--store`` writes
the tables into docs/comparison.md.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import asdict, replace

from jobreport.build import build_report
from jobreport.comparison import runs
from jobreport.comparison.build import compare
from jobreport.comparison.comparing import Options, Settings, change_of
from jobreport.comparison.document import Word
from jobreport.comparison.measures import BY_KEY
from jobreport.remarks import Quality
from jobrules import RULES
from jobrules.analyses.blocks import StepBlocks, blocks_of
from jobrules.model import SECOND_US, JobInMemory, Metric, Panel, Steps
from jobrules.model.steps import WARM_UP_STEPS
from jobrules.rule import run_rules

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from jobreport.comparison.document import Comparison
    from jobreport.comparison.runs import RunOf
    from jobreport.document import Report

    Floats = npt.NDArray[np.float64]
    Shape = Callable[[np.random.Generator], Floats]

PAGE = Path(__file__).parents[1] / "docs" / "comparison.md"
MARKS = "<!-- made by python -m benchmarks.false_alarms --store -->", "<!-- end -->"
#: Runs of the variants.
RUNS = {"1 against 1": (1, 1), "2 against 2": (2, 2), "3 against 3": (3, 3), "1 against 3": (1, 3)}
THROUGHPUT = "samples_per_s"
SPREADS = (0, 1, 3, 6, 10, 20)
CHANGES = (5, 10, 20)
#: Variants of which none is better, and the spread of runs in percent where only one is tried.
VARIANTS, USUAL = 12, 3
#: So many times the pairs, where there is one shape only; and where all variants have equal numbers of runs.
MORE, EQUAL = 4, ("1 against 1", "2 against 2", "3 against 3")
#: Differences between the same runs that are tried for each standard deviation, and for the usual one.
DRAWS, USUAL_DRAWS = 3, 9
#: The last variant costs less by so many percent, which says nothing of its time.
CHEAPER = 3
#: Jobs begin and end with so many seconds without steps.
EDGE_S = 10.0
#: Part of a step that waits for data, and how much measures without a test within a run differ between runs.
FETCH, SCATTER = 0.05, 0.03
_COST = re.compile(r"costs [\d.,]+(%| times)[^(]*\([^()]*\)")
_HEDGED = re.compile(r"not tested|not resolved|\bto\b")


def noise(generator: np.random.Generator, sd: float, steps: int = 400) -> Floats:
    """Log-normal steps."""
    return np.exp(generator.normal(0, sd, steps))


def correlated(generator: np.random.Generator) -> Floats:
    """Steps whose logarithms are an autoregressive process of the first order."""
    values = generator.normal(0, 1, 400)
    for i in range(1, len(values)):
        values[i] = 0.9 * values[i - 1] + values[i] * (1 - 0.9**2) ** 0.5
    return np.exp(0.15 * values)


def stalls(share: float, factor: float) -> Shape:
    """A few steps of 600 last very long."""
    return lambda generator: noise(generator, 0.05, 600) * np.where(generator.random(600) < share, factor, 1)


def at(steps: int = 400) -> Floats:
    """Place of each step in the run."""
    return np.arange(steps) / steps


STALLS: dict[str, Shape] = {
    "0.2% of steps × 100": stalls(0.002, 100),
    "0.1% of steps × 200": stalls(0.001, 200),
}
SHAPES: dict[str, Shape] = {
    "steady": lambda g: noise(g, 0.02),
    "noisy": lambda g: noise(g, 0.25),
    "heavy tail": lambda g: noise(g, 1.0),
    "periodic evaluation": lambda g: noise(g, 0.05) * np.where(np.arange(400) % 50 == 49, 8, 1),
    **STALLS,
    "drift after a warm-up": lambda g: noise(g, 0.05) * (1 + 0.2 * at() + np.exp(-20 * at())),
    "bimodal": lambda g: noise(g, 0.05) * np.where(g.random(400) < 0.3, 1.6, 1),
    "correlated": correlated,
    "other numbers of steps": lambda g: noise(g, 0.1, int(g.integers(200, 800))),
    "slowest of 8 ranks": lambda g: np.exp(g.normal(0, 0.15, (400, 8))).max(axis=1),
    "few steps": lambda g: noise(g, 0.1, 120),
}


@cache
def template() -> Report:
    """The report of a short job on a GPU, whose numbers are replaced."""
    return whole_report(np.full(200, 0.5))


def whole_report(lasts_s: Floats, node: str = "node", rank: str = "0") -> Report:
    """The report of a job of such steps, the slow way: with samples, rules, and verdict."""
    edges_us = np.round(SECOND_US * (EDGE_S + np.append(0, np.cumsum(lasts_s)))).astype(np.int64)
    ticks = np.arange(0, edges_us[-1] + EDGE_S * SECOND_US, SECOND_US, dtype=np.int64)
    panels = tuple(
        Panel(
            node=node,
            metric=metric,
            devices=(f"{prefix}0",),
            time_us=ticks,
            snapshot=np.arange(len(ticks)),
            values=np.where((ticks >= edges_us[0]) & (ticks <= edges_us[-1]), 50.0, 0.0)[:, None],
            last_us=int(ticks[-1]),
        )
        for metric, prefix in ((Metric.GPU_UTILIZATION, "gpu"), (Metric.CPU_UTILIZATION, "cpu"))
    )
    steps = Steps.of(
        [(node, rank, "TRAIN")],
        np.zeros(len(lasts_s), np.int32),
        number=np.arange(len(lasts_s), dtype=np.int64),
        start_us=edges_us[:-1],
        end_us=edges_us[1:],
    )
    job = JobInMemory(name="job", panels=panels, steps=steps, finished=True)
    rules = [rule() for rule in RULES]
    return build_report(job, Quality(), rules, run_rules(rules, job), "make-report", strict=True)


def blocks(lasts_s: Floats, generator: np.random.Generator | None = None) -> StepBlocks:
    """Of such steps; with a generator, parts of them wait for data."""
    waits_s = lasts_s * FETCH * noise(generator, 0.2, len(lasts_s)) if generator else None
    kept = slice(WARM_UP_STEPS, None)
    return blocks_of(
        lasts_s[kept],
        waits_s[kept] if waits_s is not None else None,
        steps=len(lasts_s),
        loop_s=float(lasts_s.sum()),
        outside_s=0.0,
    )


def slower(found: StepBlocks, factor: float) -> StepBlocks:
    """All times times a factor."""
    times = {key: value for key, value in asdict(found).items() if key.endswith("_s")}
    scaled = {
        key: tuple(factor * one for one in value) if isinstance(value, tuple) else factor * value
        for key, value in times.items()
    }
    return replace(found, **scaled)


def report(found: StepBlocks, generator: np.random.Generator | None = None) -> Report:
    """The same as a whole report by filling in what is compared; with a generator, use varies."""
    whole = template()
    use = whole.verdict.use

    def vary(value: float) -> float:
        return value * float(1 + SCATTER * generator.normal()) if generator else value

    parts_s = (0.0, vary(EDGE_S), found.loop_s, vary(EDGE_S))
    times_us = [round(SECOND_US * float(end)) for end in np.cumsum(parts_s)]
    longer = times_us[-1] / whole.job.end_us
    return replace(
        whole,
        blocks=found,
        job=replace(whole.job, end_us=times_us[-1]),
        verdict=replace(
            whole.verdict,
            use=use
            and replace(use, roles=tuple(replace(one, hours=vary(one.hours * longer)) for one in use.roles)),
        ),
        goodput=None,
        phases=replace(
            whole.phases,
            phases=tuple(
                replace(phase, start_us=a, end_us=b, percent=100 * (b - a) / times_us[-1])
                for phase, a, b in zip(whole.phases.phases, times_us, times_us[1:], strict=False)
            ),
        ),
        utilization=tuple(replace(row, p50=vary(row.p50), p95=vary(row.p95)) for row in whole.utilization),
        time_blocks=tuple(
            replace(one, mean=tuple(mean and vary(mean) for mean in one.mean))
            for one in whole.time_blocks or ()
        ),
    )


def run_of(label: str, made: Report, price: float = 3.0) -> RunOf:
    """With a batch size and a price."""
    given: dict[str, str | float] = {"batch_size": 64.0, "price_per_node_hour": price}
    return runs.run_of(label, label, made, given)


class Code:
    """Runs of one code: variants of so many runs each, equal but for chance."""

    def __init__(self, seed: Sequence[int], shape: Shape, runs: Sequence[int]) -> None:
        self.generator = np.random.default_rng([*seed, *runs])
        self.found = [
            (f"v{i}", blocks(0.5 * shape(self.generator), self.generator))
            for i, number in enumerate(runs)
            for _ in range(number)
        ]

    def runs(self, spread: float, change: float = 0.0, cheaper: float = 0.0) -> list[RunOf]:
        """With a standard deviation between runs, and the last variant slower and cheaper by so many percent."""
        last = self.found[-1][0]
        made = []
        for label, found in self.found:
            factor = float(noise(self.generator, spread / 100, 1)[0]) * (1 + change / 100 * (label == last))
            filled = report(slower(found, factor), self.generator)
            made.append(run_of(label, filled, 3 * (1 - cheaper / 100 * (label == last))))
        return made


def by_command(runs: Sequence[RunOf]) -> Comparison:
    """All that compare-reports says."""
    return compare(runs, Settings(), "")


def differs(runs: Sequence[RunOf]) -> bool:
    """Whether throughput of the second of two variants is better or worse: a part of that, in a tenth of the time."""
    base, other = (
        [BY_KEY[THROUGHPUT].of(run) for run in own] for _, own in groupby(runs, lambda run: run.label)
    )
    return change_of(BY_KEY[THROUGHPUT], base, other, Options()).word in (Word.BETTER, Word.WORSE)


def found_in(comparison: Comparison, *, others: bool = False) -> bool:
    """Whether the headline is better or worse in any variant; or any measure."""
    return any(
        change.word in (Word.BETTER, Word.WORSE)
        for measure in comparison.measures
        if others or measure.key == comparison.headline
        for change in measure.against.values()
    )


def unhedged(sentence: str) -> bool:
    """Whether a sentence has a change of the cost, and nothing on how sure it is."""
    found = _COST.search(sentence)
    return bool(found and not _HEDGED.search(found[0]))


def counted(
    pairs: int, seed: int, name: str, shapes: Sequence[str] = tuple(SHAPES)
) -> Counter[tuple[str, str, int | str]]:
    """How often what was found, for so many runs of each variant: by kind, the runs, and what they differ in."""
    of = Counter[tuple[str, str, int | str]]()
    for shape in shapes:
        say(f"{name}: {shape}")
        for pair in range(pairs):
            code = Code((seed, list(SHAPES).index(shape), pair), SHAPES[shape], RUNS[name])
            for spread in SPREADS:
                alarms = [
                    differs(code.runs(spread)) for _ in range(USUAL_DRAWS if spread == USUAL else DRAWS)
                ]
                of["alarm", name, spread] += sum(alarms[:DRAWS])
                of["shape", name, shape] += sum(alarms) * (spread == USUAL)
            for change in CHANGES:
                of["power", name, change] += differs(code.runs(USUAL, change))
            of["any", name, 0] += found_in(by_command(code.runs(USUAL)), others=True)
            of["cost", name, 0] += unhedged(by_command(code.runs(USUAL, cheaper=CHEAPER)).verdict)
    return of


def of_many(pairs: int, seed: int, name: str) -> Counter[tuple[str, str, int | str]]:
    """The same of many variants, and of rare stalls."""
    of = Counter[tuple[str, str, int | str]]()
    say(f"{name}: {VARIANTS} variants, stalls")
    for pair in range(MORE * pairs):
        at_hand = seed, len(SHAPES), pair
        if name in EQUAL and pair < 2 * pairs:
            variants = RUNS[name][:1] * VARIANTS
            of["winner", name, 0] += found_in(
                by_command(Code(at_hand, SHAPES["noisy"], variants).runs(USUAL))
            )
        for stall, shape in STALLS.items():
            of["stall", name, stall] += differs(Code(at_hand, shape, RUNS[name]).runs(0))
    return of


def tables(pairs: int, seed: int) -> str:
    """Markdown: all tables, in percent."""
    with ProcessPoolExecutor() as pool:
        jobs = [pool.submit(work, pairs, seed, name) for name in RUNS for work in (counted, of_many)]
        of = sum((job.result() for job in jobs), Counter())
    each = pairs * len(SHAPES)

    def row(title: str, cells: Sequence[str]) -> str:
        return f"| {title} | {' | '.join(cells)} |"

    def shares(title: str, kind: str, key: int | str, whole: int, digits: int = 1) -> str:
        return row(title, [f"{100 * of[kind, name, key] / whole:.{digits}f}%" for name in RUNS])

    def alarms(name: str) -> list[str]:
        worst = max(of["shape", name, shape] for shape in SHAPES) / pairs / USUAL_DRAWS
        found = [of["alarm", name, spread] / each / DRAWS for spread in SPREADS]
        return [f"{100 * share:.1f}%" for share in (*found, worst)]

    winners = [f"{50 * of['winner', name, 0] / pairs:.1f}%" if name in EQUAL else "–" for name in RUNS]
    return "\n".join(
        [
            f"Pairs of equal code that are called better or worse, by the standard deviation between runs ({DRAWS * each:,} "
            f"pairs each; of each shape {USUAL_DRAWS * pairs:,}):",
            "",
            row("Runs", [*(f"{spread}%" for spread in SPREADS), f"{USUAL}%, worst shape"]),
            row("---", ["---"] * (len(SPREADS) + 1)).replace(" ", ""),
            *(row(name, alarms(name)) for name in RUNS),
            "",
            f"Other false alarms, with {USUAL}% between runs if nothing else is said, and changes that are found:",
            "",
            row("Of all pairs", list(RUNS)),
            row("---", ["---"] * len(RUNS)).replace(" ", ""),
            *(
                shares(f"Rare long stalls, {name}, 0% between runs", "stall", name, MORE * pairs)
                for name in STALLS
            ),
            shares("Any measure but goodput better or worse", "any", 0, each),
            row(f"Any of {VARIANTS - 1} equal variants better or worse", winners),
            row(
                f"Price {CHEAPER}% lower: a change of the cost without its test, {each:,} pairs",
                [str(of["cost", name, 0]) for name in RUNS],
            ),
            *(shares(f"{change}% slower: found", "power", change, each, 0) for change in CHANGES),
        ]
    )


def say(line: str) -> None:
    """Progress goes to standard error."""
    print(line, file=sys.stderr, flush=True)


def stored() -> str:
    """The tables in the document."""
    return PAGE.read_text("utf-8").partition(MARKS[0])[2].partition(MARKS[1])[0].strip()


def main() -> None:
    """Print the tables, or store them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=20261128)
    parser.add_argument("--store", action="store_true")
    options = parser.parse_args()
    found = tables(options.pairs, options.seed)
    if options.store:
        text = PAGE.read_text("utf-8")
        PAGE.write_text(text.replace(stored(), found), "utf-8")
    print(found)


if __name__ == "__main__":
    main()
