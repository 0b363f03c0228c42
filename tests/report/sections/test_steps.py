"""What the section on steps says, and that the drawing and the live plot say the same."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from bokeh.models import HBar, Line, Quad

from jobreport import sections
from jobreport.document import Origin, Report
from jobreport.figures import step_parts as parts_figures
from jobreport.figures import steps as figures
from jobreport.figures import theme
from jobrules.analyses.step_parts import ClassShare, LastSteps, StepContrast, StepPart
from jobrules.analyses.steps import StepBins, StepTimes
from tests.copies import replace
from tests.report.sections import example_steps, examples
from tests.report.sections.example_steps import START_US
from tests.report.sections.html import Page

NAME = "TRAIN"


def times() -> StepTimes:
    return example_steps.step_times(NAME)


def page_of(found: StepTimes | None, **facts: Any) -> Page:
    report: Report = replace(examples.gpu_job(), steps=found, **facts)
    return Page.of(sections.steps(report).html)


def text_of(found: StepTimes | None) -> str:
    return page_of(found).text.replace("\u00a0", " ")


def test_the_caption_states_the_spread_and_the_outliers() -> None:
    text = text_of(times())

    assert "Half of the 1,200 TRAIN steps take 0.440 to 0.500 s." in text
    assert (
        "21 of the 1,200 TRAIN steps took longer than mean + 3σ (0.630 s). Count of steps, 50 ms a bar"
        in text
    )
    assert "21 steps of 0.650 s or more, up to 3.25 s, counted as one bar" in text
    assert "The first step took 3.25 s, 6.9 times the median" in text


def test_workers_with_different_limits_are_told_as_a_range() -> None:
    (phase,) = times().modes
    two = replace(phase, ranks=2, evaluated=2, low_limit_s=0.61, outliers=1)

    text = text_of(replace(times(), modes=(two,)))

    assert "1 of the 1,200 TRAIN steps took longer than mean + 3σ of its worker (0.610 to 0.630 s)." in text


def test_steps_that_were_not_judged_are_told_by_the_median_and_have_no_limit() -> None:
    (phase,) = times().modes
    few = replace(phase, steps=50, evaluated=0, outliers=0, low_limit_s=None, high_limit_s=None)
    row = example_steps.row(NAME, steps=50, limit_s=None, outliers=None)

    page = page_of(replace(times(), modes=(few,), rows=(row,), marked="median", marks=2))
    text = page.text.replace("\u00a0", " ")

    assert "2 of the 50 TRAIN steps took longer than twice the median." in text
    assert "Dashed" not in text
    assert "2 steps are longer than twice the median of its worker and phase, as no step is above" in text
    assert "Outliers are not judged (–)" in text
    assert [line for line in page.all("line") if line.get("class") == "limit"] == []


def test_a_limit_beyond_the_bars_is_said_and_not_drawn() -> None:
    (phase,) = times().modes
    far = replace(times(), modes=(replace(phase, low_limit_s=2.5, high_limit_s=2.5),))

    assert "The limit of StepOutlier lies beyond the bars." in text_of(far)
    unit = figures.Unit.of(far)
    assert [rule for rule in figures.histogram_drawing(far, unit).rules if rule.style == "limit"] == []
    (quad,) = _quads(figures.histogram_plot(far, unit, [NAME]))
    colors = set(quad.data["color"])
    assert theme.light()["lost"] not in colors


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({"marked": "", "marks": 0}, "No step is an outlier"),
        ({"has_events": False}, "no events were recorded besides the steps"),
        ({}, "no class of events was recorded in 5 outliers and in normal steps"),
        ({"marks": 1}, "Only 1 step is an outlier: too few to tell"),
        ({"marks": 4}, "Only 4 steps are outliers: too few to tell"),
    ],
)
def test_without_a_comparison_the_reason_is_said(facts: dict[str, Any], told: str) -> None:
    page = page_of(replace(times(), contrast=None, **facts))

    assert told in page.text
    assert "fig-steps-contrast" not in page.ids


def test_the_comparison_names_what_differs_most() -> None:
    text = text_of(times())

    assert "TRAIN is going on in 70.5% of the time of outliers and in 12.0% of that of normal steps." in text
    assert "conv2d, GPU 60.0 20.0 -40.0 15 6" in text
    assert "3 classes that differ less are left out." in text


def test_a_comparison_without_a_difference_says_so() -> None:
    same = ClassShare(
        name="F",
        device="",
        normal_percent=50.0,
        outlier_percent=52.0,
        points=2.0,
        normal_steps=1,
        outlier_steps=1,
    )
    text = text_of(replace(times(), contrast=StepContrast(classes=(same,), left=0)))

    assert "no class differs by more than 2.0 points" in text


def test_a_difference_below_a_point_is_a_sentence_and_no_figure() -> None:
    base = times().contrast
    assert base
    same = replace(base.classes[0], normal_percent=50.0, outlier_percent=50.9, points=0.9)

    page = page_of(replace(times(), contrast=StepContrast(classes=(same,), left=0)))

    assert "no class of events differs by 1 point or more" in page.text or "by 1 point or more" in page.text
    assert "fig-steps-contrast" not in page.ids
    assert "live-steps-contrast" not in page.scripts[0][1]


def test_what_makes_the_last_steps_differ_is_named() -> None:
    text = text_of(times())

    assert (
        "Data loading takes most of these steps, 73.8%. A bar lasts 0.360 to 1.06 s, the last one 0.160 s;"
        in text
    )
    assert "what makes them differ is mostly Data loading." in text
    assert "to the start of the next, the last bar to its own end." in text
    assert "The last 4 TRAIN steps of worker 0 of TRAIN" in text


def test_last_steps_without_events_say_so() -> None:
    parts = (
        StepPart(name="In the step", role="work", time_us=(300_000,) * 4, percent=99.6),
        StepPart(name="To the next step", role="other", time_us=(1000, 2000, 1000, 0), percent=0.4),
    )
    bare = replace(times(), last=replace(times().last, parts=parts, by_event=False))

    assert "No events were recorded for them, so" in text_of(bare)
    last = replace(bare.last, ended="Forward", ended_us=START_US)
    told = text_of(replace(bare, last=last))
    assert "for them (the forward pass was recorded until 08:05:00 UTC), so" in told


def test_what_no_event_tells_names_what_was_no_longer_recorded() -> None:
    parts = (
        StepPart(name="Forward", role="work", time_us=(100_000,) * 4, percent=27.8),
        StepPart(name="Unaccounted", role="unknown", time_us=(260_000,) * 4, percent=72.2),
    )
    last = replace(times().last, parts=parts, total_us=(360_000,) * 4)

    def told(last: LastSteps) -> str:
        return text_of(replace(times(), last=last))

    until = told(replace(last, ended="Data loading", ended_us=START_US))
    bare = "Nothing was recorded in 72.2% of the time of these steps"
    assert f"{bare}; data loading was recorded until 08:05:00 UTC. A bar lasts 0.360 s." in until
    assert f"{bare}. A bar lasts" in told(last)


def test_the_time_to_the_next_step_has_the_color_of_lost_time() -> None:
    parts = (
        StepPart(name="In the step", role="work", time_us=(300_000,) * 4, percent=99.6),
        StepPart(name="To the next step", role="wait", time_us=(1000,) * 4, percent=0.4),
    )

    assert [parts_figures.fill(part, parts) for part in parts] == [("u", "used"), ("l", "lost")]


def test_the_phase_with_most_time_comes_first() -> None:
    (phase,) = times().modes
    minor = replace(phase, mode="EVAL", steps=64, p25_s=0.1, p75_s=0.2)

    text = text_of(replace(times(), modes=(phase, minor)))

    assert (
        text.index("Half of the 1,200 TRAIN") < text.index("Half of the 64 EVAL") < text.index("Figure 5.1.")
    )


def test_workers_that_print_alike_are_one_row_and_a_shared_longest_is_said() -> None:
    rows = tuple(
        example_steps.row(f"node-{i // 2}", rank=str(i), median_s=0.5 if i == 5 else 0.47) for i in range(6)
    )

    text = text_of(replace(times(), rows=rows))
    alike = text_of(replace(times(), rows=rows[:5]))
    one = text_of(replace(times(), rows=(rows[0], replace(rows[1], first_s=2.0, node="node-0"))))

    assert "node-0/0, node-0/1, node-1/2 and 2 more, alike TRAIN 1,200 21" in text
    assert "node-2 5 TRAIN 1,200 21" in text
    assert "equally of 6 workers, took 3.25 s" in text
    assert "5 workers, alike TRAIN 1,200 21" in alike
    assert "The longest first step, of worker 0 TRAIN, took 3.25 s" in one


def test_many_rows_are_folded_and_the_rest_is_counted() -> None:
    rows = tuple(example_steps.row(f"node-{i}", mean_s=0.48 + i / 100) for i in range(20))

    page = page_of(replace(times(), rows=rows, rows_left=7))

    assert (
        "of 27 workers and phases those with most outliers first, then the slowest, the first 16" in page.text
    )
    assert "7 are left out" in page.text
    assert "Data: 4 more workers and phases" in page.text
    assert all(f"node-{i}" in page.text for i in range(20))


def test_nothing_recorded_is_said_with_the_reason() -> None:
    assert "No step was recorded." in page_of(None).text
    rules = examples.gpu_job().rules
    card = next(card for card in rules if card.name == "LowGPUUtilization")
    vendor = page_of(None, origin=Origin.DEBUGGER_RESULTS, rules=(replace(card, name="StepOutlier"),))
    assert "its figures of all steps stand in the card of StepOutlier." in vendor.text
    assert "#r-StepOutlier" in vendor.links
    assert "#r-StepOutlier" not in page_of(None, origin=Origin.DEBUGGER_RESULTS, rules=()).links


def test_hostile_names_stay_text() -> None:
    page = Page.of(sections.steps(examples.hostile_job()).html)

    assert page.faults == []
    assert [attributes.get("type") for attributes, _ in page.scripts] == ["application/json"]
    assert all("<" not in text for _, text in page.scripts)


def test_every_live_plot_has_its_place_and_every_key_its_series() -> None:
    page = page_of(_several())

    (script,) = page.scripts
    roots = json.loads(script[1])["roots"]
    places = {i for i in page.ids if i.startswith("live-steps")}
    assert (
        set(roots.values())
        == places
        == {f"live-steps-{name}" for name in ("histogram", "time", "contrast", "last")}
    )
    series = {str(one["data-series"]) for one in page.all("span") if "data-series" in one}
    assert series == {"s1", "s2", "normal", "outlier"}


# --- the drawing and the live plot


def _several() -> StepTimes:
    base = times()
    other = StepBins(node="", rank="", mode="EVAL", counts=(5, 1, 0, 0, 0, 0, 0), beyond=0)
    histogram = replace(base.histogram, series=(*base.histogram.series, other))
    return replace(base, histogram=histogram)


def _quads(plot: Any) -> list[Any]:
    found = [r for r in plot.renderers if isinstance(r.glyph, Quad)]
    return [one.data_source for one in found]


def _rectangles(path: str) -> list[tuple[float, float, float, float]]:
    """Left, right, bottom and top in percent of the frame, upwards."""
    found = re.findall(r"M([\d.]+) ([\d.]+)H([\d.]+)V([\d.]+)", path)
    return [(float(a) / 10, float(c) / 10, 100 - float(d), 100 - float(b)) for a, b, c, d in found]


def _places(plot: Any, source: Any, bottom: str | float = 0.0, top: str = "top") -> list[list[float]]:
    x, y = plot.x_range, plot.y_range
    data = source.data
    n = len(data["left"])
    low = np.full(n, bottom) if isinstance(bottom, float) else np.asarray(data[bottom], float)
    columns = (
        (np.asarray(data["left"], float) - x.start) / (x.end - x.start),
        (np.asarray(data["right"], float) - x.start) / (x.end - x.start),
        (low - y.start) / (y.end - y.start),
        (np.asarray(data[top], float) - y.start) / (y.end - y.start),
    )
    return [[100 * v for v in one] for one in zip(*columns, strict=True) if one[3] > one[2]]


def _same(drawn: Sequence[Sequence[float]], live: Sequence[Sequence[float]]) -> None:
    assert len(drawn) == len(live) > 0
    assert np.array(drawn) == pytest.approx(np.array(live), abs=0.11)


def test_histogram_drawing_and_plot_are_the_same() -> None:
    unit = figures.Unit.of(times())
    drawing = figures.histogram_drawing(times(), unit)
    plot: Any = figures.histogram_plot(times(), unit, [NAME])

    drawn = [one for shape in drawing.shapes for one in _rectangles(shape.path)]
    (source,) = _quads(plot)
    _same(drawn, _places(plot, source, top="count"))
    # The tallest bar is whole, and what lies beyond is one bar with its count.
    assert max(example_steps.COUNTS) <= plot.y_range.end
    assert "21" in [word.text for word in drawing.words]
    assert [tick.label for tick in drawing.x.ticks][-1] == "to 3.25\u00a0s"
    assert drawn[-1][0] > drawn[-2][1]
    (limit,) = [rule for rule in drawing.rules if rule.style == "limit"]
    assert limit.x1 == pytest.approx(
        100 * (0.63 - plot.x_range.start) / (plot.x_range.end - plot.x_range.start)
    )


def test_several_series_are_outlines_that_the_key_switches() -> None:
    unit = figures.Unit.of(_several())
    plot: Any = figures.histogram_plot(_several(), unit, ["a", "b"])

    names = {r.name for r in plot.renderers if isinstance(r.glyph, Line)}
    assert names == {"s1", "s2"}
    assert [shape.style for shape in figures.histogram_drawing(_several(), unit).shapes] == ["s1", "s1", "s2"]


def test_time_line_drawing_and_plot_are_the_same_and_keep_the_peak() -> None:
    unit, course = figures.Unit.of(times()), examples.gpu_job().phases
    drawing = figures.timeline_drawing(times(), course, unit)
    plot: Any = figures.timeline_plot(times(), course, unit, [NAME])

    for shape, source in zip(drawing.shapes, _quads(plot), strict=True):
        _same(_rectangles(shape.path), _places(plot, source, "bottom"))
    columns, marks = drawing.shapes
    assert (columns.style, marks.style) == ("u", "l")
    # The column without a step is left free.
    assert len(_rectangles(columns.path)) == 19
    peak = max(top for *_, top in _rectangles(columns.path))
    assert peak == pytest.approx(100 * 3.25 / plot.y_range.end, abs=1.5)


def test_few_steps_that_last_much_longer_make_the_axis_one_of_powers_of_ten() -> None:
    base = times()
    (course,) = base.timeline.series
    long = replace(course, high_us=(60_000_000, *course.high_us[1:]), outlier_us=(60_000_000,))
    far = replace(
        base,
        timeline=replace(base.timeline, series=(long,)),
        histogram=replace(base.histogram, longest_us=60_000_000),
    )

    drawing = figures.timeline_drawing(far, examples.gpu_job().phases, figures.Unit.of(far))

    assert "by powers of ten" in text_of(far)
    labels = [tick.label for tick in drawing.y.ticks]
    assert labels == ["0.1", "1", "10", "100"]
    tops = [top for *_, top in _rectangles(drawing.shapes[0].path)]
    assert tops[0] == pytest.approx(100 * (np.log10(60) + 1) / 3, abs=1)
    assert tops[1] == pytest.approx(100 * (np.log10(0.56) + 1) / 3, abs=1)


def test_contrast_drawing_and_plot_are_the_same() -> None:
    contrast = times().contrast
    assert contrast
    drawing = parts_figures.contrast_drawing(contrast)
    plot: Any = parts_figures.contrast_plot(contrast)

    for shape, renderer in zip(drawing.shapes, plot.renderers, strict=True):
        glyph = renderer.glyph
        assert isinstance(glyph, HBar)
        data = renderer.data_source.data
        middle, width = data[glyph.y], data[glyph.right]
        expected = [
            [0, 100 * w / plot.x_range.end, 100 * (y - 0.16 + 2) / 2, 100 * (y + 0.16 + 2) / 2]
            for y, w in zip(middle, width, strict=True)
        ]
        _same(_rectangles(shape.path), expected)


def test_last_steps_drawing_and_plot_are_the_same_with_work_at_the_bottom() -> None:
    unit, last = figures.Unit.of(times()), times().last
    drawing, plot = parts_figures.last_drawing(last, unit), parts_figures.last_plot(last, unit)

    sources = _quads(plot)
    for shape, source in zip(drawing.shapes, sources, strict=False):
        _same(_rectangles(shape.path), _places(plot, source, "bottom"))
    hatched = [(a.x, a.x + a.width, 100 - a.y - a.height, 100 - a.y) for a in drawing.areas]
    _same(hatched, _places(plot, sources[-1], "bottom"))
    assert [shape.style for shape in drawing.shapes] == ["u", "n2", "l"]
    assert {bottom for *_, bottom, _ in _rectangles(drawing.shapes[0].path)} == {0.0}


@pytest.mark.parametrize(
    ("median_s", "name", "words"),
    [
        (30.0, "s", "30.0\u00a0s"),
        (0.012, "ms", "12.0\u00a0ms"),
        (0.00005, "µs", "50\u00a0µs"),
        (0.0, "s", "0\u00a0s"),
    ],
)
def test_the_unit_suits_the_steps(median_s: float, name: str, words: str) -> None:
    (phase,) = times().modes
    unit = figures.Unit.of(replace(times(), modes=(replace(phase, median_s=median_s),)))

    assert (unit.name, unit.short(median_s * 1e6)) == (name, words)
