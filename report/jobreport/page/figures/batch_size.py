"""Box plots of CPU, GPUs, and their memory activity of one node, each group with its threshold."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from jobreport.page.figures.box_plot import box_plot
from jobrules.model import Metric

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobreport.page.figures.canvas import Figure
    from jobrules.analyses.gpu_utilization import Box

#: The groups in order.
METRICS = (Metric.CPU_UTILIZATION, Metric.GPU_UTILIZATION, Metric.GPU_MEMORY_ACTIVITY)

_NUMBERED = re.compile(r"gpu(\d{1,3})")


def group(box: Box) -> tuple[str, str]:
    """Boxes are grouped by metric; ``gpu3`` of several GPUs is named ``3``."""
    numbered = _NUMBERED.fullmatch(box.device)
    return Metric(box.metric).label, numbered[1] if numbered else box.device


def thresholds(boxes: Sequence[Box], limits: Mapping[Metric, float]) -> Figure | None:
    """The boxes of one node with the threshold of each group; None without a box."""
    ordered = sorted(
        (box for box in boxes if box.metric in METRICS), key=lambda box: METRICS.index(Metric(box.metric))
    )
    several = len({box.device for box in ordered if box.metric == Metric.GPU_UTILIZATION}) > 1
    grouping = group if several else _by_metric
    return box_plot(ordered, grouping, {metric.label: limit for metric, limit in limits.items()})


def _by_metric(box: Box) -> tuple[str, str]:
    return Metric(box.metric).label, box.device
