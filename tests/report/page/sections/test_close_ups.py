"""What the section on close-ups says and draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from jobreport.document import Origin, Report
from jobreport.page import sections
from jobreport.page.figures.close_ups import KINDS, SERIES, lane_names, panels
from jobreport.page.figures.models import Glyph, GlyphRenderer, Plot, Quad
from jobreport.page.figures.names import width_px
from jobrules.analyses.close_ups import BottleneckCount, CloseUp, CloseUpLane, WorstMinute
from jobrules.analyses.close_ups import close_ups as all_close_ups
from jobrules.model import Job
from jobrules.rules.cpu_bottleneck import CPUBottleneck
from jobrules.rules.io_bottleneck import IOBottleneck
from tests.copies import replace
from tests.jobs import make_job, make_steps
from tests.report.page.sections import example_close_ups, examples
from tests.report.page.sections.html import Page


def close_ups_of(job: Job) -> tuple[CloseUp, ...]:
    return all_close_ups(job, CPUBottleneck(), IOBottleneck())


def page_of(*chosen: CloseUp, report: Report | None = None) -> Page:
    return Page.of(sections.close_ups(replace(report or examples.gpu_job(), close_ups=chosen)).html)


CHOSEN = example_close_ups.chosen("algo-1")


def shown(*chosen: CloseUp, **changes: Any) -> sections.Fragment:
    return sections.close_ups(replace(examples.gpu_job(), close_ups=chosen, **changes))


BOTH = WorstMinute(
    in_loop=True,
    usual=44.0,
    snapshots=60,
    hits=45,
    bottlenecks=(
        BottleneckCount(kind="io", snapshots=40, gpu_threshold=5.0, core_threshold=62.5),
        BottleneckCount(kind="cpu", snapshots=12, gpu_threshold=10.0, core_threshold=90.0),
    ),
)
WAITING = replace(
    CHOSEN[0].lanes[-1], rank="1", kind="waiting", event_type="DataLoaderIter", covered_us=10**9, percent=55.3
)
VARIANTS: dict[str, Callable[[], sections.Fragment]] = {
    "first steps": lambda: shown(CHOSEN[0]),
    "all": lambda: shown(*CHOSEN),
    "ranks that differ": lambda: shown(replace(CHOSEN[0], lanes=(*CHOSEN[0].lanes[:-1], WAITING))),
    "not all measured": lambda: shown(
        replace(CHOSEN[0], unmeasured_us=((CHOSEN[0].start_us, CHOSEN[0].start_us + 3_900_000),))
    ),
    "steps alone": lambda: shown(*close_ups_of(make_job(steps=make_steps([(0.0, 0.125)])))),
    "samples alone": lambda: shown(*close_ups_of(make_job(gpu=[50.0] * 100 + [20.0] * 200, interval_s=1))),
    "left out": lambda: shown(replace(CHOSEN[0], lanes_left=4, cell_us=39_000)),
    "two kinds of bottlenecks": lambda: shown(replace(CHOSEN[1], worst=BOTH)),
    "not recorded": shown,
    "results": lambda: shown(origin=Origin.DEBUGGER_RESULTS),
}


def glyphs(plot: Plot | None, kind: type[Glyph]) -> list[Any]:
    assert plot is not None
    return [r for r in plot.renderers if isinstance(r, GlyphRenderer) and isinstance(r.glyph, kind)]


@pytest.mark.parametrize("close_up", CHOSEN, ids=[one.key for one in CHOSEN])
def test_every_event_is_a_bar_and_every_metric_a_line(close_up: CloseUp) -> None:
    drawn = panels(close_up)

    assert drawn.lanes
    assert drawn.samples
    table = close_up.table
    kinds = np.array([lane.kind for lane in close_up.lanes])[table[:, 0]]
    shapes = {shape.series: shape for shape in drawn.lanes.drawing.shapes}
    live = {str(one.name): one for one in glyphs(drawn.lanes.live, Quad)}
    assert set(shapes) == set(live) == set(kinds)
    for kind, one in live.items():
        data = one.data_source.data
        rows = table[kinds == kind]
        assert shapes[kind].path.count("M") == len(rows)
        assert shapes[kind].style.split()[0] == KINDS[kind]
        assert np.asarray(data["left"]) == pytest.approx(rows[:, 1] / 1000)
        assert np.asarray(data["events"]).tolist() == rows[:, 4].tolist()
        # The bar ends where the event does, or a thousandth of the stretch after its start.
        least = (close_up.end_us - close_up.start_us) // 1000
        assert np.asarray(data["right"]) == pytest.approx((rows[:, 1] + np.maximum(rows[:, 2], least)) / 1000)
    assert drawn.lanes.drawing.words
    lines = {shape.series: shape.style for shape in drawn.samples.drawing.shapes}
    assert lines == {curve.key: SERIES[curve.key] for curve in close_up.curves}


def test_both_plots_share_one_time_and_one_frame() -> None:
    drawn = panels(CHOSEN[0])

    assert drawn.samples
    assert drawn.lanes
    assert drawn.samples.live.x_range is drawn.lanes.live.x_range
    assert drawn.samples.live.min_border_left == drawn.lanes.live.min_border_left == 168
    page = page_of(CHOSEN[0])
    frames = [a["class"] for _, a in page.elements if "chart" in (a.get("class") or "").split()]
    assert all("ranked" in str(style).split() for style in frames)
    assert len(frames) == 2


def test_what_was_not_measured_is_hatched() -> None:
    close_up = replace(CHOSEN[0], unmeasured_us=((CHOSEN[0].start_us, CHOSEN[0].start_us + 3_900_000),))

    drawn = panels(close_up)

    assert drawn.samples
    (area,) = drawn.samples.drawing.areas
    assert (area.x, area.width) == pytest.approx((0, 10.0))
    assert "Hatched: not measured." in page_of(close_up).text


def test_rows_have_names_that_a_reader_knows() -> None:
    def lane(rank: str, event_type: str) -> CloseUpLane:
        return replace(CHOSEN[0].lanes[1], rank=rank, event_type=event_type)

    several = [
        lane("0", "Steps"),
        lane("0", "gpu_functions-dev:0"),
        lane("0", "Forward"),
        lane("0", "Forward(first)"),
        lane("4711-algo-1-of-many", "cpu_functions"),
    ]

    assert lane_names([lane("0", "gpu_functions-v:0"), lane("0", "DataLoaderIter")]) == (
        "GPU operators",
        "data loading",
    )
    names = lane_names(several)
    assert names[:4] == (
        "rank 0, Steps",
        "rank 0, GPU operators",
        "rank 0, Forward",
        "rank 0, Forward(first)",
    )
    assert names[4].endswith(", CPU operators")
    assert names[4].startswith("4711")
    assert all(width_px(name) <= 168 for name in names)
