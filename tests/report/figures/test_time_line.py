"""Time lines: the drawing and the live plot say the same, and what is left out is only the width."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from bokeh.models import Grid, HoverTool, VBar
from bokeh.models.annotations.geometry import BoxAnnotation
from bokeh.models.renderers.glyph_renderer import GlyphRenderer
from hypothesis import given
from hypothesis import strategies as st

from jobreport.figures.chart import Area, Rule, Shape
from jobreport.figures.time_line import bundled, middles, shared_time, time_drawing, time_line
from jobreport.formats import Scale
from jobrules.analyses import time_lines as timelines
from jobrules.analyses.time_lines import Columns, TimeLine
from jobrules.verdict.phases import JobPhases
from tests.copies import replace
from tests.report.sections import examples

PERCENT = Scale(factor=1.0, unit="%")
MEGABYTES = Scale(factor=1e6, unit="MB/s")


def line_of(values: list[float | None], *, low: float = 0.0, high: float = 0.0) -> TimeLine:
    return timelines.time_line(
        node="n",
        key="gpu_utilization",
        label="GPU",
        unit="%",
        devices=2,
        mean=tuple(values),
        low=tuple(None if v is None else v - low for v in values),
        high=tuple(None if v is None else v + high for v in values),
    )


def course() -> JobPhases:
    return examples.cpu_job().phases


def points(path: str) -> list[list[tuple[float, float]]]:
    """The corners of every subpath; relative steps added up."""
    found = []
    for part in path.split("M")[1:]:
        x = y = 0.0
        run = []
        for piece in re.findall(r"[lhv]?[-\d. ]+", part.rstrip("z")):
            numbers = [float(n) for n in re.findall(r"-?[\d.]+", piece)]
            if piece[0] in "hv":
                numbers = [numbers[0], 0.0] if piece[0] == "h" else [0.0, numbers[0]]
            for dx, dy in zip(numbers[::2], numbers[1::2], strict=True):
                x, y = (x + dx, y + dy) if piece[0] in "lhv" else (dx, dy)
                run.append((round(x, 6), round(y, 6)))
        found.append(run)
    return found


def strokes(drawing: Any, style: str = "line") -> Shape:
    (shape,) = [mark for mark in drawing.marks if isinstance(mark, Shape) and mark.style == style]
    return shape


@given(
    st.lists(st.one_of(st.none(), st.floats(0, 100, width=16)), min_size=1, max_size=40),
    st.integers(1, 7),
)
def test_bundles_keep_the_mean_and_every_peak(values: list[float | None], size: int) -> None:
    mean, low, high = bundled(line_of(values, low=1, high=2), size)

    for i in range(0, len(values), size):
        known = [v for v in values[i : i + size] if v is not None]
        at = i // size
        if not known:
            assert np.isnan([mean[at], low[at], high[at]]).all()
        else:
            assert mean[at] == pytest.approx(sum(known) / len(known))
            assert (low[at], high[at]) == (min(known) - 1, max(known) + 2)


def test_the_last_bundle_is_as_wide_as_its_columns() -> None:
    assert middles(Columns(start_us=100, width_us=10, count=5), 2).tolist() == [110, 130, 145]


def test_drawing_and_live_plot_have_the_same_points() -> None:
    values: list[float | None] = [10.0, 30.0, 20.0, None, None, 80.0, 90.0, 50.0]
    line, columns = line_of(values, low=5, high=8), Columns(start_us=0, width_us=1_000_000, count=8)
    time = shared_time(columns, course())

    drawing = time_drawing([line], columns, course(), PERCENT, 100, labels=True, most=200)
    plot: Any = time_line([line], time, PERCENT, 100, labels=True)

    first, second = points(strokes(drawing).path)
    # The stretches reach from edge to edge of their columns; in between they go through the middles.
    assert first == [(0, 90), (62.5, 90), (187.5, 70), (312.5, 80), (375, 80)]
    assert second == [(625, 20), (687.5, 20), (812.5, 10), (937.5, 50), (1000, 50)]
    data: Any = time.source.data
    assert data["time"].tolist() == [500 + 1000 * i for i in range(8)]
    assert [None if np.isnan(v) else v for v in data["v1"].tolist()] == values
    ends = [[None if np.isnan(v) else v for v in data[name].tolist()] for name in ("v2", "v3")]
    assert ends == [[5, 25, 15, None, None, 75, 85, 45], [18, 38, 28, None, None, 88, 98, 58]]
    # Steps, as the bars of the live plot.
    first, second = points(strokes(drawing, "band").path)
    assert first[:6] == [(0, 82), (125, 82), (125, 62), (250, 62), (250, 72), (375, 72)]
    assert first[6:] == [(375, 85), (250, 85), (250, 75), (125, 75), (125, 95), (0, 95)]
    assert {y for _, y in second} == {100 - v for v in (75, 85, 45, 88, 98, 58)}
    # What was not measured is hatched in both, though it is no gap of the job.
    (area,) = [mark for mark in drawing.marks if isinstance(mark, Area)]
    (box,) = [a for a in plot.center if isinstance(a, BoxAnnotation)]
    assert (area.x, area.width) == (37.5, 25.0)
    assert (box.left, box.right) == (3000, 5000)


def test_bands_of_percent_are_rounded_outwards() -> None:
    line = line_of([10.4], low=0.3, high=0.3)
    time = shared_time(Columns(start_us=0, width_us=1, count=1), course())

    time_line([line], time, PERCENT, 100, labels=True)

    data: Any = time.source.data
    assert (data["v2"].tolist(), data["v3"].tolist()) == ([10], [11])


def test_a_peak_of_one_column_survives_the_drawing() -> None:
    values: list[float | None] = [20.0] * 600
    line = replace(line_of(values), high=tuple(99.0 if i == 123 else 20.0 for i in range(600)))
    columns = Columns(start_us=0, width_us=1_000_000, count=600)

    drawing = time_drawing([line], columns, course(), PERCENT, 100, labels=True, most=100)

    assert min(y for run in points(strokes(drawing, "band").path) for _, y in run) == 1.0


def test_level_stretches_cost_few_points() -> None:
    columns = Columns(start_us=0, width_us=1_000_000, count=200)

    drawing = time_drawing([line_of([40.0] * 200)], columns, course(), PERCENT, 100, labels=True, most=200)

    assert points(strokes(drawing).path) == [[(0, 60), (1000, 60)]]


def test_gaps_of_the_node_and_phases_are_drawn_where_they_are() -> None:
    report = examples.hostile_job()
    first, _, holed = report.time_lines

    drawings = [
        time_drawing([line], report.columns, report.phases, PERCENT, 100, labels=False, most=200)
        for line in (first, holed)
    ]

    areas = [[(a.x, a.width) for a in d.marks if isinstance(a, Area)] for d in drawings]
    assert areas == [[], [(25.0, 12.5)]]
    assert [r.x1 for r in drawings[0].marks if isinstance(r, Rule)] == [5.0]


def test_a_value_above_the_scale_stays_inside() -> None:
    drawing = time_drawing(
        [line_of([50.0])],
        Columns(start_us=0, width_us=1, count=1),
        course(),
        PERCENT,
        10,
        labels=True,
        most=200,
    )

    assert points(strokes(drawing).path) == [[(0, 0), (1000, 0)]]


def test_two_lines_share_a_plot_and_can_be_switched() -> None:
    received = replace(line_of([40e6, 60e6]), key="network_receive", label="Network receive", unit="B/s")
    sent = replace(line_of([4e6, 6e6]), key="network_transmit", label="Network transmit", unit="B/s")
    columns = Columns(start_us=0, width_us=1_000_000, count=2)

    plot: Any = time_line([received, sent], shared_time(columns, course()), MEGABYTES, 60, labels=True)
    drawing = time_drawing([received, sent], columns, course(), MEGABYTES, 60, labels=True, most=200)

    renderers = [r for r in plot.renderers if isinstance(r, GlyphRenderer)]
    assert [r.name for r in renderers] == ["network_receive", "network_transmit"] * 2 + [None]
    assert [r.glyph.line_dash for r in renderers[2:4]] == [[], [6]]
    assert all(isinstance(r.glyph, VBar) for r in renderers[:2])
    (hover,) = [tool for tool in plot.tools if isinstance(tool, HoverTool)]
    assert hover.renderers == [renderers[4]]
    assert "Network receive" in str(hover.tooltips)
    assert "Network transmit" in str(hover.tooltips)
    assert points(strokes(drawing, "s1").path)[0][-1] == (1000, 0)
    assert points(strokes(drawing, "s2").path)[0][-1] == (1000, 90)


@pytest.mark.parametrize(
    "seconds", [8, 40, 95, 600, 1000, 3600, 7201, 5 * 3600, 14 * 3600, 24 * 3600, 4 * 86400]
)
def test_the_live_axis_chooses_the_ticks_of_the_drawing(seconds: int) -> None:
    """By Bokeh's rule: the distance whose number of ticks comes nearest to the wanted one."""
    columns = Columns(start_us=examples.START_US + 17_000_000, width_us=seconds * 10_000, count=100)
    drawing = time_drawing([line_of([1.0] * 100)], columns, course(), PERCENT, 100, labels=True, most=300)
    plot: Any = time_line([line_of([1.0] * 100)], shared_time(columns, course()), PERCENT, 100, labels=True)

    (axis,) = plot.below
    distances = []
    ticker: Any
    for ticker in axis.ticker.tickers:
        least, most = getattr(ticker, "min_interval", 0), getattr(ticker, "max_interval", 0)
        if hasattr(ticker, "mantissas"):
            steps = [m * ticker.base**e for m in ticker.mantissas for e in range(-1, 9)]
            # In units of seconds below the hour, of hours above.
            distances += [s for s in {x * (least or 1) for x in steps} if least <= s <= most]
    distances += [86_400_000 * n for n in (1, 7)]
    span_ms = seconds * 1000
    chosen = min(distances, key=lambda ms: abs(axis.ticker.desired_num_ticks - span_ms / ms))
    places = [tick.at for tick in drawing.x.ticks]
    assert chosen == pytest.approx((places[1] - places[0]) * span_ms)


def test_the_live_plot_has_the_line_at_the_top_that_the_drawing_has() -> None:
    columns = Columns(start_us=0, width_us=1_000_000, count=2)
    plot: Any = time_line([line_of([1.0, 2.0])], shared_time(columns, course()), PERCENT, 100, labels=True)

    grid: Any
    (grid,) = [one for one in plot.center if isinstance(one, Grid)]

    # Bokeh draws none at the very end of a range.
    assert grid.ticker.ticks == pytest.approx([0, 50, 100])
    assert grid.ticker.ticks[-1] < 100
