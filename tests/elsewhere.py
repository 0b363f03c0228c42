"""A job whose parts can only be reached through ``each``, and only with what can be pickled."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

from jobrules.model import Job, PartFacts
from jobrules.model.job import of_node

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class JobElsewhere(Job):
    """As a job whose nodes lie on other machines; asking it for a whole table is an error."""

    def __init__(self, job: Job) -> None:
        self.name, self.finished, self.frame = job.name, job.finished, job.frame
        self.loop_facts = job.loop_facts
        self.profiles, self.recorded = job.profiles, job.recorded
        self._facts = job.facts
        self._parts = [pickle.dumps(part) for part in job.parts]

    @property
    def facts(self) -> tuple[PartFacts, ...]:
        """Known without the tables."""
        return self._facts

    def each(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> list[Any]:
        """Run on copies of everything, as another process would."""
        results = []
        for node, part in zip(self.nodes, self._parts, strict=True):
            run, its_args, its_kwargs = pickle.loads(pickle.dumps((function, *of_node((args, kwargs), node))))
            results.append(pickle.dumps(run(pickle.loads(part), *its_args, **its_kwargs)))
        return [pickle.loads(one) for one in results]

    def within(self, spans_us: Mapping[str, tuple[int, int]]) -> JobElsewhere:
        """Cut node by node, as the tables lie."""
        cut = [pickle.loads(part).within(spans_us) for part in self._parts]
        facts = [PartFacts.of(part, *part.nodes) for part in cut]
        found = copy.copy(self)
        for known in (*vars(found),):
            if known not in ("name", "finished", "frame", "loop_facts", "profiles", "recorded"):
                del found.__dict__[known]
        found._facts = tuple(one for one in facts if one.records)
        found._parts = [
            pickle.dumps(part.in_frame(found.framed(its)))
            for part, its in zip(cut, facts, strict=True)
            if its.records
        ]
        return found

    panels = steps = events = stacks = parts = property(lambda _: _fail())


def _fail() -> Any:
    raise AssertionError("the tables of this job lie elsewhere: ask each()")
