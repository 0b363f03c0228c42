"""What the section on resource utilization says."""

from __future__ import annotations

from jobreport.page import sections
from jobrules.model import Metric
from tests.copies import replace
from tests.report.page.sections import examples
from tests.report.page.sections.example_balance import boxes
from tests.report.page.sections.html import Page


def test_boxes_of_memory_make_no_gpu_unused() -> None:
    base = examples.gpu_job()
    idle = [
        replace(box, max=0.0)
        for box in boxes("algo-1", [50, 50], [1, 1], 5)
        if box.metric != Metric.GPU_UTILIZATION
    ]
    used = boxes("algo-1", [50, 50], [], None)

    texts = [
        Page.of(sections.utilization(replace(base, boxes=(*used, *more))).html).text for more in ((), idle)
    ]

    assert texts[0] == texts[1]
    assert "never used" not in texts[1]
