"""A job whose nodes' tables are kept by an engine."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from jobrules.model import Events, Job, JobInMemory, Metric, Panel, PartFacts, Steps, span_of
from jobrules.model.job import of_node
from jobrules.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from jobreport.tables.engine import Engine, Handle
    from jobrules.model import Frame, LoopFacts, ProcessStacks, Profile
    from jobrules.model.captures import AcrossRanks, Capture
    from jobrules.model.learning import Learning

#: Functions of these packages run where the parts lie, all others here: other processes lack a user's own rule.
_OURS = ("jobrules.", "jobreport.")


class Kept(Struct, frozen=True, kw_only=True):
    """The part of one node, as an engine keeps it."""

    #: Facts after the change.
    facts: PartFacts
    #: The jobs that make it up.
    handles: Sequence[Handle]
    #: Applied where it is needed.
    change: Callable[[JobInMemory], JobInMemory] | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class JobInParts(Job):
    """A job whose tables an engine keeps, in memory, on disk or on other machines."""

    name: str
    engine: Engine
    #: The nodes, in natural order of the names.
    kept: tuple[Kept, ...]
    profiles: tuple[Profile, ...] = ()
    captures: tuple[Capture, ...] = ()
    across_ranks: AcrossRanks | None = None
    recorded: tuple[str, ...] = ()
    finished: bool | None = None
    loop_facts: LoopFacts | None = None
    learning: Learning | None = None
    frame: Frame | None = None

    @cached_property
    def facts(self) -> tuple[PartFacts, ...]:
        """Facts of each node, in natural order of the names."""
        return tuple(one.facts for one in self.kept)

    @cached_property
    def parts(self) -> tuple[Job, ...]:
        """The part of each node, in the order of ``nodes``, in this process."""
        return tuple(self._fetched())

    def each(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> list[Any]:
        """Results of the function for each node's part; functions of these packages run where the parts lie."""
        if self._here:
            return [function(part, *args, **kwargs) for part in self._here]
        if not all(map(_is_ours, (function, *args, *kwargs.values()))):
            return [function(part, *args, **kwargs) for part in self._fetched()]
        calls = [
            (
                one.handles,
                (self.framed(one.facts), one.change, function, *of_node((args, kwargs), one.facts.node)),
            )
            for one in self.kept
        ]
        return self.engine.ask(_run, calls)

    @cached_property
    def _here(self) -> tuple[Job, ...]:
        """The parts, with what they keep of what was computed, if all tables lie in this process; otherwise none."""
        tables = (table for one in self.kept for table in one.handles)
        return self.parts if all(isinstance(table, JobInMemory) for table in tables) else ()

    def one_by_one(self, nodes: Collection[str] | None = None) -> Iterator[Job]:
        """The parts, of these nodes or all; of those that lie elsewhere, one at a time is in memory."""
        for i, one in enumerate(self.kept):
            if nodes is None or one.facts.node in nodes:
                yield self._here[i] if self._here else self._fetched_one(one)

    def _fetched(self) -> Iterator[Job]:
        return map(self._fetched_one, self.kept)

    def _fetched_one(self, one: Kept) -> Job:
        return _part(self.engine.fetch(one.handles), self.framed(one.facts), one.change)

    def within(self, spans_us: Mapping[str, tuple[int, int]]) -> Job:
        """The job in the time from one moment to another of each node."""
        cut = dataclasses.replace(
            self,
            kept=tuple(
                replace(one, change=partial(_within, spans_us[one.facts.node], one.change))
                for one in self.kept
            ),
        )
        kept = (replace(one, facts=facts) for one, facts in zip(cut.kept, cut.each(_facts), strict=True))
        return dataclasses.replace(self, kept=tuple(one for one in kept if one.facts.records))

    @cached_property
    def panels(self) -> tuple[Panel, ...]:
        """All samples."""
        return tuple(panel for part in self.parts for panel in part.panels)

    @cached_property
    def steps(self) -> Steps:
        """All steps, sorted by start, then end."""
        return Steps.joined([part.steps for part in self.parts])

    @cached_property
    def events(self) -> Events:
        """All events."""
        return Events.joined([part.events for part in self.parts])

    @cached_property
    def stacks(self) -> tuple[ProcessStacks, ...]:
        """All samples of stacks."""
        return tuple(one for part in self.parts for one in part.stacks)


def _within(
    span_us: tuple[int, int],
    change: Callable[[JobInMemory], JobInMemory] | None,
    part: JobInMemory,
) -> JobInMemory:
    return (change(part) if change else part).within(dict.fromkeys(part.nodes, span_us))


def _facts(part: Job) -> PartFacts:
    return PartFacts.of(part, *part.nodes)


def _is_ours(one: Any) -> bool:
    """Whether other processes can import it, and what it holds: of these packages, or neither function nor rule."""
    if isinstance(one, tuple):
        return all(map(_is_ours, one))
    if isinstance(one, partial):
        return all(map(_is_ours, (one.func, *one.args, *one.keywords.values())))
    owner = type(one.__self__) if hasattr(one, "__self__") else type(one) if isinstance(one, Rule) else one
    return not callable(owner) or (getattr(owner, "__module__", None) or "").startswith(_OURS)


def _run(
    tables: Sequence[JobInMemory],
    frame: Frame,
    change: Callable[[JobInMemory], JobInMemory] | None,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Any:
    return function(_part(tables, frame, change), *args, **kwargs)


def _part(
    tables: Sequence[JobInMemory], frame: Frame, change: Callable[[JobInMemory], JobInMemory] | None
) -> Job:
    part = part_of(tables).in_frame(frame)
    return change(part) if change else part


def part_of(tables: Sequence[JobInMemory]) -> JobInMemory:
    """The tables of one node from several sources; of a metric the first one's samples are used."""
    if len(tables) == 1:
        return tables[0]
    panels = {panel.metric: panel for one in reversed(tables) for panel in one.panels}
    return JobInMemory(
        name=tables[0].name,
        panels=tuple(panels[metric] for metric in Metric if metric in panels),
        steps=Steps.joined([one.steps for one in tables]),
        events=Events.joined([one.events for one in tables]),
        stacks=tuple(stacks for one in tables for stacks in one.stacks),
    )


def facts_of(facts: Sequence[PartFacts]) -> PartFacts:
    """Facts of the part that ``part_of`` makes, from the facts of its tables."""
    panels = {panel.metric: panel for one in reversed(facts) for panel in one.panels}
    return PartFacts(
        node=facts[0].node,
        panels=tuple(panels[metric] for metric in Metric if metric in panels),
        steps=sum(one.steps for one in facts),
        steps_us=span_of(one.steps_us for one in facts),
        events=sum(one.events for one in facts),
        events_us=span_of(one.events_us for one in facts),
    )
