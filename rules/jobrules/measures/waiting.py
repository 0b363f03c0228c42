"""What the kernel reports of processes that wait, as evidence of a cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jobrules.model import HowMuch, Job, Metric

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jobrules.model.claims import Claimed


def means_during(job: Job, claimed: Claimed, *metrics: Metric) -> tuple[HowMuch, ...]:
    """Mean of each metric, in percent, from the first to the last moment that a cause claimed, over its nodes."""
    found = job.gathered(_means, claimed, metrics)
    return tuple(
        HowMuch(metric.label, float(np.mean(values)), "%")
        for metric in metrics
        if (values := [mean for one, mean in found if one is metric])
    )


def _means(part: Job, claimed: Claimed, metrics: tuple[Metric, ...]) -> Iterator[tuple[Metric, float]]:
    (node,) = part.nodes
    for metric in metrics if node in claimed.nodes else ():
        panel = part.panel(node, metric)
        if panel and (during := panel.within(claimed.start_us, claimed.end_us)):
            yield metric, float(during.mean.mean())
