"""StalledTraining: no step for a long time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.learning.robust import few
from jobrules.measures.work import Work, gpu_use
from jobrules.measures.work_span import IDLE_PERCENT
from jobrules.model import SECOND_US, HowMuch, IntArray, Measure, Note, Reason, ReasonKind, Severity, When
from jobrules.model.learning import EVALUATION
from jobrules.model.order import distinct, median
from jobrules.rule import number
from jobrules.rules.learning.learning_rule import LearningRule
from jobrules.text import duration, join_names
from jobrules.text import percent as in_percent

if TYPE_CHECKING:
    from jobrules.model import Fact, Job, RuleResult
    from jobrules.model.learning import Learning

#: Times of the usual distance of two records.
_USUAL = 20
_MINUTE_US = 60 * SECOND_US
_REPEATED = "Steps that were repeated after the restart count with their last time only"


@dataclass(frozen=True, kw_only=True)
class StalledTraining(LearningRule):
    """No step for a long time.

    What it checks
        Time without any record of the training, above ``threshold`` and 20 times the usual distance of records. Critical
        if the samples of the job end in it.

    Why it matters
        A process that hangs keeps its GPUs.

    What to do
        * See with `py-spy dump --pid PID` where it waits.
        * Set `TORCH_NCCL_TRACE_BUFFER_SIZE` in the next run: the flight recorder shows collectives that never ended.

    Details
        Evaluations, checkpoints, and restarts in that time are named. GPUs at 100% are often those of a collective for
        which a rank is missing. A job that reported its end, or whose GPUs idled, did not hang: a warning.
    """

    title: ClassVar[str] = "No step for a long time"

    threshold: float = number(1800.0, "time without a record", unit="s")

    def judge(self, learning: Learning, job: Job) -> RuleResult:
        """``Violations`` are stalls."""
        clocks = Clocks.of(job)
        records_us = _records_us(learning) - clocks.late_us(learning.node)
        if not len(records_us):
            reason = Reason(kind=ReasonKind.NOT_RECORDED, what="times of the training", verb="were")
            return self.not_evaluated(reason)
        usual_us = median(np.diff(records_us)) if len(records_us) > 1 else 0.0
        limit_us = max(self.threshold * SECOND_US, _USUAL * usual_us)
        last_us, (first_sample_us, end_us) = int(records_us[-1]), job.samples_us or (0, 0)
        # Samples of another time say nothing of the end.
        has_end = first_sample_us <= last_us < end_us
        ends_us = np.append(records_us, end_us) if has_end else records_us
        if len(ends_us) < 2:
            return self.not_evaluated(few(1, 2, "records of the training"))
        length_us = np.diff(ends_us)
        longest_us = int(length_us.max())
        facts: dict[str, Any] = {
            "datapoints": len(records_us),
            "measure": Measure(
                value=round(longest_us / _MINUTE_US, 1),
                limits=(round(limit_us / _MINUTE_US, 1),),
                bad="above",
                scale=max(2 * limit_us, longest_us) / _MINUTE_US or 1.0,
                unit="min without a record",
                limit_text=f"threshold {duration(limit_us)}",
            ),
        }
        stalls = [(int(ends_us[i]), int(ends_us[i + 1])) for i in np.flatnonzero(length_us > limit_us)]
        if not stalls:
            longest = f"The longest time without a record was {duration(longest_us)}"
            return self.passed(f"{longest} (threshold {duration(limit_us)})", **facts)
        at_end = has_end and stalls[-1][1] == end_us
        begin, end = stalls[-1] if at_end else max(stalls, key=lambda one: one[1] - one[0])
        use = _use_of_gpus(job, clocks, begin, end)
        title = f"No step for {duration(end - begin)}{' before the end' if at_end else ''}"
        if use is not None:
            title += f"; GPU utilization was {in_percent(use)}"
        # GPUs that idle after the end of a training are no hang.
        hangs = at_end and not job.finished and (use is None or use >= IDLE_PERCENT)
        finding = self.finding(
            title,
            When(begin, end),
            *([HowMuch("Stalls", len(stalls))] if len(stalls) > 1 else ()),
            *_inside(learning, (begin, end), clocks.late_us(learning.node)),
            severity=Severity.CRITICAL if hangs else Severity.WARNING,
            start_us=begin,
            end_us=end,
        )
        # On the clock of the training, as all of its times.
        details = {"since_us": begin + clocks.late_us(learning.node), "stalled_s": (end - begin) / SECOND_US}
        return self.found(learning, finding, violations=len(stalls), details=details, **facts)


def _records_us(learning: Learning) -> IntArray:
    """When anything was recorded, ascending, each time once."""
    columns = [one.time_us for one in learning.scalars]
    columns += [learning.tensors.time_us] if learning.tensors else []
    times = np.concatenate([np.empty(0, np.int64), *columns])
    return distinct(times[times > 0])


def _use_of_gpus(job: Job, clocks: Clocks, begin_us: int, end_us: int) -> float | None:
    """Mean utilization of all GPUs in a time, in percent; None without a sample."""
    time = Work(clocks=clocks, begin_us=begin_us, end_us=end_us, gpu_us=None, steps_us=None)
    gpus = job.gathered(gpu_use, clocks, time)
    measured_us = sum(gpu.measured_us for gpu in gpus)
    return sum(gpu.percent_us for gpu in gpus) / measured_us if measured_us else None


def _inside(learning: Learning, stall_us: tuple[int, int], late_us: int) -> list[Fact]:
    """What else was recorded in a stall: evaluations, checkpoints, restarts."""
    begin_us, end_us = stall_us[0] + late_us, stall_us[1] + late_us
    found = {one.name: None for one in learning.events if begin_us < one.time_us <= end_us}
    for one in learning.scalars:
        if one.mode == EVALUATION and ((begin_us < one.time_us) & (one.time_us <= end_us)).any():
            found["evaluation"] = None
    notes = [f"Recorded in that time: {join_names(list(found))}"] if found else []
    return [*map(Note, notes + [_REPEATED] * ("resume" in found))]
