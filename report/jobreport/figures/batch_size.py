"""Box plots of CPU, GPUs, and their memory activity of one node, each group with its threshold."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from jobreport.figures.box_plot import box_plot
from jobreport.figures.static_svg import static_boxes
from jobrules.model import Metric

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bokeh.models import Plot

    from jobreport.figures.static_svg import StaticBoxes
    from jobrules.analyses.gpu_utilization import Box

#: The groups in order.
METRICS = (Metric.CPU_UTILIZATION, Metric.GPU_UTILIZATION, Metric.GPU_MEMORY_ACTIVITY)

_NUMBERED = re.compile(r"gpu(\d{1,3})")


def group(box: Box) -> tuple[str, str]:
    """Boxes are grouped by metric; ``gpu3`` is named ``3``."""
    numbered = _NUMBERED.fullmatch(box.device)
    return _short(Metric(box.metric)), numbered[1] if numbered else box.device


def batch_plot(boxes: Sequence[Box], limits: Mapping[Metric, float]) -> Plot | None:
    """The live plot of one node's boxes; None without a box."""
    return box_plot(_ordered(boxes), group, _by_label(limits))


def batch_drawing(boxes: Sequence[Box], limits: Mapping[Metric, float]) -> StaticBoxes:
    """The static drawing of ``batch_plot``."""
    return static_boxes(_ordered(boxes), group, _by_label(limits))


def _ordered(boxes: Sequence[Box]) -> list[Box]:
    return sorted(
        (box for box in boxes if box.metric in METRICS), key=lambda b: METRICS.index(Metric(b.metric))
    )


def _by_label(limits: Mapping[Metric, float]) -> dict[str, float]:
    return {_short(metric): limit for metric, limit in limits.items()}


def _short(metric: Metric) -> str:
    """The label, as far as it fits below the boxes."""
    return metric.label.removesuffix(" activity")
