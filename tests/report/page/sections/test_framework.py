"""What the section on framework time says."""

from __future__ import annotations

import re
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import pytest

from jobreport.document import Origin
from jobreport.page import sections
from jobreport.page.figures.framework import Rank, of_slices, other, ranked
from jobreport.page.figures.stacked import Part, stacked
from jobrules.analyses.framework import FrameworkTime, Slice
from jobrules.model import Status
from tests.copies import replace
from tests.report.page.sections import example_close_ups, examples


def shown(time: FrameworkTime | None, **changes: Any) -> sections.Fragment:
    return sections.framework(replace(examples.gpu_job(), framework=time, **changes))


def changed(**changes: Any) -> sections.Fragment:
    return shown(replace(TIME, **changes))


def with_operators(first: int | None, last: int | None) -> sections.Fragment:
    operators = (replace(TIME.operators[0], ran_s=0.0042),)
    return changed(operators=operators, first_step=first, last_step=last)


def with_ranks(*percents: tuple[float, float]) -> sections.Fragment:
    """Ranks by their percent outside steps and in them."""
    ranks = tuple(replace(TIME.ranks[0], rank=str(i), percents=one) for i, one in enumerate(percents))
    outside = median(one[0] for one in percents)
    return changed(kinds=("Outside steps", "TRAIN"), ranks=ranks, outside_median=outside)


def with_passes(*percents: float) -> sections.Fragment:
    return changed(
        passes=tuple(replace(one, percent=p) for one, p in zip(TIME.passes, percents, strict=True))
    )


def long() -> sections.Fragment:
    """Fourteen operators, and six more."""
    rows = tuple(replace(TIME.operators[0].rows[0], name=f"op{i}", percent=5.0) for i in range(14))
    return changed(operators=(replace(TIME.operators[0], rows=rows, others=6, others_percent=30.0),))


TIME = examples.framework("conv2d")
CARD = replace(examples.gpu_job().rules[0], name="OverallFrameworkMetrics", status=Status.PASSED)
NO_TYPES = replace(TIME, event_types=())
VARIANTS: dict[str, Callable[[], sections.Fragment]] = {
    "usual": lambda: shown(TIME),
    "much outside steps": lambda: shown(NO_TYPES),
    "little outside steps": lambda: shown(
        replace(NO_TYPES, steps=(TIME.steps[0], replace(TIME.steps[1], percent=25.0)))
    ),
    "evaluation has steps": lambda: shown(replace(NO_TYPES, kinds=("Outside steps", "TRAIN", "EVAL"))),
    "no backward pass": lambda: shown(examples.framework("conv2d", forward_only=True)),
    "operators of one step": lambda: with_operators(5, 5),
    "operators without steps": lambda: with_operators(None, None),
    "many operators": long,
    "one rank": lambda: with_ranks((35.0, 65.0)),
    "two ranks": lambda: with_ranks((34.0, 66.0), (36.0, 64.0)),
    "many ranks": lambda: changed(**example_close_ups.more_framework("conv2d", workers=15, others=17)),
    "usual passes": lambda: with_passes(66.7, 33.3),
    "uneven passes": lambda: with_passes(80.0, 20.0),
    "not selected": lambda: shown(None),
    "nothing recorded": lambda: shown(None, rules=(CARD,), job=replace(examples.gpu_job().job, steps=0)),
    "results": lambda: shown(None, origin=Origin.DEBUGGER_RESULTS, rules=(CARD,)),
    "results without the rule": lambda: shown(None, origin=Origin.DEBUGGER_RESULTS),
    "loading between steps": lambda: shown(examples.framework("DataLoaderIter")),
    "checkpoints between steps": lambda: shown(examples.framework("write checkpoint")),
}


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
