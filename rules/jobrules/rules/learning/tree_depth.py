"""TreeDepth: nearly all trees are as deep as they may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from jobrules.measures.learning.robust import of_hundred
from jobrules.model import Reason, ReasonKind, Severity
from jobrules.model.order import median
from jobrules.rule import percent
from jobrules.rules.learning.feature_importance_overweight import NO_TREES
from jobrules.rules.learning.learning_rule import LearningRule
from jobrules.text import count, share

if TYPE_CHECKING:
    from jobrules.model import Job, RuleResult
    from jobrules.model.learning import Learning

_NO_DEPTHS = Reason(kind=ReasonKind.NOT_RECORDED, what="depths of trees", verb="were")


@dataclass(frozen=True, kw_only=True)
class TreeDepth(LearningRule):
    """Nearly all trees are as deep as they may be.

    What it checks
        Of boosted trees: how many are as deep as ``max_depth`` of the model allows. Triggers above ``threshold``.

    Why it matters
        Deeper trees might fit better, or the trees already fit noise.

    What to do
        * If validation lags behind training, lower the depth or regularize more.
        * Otherwise try a larger depth.
    """

    section: ClassVar[str] = "trees"
    title: ClassVar[str] = "Nearly all trees are as deep as they may be"

    threshold: float = percent(90.0, "trees at the limit")

    def judge(self, learning: Learning, job: Job) -> RuleResult:
        """``Datapoints`` are trees."""
        del job
        if learning.trees is None:
            return self.not_evaluated(NO_TREES)
        depths, limit = np.array(learning.trees.depths, np.int64), learning.trees.max_depth
        if not len(depths):
            return self.not_evaluated(_NO_DEPTHS)
        used = f"{count(len(depths), 'tree')}: depth {median(depths):g} at the median, {depths.max()} at most"
        # 0 is none, too, in XGBoost.
        if not limit:
            return self.passed(f"{used}, without a limit", datapoints=len(depths))
        part = float((depths >= limit).mean())
        facts: dict[str, Any] = {
            "datapoints": len(depths),
            "measure": of_hundred(100 * part, self.threshold, "% of trees at the limit"),
        }
        if 100 * part <= self.threshold:
            return self.passed(f"{used}, of {limit} allowed", **facts)
        title = f"{share(part)} of {count(len(depths), 'tree')} are as deep as allowed ({limit})"
        return self.found(learning, self.finding(title, severity=Severity.INFO), **facts)
