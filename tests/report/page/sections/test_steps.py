"""What the section on steps says, and that the drawing and the live plot say the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from jobreport.document import Origin, Report
from jobreport.page import sections
from jobreport.page.figures import step_parts as parts_figures
from jobreport.page.figures import steps as figures
from jobreport.page.figures.models import Line
from jobrules.analyses.step_parts import LastSteps, StepContrast, StepPart
from jobrules.analyses.steps import DeviceSteps, StepBins, StepTimes
from jobrules.model import Status
from jobrules.model.time_parts import named
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


def shown(found: StepTimes | None, **facts: Any) -> sections.Fragment:
    return sections.steps(replace(examples.gpu_job(), steps=found, **facts))


def changed(**changes: Any) -> sections.Fragment:
    return shown(replace(times(), **changes))


def with_mode(**changes: Any) -> sections.Fragment:
    return changed(modes=(replace(times().modes[0], **changes),))


def with_events(name: str = "Forward", *, whole: bool = True, **changes: Any) -> sections.Fragment:
    time = examples.framework("conv2d")
    types = (replace(time.event_types[0], name=name),)
    return shown(replace(times(), **changes), framework=replace(time, whole_steps=whole, event_types=types))


def parts(*given: tuple[str, int, float]) -> tuple[StepPart, ...]:
    """Of the last four steps, from key, time, and percent."""
    return tuple(
        StepPart(key=key, label=named(key).title, role=named(key).role, time_us=(us,) * 4, percent=percent)
        for key, us, percent in given
    )


def with_last(found: LastSteps, ended: str = "") -> sections.Fragment:
    return changed(last=replace(found, ended=ended, ended_us=START_US if ended else None))


def with_difference(points: float) -> sections.Fragment:
    base = times().contrast
    assert base
    same = replace(base.classes[0], normal_percent=50.0, outlier_percent=50.0 + points, points=points)
    return changed(contrast=StepContrast(classes=(same,), left=0))


def far() -> StepTimes:
    """With a step that takes a minute."""
    base = times()
    (course,) = base.timeline.series
    long = replace(course, high_us=(60_000_000, *course.high_us[1:]), outlier_us=(60_000_000,))
    return replace(
        base,
        timeline=replace(base.timeline, series=(long,)),
        histogram=replace(base.histogram, longest_us=60_000_000),
    )


EVENTLESS = replace(
    times().last,
    parts=parts(("in-steps", 300_000, 99.6), ("outside-steps", 1000, 0.4)),
    by_event=False,
)
UNACCOUNTED = replace(times().last, parts=parts(("forward", 300_000, 27.8), ("no-event", 1000, 72.2)))
FEW = replace(times().modes[0], steps=50, evaluated=0, outliers=0, low_limit_s=None, high_limit_s=None)
RANKS = tuple(
    example_steps.row(f"node-{i // 2}", rank=str(i), mode="TRAIN", median_s=0.5 if i == 5 else 0.47)
    for i in range(6)
)
LATER = replace(RANKS[1], first_s=2.0)
#: Median of the steps of each rank.
RANKS_US = (470_000, 468_000, 590_000, 471_000)


def of_ranks(medians_us: Sequence[int], **facts: Any) -> sections.Fragment:
    rows = tuple(example_steps.row(NAME, rank=str(i)) for i in range(len(medians_us)))
    return changed(rows=rows, of_ranks=example_steps.of_ranks(medians_us, **facts))


VARIANTS: dict[str, Callable[[], sections.Fragment]] = {
    "usual": lambda: shown(times()),
    "left out": lambda: changed(
        profiled=1200, cut=1, device=DeviceSteps(steps=98, p25_s=0.4, median_s=0.41, p75_s=0.42)
    ),
    "not marked by the script": with_events,
    "no outliers": lambda: with_events(marked=""),
    "two modes, not marked by the script": lambda: with_events(modes=times().modes * 2),
    "thresholds of ranks": lambda: with_mode(ranks=2, evaluated=2, low_limit_s=0.61, outliers=1),
    "not evaluated": lambda: changed(
        modes=(FEW,),
        rows=(example_steps.row(NAME, steps=50, limit_s=None, outliers=None),),
        marked="median",
        marks=2,
    ),
    "limit beyond the bars": lambda: with_mode(low_limit_s=2.5, high_limit_s=2.5),
    "only steps": lambda: changed(contrast=None, has_events=False),
    "nothing to compare": lambda: changed(contrast=None, marked="", marks=0),
    "small difference": lambda: with_difference(2.0),
    "no difference": lambda: with_difference(0.9),
    "last steps without events": lambda: with_last(EVENTLESS),
    "last steps in part": lambda: with_last(UNACCOUNTED),
    "last steps without loading": lambda: with_last(UNACCOUNTED, "data-loading"),
    "two modes": lambda: changed(
        modes=(times().modes[0], replace(times().modes[0], mode="EVAL", steps=64, p25_s=0.1, p75_s=0.2))
    ),
    "equal ranks": lambda: changed(rows=RANKS[:5]),
    "one rank differs": lambda: changed(rows=RANKS),
    "first step of one rank": lambda: changed(rows=(RANKS[0], LATER)),
    "many rows": lambda: changed(
        rows=tuple(example_steps.row(f"node-{i}", mean_s=0.48 + i / 100) for i in range(20)), rows_left=7
    ),
    "the later one of two ranks": lambda: of_ranks(RANKS_US[1:3], phase=""),
    "a late rank of many": lambda: of_ranks(RANKS_US, phase="Backward(post-forward)", left_out=1020),
    "some steps last much longer": lambda: shown(far()),
    "nothing recorded": lambda: shown(None),
    "results": lambda: shown(
        None, origin=Origin.DEBUGGER_RESULTS, rules=(examples.card("StepOutlier", Status.PASSED),)
    ),
}


def test_a_limit_beyond_the_bars_is_said_and_not_drawn() -> None:
    (mode,) = times().modes
    beyond = replace(times(), modes=(replace(mode, low_limit_s=2.5, high_limit_s=2.5),))

    drawing = figures.histogram(beyond, figures.Unit.of(beyond), [NAME]).drawing
    assert "limit" not in {rule.style for rule in drawing.rules}
    assert [shape.style for shape in drawing.shapes] == ["u", "f2"]


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
    drawing = figures.over_time(far(), examples.gpu_job().phases, figures.Unit.of(far()), [NAME]).drawing

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

    assert [shape.style for shape in drawing.shapes] == ["u", "n1", "l7"]
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
