"""A GPU is idle while a core of its node waits for I/O."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from jobrules.causes.claims import left_in, with_stalls
from jobrules.measures.core_use import SLOWED_GPU, CoreUse
from jobrules.measures.waiting import means_during
from jobrules.model import Metric
from jobrules.model.claims import Cause, Precedence, moments

if TYPE_CHECKING:
    from jobrules.model import BoolArray, Finding, FloatArray, Job, Panel, RuleResult
    from jobrules.model.claims import Claim, Claimed, Samples
    from jobrules.rules.io_bottleneck import IOBottleneck

#: If some core waits in this part of the work or more, the waits may be shorter than a sample, and a GPU that is low is one
#: that waits.
ALWAYS_PART = 0.9


def waiting_for_io(rule: IOBottleneck, job: Job, result: RuleResult) -> Cause:
    """Evidence is a GPU that is idle in the same snapshot in which a core of its node waits for I/O.

    Where a core waits in nearly all snapshots, a GPU that is low is one that waits.
    """
    return Cause(
        key="io-bottleneck",
        precedence=Precedence.IO_BOUND,
        when="while the CPU waited for I/O",
        claim=with_stalls(rule, partial(_waiting, rule), rule.placed_stalls(job), 1),
        finding=partial(_finding, rule, job, result),
        widened=True,
    )


def _waiting(rule: IOBottleneck, part: Job, panel: Panel, weight_us: FloatArray) -> Claim | None:
    del weight_us
    use = CoreUse.of(part, panel, Metric.IO_WAIT, rule.io_threshold)
    if use is None:
        return None

    def rows_of(gpu: Samples) -> BoolArray:
        waiting = use.above[gpu.rows] > 0
        always = np.count_nonzero(waiting & gpu.in_work) >= ALWAYS_PART * np.count_nonzero(gpu.in_work)
        return np.asarray(waiting & (gpu.values < (SLOWED_GPU if always else rule.gpu_threshold)))

    return left_in(rows_of)


def _finding(rule: IOBottleneck, job: Job, result: RuleResult, claimed: Claimed) -> Finding:
    return rule.finding(
        f"A GPU was held up while a CPU core waited for I/O in {claimed.seen} of snapshots",
        *moments(claimed, result),
        *means_during(job, claimed, Metric.IO_PRESSURE),
        rule.evidence(job),
        devices=claimed.devices,
    )
