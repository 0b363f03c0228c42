"""A job whose parts can only be reached through ``each``, and only with what can be pickled."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

from jobrules.model import Job, PartFacts

if TYPE_CHECKING:
    from collections.abc import Callable


class JobElsewhere(Job):
    """As a job whose nodes lie on other machines; asking it for a whole table is an error."""

    def __init__(self, job: Job) -> None:
        self.name, self.finished, self.frame = job.name, job.finished, job.frame
        self.profiles, self.recorded = job.profiles, job.recorded
        self._facts = job.facts
        self._parts = [pickle.dumps(part) for part in job.parts]

    @property
    def facts(self) -> tuple[PartFacts, ...]:
        """Known without the tables."""
        return self._facts

    def each(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> list[Any]:
        """Run on copies of everything, as another process would."""
        call = pickle.dumps((function, args, kwargs))
        results = []
        for part in self._parts:
            run, its_args, its_kwargs = pickle.loads(call)
            results.append(pickle.dumps(run(pickle.loads(part), *its_args, **its_kwargs)))
        return [pickle.loads(one) for one in results]

    panels = steps = events = parts = property(lambda _: _fail())


def _fail() -> Any:
    raise AssertionError("the tables of this job lie elsewhere: ask each()")
