"""What the section on framework time says."""

from __future__ import annotations

import re
from statistics import median

import numpy as np
import pytest

from jobreport.document import Origin, Report
from jobreport.page import sections
from jobreport.page.figures.framework import Rank, of_slices, other, ranked
from jobreport.page.figures.stacked import Part, stacked
from jobrules.analyses.framework import FrameworkTime, Slice
from jobrules.model import Status
from tests.copies import replace
from tests.report.page.sections import example_close_ups, examples
from tests.report.page.sections.html import Page


def page_of(report: Report) -> Page:
    return Page.of(sections.framework(report).html)


def text_of(time: FrameworkTime) -> str:
    return page_of(replace(examples.gpu_job(), framework=time)).text


def test_much_time_outside_steps_names_what_to_check() -> None:
    time = replace(examples.framework("conv2d"), event_types=())
    little = replace(time, steps=(time.steps[0], replace(time.steps[1], percent=25.0)))
    evaluates = replace(time, kinds=("Outside steps", "TRAIN", "EVAL"))

    assert "35.0% of the ranks' time between their first and last step was outside steps." in text_of(time)
    assert "Check data loading, evaluation, and checkpoints." in text_of(time)
    # Evaluation with steps of its own is not between steps.
    assert "Check data loading and checkpoints." in text_of(evaluates)
    # Data loading is a part of whole steps.
    assert "Check evaluation and checkpoints." in text_of(replace(time, whole_steps=True))
    assert "Check" not in text_of(little)
    forward_only = text_of(examples.framework("conv2d", forward_only=True))
    assert "No backward pass was recorded" in forward_only
    assert "Check" not in forward_only


@pytest.mark.parametrize(
    ("first", "last", "steps"),
    [
        (5, 5, "in step 5 only: 4.200 ms on the GPU. Shares describe that step"),
        (5, 6, "in steps 5 to 6 only: 4.200 ms on the GPU. Shares describe those steps"),
        (None, None, "without step numbers: 4.200 ms on the GPU"),
    ],
)
def test_the_steps_that_operators_describe_are_named(first: int | None, last: int | None, steps: str) -> None:
    time = examples.framework("conv2d")
    operators = (replace(time.operators[0], ran_s=0.0042),)

    text = text_of(replace(time, operators=operators, first_step=first, last_step=last))

    assert f"Operators were recorded {steps}" in text
    assert "Any of them ran in 4.50 s of the job." in text


def test_a_table_has_one_unit_and_its_rest_is_one_row() -> None:
    text = page_of(examples.gpu_job()).text

    for row in (
        "GPU operator Calls Self time (ms) Total time (ms) Self time per call (ms) Share (%)",
        "conv2d 4 3.000 3.000 0.750 75.0",
        "1 other operator 1 1.000 – – 25.0",
        "TRAIN 1,200.0 60.0",
    ):
        assert row in text
    assert "Most self time: conv2d on the GPU (75.0%)." in text


def test_ten_operators_are_open_and_drawn_and_the_others_folded() -> None:
    time = examples.framework("conv2d")
    row = time.operators[0].rows[0]
    rows = tuple(replace(row, name=f"op{i}", percent=5.0) for i in range(14))
    long = replace(time, operators=(replace(time.operators[0], rows=rows, others=6, others_percent=30.0),))

    page = page_of(replace(examples.gpu_job(), framework=long))

    assert "Top 10 GPU operators." in page.text
    assert "Data: 10 more GPU operators" in page.text
    assert "other (10)" in page.text
    assert page.text.count("op13") == 1


@pytest.mark.parametrize(
    ("percents", "finding"),
    [
        ([(35.0, 65.0)], "The rank spent 65.0% of its time in TRAIN steps."),
        (
            [(34.0, 66.0), (36.0, 64.0)],
            "Both ranks spent 34.0 to 36.0% of their time outside steps.",
        ),
        (
            [(10.0, 90.0), (10.0, 90.0), (60.0, 40.0)],
            "60.0% of the time of rank 2 was outside steps; the median of 3 ranks is 10.0%.",
        ),
    ],
)
def test_the_rank_that_differs_is_named(percents: list[tuple[float, ...]], finding: str) -> None:
    time = examples.framework("conv2d")
    workers = tuple(replace(time.ranks[0], rank=str(i), percents=one) for i, one in enumerate(percents))
    few = replace(
        time,
        kinds=("Outside steps", "TRAIN"),
        ranks=workers,
        outside_median=median(one[0] for one in percents),
    )

    assert finding in page_of(replace(examples.gpu_job(), framework=few)).text


def test_many_ranks_end_with_the_mean_of_the_others() -> None:
    more = example_close_ups.more_framework("conv2d", workers=15, others=17)
    time = replace(examples.framework("conv2d"), **more)

    text = page_of(replace(examples.gpu_job(), framework=time)).text

    assert "last bar: mean of the 17 other ranks" in text
    assert "Mean of 17 others – 35.0 60.0 5.0" in text


@pytest.mark.parametrize(
    ("percents", "finding"),
    [
        (
            (66.7, 33.3),
            "The backward pass took 66.7% of both passes:",
        ),
        ((80.0, 20.0), "The backward pass usually takes about twice as long as the forward pass."),
    ],
)
def test_uneven_passes_are_compared_with_the_usual(percents: tuple[float, float], finding: str) -> None:
    time = examples.framework("conv2d")
    passes = tuple(replace(one, percent=p) for one, p in zip(time.passes, percents, strict=True))

    text = page_of(replace(examples.gpu_job(), framework=replace(time, passes=passes))).text

    assert text.count(finding) == 1
    assert text.count("of both passes") == 1


def test_the_largest_part_is_named_wherever_it_stands() -> None:
    """The first name of a table is not its largest in the vendor's report (N-11)."""
    text = page_of(examples.gpu_job()).text

    assert ("conv2d ran for 80.0% of the time it was recorded; Forward ran longest, 30.0 s.") in text
    assert "conv2d took 100.0% of Horovod's time, 500.0 ms." in text


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


def test_stacked_bars_add_up() -> None:
    percents = np.array([[30.0, 31.0], [50.0, 50.0], [20.0, 19.0]])
    parts = [
        Part(style=style, label=style, percents=tuple(of), amounts=("1 s", "2 s"))
        for style, of in zip(("l", "u", "x"), percents, strict=True)
    ]

    drawn = stacked(["w0", "w1"], parts, bar="Rank", amount="Of")

    lost, used = drawn.drawing.shapes
    assert (lost.series, used.series) == ("kind-0", "kind-1")
    assert [float(x) / 10 for x in re.findall(r"M([\d.]+) ", used.path)] == [30, 31]
    assert [area.x + area.width for area in drawn.drawing.areas] == pytest.approx([100, 100])
    assert [tick.label for tick in drawn.drawing.y.ticks] == ["w0", "w1"]
    assert not stacked(
        ["w0"], [replace(parts[0], percents=(1.0,), amounts=("",))], bar="", amount=""
    ).drawing.y.ticks


def test_ranked_bars_have_their_value_next_to_them_or_inside() -> None:
    ranks = [Rank(name="a", percent=60.0, detail=""), Rank(name="b", percent=9.0, detail=""), other(3, 31.0)]

    drawing = ranked(ranks).drawing

    assert [shape.style for shape in drawing.shapes] == ["u", "n1"]
    words = {word.text: (round(word.x), round(word.y), word.style) for word in drawing.words}
    assert words == {
        "60.0%": (100, 17, "inside"),
        "9.0%": (15, 50, "strong"),
        "31.0%": (52, 83, "strong"),
    }


def test_steps_that_last_no_time_are_not_said_to_be_missing() -> None:
    job = replace(examples.gpu_job(), framework=None)
    card = replace(job.rules[0], name="OverallFrameworkMetrics")

    assert "took no time" in page_of(replace(job, rules=(card,))).text


def test_nothing_recorded_is_said_with_the_reason() -> None:
    none = replace(examples.gpu_job(), framework=None)
    card = replace(none.rules[0], name="OverallFrameworkMetrics")

    assert "was not selected" in page_of(none).text
    without = replace(none, rules=(card,), job=replace(none.job, steps=0))
    assert "Neither steps nor framework events" in page_of(without).text


def test_debugger_results_are_on_the_card_of_the_rule() -> None:
    none = replace(examples.gpu_job(), framework=None, origin=Origin.DEBUGGER_RESULTS)
    card = replace(none.rules[0], name="OverallFrameworkMetrics", status=Status.PASSED)

    page = page_of(replace(none, rules=(card,)))

    assert "See OverallFrameworkMetrics in section 4." in page.text
    assert "Not recorded" not in page.text
    assert [a["href"] for tag, a in page.elements if tag == "a"] == ["#r-OverallFrameworkMetrics"]
    assert "hold no OverallFrameworkMetrics" in page_of(none).text


def test_event_types_are_drawn_by_their_share_of_recorded_time() -> None:
    page = page_of(examples.gpu_job())

    assert "Event type Events First (UTC) Last (UTC) Steps Time (s) Share of recorded time (%)" in page.text
    assert "conv2d 39 22:14:00 22:15:40 39 1.00 80.0" in page.text
    assert "Forward 39 22:14:00 22:15:40 1,199 30.00 25.0" in page.text
    assert "once 1 22:14:00 22:15:40 0 4.00 –" in page.text
    figure = sections.framework(examples.gpu_job()).html.partition('id="fig-framework-general"')[2]
    figure = figure.partition("</figure>")[0]
    assert [name in figure for name in ("conv2d", "Forward", "once")] == [True, True, False]


@pytest.mark.parametrize(
    ("name", "link"), [("DataLoaderIter", "#data-loading"), ("write checkpoint", "#cpu-bottlenecks")]
)
def test_what_ran_between_steps_is_named_with_a_link_to_more(name: str, link: str) -> None:
    job = replace(examples.gpu_job(), framework=examples.framework(name))

    page = page_of(job)

    assert f"While {name} was recorded, it ran for 83.0% of that time: see" in page.text
    assert [a["href"] for tag, a in page.elements if tag == "a"] == [link]
