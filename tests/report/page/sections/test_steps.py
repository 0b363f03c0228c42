"""What the section on steps says, and that the drawing and the live plot say the same."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from bokeh.models import Line

from jobreport.document import Origin, Report
from jobreport.page import sections
from jobreport.page.figures import step_parts as parts_figures
from jobreport.page.figures import steps as figures
from jobrules.analyses.step_parts import LastSteps, StepContrast, StepPart
from jobrules.analyses.steps import DeviceSteps, StepBins, StepTimes
from tests.copies import replace
from tests.report.page.sections import example_steps, examples
from tests.report.page.sections.example_steps import START_US
from tests.report.page.sections.html import Page

NAME = "TRAIN"


def times() -> StepTimes:
    return example_steps.step_times(NAME)


def page_of(found: StepTimes | None, **facts: Any) -> Page:
    report: Report = replace(examples.gpu_job(), steps=found, **facts)
    return Page.of(sections.steps(report).html)


def text_of(found: StepTimes | None) -> str:
    return page_of(found).text.replace("\u00a0", " ")


def test_lead_and_caption_state_the_spread_and_the_outliers() -> None:
    text = text_of(times())

    assert "The middle half of the 1,200 TRAIN steps took 0.440 to 0.500 s." in text
    assert "21 of 1,200 TRAIN steps are outliers, longer than mean + 3σ (0.630 s, dashed). 50 ms bins" in text
    assert "The first TRAIN step took 3.25 s, 6.9 times the median" in text


def test_steps_that_are_left_out_are_counted_with_the_reason() -> None:
    device = DeviceSteps(steps=98, p25_s=0.4, median_s=0.41, p75_s=0.42)
    both = text_of(replace(times(), profiled=1200, cut=1, device=device))

    assert "1,200 steps under a profiler and 1 step recorded in part are left out here and in rules." in both
    assert "Measured on the GPU, the middle half of 98 steps took 0.400 to 0.420 s." in both
    assert "1 step recorded in part is left out" in text_of(replace(times(), cut=1))
    assert "left out" not in text_of(times())


def test_outliers_may_be_evaluation_that_the_script_does_not_mark() -> None:
    def text(found: StepTimes, event_type: str = "Forward", *, whole: bool = True) -> str:
        time = examples.framework("conv2d")
        one = replace(time.event_types[0], name=event_type)
        return page_of(found, framework=replace(time, whole_steps=whole, event_types=(one,))).text

    words = "The script marks neither evaluation nor checkpoints, so these are parts of steps."
    assert words in text(times())
    assert words not in text(times(), whole=False)
    assert words not in text(times(), "Checkpoint")
    assert words not in text(replace(times(), marked=""))
    assert words not in text(replace(times(), modes=times().modes * 2))


def test_thresholds_of_ranks_are_a_range() -> None:
    (mode,) = times().modes
    two = replace(mode, ranks=2, evaluated=2, low_limit_s=0.61, outliers=1)

    text = text_of(replace(times(), modes=(two,)))

    assert "1 of 1,200 TRAIN steps is an outlier, longer than mean + 3σ (0.610 to 0.630 s, dashed)." in text
    assert "Mean and σ are those of each rank and mode." in text


def test_steps_that_were_not_evaluated_are_compared_with_the_median() -> None:
    (mode,) = times().modes
    few = replace(mode, steps=50, evaluated=0, outliers=0, low_limit_s=None, high_limit_s=None)
    row = example_steps.row(NAME, steps=50, limit_s=None, outliers=None)

    page = page_of(replace(times(), modes=(few,), rows=(row,), marked="median", marks=2))
    text = page.text.replace("\u00a0", " ")

    assert "2 of 50 TRAIN steps took longer than twice the median." in text
    assert "dashed" not in text
    assert "2 steps are longer than twice the median of its rank and mode, as no step is above" in text
    assert "–: not evaluated (100 steps or fewer)." in text
    assert [line for line in page.all("line") if line.get("class") == "limit"] == []


def test_a_limit_beyond_the_bars_is_said_and_not_drawn() -> None:
    (phase,) = times().modes
    far = replace(times(), modes=(replace(phase, low_limit_s=2.5, high_limit_s=2.5),))

    assert "The threshold is beyond the bars." in text_of(far)
    unit = figures.Unit.of(far)
    drawing = figures.histogram(far, unit, [NAME]).drawing
    assert "limit" not in {rule.style for rule in drawing.rules}
    assert [shape.style for shape in drawing.shapes] == ["u", "f2"]


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"has_events": False}, "Only steps were recorded"),
        ({}, "No event type was recorded in 5 outliers and in normal steps"),
        ({"marks": 1}, "1 outlier is too few to compare"),
        ({"marks": 4}, "4 outliers are too few to compare"),
    ],
)
def test_without_a_comparison_the_reason_is_given(facts: dict[str, Any], reason: str) -> None:
    page = page_of(replace(times(), contrast=None, **facts))

    assert reason in page.text.replace("\u00a0", " ")
    assert "fig-steps-contrast" not in page.ids


def test_without_outliers_there_is_nothing_to_compare() -> None:
    page = page_of(replace(times(), contrast=None, marked="", marks=0))

    assert "compare" not in page.text
    assert "fig-steps-contrast" not in page.ids


def test_the_comparison_names_what_differs_most() -> None:
    text = text_of(times())

    assert "TRAIN ran for 70.5% of the time of outliers and 12.0% of the time of normal steps." in text
    assert "conv2d, GPU 60.0 20.0 -40.0 15 6" in text
    assert "3 event types with smaller differences omitted." in text


@pytest.mark.parametrize(("points", "drawn"), [(2.0, True), (0.9, False)])
def test_a_small_difference_is_a_sentence_and_below_a_point_no_figure(points: float, drawn: bool) -> None:
    base = times().contrast
    assert base
    same = replace(base.classes[0], normal_percent=50.0, outlier_percent=50.0 + points, points=points)

    page = page_of(replace(times(), contrast=StepContrast(classes=(same,), left=0)))

    assert "Outliers spend their time like normal steps: no event type differs by" in page.text
    assert ("no event type differs by more than 2.0 points" in page.text) == drawn
    assert ("fig-steps-contrast" in page.ids) == drawn
    assert ("live-steps-contrast" in page.scripts[0][1]) == drawn


def test_what_makes_the_last_steps_differ_is_named() -> None:
    text = text_of(times())

    assert "Last 4 TRAIN steps: Data loading takes 73.8% of the time." in text
    assert "Bars last 0.360 to 1.06 s, the last one 0.160 s. They differ mostly in Data loading." in text


def test_what_was_no_longer_recorded_in_the_last_steps_is_named() -> None:
    inside, after = (
        StepPart(name=name, role=role, time_us=(us,) * 4, percent=percent)
        for name, role, us, percent in (
            ("In the step", "work", 300_000, 99.6),
            ("To the next step", "wait", 1000, 0.4),
        )
    )
    forward = replace(inside, name="Forward", percent=27.8)
    nothing = replace(after, name="Unaccounted", role="unknown", percent=72.2)
    bare = replace(times().last, parts=(inside, after), by_event=False)
    partly = replace(times().last, parts=(forward, nothing))

    def text(last: LastSteps, ended: str = "") -> str:
        ended_us = START_US if ended else None
        return text_of(replace(times(), last=replace(last, ended=ended, ended_us=ended_us)))

    assert "99.6% of the time is inside steps." in text(bare)
    assert "No events were recorded for these steps" in text(bare)
    assert "99.6% of the time is inside steps; the forward pass was recorded only until 08:05:00." in text(
        bare, "Forward"
    )
    assert "no event covers 72.2% of the time." in text(partly)
    assert "no event covers 72.2% of the time; data loading was recorded only until 08:05:00." in text(
        partly, "Data loading"
    )


def test_the_time_to_the_next_step_has_the_color_of_lost_time() -> None:
    parts = (
        StepPart(name="In the step", role="work", time_us=(300_000,) * 4, percent=99.6),
        StepPart(name="To the next step", role="wait", time_us=(1000,) * 4, percent=0.4),
    )

    assert [parts_figures.fill(part, parts) for part in parts] == ["u", "l"]


def test_the_mode_with_most_time_comes_first() -> None:
    (mode,) = times().modes
    minor = replace(mode, mode="EVAL", steps=64, p25_s=0.1, p75_s=0.2)

    text = text_of(replace(times(), modes=(mode, minor)))

    assert (
        "The middle half of the 1,200 TRAIN steps took 0.440 to 0.500 s, of the 64 EVAL steps 0.100 to 0.200 s."
        in text
    )


def test_ranks_that_print_equally_are_one_row_and_share_the_first_step() -> None:
    rows = tuple(
        example_steps.row(f"node-{i // 2}", rank=str(i), mode="TRAIN", median_s=0.5 if i == 5 else 0.47)
        for i in range(6)
    )
    other = replace(rows[1], first_s=2.0)

    text, equal, one, some = (
        text_of(replace(times(), rows=few)) for few in (rows, rows[:5], (rows[0], other), (*rows[:2], other))
    )

    assert "node-0/0, node-0/1, node-1/2, and 2 more, equal TRAIN 1,200 21" in text
    assert "node-2 5 TRAIN 1,200 21" in text
    assert "The first TRAIN step took 3.25 s on all 6 ranks, 6.9 times" in text
    assert "all 5 ranks, equal TRAIN 1,200 21" in equal
    assert "took 3.25 s on rank 0, 6.9 times" in one
    assert "took 3.25 s on 2 of 3 ranks, 6.9 times" in some


def test_many_rows_are_folded_and_the_rest_is_counted() -> None:
    rows = tuple(example_steps.row(f"node-{i}", mean_s=0.48 + i / 100) for i in range(20))

    page = page_of(replace(times(), rows=rows, rows_left=7))

    assert "Rows with most outliers come first, then the slowest." in page.text
    assert "7 more rows omitted." in page.text.replace("\u00a0", " ")
    assert "Data: 4 more ranks and modes" in page.text
    assert all(f"node-{i}" in page.text for i in range(20))


def test_nothing_recorded_is_said_with_the_reason() -> None:
    assert "No steps were recorded." in page_of(None).text
    rules = examples.gpu_job().rules
    card = next(card for card in rules if card.name == "LowGPUUtilization")
    vendor = page_of(None, origin=Origin.DEBUGGER_RESULTS, rules=(replace(card, name="StepOutlier"),))
    assert "For its figures of all steps, see StepOutlier." in vendor.text
    assert "#r-StepOutlier" in vendor.links
    assert "#r-StepOutlier" not in page_of(None, origin=Origin.DEBUGGER_RESULTS, rules=()).links


# --- the drawing and the live plot


def _several() -> StepTimes:
    base = times()
    other = StepBins(node="", rank="", mode="EVAL", counts=(5, 1, 0, 0, 0, 0, 0), beyond=0)
    histogram = replace(base.histogram, series=(*base.histogram.series, other))
    return replace(base, histogram=histogram)


def _rectangles(path: str) -> list[tuple[float, float, float, float]]:
    """Left, right, bottom and top in percent of the frame, upwards."""
    found = re.findall(r"M([\d.]+) ([\d.]+)H([\d.]+)V([\d.]+)", path)
    return [(float(a) / 10, float(c) / 10, 100 - float(d), 100 - float(b)) for a, b, c, d in found]


def test_the_histogram_is_whole_and_what_lies_beyond_is_one_bar() -> None:
    drawing = figures.histogram(times(), figures.Unit.of(times()), [NAME]).drawing

    drawn = [one for shape in drawing.shapes for one in _rectangles(shape.path)]
    assert max(example_steps.COUNTS) <= drawing.y.end
    assert "21" in [word.text for word in drawing.words]
    assert [tick.label for tick in drawing.x.ticks][-1] == "to 3.25\u00a0s"
    assert drawn[-1][0] > drawn[-2][1]
    (limit,) = [rule for rule in drawing.rules if rule.style == "limit"]
    assert limit.x1 == pytest.approx(float(drawing.x.place(0.63)))


def test_several_series_are_outlines_that_the_key_switches() -> None:
    figure = figures.histogram(_several(), figures.Unit.of(_several()), ["a", "b"])

    live: Any = figure.live
    assert {r.name for r in live.renderers if isinstance(r.glyph, Line)} == {"s1", "s2"}
    assert [shape.style for shape in figure.drawing.shapes] == ["s1", "s1", "s2"]


def test_the_time_line_keeps_the_peak() -> None:
    unit, phases = figures.Unit.of(times()), examples.gpu_job().phases
    drawing = figures.over_time(times(), phases, unit, [NAME]).drawing

    columns, marks = drawing.shapes
    assert (columns.style, marks.style) == ("u", "l")
    # The column without a step is left free.
    assert len(_rectangles(columns.path)) == 19
    peak = max(top for *_, top in _rectangles(columns.path))
    assert peak == pytest.approx(100 * 3.25 / drawing.y.end, abs=1.5)


def test_few_steps_that_last_much_longer_make_the_axis_one_of_powers_of_ten() -> None:
    base = times()
    (course,) = base.timeline.series
    long = replace(course, high_us=(60_000_000, *course.high_us[1:]), outlier_us=(60_000_000,))
    far = replace(
        base,
        timeline=replace(base.timeline, series=(long,)),
        histogram=replace(base.histogram, longest_us=60_000_000),
    )

    drawing = figures.over_time(far, examples.gpu_job().phases, figures.Unit.of(far), [NAME]).drawing

    assert "logarithmic scale" in text_of(far)
    labels = [tick.label for tick in drawing.y.ticks]
    assert labels == ["0.1", "1", "10", "100\u00a0s"]
    tops = [top for *_, top in _rectangles(drawing.shapes[0].path)]
    assert tops[0] == pytest.approx(100 * (np.log10(60) + 1) / 3, abs=1)
    assert tops[1] == pytest.approx(100 * (np.log10(0.56) + 1) / 3, abs=1)


def test_normal_steps_stand_above_outliers() -> None:
    contrast = times().contrast
    assert contrast

    normal, outliers = parts_figures.contrast(contrast).drawing.shapes

    assert (normal.style, outliers.style) == ("u", "l")
    for above, below in zip(_rectangles(normal.path), _rectangles(outliers.path), strict=True):
        assert above[2] > below[3]


def test_the_last_steps_have_work_at_the_bottom_and_no_events_at_the_top() -> None:
    drawing = parts_figures.last_steps(times().last, figures.Unit.of(times())).drawing

    assert [shape.style for shape in drawing.shapes] == ["u", "n2", "l"]
    assert {bottom for *_, bottom, _ in _rectangles(drawing.shapes[0].path)} == {0.0}
    assert len(drawing.areas) == len(times().last.numbers)


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
