"""A job whose parts can only be reached through ``each``, and only with what can be pickled."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

from jobrules.model import Job

if TYPE_CHECKING:
    from collections.abc import Callable


class Apart(Job):
    """As a job whose nodes lie on other machines; asking it for a whole table is an error."""

    def __init__(self, job: Job) -> None:
        known = {
            "name": job.name,
            "profiles": job.profiles,
            "recorded": job.recorded,
            "finished": job.finished,
            "frame": None,
            "facts": job.facts,
            "_away": [pickle.dumps(part) for part in job.parts],
        }
        for name, value in known.items():
            object.__setattr__(self, name, value)

    def each(self, function: Callable[..., Any], /, *given: Any, **named: Any) -> list[Any]:
        """Run on copies of everything, as another process would."""
        asked = pickle.dumps((function, given, named))
        answers = []
        for away in self.__dict__["_away"]:
            run, its_given, its_named = pickle.loads(asked)
            answers.append(pickle.dumps(run(pickle.loads(away), *its_given, **its_named)))
        return [pickle.loads(one) for one in answers]

    @property
    def parts(self) -> Any:
        """Not here."""
        raise AssertionError("the parts of this job lie elsewhere: ask each()")

    panels = steps = events = property(lambda _: _elsewhere())


def _elsewhere() -> Any:
    raise AssertionError("the tables of this job lie elsewhere: ask each()")
