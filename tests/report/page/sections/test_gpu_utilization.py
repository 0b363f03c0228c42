"""What the section on GPU utilization says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

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


def shown(*found: Box, **facts: Any) -> sections.Fragment:
    known: dict[str, Any] = {
        "status": Status.PASSED,
        "evaluated": 480,
        "parameters": (WINDOW, *LIMITS),
    } | facts
    rule = examples.card("LowGPUUtilization", known.pop("status"), **known)
    return sections.gpu_utilization(replace(examples.gpu_job(), boxes=found, rules=(rule,)))


def of_kinds(low: int, fluctuating: int) -> sections.Fragment:
    kinds = {"low": low, "fluctuating": fluctuating}
    return shown(*ONE, status=Status.TRIGGERED, evaluated=16, violating=low + fluctuating, kinds=kinds)


def of_means(*means: float) -> sections.Fragment:
    found = boxes("n", [50] * len(means), [], None)
    return shown(*(replace(box, mean=mean) for box, mean in zip(found, means, strict=True)))


ONE = boxes("n", [50], [], None)
LIMITS = tuple(
    Parameter(name=name, value=value, unit="%", help="", default=value)
    for name, value in (("threshold_p95", 70.0), ("threshold_p5", 10.0))
)
VARIANTS: dict[str, Callable[[], sections.Fragment]] = {
    "passed": lambda: shown(*ONE),
    "not evaluated": lambda: shown(*ONE, status=Status.NOT_EVALUATED, reason="only 5 of 1001 samples"),
    "all fluctuate": lambda: of_kinds(0, 16),
    "triggered in results, without kinds": lambda: shown(
        *ONE, status=Status.TRIGGERED, evaluated=16, violating=3
    ),
    "two equal GPUs": lambda: of_means(27.26, 27.34),
    "two similar GPUs": lambda: of_means(27.0, 31.9),
    "two GPUs that differ": lambda: of_means(27.0, 32.0),
    "a mean that hides idle times": lambda: shown(replace(ONE[0], below_10=0.7)),
}


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
    assert "Drawn: 32 of 128 GPUs" in page.text.replace(NBSP, " ")
