"""What the section on data loading says, and that both of its drawings say the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from jobreport.document import Origin, Report
from jobreport.page import sections
from jobreport.page.figures import data_loading as figures
from jobrules.analyses.data_loading import DataLoading, FetchTimes, LoaderSetup, RankFetches, StepTime
from tests.copies import replace
from tests.report.page.sections import example_data_loading, examples
from tests.report.page.sections.example_data_loading import node_loading
from tests.report.page.sections.html import Page

EXAMPLE = example_data_loading.data_loading("algo-1")
LOG = FetchTimes(
    log=True,
    edges_s=(0.001, 0.01, 0.1, 1.0, 10.0),
    step=10.0,
    counts=(50, 30, 0, 20),
    beyond=0,
    p25_s=0.002,
    p50_s=0.009,
    p95_s=4.0,
    max_s=9.0,
)


def fetches() -> FetchTimes:
    assert EXAMPLE.fetches
    return EXAMPLE.fetches


def page_of(found: DataLoading | None, origin: Origin = Origin.SAMPLES) -> Page:
    report: Report = replace(examples.gpu_job(), data_loading=found, origin=origin)
    return Page.of(sections.data_loading(report).html)


def shown(found: DataLoading | None, **changes: Any) -> sections.Fragment:
    return sections.data_loading(replace(examples.gpu_job(), data_loading=found, **changes))


def changed(**changes: Any) -> sections.Fragment:
    return shown(replace(EXAMPLE, **changes))


def on_node(**facts: Any) -> sections.Fragment:
    return changed(nodes=(node_loading("algo-1", **facts),))


def with_setup(**facts: Any) -> sections.Fragment:
    return changed(setups=(replace(EXAMPLE.setups[0], **facts),))


def with_waits(fetch_s: float, *titles: str) -> sections.Fragment:
    """Fetches of this length before steps of 0.69 s, and findings on data loading."""
    found = replace(
        EXAMPLE,
        fetches=replace(fetches(), p50_s=fetch_s),
        step=StepTime(mode="TRAIN", count=120, p50_s=0.69),
    )
    verdict = examples.gpu_job().verdict
    waits = tuple(replace(examples.LOW, key="data-loading", title=title) for title in titles)
    return shown(found, verdict=replace(verdict, findings=(*waits, *verdict.findings)))


(WORK,) = EXAMPLE.at_work
EQUAL = tuple(node_loading(f"n{i}") for i in range(6))
SETUPS = tuple(replace(EXAMPLE.setups[0], node=f"n{i}") for i in range(6))
VARIANTS: dict[str, Callable[[], sections.Fragment]] = {
    "too few": on_node,
    "too many": lambda: on_node(loaders=20, of_cores_percent=250.0, answer="too many"),
    "enough": lambda: on_node(loaders=8, of_cores_percent=100.0, answer="adequate", violating=0),
    "too short": lambda: on_node(answer="", evaluated=0, reason="only 4 of 11 seconds with data loading"),
    "no number": lambda: on_node(answer="", loaders=None, mean=None, reason="no number of loader processes"),
    "threads that fetch ahead": lambda: on_node(pipeline=True, prefetch=True),
    "threads that do not": lambda: on_node(pipeline=True, prefetch=False),
    "no GPU": lambda: on_node(gpus=0),
    "no loader process": lambda: with_setup(num_workers=0),
    "times on a log axis": lambda: changed(fetches=LOG),
    "long waits": lambda: with_waits(1.47),
    "short waits": lambda: with_waits(0.1),
    "no waits": lambda: with_waits(0.01),
    "waits that the verdict knows of": lambda: with_waits(
        0.01, "Training waits for data on rank 1: a batch fetch takes 0.2 s (medians)"
    ),
    "a steady number": lambda: changed(at_work=(replace(WORK, high=WORK.low),)),
    "a steady number of several nodes": lambda: changed(
        nodes=EQUAL[:5], at_work=(replace(WORK, node="", high=WORK.low),)
    ),
    "several nodes": lambda: changed(nodes=EQUAL[:5], at_work=(replace(WORK, node="", cores=40),)),
    "equal nodes": lambda: changed(nodes=EQUAL, setups=SETUPS),
    "rows left out": lambda: changed(nodes_left_out=6, setups_left_out=1),
    "settings not recorded": lambda: changed(
        setups=(
            LoaderSetup(node="algo-1", iterator="Iter", num_workers=None, pin_memory=None, fetches=3),
            LoaderSetup(node="algo-1", iterator="Single", num_workers=0, pin_memory=False, fetches=3),
        )
    ),
    "not recorded": lambda: shown(None),
    "results": lambda: shown(None, origin=Origin.DEBUGGER_RESULTS),
}


RANKS = (
    RankFetches(node="algo-1", rank="1", p50_s=0.055, counts=(0, 10, 30, 8), beyond=2),
    RankFetches(node="algo-1", rank="0", p50_s=0.035, counts=(30, 40, 0, 0), beyond=0),
)


def test_ranks_whose_fetches_differ_have_an_outline_and_a_median_each() -> None:
    found = replace(EXAMPLE, fetches=replace(fetches(), ranks=RANKS))

    figure = figures.fetch_times(replace(fetches(), ranks=RANKS), ["rank 1", "rank 0"])

    assert {shape.style for shape in figure.drawing.shapes} == {"s1", "s2"}
    assert [rule.style for rule in figure.drawing.rules] == ["s1", "s2"]
    slow, fast = (rule.x1 for rule in figure.drawing.rules)
    assert (slow, fast) == pytest.approx(figure.drawing.x.place([55, 35]))
    text = page_of(found).text.replace("\u00a0", " ")
    assert "Batch fetches took 55.0 ms on rank 1, 35.0 ms on rank 0 (medians)." in text
    assert "rank 1: median 55.0 ms" in text


@pytest.mark.parametrize(
    "times", [fetches(), LOG, replace(fetches(), beyond=0)], ids=["plain", "log", "none"]
)
def test_every_bin_is_a_bar_and_every_mark_a_line_with_its_name(times: FetchTimes) -> None:
    drawing = figures.fetch_times(times).drawing

    (shape,) = drawing.shapes
    assert shape.path.count("M") == sum(n > 0 for n in (*times.counts, times.beyond))
    assert [rule.style for rule in drawing.rules] == ["mark"] * 3
    names = [word for word in drawing.words if word.style == "strong"]
    assert [word.x for word in names] == [rule.x1 for rule in drawing.rules]


def test_marks_lie_where_their_times_are() -> None:
    plain, log = (figures.fetch_times(times).drawing for times in (fetches(), LOG))

    assert [rule.x1 for rule in plain.rules] == pytest.approx(plain.x.place([41, 46, 62]).tolist())
    assert [word.text for word in plain.words][:3] == ["p25 41.0 ms", "median 46.0 ms", "p95 62.0 ms"]
    assert [rule.x1 for rule in log.rules] == pytest.approx(log.x.place(np.log10([0.002, 0.009, 4])).tolist())
    assert [tick.label for tick in log.x.ticks] == ["1 ms", "10 ms", "100 ms", "1 s", "10 s"]


@pytest.mark.parametrize("shift", range(0, 100, 7))
@pytest.mark.parametrize("spread", [(1, 1), (3, 60), (30, 5), (40, 40), (10, 20)])
def test_no_line_crosses_the_name_of_another(shift: int, spread: tuple[int, int]) -> None:
    p25, p50, p95 = (min(100, shift + more) for more in (0, spread[0], sum(spread)))
    sides = figures._sides(p25, p50, p95)

    room, rows = 22, [row for _, row in sides]
    for i, (place, (left, row)) in enumerate(zip((p25, p50, p95), sides, strict=True)):
        low, high = (place - room, place) if left else (place, place + room)
        assert low >= 0 or not left
        assert high <= 100 or left
        for j, other in enumerate((p25, p50, p95)):
            if j != i and low < other < high:
                # The line of a lower row begins below this name.
                assert rows[j] > row
            if j != i and rows[j] == row:
                theirs = (other - room, other) if sides[j][0] else (other, other + room)
                assert high <= theirs[0] or theirs[1] <= low


def test_ticks_have_equal_decimals() -> None:
    even = replace(
        fetches(), edges_s=(0.0310, 0.0312, 0.0314, 0.0316, 0.0318), p25_s=0.0311, p50_s=0.0313, p95_s=0.0316
    )

    ticks = figures.fetch_times(replace(even, beyond=0)).drawing.x.ticks
    labels = [tick.label.removesuffix(" ms") for tick in ticks]
    assert ticks[-1].label.endswith(" ms")

    assert len({len(label.partition(".")[2]) for label in labels}) == 1
    assert len(set(labels)) == len(labels) > 3


def test_active_loader_processes_are_drawn_with_the_cores_and_never_joined() -> None:
    (line,) = EXAMPLE.at_work
    assert EXAMPLE.columns

    (figure,) = figures.at_work([line], EXAMPLE.columns)

    drawing = figure.drawing
    (limit,) = drawing.rules
    assert limit.y1 == pytest.approx(100 - 100 * 8 / drawing.y.end)
    assert drawing.shapes[1].path.count("M") == 2
    (hole,) = drawing.areas
    assert (hole.x, hole.width) == pytest.approx((100 * 20 / 70, 100 * 10 / 70))
