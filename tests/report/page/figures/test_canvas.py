"""A canvas puts the same marks at the same places of the static drawing and of the live plot."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from jobreport import assets
from jobreport.page.figures import theme
from jobreport.page.figures.canvas import FILLS, STROKES, Canvas
from jobreport.page.figures.chart import Axis, Shape, over_time, upward
from jobreport.page.figures.models import GlyphRenderer, Span, VBar
from jobreport.page.figures.over_time import SharedTime, TimeCanvas, bundled
from jobrules.analyses.time_lines import Columns

START_US = 1_763_107_200_000_000
TIME = over_time(START_US, START_US + 100_000_000)
PLAIN = upward(10)


def canvas(x: Axis = PLAIN) -> Canvas:
    return Canvas(x, upward(100, unit="%"))


def glyphs(drawn: Canvas) -> list[Any]:
    return [one for one in drawn.live.renderers if isinstance(one, GlyphRenderer)]


def places(drawn: Canvas, axis: Axis, live: Any) -> Any:
    """Live values in percent of the axis."""
    start, end = (float(axis.live(one)) for one in (axis.start, axis.end))
    return (100 * (np.asarray(live, np.float64) - start) / (end - start)).round(3).tolist()


@pytest.mark.parametrize(("x", "left", "right"), [(PLAIN, [0, 5], [2, 10]), (TIME, [0, 50e6], [20e6, 100e6])])
def test_bars_have_the_same_sides_in_both(x: Axis, left: list[float], right: list[float]) -> None:
    drawn = canvas(x)

    drawn.bars("u", (x.start + np.array(left), x.start + np.array(right), 0, [30, 60]), {"name": ["a", "b"]})

    (shape,) = drawn.figure.drawing.shapes
    assert shape.path == "M0 70H200V100H0zM500 40H1000V100H500z"
    (one,) = glyphs(drawn)
    data = one.data_source.data
    assert places(drawn, x, data["left"]) == [0, 50]
    assert places(drawn, x, data["right"]) == [20, 100]
    assert (one.glyph.bottom, data["top"].tolist(), data["name"]) == (0, [30, 60], ["a", "b"])


def test_unknown_bars_are_hatched_and_empty_ones_left_out() -> None:
    drawn = canvas()

    drawn.bars("x", ([0, 5], [2, 5], [10, 0], [60, 50]))
    drawn.hatch([(-3, 1), (8, 20), (30, 40)])

    areas = [(area.x, area.y, area.width, area.height) for area in drawn.figure.drawing.areas]
    assert areas == [(0, 40, 20, 50), (0, 0, 10, 100), (80, 0, 20, 100)]
    assert all(one.glyph.hatch_pattern and one.glyph.fill_color is None for one in glyphs(drawn))
    assert places(drawn, drawn.x, glyphs(drawn)[1].data_source.data["right"]) == [10, 100]


def test_bars_without_a_style_answer_to_the_pointer_only() -> None:
    drawn = canvas()

    drawn.bars("", ([0], [2], 0, [60]), series="s1")

    assert drawn.figure.drawing.marks == ()
    assert [(one.name, one.glyph.fill_color, one.glyph.line_color) for one in glyphs(drawn)] == [
        ("s1", None, None)
    ]


def test_lines_outlines_and_segments_have_the_same_points_in_both() -> None:
    drawn = canvas()

    drawn.line("s2", [0, 5, 10], [0, 50, 100], series="gpu")
    drawn.outline("s1", [0, 5, 10], [20, 40])
    drawn.segments("median", ([0, 5], [5, 10], [50, 60], [50, 60]))

    first, second = drawn.figure.drawing.shapes
    assert (first.series, first.path) == ("gpu", "M0 100l500-50 500-50")
    assert second.path == "M0 100l0-20 500 0 0-20 500 0 0 40"
    line, outline, segments = glyphs(drawn)
    assert line.name == "gpu"
    assert (line.data_source.data["x"].tolist(), line.data_source.data["y"].tolist()) == (
        [0, 5, 10],
        [0, 50, 100],
    )
    assert outline.data_source.data["y"].tolist() == [0, 20, 20, 40, 40, 0]
    rules = [(rule.x1, rule.x2, rule.y1) for rule in drawn.figure.drawing.rules]
    assert rules == [(0, 50, 50), (50, 100, 40)]
    assert segments.data_source.data["y0"].tolist() == [50, 60]


def test_upright_lines_and_levels_are_at_the_same_places_in_both() -> None:
    drawn = canvas(TIME)

    drawn.upright("dots", [START_US + 25_000_000])
    drawn.level("limit", 70)

    upright, level = drawn.figure.drawing.rules
    spans: dict[str, Any] = {one.dimension: one for one in drawn.live.center if isinstance(one, Span)}
    assert (upright.style, upright.x1) == ("dots", 25)
    assert places(drawn, TIME, spans["height"].location) == 25
    assert (level.style, level.y1, spans["width"].location) == ("limit", 30, 70)


@pytest.mark.parametrize(("anchor", "align"), [("start", "left"), ("middle", "center"), ("end", "right")])
def test_words_stand_at_the_same_places_in_both(anchor: str, align: str) -> None:
    drawn = canvas()

    drawn.text([(5, 50, "$$a$$"), (10, 100, "b")], anchor=anchor, dx=0.5, dy=-0.4, style="")
    drawn.text([], style="strong")

    first, second = drawn.figure.drawing.words
    assert [(one.text, one.x, one.y, one.anchor) for one in (first, second)] == [
        ("$$a$$", 50, 50, anchor),
        ("b", 100, 0, anchor),
    ]
    (live,) = glyphs(drawn)
    assert live.data_source.data["text"] == ["$$a$$", "b"]
    assert (live.glyph.text_align, live.glyph.x_offset, live.glyph.y_offset) == (align, 6, -9)
    assert live.glyph.text_color == theme.light()["ink2"]


def test_every_style_is_a_class_of_the_style_sheet_and_its_token_a_color() -> None:
    sheet = assets.text("style/drawing.css")

    for style in {*FILLS, *STROKES}:
        assert re.search(rf"\.jr [^{{]*\.{style}\b", sheet), style
    assert set(FILLS.values()) | {token for token, _, _ in STROKES.values()} <= set(theme.TOKENS)


COLUMNS = Columns(start_us=START_US, width_us=5_000_000, count=8)
VALUES = np.array([0.0, 25.4, 25.4, np.nan, np.nan, 100.0, 0.0, 60.0])


def test_bands_and_curves_over_time_share_one_table_and_one_range() -> None:
    time = SharedTime(COLUMNS)
    first, second = (TimeCanvas(time, upward(100), labels=labels) for labels in (False, True))

    names = first.band("l", 0 * VALUES, VALUES), first.curve("line", VALUES)
    again = second.curve("line", VALUES)

    data: Any = time.source.data
    assert set(data) == {"time", "v1", "v2"}
    assert names == (("v1", "v2"), "v2")
    assert again == "v2"
    assert data["time"].tolist() == [START_US / 1000 + 2500 + 5000 * i for i in range(8)]
    assert np.array_equal(data["v2"], VALUES.astype(np.float32), equal_nan=True)
    band, line = (one for one in first.figure.drawing.marks if isinstance(one, Shape))
    assert band.path.startswith("M0 100h125v-25.4h250v25.4h-375z")
    # A lone stretch reaches from edge to edge of its columns.
    assert line.path.startswith("M0 100l62.5 0 125-25.4")
    (bar, _) = glyphs(first)
    assert isinstance(bar.glyph, VBar)
    assert bar.glyph.width == 5000
    assert first.live.x_range is second.live.x_range
    assert (first.live.min_border_bottom or 0) < (second.live.min_border_bottom or 0)


def test_live_bands_of_percent_are_whole_and_rounded_outwards() -> None:
    time = SharedTime(Columns(start_us=0, width_us=1, count=1))

    names = TimeCanvas(time, upward(100), whole=True).band("band", np.array([10.1]), np.array([10.7]))

    data: Any = time.source.data
    assert [data[name].tolist() for name in names] == [[10], [11]]
    assert data[names[0]].dtype == np.uint8


def test_the_last_bundle_may_reach_beyond_the_end() -> None:
    assert bundled(COLUMNS, 3) == Columns(start_us=START_US, width_us=15_000_000, count=3)
    assert SharedTime(COLUMNS, 3).axis.end == START_US + 40_000_000


def test_the_ends_of_axes_have_their_unit() -> None:
    assert [tick.label for tick in upward(100, 4, unit="%").ticks] == ["0", "25", "50", "75", "100%"]
