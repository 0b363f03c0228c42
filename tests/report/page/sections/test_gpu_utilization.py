"""What the section on GPU utilization says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jobreport.document import Parameter
from jobreport.page import sections
from jobrules.analyses.gpu_utilization import Box
from jobrules.model import Status
from tests.copies import replace
from tests.report.page.sections import examples
from tests.report.page.sections.example_balance import boxes
from tests.report.page.sections.html import Page

NBSP = "\u00a0"
WINDOW = Parameter(name="window", value=500, unit="samples", help="", default=500)


def utilization_of(*found: Box, **facts: Any) -> Page:
    merged: dict[str, Any] = {"status": Status.PASSED, "evaluated": 480, "parameters": (WINDOW,)} | facts
    rule = examples.card("LowGPUUtilization", merged.pop("status"), **merged)
    report = replace(examples.gpu_job(), boxes=found, rules=(rule,))
    return Page.of(sections.gpu_utilization(report).html)


def test_shows_no_other_metric() -> None:
    page = utilization_of(*boxes("n", [50, 60], [10, 20], 5))

    drawn = [line for line in page.all("line") if line.get("class") == "median"]
    assert len(drawn) == 2
    assert len(page.all("tr")) == 3
    assert "CPU" not in page.text


def test_draws_the_gpus_used_least_and_lists_all() -> None:
    levels = [float(90 - i % 40) for i in range(128)]

    page = utilization_of(
        *(box for i in range(16) for box in boxes(f"n{i}", levels[8 * i : 8 * i + 8], [], None))
    )

    drawn = [float(str(a["y1"]).rstrip("%")) for _, a in page.elements if a.get("class") == "median"]
    assert len(drawn) == 32
    assert min(drawn) > np.quantile([100 - level for level in levels], 0.7)
    assert len(page.all("tr")) == 129
    assert "Drawn: 32 of 128 GPUs, those with the lowest utilization." in page.text.replace(NBSP, " ")


def test_names_what_the_rule_counted() -> None:
    found = boxes("n", [50], [], None)

    passed, triggered, not_evaluated = (
        utilization_of(*found, **facts).text.replace(NBSP, " ")
        for facts in (
            {},
            {"status": Status.TRIGGERED, "violating": 360, "severity": 0.75},
            {"status": Status.NOT_EVALUATED, "reason": "only 5 of 1001 samples"},
        )
    )

    assert "LowGPUUtilization: 0 of 480 windows are low or fluctuate." in passed
    assert "LowGPUUtilization: 360 of 480 windows are low or fluctuate." in triggered
    assert "A window is the last 500 samples; boxes show all samples." in triggered
    assert "LowGPUUtilization was not evaluated: only 5 of 1001 samples." in not_evaluated


@pytest.mark.parametrize(
    ("low", "fluctuating", "sentence"),
    [
        (0, 16, "16 of 16 windows fluctuate (p95 at least 70%, p5 below 10%)."),
        (3, 0, "3 of 16 windows are low (p95 below 70%)."),
        (1, 0, "1 of 16 windows is low (p95 below 70%)."),
        (
            3,
            1,
            "3 of 16 windows are low (p95 below 70%), 1 of 16 windows fluctuates (p95 at least 70%, p5 below",
        ),
    ],
)
def test_counts_windows_by_kind_with_limits_as_they_were_set(
    low: int, fluctuating: int, sentence: str
) -> None:
    limits = tuple(
        Parameter(name=name, value=value, unit="%", help="", default=value)
        for name, value in (("threshold_p95", 70.0), ("threshold_p5", 10.0))
    )

    page = utilization_of(
        *boxes("n", [50], [], None),
        status=Status.TRIGGERED,
        evaluated=16,
        violating=low + fluctuating,
        kinds={"low": low, "fluctuating": fluctuating},
        parameters=limits,
    )

    assert f"LowGPUUtilization: {sentence}" in page.text.replace(NBSP, " ")


def test_gpus_are_equal_by_one_threshold_and_in_print() -> None:
    texts = [
        utilization_of(
            *(replace(box, mean=mean) for box, mean in zip(found, means, strict=True))
        ).text.replace(NBSP, " ")
        for found in [boxes("n", [50, 50], [], None)]
        for means in ((27.26, 27.34), (27.0, 31.9), (27.0, 32.0))
    ]

    assert "Both GPUs average 27.3%." in texts[0]
    assert "Both GPUs average 27.0 to 31.9%." in texts[1]
    assert "gpu0 has the lowest utilization, 27.0% on average; gpu1 has the highest, 32.0%." in texts[2]


def test_a_mean_that_hides_idle_times_leads_to_the_figures_that_show_them() -> None:
    (box,) = boxes("n", [50], [], None)

    page = utilization_of(replace(box, below_10=0.7))

    assert [a["href"] for a in page.all("a")] == ["#nodes"]
