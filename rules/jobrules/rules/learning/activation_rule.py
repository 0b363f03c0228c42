"""Base of the rules on outputs of activation modules: a share of them is of no use."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from jobrules.measures.learning.robust import few, of_hundred
from jobrules.model import Note, Reason, ReasonKind, Severity
from jobrules.model.learning import Collection
from jobrules.rules.learning.learning_rule import MIN_RECORDS, LearningRule, named
from jobrules.rules.learning.tensor_rows import Rows
from jobrules.text import percent, some_of

if TYPE_CHECKING:
    from jobrules.model import Job, RuleResult
    from jobrules.model.learning import Learning

_COMPILED = Reason(kind=ReasonKind.NOT_APPLICABLE, what="the model is compiled")


@dataclass(frozen=True, kw_only=True)
class ActivationRule(LearningRule):
    """Judges a share in the second half of the records of each module."""

    #: The share in the records of tensors, and in words after its number: "of the units were dead".
    column: ClassVar[str]
    did: ClassVar[str]
    #: Modules that have it: "ReLU module".
    module: ClassVar[str]
    #: Severity if it is so in all modules.
    of_all: ClassVar[Severity] = Severity.WARNING

    @property
    @abstractmethod
    def limit(self) -> float:
        """In percent: a module with more in half of the records is counted."""

    def judge(self, learning: Learning, job: Job) -> RuleResult:
        """Counts are of modules."""
        del job
        rows = Rows.of(learning.tensors, Collection.OUTPUT) if learning.tensors else None
        if rows:
            rows = rows.where(np.isfinite(rows(self.column)))
        if not rows:
            nothing = Reason(kind=ReasonKind.NOT_RECORDED, what=f"outputs of {self.module}s", verb="were")
            return self.not_evaluated(_COMPILED if learning.compiled else nothing)
        # Outputs that are NaN are neither dead nor flat.
        rows = rows.where(~(rows("nan") + rows("inf") > 0))
        records = rows.count()
        judged = records >= MIN_RECORDS
        if not judged.any():
            what = f"records of a {self.module}"
            return self.not_evaluated(few(int(records.max()), MIN_RECORDS, what))
        late = rows.where((rows.earlier >= records[rows.tensor] // 2) & judged[rows.tensor])
        # Half of the records are above the limit if the upper one in the middle is.
        share = 100 * late.median(late(self.column), upper=True)
        hit, whole = share > self.limit, int(judged.sum())
        worst = int(np.nanargmax(share))
        most = f"{percent(share[worst])} {self.did} in {named(rows.names(np.arange(len(share)) == worst))}"
        facts: dict[str, Any] = {
            "measure": of_hundred(float(share[worst]), self.limit, f"% {self.did}"),
            "details": {"modules": dict(zip(rows.names(hit), share[hit].tolist(), strict=True))},
            "evaluated": whole,
            "violating": int(hit.sum()),
            "counted": f"{self.module}s",
        }
        if not hit.any():
            return self.passed(f"At most {most}", **facts)
        finding = self.finding(
            f"In {some_of(int(hit.sum()), whole, self.module)} more than {self.limit:g}% {self.did}",
            Note(f"Modules: {named(rows.names(hit))}"),
            Note(f"The most: {most}"),
            severity=self.of_all if hit.sum() == whole else Severity.WARNING,
        )
        return self.found(learning, finding, **facts)
