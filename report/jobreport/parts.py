"""A job whose nodes' tables are kept by an engine."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from jobrules.job import Events, Frame, Job, Metric, Panel, PartFacts, Steps, natural_sorted, span_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from jobreport.engine import Engine, Handle
    from jobrules.job import Profile

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
            "_things": [nodes[node][1] for node in order],
        }
        self.__dict__.update(known)

    def each(self, function: Callable[..., Any], /, *given: Any, **named: Any) -> list[Any]:
        """The function's answer for each node's part; ours run where the parts lie."""
        owner = type(getattr(function, "__self__", function)) if hasattr(function, "__self__") else function
        if not owner.__module__.startswith(_OURS):
            return [function(part, *given, **named) for part in self.parts]
        return self._ask(function, given, named)

    @cached_property
    def parts(self) -> tuple[Job, ...]:
        """The part of each node, in the order of ``nodes``."""
        return tuple(self._ask(_itself, (), {}))

    def _ask(
        self, function: Callable[..., Any], given: tuple[Any, ...], named: Mapping[str, Any]
    ) -> list[Any]:
        engine: Engine = self.__dict__["_engine"]
        frame = Frame(span_us=self.span_us, steps_us=self.steps_us)
        questions = [
            (things, (facts, frame, function, given, named))
            for facts, things in zip(self.facts, self.__dict__["_things"], strict=True)
        ]
        return engine.ask(_asked, questions)

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


def _asked(
    things: Sequence[Job],
    facts: PartFacts,
    frame: Frame,
    function: Callable[..., Any],
    given: tuple[Any, ...],
    named: Mapping[str, Any],
) -> Any:
    return function(part_of(things).framed(frame, facts), *given, **named)


def _itself(part: Job) -> Job:
    return part


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
