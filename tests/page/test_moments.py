"""What the section on chosen moments says and draws."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from bokeh.models import HBar, Line, Plot, Text
from bokeh.models.annotations.geometry import BoxAnnotation
from bokeh.models.glyph import Glyph
from bokeh.models.renderers.glyph_renderer import GlyphRenderer

from jobreport import sections
from jobreport.document import Origin, Report
from jobreport.figures.chart import Label, Shape, over_time
from jobreport.figures.moments import FILLS, SERIES, panels
from jobrules.moments import Moment, moments
from tests.jobs import make_job, make_steps
from tests.page import example_moments, examples
from tests.page.html import Page


def page_of(*chosen: Moment, report: Report | None = None) -> Page:
    return Page.of(sections.moments(replace(report or examples.gpu_job(), moments=chosen)).html)


CHOSEN = example_moments.chosen("algo-1")


def glyphs(plot: Plot | None, kind: type[Glyph]) -> list[Any]:
    assert plot is not None
    return [r for r in plot.renderers if isinstance(r, GlyphRenderer) and isinstance(r.glyph, kind)]


def test_each_moment_is_told_with_its_numbers() -> None:
    text = page_of(*CHOSEN).text

    for told in (
        "The first 10 steps took 39.0 s from start to end; the longest, TRAIN 0, took 3.00 s",
        "In 40 of 60 snapshots a GPU was below 10 % while a core was above 90 %; GPU use was 28.0 % on average.",
        "The last 30 steps took 1 min 59 s",
        "Steps cover 76.9 % of the time, Backward(post-forward) of worker 0 covers 51.3 %.",
        "Not drawn: the lives of 1 loader process.",
    ):
        assert told in text


def test_the_table_holds_events_time_and_share_of_every_row() -> None:
    page = page_of(CHOSEN[0])

    assert "Row Worker Events Time (ms) Covers (%) Steps 0 10 30 000.0 76.9" in page.text
    assert "Horovod 1 4 4 000.0 2.6" in page.text
    assert len(page.all("tr")) == 1 + len(CHOSEN[0].lanes)


@pytest.mark.parametrize("moment", CHOSEN, ids=[one.key for one in CHOSEN])
def test_drawing_and_live_plot_show_the_same_bars_and_lines(moment: Moment) -> None:
    drawn = panels(moment)

    assert drawn.lanes
    assert drawn.samples
    table = moment.table
    kinds = np.array([lane.kind for lane in moment.lanes])[table[:, 0]]
    shapes = {mark.series: mark for mark in drawn.lanes.marks if isinstance(mark, Shape)}
    live = {str(one.name): one for one in glyphs(drawn.live_lanes, HBar)}
    assert set(shapes) == set(live) == set(kinds)
    for kind, one in live.items():
        data = one.data_source.data
        rows = table[kinds == kind]
        assert shapes[kind].path.count("M") == len(rows)
        assert shapes[kind].style.split()[0] == FILLS[kind][0]
        assert np.asarray(data["left"]) == pytest.approx(rows[:, 1] / 1000)
        assert np.asarray(data["y"]) == pytest.approx(-rows[:, 0] - 0.5)
        assert np.asarray(data["events"]).tolist() == rows[:, 4].tolist()
        # The bar ends where the event does, or a thousandth of the stretch after its start.
        least = (moment.end_us - moment.start_us) // 1000
        assert np.asarray(data["right"]) == pytest.approx((rows[:, 1] + np.maximum(rows[:, 2], least)) / 1000)
    (texts,) = glyphs(drawn.live_lanes, Text)
    labels = [mark for mark in drawn.lanes.marks if isinstance(mark, Label)]
    assert [mark.text for mark in labels] == texts.data_source.data["text"]
    x = over_time(moment.start_us, moment.end_us)
    assert [mark.x for mark in labels] == pytest.approx(
        x.place(np.asarray(texts.data_source.data["x"]) * 1000).tolist()
    )
    lines = {str(one.name): one for one in glyphs(drawn.live_samples, Line)}
    assert {mark.series: mark.style for mark in drawn.samples.shapes} == {key: SERIES[key] for key in lines}
    for curve in moment.curves:
        assert np.asarray(lines[curve.key].data_source.data["value"]) == pytest.approx(
            curve.points(moment)[1]
        )


def test_both_plots_share_one_time_and_one_frame() -> None:
    drawn = panels(CHOSEN[0])

    assert drawn.live_samples
    assert drawn.live_lanes
    assert drawn.live_samples.x_range is drawn.live_lanes.x_range
    assert drawn.live_samples.min_border_left == drawn.live_lanes.min_border_left == 112
    page = page_of(CHOSEN[0])
    frames = [a["class"] for _, a in page.elements if "chart" in (a.get("class") or "").split()]
    assert all("names" in str(style).split() for style in frames)
    assert len(frames) == 2


def test_what_was_not_measured_is_hatched_in_both_twins() -> None:
    moment = replace(CHOSEN[0], unmeasured_us=((CHOSEN[0].start_us, CHOSEN[0].start_us + 3_900_000),))

    drawn = panels(moment)

    assert drawn.samples
    assert drawn.live_samples
    ((area,), boxes) = drawn.samples.areas, drawn.live_samples.center
    assert (area.style, area.x) == ("x", 0)
    assert area.width == pytest.approx(10.0)
    assert [box.right for box in boxes if isinstance(box, BoxAnnotation)] == [
        (moment.start_us + 3_900_000) / 1000
    ]
    assert "Hatched: not measured." in page_of(moment).text


def test_steps_alone_and_samples_alone_are_drawn_with_what_there_is() -> None:
    (steps,) = moments(make_job(steps=make_steps([(0.0, 0.125)])))
    (samples,) = moments(make_job(gpu=[50.0] * 100 + [20.0] * 200, interval_s=1))

    first, second = page_of(steps), page_of(samples)

    assert "The first step took 125.0 ms from start to end." in first.text
    assert "No GPU, CPU or I/O wait was sampled" in first.text
    assert "No other event was recorded in it." in first.text
    assert "GPU use was lowest here, 20.0 % on average." in second.text
    assert "Neither steps nor events were recorded in it." in second.text
    assert [len([i for i in page.ids if i.startswith("live-")]) for page in (first, second)] == [1, 1]


def test_a_stretch_between_two_samples_says_so() -> None:
    job = make_job(gpu=[50.0] * 3, interval_s=10, steps=make_steps([(1.0, 2.0)]))

    assert "No sample was taken in this time." in page_of(moments(job)[0]).text


def test_joined_bars_and_rows_that_are_left_out_are_told() -> None:
    moment = replace(CHOSEN[0], lanes_left=4, cell_us=39_000)

    text = page_of(moment).text

    assert "Shorter events within 39.0 ms of a row are one bar." in text
    assert "Not drawn: 4 other rows with less time and the lives of 1 loader process." in text


def test_without_moments_the_reason_is_told() -> None:
    assert "Neither steps nor events" in page_of().text
    assert "The vendor's results" in page_of(report=replace(examples.gpu_job(), origin=Origin.VENDOR)).text
