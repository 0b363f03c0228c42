"""What a training process did before its first step, what helps, and how long ``torch.compile`` took."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.data_loading import FETCH, START_UP
from jobrules.measures.intervals import time_of
from jobrules.measures.rows import TRAIN, rows_by_lane, series_of
from jobrules.model import Count, Fact, Job, Note
from jobrules.model.names import NodeName, OwnText, RankName
from jobrules.model.steps import WARM_UP_STEPS
from jobrules.text import duration, percent, took

if TYPE_CHECKING:
    from collections.abc import Iterator

COMPILE = "torch.compile"
#: Names that recorders write, of which those of imports are libraries.
_NAME = re.compile(r"import [a-z0-9_.]{1,40}|process group|CUDA start|model to device|model weights|data set")
#: Parts of the start-up that are no events of their own.
BEFORE, FIRST_FETCH, FIRST_COMPILE, FIRST_STEP, OTHER = (
    "before the training process",
    "first batch fetch",
    "first torch.compile",
    "rest of the first step",
    "other",
)
#: Parts that are listed; further ones are a part of the other time.
MAX_PARTS = 16

START_ADVICE = ("Stream or stage the data, use a smaller container image, and cache compiled kernels.",)
COMPILE_ADVICE = "Keep compiled code: set TORCHINDUCTOR_CACHE_DIR to a folder that outlives the job."
#: What helps, by the part that takes longest.
_ADVICE = {
    BEFORE: "Use a smaller container image, and install nothing when the job starts.",
    "process group": "Start all ranks at the same time: the first ones wait for the last.",
    "CUDA start": "Load only the GPU libraries that the job uses (CUDA_MODULE_LOADING=LAZY), and keep the driver loaded (persistence mode).",
    "model weights": "Keep the weights on a local disk, in the safetensors format.",
    "model to device": "Make the model on its device: torch.set_default_device, or device= in its layers.",
    "data set": "Keep the prepared data set on a local disk, and load only the part that a rank needs.",
    FIRST_FETCH: "The first batch waits for loader processes to start: shorten what the data set does when it is made.",
    FIRST_COMPILE: COMPILE_ADVICE,
}
_IMPORT_ADVICE = "Import less, from a local disk: `python -X importtime` lists what takes long."


class StartUpPart(Struct, frozen=True, kw_only=True):
    """A part of the start-up."""

    name: OwnText
    us: float


class StartUpParts(Struct, frozen=True, kw_only=True):
    """From the start of the job to the end of the first step of the rank whose first step began last."""

    node: NodeName
    rank: RankName
    begin_us: int
    #: Begin and end of the first step.
    step_us: int
    end_us: int
    #: In their order, the other time last; they add up.
    parts: tuple[StartUpPart, ...]

    @property
    def largest(self) -> StartUpPart:
        """The part that took longest."""
        return max(self.parts, key=lambda part: part.us)


class Recompiled(Struct, frozen=True, kw_only=True):
    """What was compiled after the first steps of one rank."""

    node: NodeName
    rank: RankName
    times: Count
    us: int
    #: Share of the time from the first to the last step.
    share: float


def start_up(job: Job) -> StartUpParts | None:
    """None unless a rank recorded it."""
    found = job.gathered(_start_ups, Clocks.of(job))
    return max(found, key=lambda one: one.step_us, default=None)


def _start_ups(part: Job, clocks: Clocks) -> Iterator[StartUpParts]:
    events, firsts = part.events, _first_steps(part)
    lanes = rows_by_lane(
        events,
        lambda lane: (lane.event_type, lane.rank) if lane.event_type in {START_UP, COMPILE, FETCH} else None,
    )
    for (event_type, rank), rows in lanes.items():
        if event_type != START_UP or rank not in firsts:
            continue
        node, (step_us, end_us) = part.nodes[0], firsts[rank]
        # Of a process that was started again, only the first time counts.
        first = rows[events.start_us[rows] < step_us]
        begin_us = clocks.start_us + clocks.late_us(node)
        if not len(first) or begin_us >= step_us:
            continue
        names = [events.names[i] for i in events.name[first].tolist()]
        took_us = np.minimum(events.end_us[first], step_us) - events.start_us[first]
        amounts = {BEFORE: max(0, int(events.start_us[first].min()) - begin_us)}
        other_us = step_us - begin_us - amounts[BEFORE]
        for name, us in zip(names, took_us.tolist(), strict=True):
            if _NAME.fullmatch(name) and (name in amounts or len(amounts) < MAX_PARTS):
                # Of processes that began at once, as two of one rank, only as much as there is time.
                amounts[name] = amounts.get(name, 0) + min(us, other_us)
                other_us -= min(us, other_us)
        rest_us = end_us - step_us
        for name, of in ((FIRST_FETCH, FETCH), (FIRST_COMPILE, COMPILE)):
            if (of, rank) in lanes:
                inside = time_of(events, lanes[of, rank]).overlap(np.array([step_us]), np.array([end_us]))
                amounts[name] = min(int(inside[0]), rest_us)
                rest_us -= amounts[name]
        amounts |= {FIRST_STEP: rest_us, OTHER: other_us}
        yield StartUpParts(
            node=node,
            rank=rank,
            begin_us=begin_us,
            step_us=step_us,
            end_us=end_us,
            parts=tuple(StartUpPart(name=name, us=us) for name, us in amounts.items() if us),
        )


def _first_steps(part: Job) -> dict[str, tuple[int, int]]:
    steps = part.steps
    firsts = {rank: rows[0] for (_, rank, mode), rows in series_of(steps).items() if mode == TRAIN}
    return {rank: (int(steps.start_us[row]), int(steps.end_us[row])) for rank, row in firsts.items()}


def recompiled(job: Job) -> Recompiled | None:
    """Of the rank that compiled longest after its first steps; None if none did."""
    return max(job.gathered(_recompiled), key=lambda one: one.us, default=None)


def _recompiled(part: Job) -> Iterator[Recompiled]:
    events, span_us = part.events, part.steps.span_us
    lanes = rows_by_lane(events, lambda lane: lane.rank if lane.event_type == COMPILE else None)
    for rank, rows in lanes.items():
        late = rows[events.step[rows] >= WARM_UP_STEPS]
        if len(late) and span_us and span_us[1] > span_us[0]:
            us = time_of(events, late).total
            share = min(1.0, us / (span_us[1] - span_us[0]))
            yield Recompiled(node=part.nodes[0], rank=rank, times=len(late), us=int(us), share=share)


def start_facts(job: Job) -> tuple[tuple[Fact, ...], tuple[str, ...]]:
    """The largest part of the start-up as evidence, and what helps."""
    found = start_up(job)
    if found is None:
        return (), START_ADVICE
    largest, length_us = found.largest, found.end_us - found.begin_us
    share = percent(100 * largest.us / length_us)
    evidence = Note(f"Largest part of {duration(length_us)}: {largest.name}, {took(largest.us)} ({share})")
    advice = _IMPORT_ADVICE if largest.name.startswith("import ") else _ADVICE.get(largest.name)
    return (evidence,), (advice,) if advice else START_ADVICE
