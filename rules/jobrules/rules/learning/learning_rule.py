"""What rules on the training itself share."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from jobrules.model import Reason, ReasonKind
from jobrules.model.learning import Training, time_of_step
from jobrules.rule import Rule

if TYPE_CHECKING:
    from jobrules.model import Finding, Job, RuleResult
    from jobrules.model.learning import Learning

#: Reason of a rule on training, if only the machine was recorded.
NO_LEARNING = Reason(kind=ReasonKind.NOT_APPLICABLE, what="nothing of the training itself was recorded")
#: Records of tensors before a rule judges them.
MIN_RECORDS = 10


@dataclass(frozen=True, kw_only=True)
class LearningRule(Rule):
    """A rule on the training itself, judged once a job."""

    #: What must be recorded.
    needs: ClassVar[tuple[Training, ...]] = ()
    section: ClassVar[str] = "learning"
    of_learning: ClassVar[bool] = True
    of_work: ClassVar[bool] = False

    def check(self, job: Job) -> RuleResult:
        """The judgement, or what it lacks."""
        learning = job.learning
        if learning is None:
            return self.not_evaluated(NO_LEARNING)
        missing = next((need for need in self.needs if need not in learning.has), None)
        if missing:
            return self.not_evaluated(Reason(kind=ReasonKind.NOT_RECORDED, what=missing))
        return self.judge(learning, job)

    @abstractmethod
    def judge(self, learning: Learning, job: Job) -> RuleResult:
        """The result of a training with all that the rule ``needs``."""

    def found(
        self, learning: Learning, finding: Finding, *, since_step: int | None = None, **facts: Any
    ) -> RuleResult:
        """Result with a finding, which tells from which step on the training did not improve the model."""
        details: dict[str, Any] = dict(facts.pop("details", {}))
        if since_step is not None:
            details |= {"since_step": since_step, "since_us": time_of_step(learning, since_step)}
        return self.triggered(finding, details=details, **facts)
