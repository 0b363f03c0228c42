"""A training job as rules see it: samples, steps and events, with their times.

The tables are the same for every source; a job may have no CPU samples, no GPU, or nothing but steps. All
times are whole microseconds since the Unix epoch (UTC).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import numpy as np
from msgspec import Struct

from jobrules.model.captures import AcrossRanks, Capture
from jobrules.model.events import Events
from jobrules.model.learning import Learning
from jobrules.model.loop_facts import LoopFacts
from jobrules.model.metric import Metric
from jobrules.model.names import NodeName
from jobrules.model.panel import ColumnName, Panel
from jobrules.model.profiles import Profile
from jobrules.model.stacks import ProcessStacks
from jobrules.model.steps import Steps
from jobrules.model.types import BoolArray, CodeArray, IntArray, natural_sorted, span_of

_P = ParamSpec("_P")

_R = TypeVar("_R")


class PanelFacts(Struct, frozen=True, kw_only=True):
    """Facts of a panel, known without its samples."""

    metric: Metric
    devices: tuple[ColumnName, ...]
    #: Times of the first and last sample, and the sampling interval.
    first_us: int
    last_us: int
    interval_us: int
    snapshots: int


class PartFacts(Struct, frozen=True, kw_only=True):
    """Facts of a node, known without its tables."""

    node: NodeName
    #: In the order of ``Metric``.
    panels: tuple[PanelFacts, ...]
    #: Number of steps, with their earliest start and latest end; the same for events.
    steps: int
    steps_us: tuple[int, int] | None
    events: int
    events_us: tuple[int, int] | None

    @classmethod
    def of(cls, part: Job, node: str) -> PartFacts:
        """Facts of a job that has only this node."""
        return cls(
            node=node,
            panels=tuple(
                PanelFacts(
                    metric=p.metric,
                    devices=p.devices,
                    first_us=int(p.time_us[0]),
                    last_us=p.last_us,
                    interval_us=p.interval_us,
                    snapshots=len(p.time_us),
                )
                for p in part.panels
            ),
            steps=len(part.steps),
            steps_us=part.steps.span_us,
            events=len(part.events),
            events_us=part.events.span_us,
        )

    @property
    def records(self) -> bool:
        """True if there is any sample, step or event."""
        return bool(self.panels or self.steps or self.events)

    @property
    def gpus(self) -> frozenset[str]:
        """GPUs with samples of any metric; of one that is divided (MIG), its instances."""
        found = {device for panel in self.panels if panel.metric.of_gpus for device in panel.devices}
        return frozenset(found - {device.partition("-mig")[0] for device in found if "-mig" in device})

    @property
    def samples_us(self) -> tuple[int, int] | None:
        """Times of the first and the last sample; None without samples."""
        return span_of((panel.first_us, panel.last_us) for panel in self.panels)


class Frame(Struct, frozen=True, kw_only=True):
    """What the part of one node knows of its node and of the whole job, without tables."""

    facts: PartFacts
    #: As of the whole ``Job``.
    name: str
    finished: bool | None
    span_us: tuple[int, int]
    steps_us: tuple[int, int] | None


class ByNode(dict[str, _R]):
    """Values by node, as an argument of ``Job.each``."""

    def of_node(self, node: str) -> ByNode[_R]:
        """The value of one node; empty if it has none."""
        return ByNode({node: self[node]} if node in self else {})


def of_node(given: Any, node: str) -> Any:
    """What the part of one node needs of an argument of ``Job.each``: of one with a method ``of_node``, what that returns.

    Without it, what travels to the nodes would grow with the square of their number.
    """
    if isinstance(given, partial):
        args, keywords = of_node((given.args, given.keywords), node)
        return partial(given.func, *args, **keywords)
    if type(given) is tuple:
        return tuple(of_node(one, node) for one in given)
    if type(given) is dict:
        return {key: of_node(one, node) for key, one in given.items()}
    return given.of_node(node) if hasattr(given, "of_node") else given


class Job(Protocol):
    """A training job as rules see it; its tables lie in memory (``JobInMemory``) or elsewhere.

    A job is evaluated node by node: ``each`` calls a function with the part of each node, which is a ``Job``
    too and knows when the whole job began and ended. Where the tables lie on disk or on other machines, the
    function runs there; reading ``panels``, ``steps`` or ``events`` of the whole job brings all of them into
    memory.
    """

    name: str
    #: Sorted by node, rank and start.
    profiles: tuple[Profile, ...]
    #: Traces of PyTorch's profiler, sorted by rank and time; no part of the tables. And what their ranks have in common;
    #: None with fewer than two ranks.
    captures: tuple[Capture, ...] = ()
    across_ranks: AcrossRanks | None = None
    #: Settings of the profiler in words, a line each; empty if no file has them.
    recorded: tuple[str, ...]
    #: Whether the job reported its end; None if its source has no way to do so.
    finished: bool | None
    #: What a source without single steps says about the training loop; None without such a source.
    loop_facts: LoopFacts | None
    #: What was recorded of the training itself; None if nothing was. Of the whole job: parts of nodes have it, too.
    learning: Learning | None = None
    #: Of the part of one node; None for a whole job.
    frame: Frame | None

    @property
    def facts(self) -> tuple[PartFacts, ...]:
        """Facts of each node, in natural order of the names; known without the tables."""
        ...

    @property
    def panels(self) -> tuple[Panel, ...]:
        """All samples, sorted by node, then metric; at most one panel for each pair."""
        ...

    @property
    def steps(self) -> Steps:
        """All steps, sorted by start, then end."""
        ...

    @property
    def events(self) -> Events:
        """All events, sorted by start, then end."""
        ...

    @property
    def stacks(self) -> tuple[ProcessStacks, ...]:
        """Samples of stacks, a table for each process."""
        ...

    @property
    def parts(self) -> tuple[Job, ...]:
        """The part of each node, in the order of ``nodes``."""
        ...

    # Node by node

    def one_by_one(self, nodes: Collection[str] | None = None) -> Iterator[Job]:
        """The parts, of these nodes or all; of those that lie elsewhere, one at a time is in memory."""
        return (part for part in self.parts if nodes is None or part.nodes[0] in nodes)

    def each(
        self, function: Callable[Concatenate[Job, _P], _R], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> list[_R]:
        """Results of the function for each node's part of the job, in the order of ``nodes``.

        The function may run in another process: it, its arguments and its result must be picklable, and
        small where that matters. Arguments with values of every node are ``ByNode``, or have a method ``of_node``:
        only the node's own are sent.
        """
        ...

    def gathered(
        self,
        function: Callable[Concatenate[Job, _P], Iterable[_R]],
        /,
        *args: _P.args,
        **kwargs: _P.kwargs,
    ) -> list[_R]:
        """Results of the function for the nodes' parts, as one list."""
        found: list[list[_R]] = self.each(_listed, function, *args, **kwargs)
        return [one for part in found for one in part]

    def within(self, spans_us: Mapping[str, tuple[int, int]]) -> Job:
        """The job in the time from one moment to another of each node: its samples, and what began then."""
        ...

    def framed(self, facts: PartFacts) -> Frame:
        """What the part of one node knows."""
        return Frame(
            facts=facts,
            name=self.name,
            finished=self.finished,
            span_us=self.span_us,
            steps_us=self.steps_us,
        )

    def once(self, function: Callable[[Job], _R]) -> _R:
        """``function(self)``, computed at the first call and kept with the job."""
        if function not in self._computed:
            self._computed[function] = function(self)
        found: _R = self._computed[function]
        return found

    @cached_property
    def _computed(self) -> dict[Callable[[Job], Any], Any]:
        return {}

    # Facts of the whole

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """All node names, in natural order."""
        return tuple(part.node for part in self.facts)

    def has(self, metric: Metric) -> bool:
        """True if any node has samples of the metric."""
        return any(panel.metric == metric for part in self.facts for panel in part.panels)

    @property
    def step_count(self) -> int:
        """Number of recorded steps of all ranks."""
        return sum(part.steps for part in self.facts)

    @property
    def event_count(self) -> int:
        """Number of recorded events."""
        return sum(part.events for part in self.facts)

    @cached_property
    def samples_us(self) -> tuple[int, int] | None:
        """Times of the first and the last sample; None without samples."""
        return span_of(part.samples_us for part in self.facts)

    @cached_property
    def steps_us(self) -> tuple[int, int] | None:
        """Earliest start and latest end of all steps of the whole job; None without steps."""
        return self.frame.steps_us if self.frame else span_of(part.steps_us for part in self.facts)

    @cached_property
    def events_us(self) -> tuple[int, int] | None:
        """Earliest start and latest end of all events; None without events."""
        return span_of(part.events_us for part in self.facts)

    @cached_property
    def captures_us(self) -> tuple[int, int] | None:
        """Start of the first capture and end of the last one whose clock counts from the epoch; None without any."""
        return span_of(one.span_us for one in self.captures)

    @cached_property
    def span_us(self) -> tuple[int, int]:
        """Times of the first and the last record of the whole job; (0, 0) without records."""
        if self.frame:
            return self.frame.span_us
        known = span_of((self.samples_us, self.steps_us, self.events_us)) or self.captures_us
        return known or (self.learning and self.learning.span_us) or (0, 0)

    @property
    def interval_us(self) -> float:
        """Sampling interval of the median snapshot, over all panels; 0 without samples."""
        known = sorted((p.interval_us, p.snapshots) for part in self.facts for p in part.panels)
        if not known:
            return 0.0
        intervals, snapshots = zip(*known, strict=True)
        so_far = np.cumsum(snapshots)
        return float(intervals[int(np.searchsorted(so_far, so_far[-1] / 2))])

    @property
    def covers_time(self) -> bool:
        """True if there are steps, events, or more than one snapshot."""
        return any(
            part.steps or part.events or any(p.snapshots > 1 for p in part.panels) for part in self.facts
        )

    @property
    def gpu_count(self) -> int:
        """Number of GPUs with at least one utilization sample."""
        return sum(
            len(p.devices) for part in self.facts for p in part.panels if p.metric == Metric.GPU_UTILIZATION
        )

    @property
    def gpus_unknown(self) -> int:
        """Number of GPUs with samples, but None of their utilization."""
        return sum(len(part.gpus) for part in self.facts) - self.gpu_count

    # Tables

    def panel(self, node: str, metric: Metric) -> Panel | None:
        """Samples of a metric on a node; None without samples."""
        return self._by_key.get((node, metric))

    def panels_of(self, metric: Metric) -> tuple[Panel, ...]:
        """Samples of a metric on every node that has them."""
        return tuple(p for p in self.panels if p.metric == metric)

    @cached_property
    def _by_key(self) -> dict[tuple[str, Metric], Panel]:
        return {(p.node, p.metric): p for p in self.panels}

    @cached_property
    def _facts_by_node(self) -> dict[str, PartFacts]:
        return {part.node: part for part in self.facts}

    def loop_us(self, node: str) -> tuple[int, int] | None:
        """First start and last end of the steps of a node, on that node's clock.

        For a node without steps, those of the whole job if its samples cover them; otherwise None, because its
        clock may differ.
        """
        part = self._facts_by_node.get(node)
        if part is None or part.steps_us:
            return part.steps_us if part else None
        whole = self.steps_us
        covered = whole and any(p.first_us <= whole[0] and whole[1] <= p.last_us for p in part.panels)
        return whole if covered else None


@dataclass(frozen=True, kw_only=True, eq=False)
class JobInMemory(Job):
    """A job whose tables lie in this process."""

    name: str
    panels: tuple[Panel, ...] = ()
    steps: Steps = Steps()
    events: Events = Events()
    stacks: tuple[ProcessStacks, ...] = ()
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
        if self.frame:
            return (self.frame.facts,)
        return tuple(PartFacts.of(part, node) for node, part in self._by_node.items())

    @cached_property
    def parts(self) -> tuple[Job, ...]:
        """The part of each node, in the order of ``nodes``."""
        return tuple(
            part.in_frame(self.framed(facts))
            for part, facts in zip(self._by_node.values(), self.facts, strict=True)
        )

    def in_frame(self, frame: Frame) -> JobInMemory:
        """The same tables, of one node, as a part of a larger job."""
        return dataclasses.replace(self, frame=frame, name=frame.name, finished=frame.finished)

    def each(
        self, function: Callable[Concatenate[Job, _P], _R], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> list[_R]:
        """Results of the function for each node's part."""
        return [function(part, *args, **kwargs) for part in self.parts]

    def within(self, spans_us: Mapping[str, tuple[int, int]]) -> JobInMemory:
        """The job in the time from one moment to another of each node."""
        panels = (panel.within(*spans_us[panel.node]) for panel in self.panels)
        of_series = [spans_us[node] for node, _, _ in self.steps.series]
        of_lane = [spans_us[lane.node] for lane in self.events.lanes]
        return dataclasses.replace(
            self,
            panels=tuple(panel for panel in panels if panel),
            steps=self.steps.where(_began(self.steps.start_us, self.steps.code, of_series)),
            events=self.events.where(_began(self.events.start_us, self.events.lane, of_lane)),
            stacks=tuple(one.within(*spans_us[one.node]) for one in self.stacks),
        )

    @cached_property
    def _by_node(self) -> dict[str, JobInMemory]:
        nodes = {p.node for p in self.panels}
        nodes |= {lane.node for lane in _used(self.events.lanes, self.events.lane)}
        nodes |= {node for node, _, _ in _used(self.steps.series, self.steps.code)}
        nodes |= {one.node for one in self.stacks}
        if len(nodes) == 1:
            # Not this job itself: it would hold itself, and its tables, until garbage is collected.
            return dict.fromkeys(nodes, dataclasses.replace(self))
        panels: dict[str, list[Panel]] = {}
        for panel in self.panels:
            panels.setdefault(panel.node, []).append(panel)
        return {
            node: dataclasses.replace(
                self,
                panels=tuple(panels.get(node, ())),
                steps=self.steps.of_node(node),
                events=self.events.of_node(node),
                stacks=tuple(one for one in self.stacks if one.node == node),
                profiles=tuple(p for p in self.profiles if p.node == node),
            )
            for node in natural_sorted(nodes)
        }


def _used(names: Sequence[_R], code: CodeArray) -> list[_R]:
    """The names that any row has."""
    rows = np.bincount(code, minlength=len(names)).tolist()
    return [name for name, count in zip(names, rows, strict=True) if count]


def _began(start_us: IntArray, code: CodeArray, spans_us: Sequence[tuple[int, int]]) -> BoolArray | slice:
    """The rows, ascending by start, that start within the span of their code."""
    if len(set(spans_us)) == 1:
        # Of one node: no copy is needed.
        first_us, last_us = spans_us[0]
        return slice(*np.searchsorted(start_us, (first_us, last_us + 1)).tolist())
    firsts_us, lasts_us = np.array([*spans_us], np.int64).reshape(-1, 2).T
    return np.asarray((start_us >= firsts_us[code]) & (start_us <= lasts_us[code]))


def _listed(part: Job, function: Callable[..., Iterable[Any]], /, *args: Any, **kwargs: Any) -> list[Any]:
    return list(function(part, *args, **kwargs))
