"""NLPSequenceRatio: most tokens are padding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.learning.robust import of_hundred
from jobrules.measures.work import gpu_use
from jobrules.measures.work_span import HOUR_US
from jobrules.model import HowMuch, Reason, ReasonKind
from jobrules.model.learning import Collection, Training
from jobrules.rule import percent
from jobrules.rules.learning.learning_rule import LearningRule
from jobrules.text import share

if TYPE_CHECKING:
    from jobrules.model import Fact, Job, RuleResult
    from jobrules.model.learning import Learning

#: No batch has more tokens.
_LARGEST = 1e15


@dataclass(frozen=True, kw_only=True)
class NLPSequenceRatio(LearningRule):
    """Most tokens are padding.

    What it checks
        The share of recorded input tokens that are the padding id. Triggers above ``pad``.

    Why it matters
        GPUs compute on padding as on text.

    What to do
        * Put sequences of similar length into one batch.
        * Pack several into one.
        * Pad to the longest of the batch only.

    Details
        Over all integer inputs whose padding id is known. The GPU time is that share of the used GPU time; kernels that
        skip padding take less.
    """

    title: ClassVar[str] = "Most tokens are padding"
    needs: ClassVar[tuple[Training, ...]] = (Training.INPUT,)

    pad: float = percent(50.0, "padding of all tokens")

    def judge(self, learning: Learning, job: Job) -> RuleResult:
        """``Datapoints`` are tokens."""
        records = learning.tensors
        assert records is not None  # noqa: S101 - inputs are recorded
        padded = [one.collection is Collection.INPUT and one.pad_id is not None for one in records.tensors]
        rows = np.array(padded)[records.tensor]
        count = np.clip(np.nan_to_num(records.count[rows]), 0, _LARGEST)
        tokens = float(count.sum())
        if not tokens:
            return self.not_evaluated(Reason(kind=ReasonKind.NOT_RECORDED, what="the padding id of inputs"))
        part = float(np.clip(np.nan_to_num(records.zero[rows]), 0, count).sum()) / tokens
        facts: dict[str, Any] = {
            "datapoints": int(tokens),
            "measure": of_hundred(100 * part, self.pad, "% of tokens"),
        }
        title = f"{share(part)} of tokens are padding"
        if 100 * part <= self.pad:
            return self.passed(f"{title} (threshold {self.pad:g}%)", **facts)
        used_us = sum(gpu.percent_us for gpu in job.gathered(gpu_use, Clocks.of(job))) / 100
        of_gpus: list[Fact] = []
        if used_us:
            of_gpus = [HowMuch("GPU time that padding stands for", part * used_us / HOUR_US, "GPU-hours")]
        return self.found(learning, self.finding(title, *of_gpus), **facts)
