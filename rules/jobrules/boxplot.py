"""Box-plot figures of one series."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jobrules.result import Box

if TYPE_CHECKING:
    from jobrules.job import FloatArray, Job, Metric, Panel


def quartiles(values: FloatArray) -> dict[str, float]:
    """``p25, p50, p75, p95, upper, lower`` of the vendor's schema.

    Whiskers: ``upper = min(p75 + 1.5 iqr, max)``, ``lower = max(p25 - 1.5 iqr, min)``.
    """
    p25, p50, p75, p95 = (float(q) for q in np.quantile(values, (0.25, 0.5, 0.75, 0.95)))
    reach = 1.5 * (p75 - p25)
    return {
        "p25": p25,
        "p50": p50,
        "p75": p75,
        "p95": p95,
        "upper": min(p75 + reach, float(values.max())),
        "lower": max(p25 - reach, float(values.min())),
    }


def box(panel: Panel, device: int, basis: str, values: FloatArray) -> Box:
    """The distribution of ``values``, samples of one device of a panel; at least one."""
    p5, p99 = (float(q) for q in np.quantile(values, (0.05, 0.99)))
    return Box(
        node=panel.node,
        device=panel.devices[device],
        metric=panel.metric,
        unit=panel.metric.unit,
        basis=basis,
        n=len(values),
        mean=float(values.mean()),
        min=float(values.min()),
        p5=p5,
        p99=p99,
        max=float(values.max()),
        below_10=float((values < 10).mean()),
        above_90=float((values > 90).mean()),
        **quartiles(values),
    )


def boxes(job: Job, metric: Metric) -> tuple[Box, ...]:
    """A box for every device of a metric: whole job and, where steps are known, training loop."""
    result = []
    for panel in job.panels_of(metric):
        loop = job.loop_us(panel.node)
        for device in range(len(panel.devices)):
            time_us, values = panel.series(device)
            result.append(box(panel, device, "whole job", values))
            if loop:
                inside = values[(time_us >= loop[0]) & (time_us < loop[1])]
                if len(inside):
                    result.append(box(panel, device, "training loop", inside))
    return tuple(result)
