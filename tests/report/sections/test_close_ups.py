"""What the section on chosen moments says and draws."""

from __future__ import annotations

import re
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
from jobreport.figures.close_ups import FILLS, SERIES, lane_names, panels
from jobreport.figures.names import width_px
from jobrules.analyses.close_ups import BottleneckCount, CloseUp, CloseUpLane, WorstMinute
from jobrules.analyses.close_ups import close_ups as all_moments
from jobrules.cpu_bottleneck import CPUBottleneck
from jobrules.io_bottleneck import IOBottleneck
from jobrules.model import Job
from tests.copies import replace
from tests.jobs import make_job, make_steps
from tests.report.sections import example_close_ups, examples
from tests.report.sections.html import Page


def moments(job: Job) -> tuple[CloseUp, ...]:
    return all_moments(job, CPUBottleneck(), IOBottleneck())


def page_of(*chosen: CloseUp, report: Report | None = None) -> Page:
    return Page.of(sections.close_ups(replace(report or examples.gpu_job(), close_ups=chosen)).html)


CHOSEN = example_close_ups.chosen("algo-1")


def glyphs(plot: Plot | None, kind: type[Glyph]) -> list[Any]:
    assert plot is not None
    return [r for r in plot.renderers if isinstance(r, GlyphRenderer) and isinstance(r.glyph, kind)]


def test_each_moment_is_told_with_its_numbers() -> None:
    text = page_of(*CHOSEN).text

    for told in (
        "The first 10 steps took 39.0 s from start to end; the longest, TRAIN 0, took 3.00 s",
        "In 40 of 60 snapshots a GPU was below 10% while a core was above 90%; GPU use was 28.0%, "
        "the mean of the training loop is 66.9%.",
        "The minute of the training loop with most bottlenecks",
        "The last 30 steps took 1 min 59 s",
        "Steps of worker 0 cover 76.9% of the time, Backward of worker 0 covers 51.3%.",
        "Times are UTC.",
        "Not drawn: the lives of 1 loader process.",
    ):
        assert told in text


def test_the_table_holds_events_time_and_share_of_every_row() -> None:
    page = page_of(CHOSEN[0])

    assert "Row Recorded as Worker Events Time (s) Covers (%) Steps – 0 10 30.00 76.9" in page.text
    assert "Horovod Horovod 1 4 4.00 2.6" in page.text
    assert len(page.all("tr")) == 1 + len(CHOSEN[0].lanes)


@pytest.mark.parametrize("moment", CHOSEN, ids=[one.key for one in CHOSEN])
def test_drawing_and_live_plot_show_the_same_bars_and_lines(moment: CloseUp) -> None:
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
    assert drawn.live_samples.min_border_left == drawn.live_lanes.min_border_left == 168
    page = page_of(CHOSEN[0])
    frames = [a["class"] for _, a in page.elements if "chart" in (a.get("class") or "").split()]
    assert all("ranked" in str(style).split() for style in frames)
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
    assert (
        "The minute from first to last GPU work with the lowest GPU use, 20.0%; the mean from first to last GPU "
        "work is 30.0%."
    ) in second.text
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
    assert (
        "The vendor's results"
        in page_of(report=replace(examples.gpu_job(), origin=Origin.DEBUGGER_RESULTS)).text
    )


def test_the_bottlenecks_of_a_minute_are_told_by_kind_with_the_limits_in_force() -> None:
    worst = WorstMinute(
        in_loop=True,
        usual=44.0,
        snapshots=60,
        hits=45,
        bottlenecks=(
            BottleneckCount(kind="io", snapshots=40, gpu_threshold=5.0, core_threshold=62.5),
            BottleneckCount(kind="cpu", snapshots=12, gpu_threshold=10.0, core_threshold=90.0),
        ),
    )

    both = page_of(replace(CHOSEN[1], worst=worst)).text
    alone = page_of(replace(CHOSEN[1], worst=replace(worst, hits=40, bottlenecks=worst.bottlenecks[:1]))).text

    assert (
        "45 of 60 snapshots are bottlenecks: in 40 a GPU was below 5% while a core waited for I/O above 62.5% "
        "and in 12 a GPU was below 10% while a core was above 90%; GPU use was 28.0%, the mean of the training "
        "loop is 44.0%."
    ) in both
    assert "In 40 of 60 snapshots a GPU was below 5% while a core waited for I/O above 62.5%;" in alone


def test_rows_have_names_that_a_reader_knows() -> None:
    def lane(worker: str, phase: str) -> CloseUpLane:
        return replace(CHOSEN[0].lanes[1], rank=worker, event_type=phase)

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
        "worker 0, Steps",
        "worker 0, GPU operators",
        "worker 0, Forward",
        "worker 0, Forward(first)",
    )
    assert names[4].endswith(", CPU operators")
    assert names[4].startswith("4711")
    assert all(width_px(name) <= 168 for name in names)


def test_what_is_found_stands_before_how_to_read_it() -> None:
    html = sections.close_ups(replace(examples.gpu_job(), close_ups=CHOSEN)).html

    for caption in re.findall(r"<figcaption>(.*?)</figcaption>", html, re.DOTALL):
        found, _, reading = caption.partition('<span class="read">')
        assert "UTC" not in found
        assert "Times are UTC" in reading
    assert "Table" not in page_of(*CHOSEN).text
