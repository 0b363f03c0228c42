"""What the section on close-ups says and draws."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from bokeh.models import Plot, Quad
from bokeh.models.glyph import Glyph
from bokeh.models.renderers.glyph_renderer import GlyphRenderer

from jobreport.document import Origin, Report
from jobreport.page import sections
from jobreport.page.figures.close_ups import KINDS, SERIES, lane_names, panels
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


def glyphs(plot: Plot | None, kind: type[Glyph]) -> list[Any]:
    assert plot is not None
    return [r for r in plot.renderers if isinstance(r, GlyphRenderer) and isinstance(r.glyph, kind)]


def test_each_close_up_has_its_numbers() -> None:
    text = page_of(*CHOSEN).text

    for sentence in (
        "The first 10 steps took 39.0 s, the longest (TRAIN 0) 3.00 s. Rank 0: steps cover 76.9%, Backward 51.3%.",
        "Training-loop minute with the most bottlenecks",
        "40 of 60 snapshots are bottlenecks.",
        "GPU utilization: 28.0% (training loop 66.9%).",
        "The last 30 steps took 1 min 59 s",
        "Not drawn: lifetimes of 1 loader process.",
    ):
        assert sentence in text


def test_ranks_that_differ_are_named_each() -> None:
    steps, *rest, last = CHOSEN[0].lanes
    other = replace(
        last, rank="1", kind="waiting", event_type="DataLoaderIter", covered_us=10**9, percent=55.3
    )

    text = page_of(replace(CHOSEN[0], lanes=(steps, *rest, other))).text

    assert "Steps cover 76.9% of the time on rank 0, data loading 55.3% on rank 1." in text


def test_the_table_holds_events_time_and_share_of_every_row() -> None:
    page = page_of(CHOSEN[0])

    assert "Row Recorded as Rank Events Time (s) Covers (%) Steps – 0 10 30.00 76.9" in page.text
    assert "Horovod Horovod 1 4 4.00 2.6" in page.text
    assert len(page.all("tr")) == 1 + len(CHOSEN[0].lanes)


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


def test_steps_alone_and_samples_alone_are_drawn_with_what_there_is() -> None:
    (steps,) = close_ups_of(make_job(steps=make_steps([(0.0, 0.125)])))
    (samples,) = close_ups_of(make_job(gpu=[50.0] * 100 + [20.0] * 200, interval_s=1))

    first, second = page_of(steps), page_of(samples)

    assert "The first step took 125.0 ms." in first.text
    assert "Not recorded: GPU, CPU, and I/O wait." in first.text
    assert "No events other than steps were recorded." in first.text
    assert "Minute of GPU work with the lowest GPU utilization" in second.text
    assert "GPU utilization: 20.0% (GPU work 30.0%)." in second.text
    assert "Not recorded in this time: steps and events." in second.text
    assert [len([i for i in page.ids if i.startswith("live-")]) for page in (first, second)] == [1, 1]


def test_a_stretch_between_two_samples_says_so() -> None:
    job = make_job(gpu=[50.0] * 3, interval_s=10, steps=make_steps([(1.0, 2.0)]))

    assert "No samples in this time." in page_of(close_ups_of(job)[0]).text


def test_joined_bars_and_rows_that_are_left_out_are_counted() -> None:
    close_up = replace(CHOSEN[0], lanes_left=4, cell_us=39_000)

    text = page_of(close_up).text

    assert "Short events within 39.0 ms are one bar." in text
    assert "Not drawn: 4 rows with less time, lifetimes of 1 loader process." in text


def test_without_close_ups_there_is_a_reason() -> None:
    vendor = replace(examples.gpu_job(), origin=Origin.DEBUGGER_RESULTS)

    assert "Steps and events were not recorded" in page_of().text
    assert "rule results hold neither samples nor events" in page_of(report=vendor).text


def test_two_kinds_of_bottlenecks_are_counted_each() -> None:
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

    text = page_of(replace(CHOSEN[1], worst=worst)).text

    assert "45 of 60 snapshots are bottlenecks (40 I/O, 12 CPU)." in text
    assert "GPU utilization: 28.0% (training loop 44.0%)." in text


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


def test_captions_hold_findings_and_folds_how_to_read_them() -> None:
    html = sections.close_ups(replace(examples.gpu_job(), close_ups=CHOSEN)).html

    captions = re.findall(r"<figcaption>(.*?)</figcaption>", html, re.DOTALL)
    assert len(captions) == html.count("How to read this figure") == len(CHOSEN)
    assert all("Lines:" not in caption and len(caption.split()) <= 38 for caption in captions)
