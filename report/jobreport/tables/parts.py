"""A job whose nodes' tables are kept by an engine."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from jobrules.model import Events, Frame, Job, Metric, Panel, PartFacts, Steps, natural_sorted, span_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from jobreport.tables.engine import Engine, Handle
    from jobrules.model import Profile

#: Functions of these packages run where the parts lie, all others here: a rule of a user's own is not known there.
_OURS = ("jobrules.", "jobreport.")


class JobOfParts(Job):
    """A job node by node; whoever asks it for a whole table brings that into memory."""

    def __init__(
        self,
        *,
        name: str,
        engine: Engine,
        nodes: Mapping[str, tuple[PartFacts, Sequence[Handle]]],
        profiles: tuple[Profile, ...] = (),
        recorded: tuple[str, ...] = (),
        finished: bool | None = None,
    ) -> None:
        """``nodes`` has what is known of each node and the things that make up its part, which are jobs.

        Of a metric that several of a node's things have, the first one's samples are used.
        """
        order = natural_sorted(set(nodes))
        known: dict[str, Any] = {
            "name": name,
            "profiles": profiles,
            "recorded": recorded,
            "finished": finished,
            "frame": None,
            "facts": tuple(nodes[node][0] for node in order),
            "_engine": engine,
            "_handles": [nodes[node][1] for node in order],
        }
        self.__dict__.update(known)

    def each(self, function: Callable[..., Any], /, *given: Any, **named: Any) -> list[Any]:
        """The function's answer for each node's part; ours run where the parts lie."""
        engine: Engine = self.__dict__["_engine"]
        if not all(map(_is_ours, (function, *given, *named.values()))):
            return [
                function(part_of(engine.fetch(handles)).framed(self._frame, facts), *given, **named)
                for facts, handles in self._kept
            ]
        asked = [(handles, (facts, self._frame, function, given, named)) for facts, handles in self._kept]
        return engine.ask(_asked, asked)

    @cached_property
    def parts(self) -> tuple[Job, ...]:
        """The part of each node, in the order of ``nodes``, in this process."""
        engine: Engine = self.__dict__["_engine"]
        return tuple(
            part_of(engine.fetch(handles)).framed(self._frame, facts) for facts, handles in self._kept
        )

    @cached_property
    def _frame(self) -> Frame:
        return Frame(name=self.name, finished=self.finished, span_us=self.span_us, steps_us=self.steps_us)

    @property
    def _kept(self) -> Iterable[tuple[PartFacts, Sequence[Handle]]]:
        return zip(self.facts, self.__dict__["_handles"], strict=True)

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


def _is_ours(one: Any) -> bool:
    """Whether other processes know it: whatever is no function, and functions and methods of these packages."""
    owner = type(one.__self__) if hasattr(one, "__self__") else one
    return not callable(one) or (getattr(owner, "__module__", None) or "").startswith(_OURS)


def _asked(
    things: Sequence[Job],
    facts: PartFacts,
    frame: Frame,
    function: Callable[..., Any],
    given: tuple[Any, ...],
    named: Mapping[str, Any],
) -> Any:
    return function(part_of(things).framed(frame, facts), *given, **named)


def part_of(things: Sequence[Job]) -> Job:
    """The tables of one node from several sources; of a metric the first one's samples are used."""
    if len(things) == 1:
        return things[0]
    panels = {panel.metric: panel for thing in reversed(things) for panel in thing.panels}
    return Job(
        name=things[0].name,
        panels=tuple(panels[metric] for metric in Metric if metric in panels),
        steps=Steps.joined([thing.steps for thing in things]),
        events=Events.joined([thing.events for thing in things]),
    )


def facts_of(facts: Sequence[PartFacts]) -> PartFacts:
    """What is known of the part that ``part_of`` makes, by what is known of its things."""
    panels = {panel.metric: panel for one in reversed(facts) for panel in one.panels}
    return PartFacts(
        node=facts[0].node,
        panels=tuple(panels[metric] for metric in Metric if metric in panels),
        steps=sum(one.steps for one in facts),
        steps_us=span_of(one.steps_us for one in facts),
        events=sum(one.events for one in facts),
        events_us=span_of(one.events_us for one in facts),
    )
