"""How often tests find a difference between equal runs, and between runs that differ: the table of docs/comparison.md.

    python benchmarks/false_alarms.py [--pairs 400] [--seed 20260101]

Pairs of runs of 1,000 log-normal steps with a standard deviation of 15% and a correlation of neighboring steps. Three
tests at 95%: Mann-Whitney U on all steps, a bootstrap of 20 blocks, and that of compare-reports without the noise that it
assumes between runs.
"""

from __future__ import annotations

import argparse
import math
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from jobreport.comparison.real_difference import Sample, difference
from jobrules.analyses.blocks import block_edges

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

STEPS, SPREAD = 1000, 0.15
CORRELATIONS = (0.0, 0.5, 0.9, 0.98)
CHANGES = (0.0, 0.05, 0.10)
RESAMPLES = 400


def run(generator: np.random.Generator, correlation: float, steps: int = STEPS) -> Floats:
    """Log-normal steps whose logarithms are an autoregressive process of the first order."""
    noise = generator.normal(0, 1, steps)
    values = np.empty(steps)
    values[0] = noise[0]
    scale = math.sqrt(1 - correlation**2)
    for i in range(1, steps):
        values[i] = correlation * values[i - 1] + scale * noise[i]
    return np.exp(SPREAD * values)


def mann_whitney(a: Floats, b: Floats, _: np.random.Generator) -> bool:
    """The U test with the normal approximation; steps have no ties."""
    ranks = np.empty(len(a) + len(b))
    ranks[np.argsort(np.concatenate((a, b)))] = np.arange(1, len(ranks) + 1)
    u = ranks[: len(a)].sum() - len(a) * (len(a) + 1) / 2
    deviation = math.sqrt(len(a) * len(b) * (len(ranks) + 1) / 12)
    return bool(abs(u - len(a) * len(b) / 2) > 1.96 * deviation)


def block_means(values: Floats) -> list[float]:
    """Means of 20 blocks of neighbors."""
    return [float(values[a:b].mean()) for a, b in pairwise(block_edges(len(values)))]


def bootstrap(a: Floats, b: Floats, generator: np.random.Generator) -> bool:
    """The percentile interval of the ratio of means of resampled blocks."""
    means = []
    for values in (a, b):
        blocks = np.array(block_means(values))
        rows = generator.integers(0, len(blocks), (RESAMPLES, len(blocks)))
        means.append(np.log(blocks[rows].mean(axis=1)))
    low, high = np.quantile(means[1] - means[0], (0.025, 0.975))
    return bool(low > 0 or high < 0)


def blocks(a: Floats, b: Floats, _: np.random.Generator) -> bool:
    """The test of compare-reports."""
    samples = [Sample.of_blocks([math.log(mean) for mean in block_means(values)]) for values in (a, b)]
    found = difference(*samples)
    return abs(found.d) > found.half_width


TESTS: dict[str, Callable[[Floats, Floats, np.random.Generator], bool]] = {
    "Mann-Whitney U on steps": mann_whitney,
    "bootstrap of 20 blocks": bootstrap,
    "compare-reports": blocks,
}


def shares(pairs: int, seed: int, correlation: float, change: float) -> list[float]:
    """Share of the pairs that each test calls different, in percent."""
    generator = np.random.default_rng([seed, round(1000 * correlation), round(1000 * change)])
    found = np.zeros(len(TESTS))
    for _ in range(pairs):
        a, b = run(generator, correlation), (1 + change) * run(generator, correlation)
        found += [test(a, b, generator) for test in TESTS.values()]
    return [100 * n / pairs for n in found.tolist()]


def table(pairs: int, seed: int, changes: Sequence[float] = CHANGES) -> str:
    """Markdown."""
    lines = [f"| Change | Correlation | {' | '.join(TESTS)} |", f"|---|---|{'---|' * len(TESTS)}"]
    for change in changes:
        for correlation in CORRELATIONS:
            cells = " | ".join(f"{share:.1f}%" for share in shares(pairs, seed, correlation, change))
            lines.append(f"| {f'+{100 * change:g}%' if change else 'none'} | {correlation:g} | {cells} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=400)
    parser.add_argument("--seed", type=int, default=20260101)
    options = parser.parse_args()
    print(table(options.pairs, options.seed))


if __name__ == "__main__":
    main()
