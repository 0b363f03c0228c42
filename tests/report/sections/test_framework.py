"""What the section on framework time says."""

from __future__ import annotations

import re
from statistics import median
from typing import Any

import numpy as np
import pytest
from bokeh.models import HBar, Text
from bokeh.models.renderers.glyph_renderer import GlyphRenderer

from jobreport import sections
from jobreport.document import Origin, Report
from jobreport.figures.framework import Rank, Stack, of_slices, other, ranked, stacked
from jobrules.analyses.framework import Slice
from jobrules.model import Status
from tests.copies import replace
from tests.report.sections import example_close_ups, examples
from tests.report.sections.html import Page


def page_of(report: Report) -> Page:
    return Page.of(sections.framework(report).html)


def test_the_time_outside_of_steps_is_told_and_judged_by_its_share() -> None:
    time = examples.framework("conv2d")
    outside = replace(time.steps[1], percent=25.0)
    little = replace(time, steps=(time.steps[0], outside))

    texts = [page_of(replace(examples.gpu_job(), framework=one)).text for one in (time, little)]

    assert "35.0% of the workers' time from their first to their last step lay outside of steps." in texts[0]
    assert ["That is much" in text for text in texts] == [True, False]


def test_steps_that_end_with_the_forward_pass_are_not_judged() -> None:
    time = examples.framework("conv2d", forward_only=True)

    text = page_of(replace(examples.gpu_job(), framework=time)).text

    assert "no backward pass was recorded" in text
    assert "That is much" not in text


@pytest.mark.parametrize(
    ("first", "last", "told"),
    [(5, 5, "for step 5;"), (5, 6, "for steps 5 to 6;"), (None, None, "it may be a few only")],
)
def test_what_the_shares_are_of_is_said(first: int | None, last: int | None, told: str) -> None:
    time = replace(examples.framework("conv2d"), first_step=first, last_step=last)

    assert told in page_of(replace(examples.gpu_job(), framework=time)).text


def test_a_table_has_one_unit_and_its_rest_is_one_row() -> None:
    text = page_of(examples.gpu_job()).text

    for row in (
        "Operator on the GPU Calls Own time (ms) Total (ms) Own time a call (ms) Share (%)",
        "conv2d 4 3.000 3.000 0.750 75.0",
        "1 other operator 1 1.000 – – 25.0",
        "TRAIN 1,200.0 60.0",
    ):
        assert row in text
    assert "On the GPU conv2d takes 75.0% of the operators' own time." in text


def test_ten_operators_are_open_and_drawn_and_the_others_folded() -> None:
    time = examples.framework("conv2d")
    row = time.operators[0].rows[0]
    rows = tuple(replace(row, name=f"op{i}", percent=5.0) for i in range(14))
    long = replace(time, operators=(replace(time.operators[0], rows=rows, others=6, others_percent=30.0),))

    page = page_of(replace(examples.gpu_job(), framework=long))

    assert "The 10 operators with most own time on the GPU" in page.text
    assert "Data: 10 other operators on the GPU" in page.text
    assert "other (10)" in page.text
    assert page.text.count("op13") == 1


def test_what_was_profiled_is_told_in_seconds() -> None:
    time = examples.framework("conv2d")
    known = replace(time, operators=(replace(time.operators[0], ran_s=0.0042),))

    text = page_of(replace(examples.gpu_job(), framework=known)).text

    assert "Operators were recorded for steps 5 to 6: they ran for 4.20 ms on the GPU; their shares" in text
    assert "any of them ran in 4.50 s of the job." in text


@pytest.mark.parametrize(
    ("percents", "told"),
    [
        ([(35.0, 65.0)], "The worker spent 65.0% of its time in TRAIN steps."),
        (
            [(34.0, 66.0), (36.0, 64.0)],
            "The 2 workers are alike: each spent 34.0 to 36.0% of its time outside",
        ),
        (
            [(10.0, 90.0), (10.0, 90.0), (60.0, 40.0)],
            "Worker 2 spent 60.0% of its time outside of steps, the median of 3 workers is 10.0%.",
        ),
    ],
)
def test_the_odd_worker_is_told(percents: list[tuple[float, ...]], told: str) -> None:
    time = examples.framework("conv2d")
    workers = tuple(replace(time.ranks[0], rank=str(i), percents=one) for i, one in enumerate(percents))
    few = replace(
        time,
        kinds=("Outside steps", "TRAIN"),
        ranks=workers,
        outside_median=median(one[0] for one in percents),
    )

    assert told in page_of(replace(examples.gpu_job(), framework=few)).text


def test_many_workers_end_with_the_mean_of_the_others() -> None:
    more = example_close_ups.more_framework("conv2d", workers=15, others=17)
    time = replace(examples.framework("conv2d"), **more)

    text = page_of(replace(examples.gpu_job(), framework=time)).text

    assert "the last bar is the mean of the 17 others" in text
    assert "Mean of 17 others – 35.0 60.0 5.0" in text


@pytest.mark.parametrize(
    ("percents", "told"),
    [
        ((66.7, 33.3), "The backward pass takes 66.7% of the time of both passes. In percent"),
        ((80.0, 20.0), "twice as long as the forward pass, so this is uneven."),
    ],
)
def test_both_passes_are_told_once_and_judged_above_seventy(percents: tuple[float, float], told: str) -> None:
    time = examples.framework("conv2d")
    passes = tuple(replace(one, percent=p) for one, p in zip(time.passes, percents, strict=True))

    text = page_of(replace(examples.gpu_job(), framework=replace(time, passes=passes))).text

    assert text.count(told) == 1
    assert text.count("of the time of both passes") == 1


def test_the_largest_part_is_named_wherever_it_stands() -> None:
    """The first name of a table is not its largest in the vendor's report (N-11)."""
    text = page_of(examples.gpu_job()).text

    assert (
        "conv2d ran for 80.0% of the time over which it was recorded; Forward took most time in all, 30.0 s."
    ) in text
    assert "conv2d takes 100.0% of Horovod's time, 500.0 ms." in text


def test_small_parts_are_one_bar_and_a_single_one_keeps_its_name() -> None:
    def part(name: str, percent: float, count: int = 1) -> Slice:
        return Slice(name=name, seconds=percent, percent=percent, count=count)

    many = of_slices([part("a", 95.0), part("b", 1.5), part("c", 1.5), part("", 2.0, 4)], ["1 s"] * 4)
    one = of_slices([part("a", 99.0), part("b", 1.0)], ["1 s"] * 2)

    assert [(rank.name, rank.percent, rank.rest) for rank in many] == [
        ("a", 95.0, False),
        ("other (6)", 5.0, True),
    ]
    assert [(rank.name, rank.rest) for rank in one] == [("a", False), ("b", False)]


def test_stacked_bars_are_the_same_in_both_twins() -> None:
    stacks = [Stack(name=f"w{i}", percents=(30.0 + i, 50.0, 20.0 - i), whole="1 s") for i in range(3)]

    pair = stacked(stacks, ("a", "b", "c"), ("l", "u", "u2"))

    live: list[Any] = [r for r in pair.live.renderers if isinstance(r, GlyphRenderer)]
    for i, (shape, renderer) in enumerate(zip(pair.drawing.shapes, live, strict=True)):
        data = renderer.data_source.data
        assert shape.series == renderer.name == f"kind-{i}"
        lefts = re.findall(r"M([\d.]+) ", shape.path)
        rights = re.findall(r"H([\d.]+)V", shape.path)
        assert [float(x) / 10 for x in lefts] == pytest.approx(np.asarray(data["left"]).tolist())
        assert [float(x) / 10 for x in rights] == pytest.approx(np.asarray(data["right"]).tolist())
    assert np.asarray(live[-1].data_source.data["right"]) == pytest.approx([100.0] * 3)


def test_ranked_bars_and_their_values_are_the_same_in_both_twins() -> None:
    ranks = [Rank(name="a", percent=60.0, told=""), Rank(name="b", percent=9.0, told=""), other(3, 31.0)]

    pair = ranked(ranks)

    live: list[Any] = [r for r in pair.live.renderers if isinstance(r, GlyphRenderer)]
    bars = [r for r in live if isinstance(r.glyph, HBar)]
    texts = [r for r in live if isinstance(r.glyph, Text)]
    assert [shape.path.count("M") for shape in pair.drawing.shapes] == [
        len(r.data_source.data["y"]) for r in bars
    ]
    shown = {
        (text, round(float(x) / 60 * 100, 3), round(-float(y) / 3 * 100, 3))
        for r in texts
        for text, x, y in zip(*(r.data_source.data[c] for c in ("text", "x", "y")), strict=True)
    }
    assert shown == {(word.text, round(word.x, 3), round(word.y, 3)) for word in pair.drawing.words}
    assert {word.style for word in pair.drawing.words if word.text.startswith("60")} == {"inside"}


def test_steps_that_last_no_time_are_not_said_to_be_missing() -> None:
    job = replace(examples.gpu_job(), framework=None)
    card = replace(job.rules[0], name="OverallFrameworkMetrics")

    assert "last no time" in page_of(replace(job, rules=(card,))).text


def test_nothing_recorded_is_said_with_the_reason() -> None:
    none = replace(examples.gpu_job(), framework=None)
    card = replace(none.rules[0], name="OverallFrameworkMetrics")

    assert "was not selected" in page_of(none).text
    without = replace(none, rules=(card,), job=replace(none.job, steps=0))
    assert "Neither steps nor framework events" in page_of(without).text


def test_the_vendors_figures_are_told_by_its_rule() -> None:
    none = replace(examples.gpu_job(), framework=None, origin=Origin.DEBUGGER_RESULTS)
    card = replace(none.rules[0], name="OverallFrameworkMetrics", status=Status.PASSED)

    page = page_of(replace(none, rules=(card,)))

    assert "Told in section 4 (OverallFrameworkMetrics)." in page.text
    assert "Not recorded" not in page.text
    assert [a["href"] for tag, a in page.elements if tag == "a"] == ["#r-OverallFrameworkMetrics"]
    assert "hold no OverallFrameworkMetrics" in page_of(none).text


def test_each_phase_stands_beside_its_stretch_and_is_drawn_by_its_share_of_it() -> None:
    page = page_of(examples.gpu_job())

    assert "Phase Events First Last Steps Time (s) Share of the stretch (%)" in page.text
    assert "conv2d 39 22:14:00 22:15:40 39 1.00 80.0" in page.text
    assert "Forward 39 22:14:00 22:15:40 1,199 30.00 25.0" in page.text
    assert "once 1 22:14:00 22:15:40 0 4.00 –" in page.text
    figure = sections.framework(examples.gpu_job()).html.partition('id="fig-framework-general"')[2]
    figure = figure.partition("</figure>")[0]
    assert [name in figure for name in ("conv2d", "Forward", "once")] == [True, True, False]
    assert "Each bar has a 100" in figure


@pytest.mark.parametrize(
    ("name", "link"), [("DataLoaderIter", "#data-loading"), ("write checkpoint", "#cpu-bottlenecks")]
)
def test_what_ran_between_steps_is_named_with_a_link_to_more(name: str, link: str) -> None:
    job = replace(examples.gpu_job(), framework=examples.framework(name))

    page = page_of(job)

    assert f"That is much. Where it was recorded, {name} ran for 83.0% of it; see" in page.text
    assert [a["href"] for tag, a in page.elements if tag == "a"] == [link]


def test_evaluation_is_no_suspect_where_it_has_steps_of_its_own() -> None:
    time = replace(examples.framework("conv2d"), event_types=())
    known = replace(time, kinds=("Outside steps", "TRAIN", "EVAL"))

    first, second = (page_of(replace(examples.gpu_job(), framework=one)).text for one in (time, known))

    assert "as data loading, evaluation and checkpoints." in first
    assert "as data loading and checkpoints." in second


def test_tables_that_are_folded_have_no_number() -> None:
    html = sections.framework(examples.gpu_job()).html

    for part in re.findall(r"<details>(.*?)</details>", html, re.DOTALL):
        assert "Table" not in part
    numbers = re.findall(r"Table\s3\.(\d+)", html)
    assert numbers == [str(i + 1) for i in range(len(numbers))]
    assert numbers


def test_hostile_names_stay_text() -> None:
    page = page_of(examples.hostile_job())

    assert all(attributes.get("type") == "application/json" for attributes, _ in page.scripts)
    assert all("<" not in text for _, text in page.scripts)
    assert page.text.count("alert(1)") >= 4
