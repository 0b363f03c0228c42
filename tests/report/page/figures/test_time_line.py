"""Time lines: peaks, gaps, and phases survive; what is left out is only the width."""

from __future__ import annotations

import re
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobreport.formats import Scale
from jobreport.page.figures.canvas import Figure
from jobreport.page.figures.chart import Drawing
from jobreport.page.figures.models import BoxZoomTool, GlyphRenderer, Grid, HoverTool, PanTool
from jobreport.page.figures.over_time import SharedTime
from jobreport.page.figures.time_line import bundled, size_of, time_line, top_of
from jobrules.analyses import time_lines as timelines
from jobrules.analyses.time_lines import Apart, Columns, DeviceLine, TimeLine
from jobrules.verdict.phases import JobPhases
from tests.copies import replace
from tests.report.page.sections import examples

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


def columns_of(line: TimeLine) -> Columns:
    return Columns(start_us=0, width_us=1_000_000, count=len(line.mean))


def drawn(
    *lines: TimeLine,
    columns: Columns | None = None,
    phases: JobPhases | None = None,
    scale: Scale = PERCENT,
    top: float = 100,
    most: int = 200,
) -> Figure:
    columns = columns or columns_of(lines[0])
    time = SharedTime(columns, size_of(columns, most))
    return time_line(lines, time, phases or examples.cpu_job().phases, scale, top, labels=True)


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


def path(drawing: Drawing, style: str = "line") -> list[list[tuple[float, float]]]:
    (shape,) = [shape for shape in drawing.shapes if shape.style == style]
    return points(shape.path)


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


def test_lines_go_from_edge_to_edge_of_their_stretches_over_their_bands() -> None:
    values: list[float | None] = [10.0, 30.0, 20.0, None, None, 80.0, 90.0, 50.0]

    drawing = drawn(line_of(values, low=5, high=8)).drawing

    first, second = path(drawing)
    assert first == [(0, 90), (62.5, 90), (187.5, 70), (312.5, 80), (375, 80)]
    assert second == [(625, 20), (687.5, 20), (812.5, 10), (937.5, 50), (1000, 50)]
    first, second = path(drawing, "band")
    assert first[:6] == [(0, 82), (125, 82), (125, 62), (250, 62), (250, 72), (375, 72)]
    assert first[6:] == [(375, 85), (250, 85), (250, 75), (125, 75), (125, 95), (0, 95)]
    assert {y for _, y in second} == {100 - v for v in (75, 85, 45, 88, 98, 58)}
    # What was not measured is hatched, though it is no gap of the job.
    assert [(area.x, area.width) for area in drawing.areas] == [(37.5, 25.0)]


def test_a_peak_of_one_column_survives_the_drawing() -> None:
    values: list[float | None] = [20.0] * 600
    line = replace(line_of(values), high=tuple(99.0 if i == 123 else 20.0 for i in range(600)))

    drawing = drawn(line, most=100).drawing

    assert min(y for run in path(drawing, "band") for _, y in run) == 1.0


def test_level_stretches_cost_few_points() -> None:
    assert path(drawn(line_of([40.0] * 200)).drawing) == [[(0, 60), (1000, 60)]]


def test_gaps_of_the_node_and_phases_are_drawn_where_they_are() -> None:
    report = examples.hostile_job()
    first, _, holed = report.time_lines

    drawings = [drawn(line, columns=report.columns, phases=report.phases).drawing for line in (first, holed)]

    assert [[(a.x, a.width) for a in one.areas] for one in drawings] == [[], [(25.0, 12.5)]]
    assert [rule.x1 for rule in drawings[0].rules] == [5.0]


def test_a_value_above_the_scale_stays_inside() -> None:
    assert path(drawn(line_of([50.0]), top=10).drawing) == [[(0, 0), (1000, 0)]]


def test_percent_runs_from_0_to_100_and_rates_to_a_round_number() -> None:
    rate = examples.gpu_job().time_lines[-1]

    assert top_of([line_of([3.0])], PERCENT) == 100
    assert top_of([rate], MEGABYTES) == 80
    assert top_of([replace(rate, high=(None,))], MEGABYTES) == 1


def test_two_lines_share_a_plot_and_can_be_switched() -> None:
    received = replace(line_of([40e6, 60e6]), key="network_receive", label="Network receive", unit="B/s")
    sent = replace(line_of([4e6, 6e6]), key="network_transmit", label="Network transmit", unit="B/s")

    figure = drawn(received, sent, scale=MEGABYTES, top=60)

    plot: Any = figure.live
    renderers = [r for r in plot.renderers if isinstance(r, GlyphRenderer)]
    assert [r.name for r in renderers] == ["network_receive", "network_transmit"] * 2 + [None]
    (hover,) = [tool for tool in plot.toolbar.tools if isinstance(tool, HoverTool)]
    # The tooltip stays if a line is switched off.
    assert hover.renderers == [renderers[4]]
    assert "Network receive" in str(hover.tooltips)
    assert "Network transmit" in str(hover.tooltips)
    assert path(figure.drawing, "s1")[0][-1] == (1000, 0)
    assert path(figure.drawing, "s2")[0][-1] == (1000, 90)


def test_the_live_plot_has_no_tool_on_the_wheel_and_says_zone_and_unit() -> None:
    plot: Any = drawn(
        line_of([1.0, 2.0], high=1), columns=Columns(start_us=examples.START_US, width_us=1_000_000, count=2)
    ).live

    assert "WheelZoomTool" not in {type(tool).__name__ for tool in plot.toolbar.tools}
    assert {tool.dimensions for tool in plot.toolbar.tools if isinstance(tool, BoxZoomTool | PanTool)} == {
        "width"
    }
    assert (plot.toolbar.logo, plot.toolbar_location) == (None, None)
    (hover,) = [tool for tool in plot.toolbar.tools if isinstance(tool, HoverTool)]
    assert "UTC" in str(hover.tooltips)
    assert "{0,0.0}%" in str(hover.tooltips)
    assert "safe" not in str(hover.tooltips)
    assert plot.x_range.end > plot.x_range.start


@pytest.mark.parametrize(
    "seconds", [8, 40, 95, 600, 1000, 3600, 7201, 5 * 3600, 14 * 3600, 24 * 3600, 4 * 86400]
)
def test_the_live_axis_chooses_the_ticks_of_the_drawing(seconds: int) -> None:
    """By Bokeh's rule: the distance whose number of ticks comes nearest to the wanted one."""
    columns = Columns(start_us=examples.START_US + 17_000_000, width_us=seconds * 10_000, count=100)
    figure = drawn(line_of([1.0] * 100), columns=columns)
    drawing, plot = figure.drawing, cast("Any", figure.live)

    (axis,) = plot.below
    distances = []
    ticker: Any
    for ticker in axis.ticker.tickers:
        least, most = ticker.min_interval or 0, ticker.max_interval or 0
        if ticker.mantissas:
            steps = [m * ticker.base**e for m in ticker.mantissas for e in range(-1, 9)]
            # In units of seconds below the hour, of hours above.
            distances += [s for s in {x * (least or 1) for x in steps} if least <= s <= most]
    distances += [86_400_000 * n for n in (1, 7)]
    span_ms = seconds * 1000
    chosen = min(distances, key=lambda ms: abs(axis.ticker.desired_num_ticks - span_ms / ms))
    places = [tick.at for tick in drawing.x.ticks]
    assert chosen == pytest.approx((places[1] - places[0]) * span_ms)


def test_the_live_plot_has_the_line_at_the_top_that_the_drawing_has() -> None:
    plot: Any = drawn(line_of([1.0, 2.0])).live

    grid: Any
    (grid,) = [one for one in plot.center if isinstance(one, Grid)]

    # Bokeh draws none at the very end of a range.
    assert grid.ticker.ticks == pytest.approx([0, 50, 100])
    assert grid.ticker.ticks[-1] < 100


def test_a_device_that_differs_has_a_line_and_the_others_have_the_band() -> None:
    line = line_of([75.0] * 6, low=60.0)
    others = Apart(
        devices=(DeviceLine(device="gpu2", mean=(30.0,) * 6),),
        mean=(90.0,) * 6,
        low=(88.0,) * 6,
        high=(92.0,) * 6,
    )
    line = replace(line, apart=others)
    time = SharedTime(columns_of(line))

    found = time_line([line], time, examples.cpu_job().phases, PERCENT, 100, labels=True, odd=["gpu2"])

    heights = {
        style: {y for run in path(found.drawing, style) for _, y in run} for style in ("line", "s3", "band")
    }
    assert heights == {"line": {10.0}, "s3": {70.0}, "band": {8.0, 12.0}}
    (hover,) = (tool for tool in found.live.toolbar.tools if isinstance(tool, HoverTool))
    assert "gpu2" in str(vars(hover))
    assert "Mean of the others" in str(vars(hover))
