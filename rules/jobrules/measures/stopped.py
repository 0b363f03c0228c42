"""GPUs that are idle from some moment on, or up to one, while others work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from jobrules.measures.sample_weights import PAUSE_US
from jobrules.measures.work import Work, work_of
from jobrules.model import ByNode, FloatArray, IntArray, Job, Metric, OfGPU, Panel

if TYPE_CHECKING:
    from jobrules.model.claims import Claim, Samples

#: A GPU stopped where it did nothing for so long, and for this share of the job, while others worked.
STOPPED_US, STOPPED_SHARE = PAUSE_US, 0.05

#: With a mean utilization below this, in percent, a GPU does nothing.
NOTHING_PERCENT = 5.0


class Stretch(OfGPU, frozen=True, kw_only=True):
    """Time in which a GPU does nothing, at one end of the work of the job; on the clock of its node."""

    start_us: int
    end_us: int
    #: False for the begin of the work.
    at_end: bool


def stretches(job: Job, work: Work) -> list[Stretch]:
    """Those of all GPUs that were used at some time."""
    start_us, end_us = job.span_us
    return job.gathered(_stretches, work, max(STOPPED_US, STOPPED_SHARE * (end_us - start_us)))


def _stretches(part: Job, work: Work, least_us: float) -> Iterator[Stretch]:
    if work.gpu_us is None:
        return
    for panel in part.panels_of(Metric.GPU_UTILIZATION):
        late_us = work.clocks.late_us(panel.node)
        first_us, last_us = (us + late_us for us in work.gpu_us)
        for column, device in enumerate(panel.devices):
            time_us, values = panel.series(column)
            own = work_of(time_us, values)
            if own is None:
                continue
            for at_end, inside in (
                (False, (time_us >= first_us) & (time_us < own[0])),
                (True, (time_us > own[1]) & (time_us <= last_us)),
            ):
                if _idle_us(time_us[inside], values[inside]) >= least_us:
                    start_us, *_, end_us = time_us[inside].tolist()
                    yield Stretch(
                        node=panel.node, device=device, start_us=start_us, end_us=end_us, at_end=at_end
                    )


def _idle_us(time_us: IntArray, values: FloatArray) -> float:
    """Length of a stretch, or 0 if the GPU does something in it."""
    return float(np.ptp(time_us)) if len(values) and values.mean() < NOTHING_PERCENT else 0.0


def in_stretches(found: ByNode[list[Stretch]], part: Job, panel: Panel, weight_us: FloatArray) -> Claim:
    """Claim all that GPUs lost in these."""
    del part, weight_us

    def of_gpu(gpu: Samples) -> FloatArray:
        inside = np.zeros(len(gpu.values), np.bool_)
        for one in found.get(panel.node, ()):
            inside |= (one.name == gpu.name) & (gpu.time_us >= one.start_us) & (gpu.time_us <= one.end_us)
        return np.where(inside, gpu.left_us, 0.0)

    return lambda gpus: [of_gpu(gpu) for gpu in gpus]
