"""Durations of steps for the reports that tests build."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from jobreport.cost.document import ShareOfPeak
from jobrules.analyses.rank_steps import RankRow, RankSteps
from jobrules.analyses.step_parts import ClassShare, LastSteps, StepContrast, StepPart
from jobrules.analyses.steps import (
    StepBins,
    StepHistogram,
    StepMode,
    StepPeak,
    StepRow,
    StepsOverTime,
    StepTimeline,
    StepTimes,
)
from jobrules.analyses.throughput import Throughput

START_US = 1_763_107_500_000_000  # 2025-11-14 08:05:00 UTC
#: Steps per bin of 50 ms from 0.30 s on.
COUNTS = (0, 40, 300, 500, 300, 30, 9)


def row(name: str, phase: str = "TRAIN", **facts: object) -> StepRow:
    known: dict[str, object] = {
        "node": name,
        "rank": "0",
        "mode": phase,
        "steps": 1200,
        "mean_s": 0.48,
        "median_s": 0.47,
        "std_s": 0.05,
        "p95_s": 0.55,
        "p99_s": 0.61,
        "max_s": 3.25,
        "min_s": 0.351,
        "first_s": 3.25,
        "limit_s": 0.63,
        "outliers": 21,
        "above_two_medians": 2,
    }
    return StepRow(**(known | facts))  # type: ignore[arg-type]


def throughput() -> Throughput:
    """256 samples of 2,048 tokens in each step, which take longer in the second half; nothing in one column."""
    return Throughput(
        samples_per_step=254.6,
        tokens_per_step=521_421.0,
        samples_per_second=530.417,
        tokens_per_second=1_086_290.0,
        batch_size=256,
        ranks=8,
        ranks_known=8,
        inferred=True,
        start_us=START_US,
        width_us=60_000_000,
        course=(*[545.0] * 10, None, *[512.5] * 9),
    )


def share_of_peak() -> ShareOfPeak:
    """An eighth of the ranks counted its operations."""
    return ShareOfPeak(
        mfu_percent=41.25,
        flops_per_step=1.5e15,
        flops_per_second=3.26e15,
        source="counted",
        ranks=8,
        ranks_known=1,
        gpus=8,
        precision="bfloat16",
        peak_flops_per_second=8 * 989e12,
    )


def step_times(name: str) -> StepTimes:
    """1,200 steps of one worker with 21 outliers; node, phase and classes have a given name."""
    low = tuple(None if i == 7 else 400_000 for i in range(20))
    high = tuple(None if i == 7 else 3_250_000 if i == 0 else 560_000 for i in range(20))
    return StepTimes(
        count=1200,
        stddev=3.0,
        marked="rule",
        marks=21,
        rows=(row(name, name),),
        rows_left=0,
        modes=(
            StepMode(
                mode=name,
                steps=1200,
                p25_s=0.44,
                median_s=0.47,
                p75_s=0.5,
                ranks=1,
                evaluated=1,
                outliers=21,
                low_limit_s=0.63,
                high_limit_s=0.63,
                above_two_medians=2,
            ),
        ),
        modes_left=0,
        histogram=StepHistogram(
            start_us=300_000,
            width_us=50_000,
            bins=len(COUNTS),
            end_us=300_000 + 50_000 * len(COUNTS),
            beyond=21,
            longest_us=3_250_000,
            series=(StepBins(node=name, rank="0", mode=name, counts=COUNTS, beyond=21),),
        ),
        timeline=StepTimeline(
            start_us=START_US,
            width_us=60_000_000,
            count=20,
            series=(
                StepsOverTime(
                    mode=name,
                    low_us=low,
                    high_us=high,
                    outlier_columns=(0,),
                    outlier_us=(3_250_000,),
                ),
            ),
            peaks=tuple(
                StepPeak(mode=name, start_us=START_US + i * 60_000_000, lasted_us=us)
                for i, us in [(i, us) for i, us in enumerate(high) if us is not None][:10]
            ),
        ),
        contrast=StepContrast(
            classes=(
                ClassShare(
                    name=name,
                    device="",
                    normal_percent=12.0,
                    outlier_percent=70.5,
                    points=58.5,
                    normal_steps=1179,
                    outlier_steps=21,
                ),
                ClassShare(
                    name="conv2d",
                    device="GPU",
                    normal_percent=60.0,
                    outlier_percent=20.0,
                    points=-40.0,
                    normal_steps=15,
                    outlier_steps=6,
                ),
            ),
            left=3,
        ),
        has_events=True,
        last=LastSteps(
            node=name,
            rank="0",
            mode=name,
            numbers=(1196, 1197, 1198, 1199),
            parts=(
                StepPart(
                    key="forward", label="Forward pass", role="used", time_us=(100_000,) * 4, percent=16.4
                ),
                StepPart(key="event-type", label=name, role="outside", time_us=(50_000,) * 4, percent=8.2),
                StepPart(
                    key="data-loading",
                    label="Waiting for data",
                    role="lost",
                    time_us=(200_000, 900_000, 250_000, 0),
                    percent=73.8,
                ),
                StepPart(
                    key="no-event", label="Unaccounted", role="unknown", time_us=(10_000,) * 4, percent=1.6
                ),
            ),
            total_us=(360_000, 1_060_000, 410_000, 160_000),
            by_event=True,
        ),
    )


def of_ranks(medians_us: Sequence[int], *, phase: str, left_out: int = 0) -> RankSteps:
    """Ranks whose steps all took equally long, in columns of ten steps; ``left_out`` more have no row."""
    columns = 12
    ends = min(medians_us), round(median(medians_us)), max(medians_us)
    shortest, middle, longest = ((us,) * columns for us in ends)
    return RankSteps(
        ranks=len(medians_us) + left_out,
        phase=phase,
        first=tuple(range(0, 10 * columns, 10)),
        last=tuple(range(9, 10 * columns, 10)),
        typical_us=round(median(medians_us)),
        shortest_us=shortest,
        median_us=middle,
        longest_us=longest,
        rows=tuple(
            RankRow(node="n", rank=str(i), median_us=us, columns_us=(us,) * columns)
            for i, us in enumerate(medians_us)
        ),
    )
