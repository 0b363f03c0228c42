"""Where the code was while the GPU was idle, or while training waited for batches, and where at other times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
from msgspec import Struct

from jobrules.causes.code_lines import (
    BUSY,
    IDLE,
    MIN_SAMPLES,
    NOWHERE,
    UNKNOWN,
    CodePlace,
    SampledLines,
    sampled_lines,
)
from jobrules.measures.data_loading import FETCH
from jobrules.model import CodeFrame, Count, IntArray, Job
from jobrules.model.names import RankName

#: Lines that are listed, and parts of stacks that are drawn: those with most samples.
MAX_LINES, MAX_PARTS = 20, 160
#: A part of stacks that has less of the samples is not drawn.
_LEAST = 0.005

#: The moments in which time was lost: the GPU of the process was idle, or training waited for a batch; none if neither is known.
Waiting: TypeAlias = Literal["gpu", "fetch", "none"]


class CodeLine(Struct, frozen=True, kw_only=True):
    """The samples at a line of code."""

    place: CodePlace
    kind: Literal["main", "loader"]
    #: Processes that were there, and the rank of the only one; empty for several.
    processes: Count
    rank: RankName
    samples: Count
    #: Of these, while the GPU was idle, or training waited for batches; and at other times that are known.
    idle: Count
    busy: Count


class StackPart(Struct, frozen=True, kw_only=True):
    """A function on stacks, with all that it called."""

    #: Place of the caller, which comes before; -1 for the outermost.
    parent: int
    frame: CodeFrame
    idle: Count
    busy: Count


class CodeLines(Struct, frozen=True, kw_only=True):
    """Lines of code by samples, within the work of the job."""

    #: What ``idle`` means: the GPU of the process was, or training waited for batches; ``none`` if neither is known, and all samples are busy ones.
    waiting: Waiting
    #: Training processes, and loader processes of which some were sampled.
    processes: Count
    loaders: Count
    #: Mean time between two samples of a training process.
    interval_us: Count
    #: Samples of training processes; then those of loader processes.
    samples: Count
    idle: Count
    busy: Count
    loader_idle: Count
    loader_busy: Count
    #: Most idle ones first, then those with most samples.
    lines: tuple[CodeLine, ...]
    lines_left: Count
    #: Stacks of training processes, each caller before what it called; a library's own calls are its first.
    parts: tuple[StackPart, ...]


def code_lines(job: Job) -> CodeLines | None:
    """None without samples of stacks in the work of the job."""
    found = sampled_lines(job)
    mains = [one for one in found if one.is_main]
    waiting = _waiting(mains)
    counts = [_counts(one, waiting) for one in found]
    samples, idle, busy = _sum(counts[: len(mains)])
    if not samples:
        return None
    _, loader_idle, loader_busy = _sum(counts[len(mains) :])
    lines = _lines(found, counts)
    return CodeLines(
        waiting=waiting,
        processes=len(mains),
        loaders=len(found) - len(mains),
        interval_us=max(one.stacks.interval_us for one in mains),
        samples=samples,
        idle=idle,
        busy=busy,
        loader_idle=loader_idle,
        loader_busy=loader_busy,
        lines=tuple(lines[:MAX_LINES]),
        lines_left=len(lines[MAX_LINES:]),
        parts=_parts(mains, counts, idle, busy),
    )


def _waiting(mains: Sequence[SampledLines]) -> Waiting:
    """GPUs that are idle, if they are for long enough; short stalls do not show in samples of GPUs, but in fetches."""
    ways: tuple[Waiting, ...] = ("gpu", "fetch")
    for way in ways:
        if _sum([_counts(one, way) for one in mains])[1] >= MIN_SAMPLES:
            return way
    return "gpu" if any((one.use != UNKNOWN).any() for one in mains) else "none"


def _counts(one: SampledLines, waiting: Waiting) -> IntArray:
    """(rows, 3) samples of the work, those in which time was lost, and other ones that are known."""
    lost = {"gpu": one.use == IDLE, "fetch": one.within(FETCH), "none": one.within()}[waiting]
    other = one.use == BUSY if waiting == "gpu" else ~lost
    rows = np.column_stack([np.ones_like(lost), lost, other]) & one.in_work[:, None]
    return np.asarray(rows * one.count[:, None])


def _sum(counts: Sequence[IntArray]) -> list[int]:
    return np.concatenate([np.empty((0, 3), np.int64), *counts]).sum(axis=0).tolist()  # type: ignore[no-any-return]


def _summed(counts: IntArray, at: IntArray, length: int) -> IntArray:
    """The rows that have one place, for each of all places."""
    sums = np.zeros((length, counts.shape[1]), np.int64)
    np.add.at(sums, at, counts)
    return sums


def _lines(found: Sequence[SampledLines], counted: Sequence[IntArray]) -> list[CodeLine]:
    ranks: dict[tuple[str, CodePlace], list[str]] = {}
    counts: dict[tuple[str, CodePlace], IntArray] = {}
    for one, rows in zip(found, counted, strict=True):
        for place, own in zip(one.places, _summed(rows, one.place, len(one.places)), strict=True):
            if place != NOWHERE and own.any():
                key = one.stacks.kind, place
                counts[key] = counts.get(key, 0) + own
                ranks.setdefault(key, []).append(one.stacks.rank)
    lines = [
        CodeLine(
            place=place,
            kind="main" if kind == "main" else "loader",
            processes=len(ranks[kind, place]),
            rank=ranks[kind, place][0] if len(ranks[kind, place]) == 1 else "",
            samples=int(own[0]),
            idle=int(own[1]),
            busy=int(own[2]),
        )
        for (kind, place), own in counts.items()
    ]
    return sorted(lines, key=lambda one: (-one.idle, -one.samples, one.kind, one.place))


def _parts(
    mains: Sequence[SampledLines], counts: Sequence[IntArray], idle: int, busy: int
) -> tuple[StackPart, ...]:
    """The stacks of all training processes as one tree, without its small parts."""
    known: dict[tuple[int, CodeFrame], int] = {}
    sums: list[IntArray] = []
    for one, rows in zip(mains, counts, strict=False):
        stacks = one.stacks
        own = _summed(rows[:, 1:], one.stack, len(stacks.parent))
        parents = stacks.parent.tolist()
        for node in range(len(parents) - 1, -1, -1):
            if parents[node] >= 0:
                own[parents[node]] += own[node]
        place: list[int] = []
        for node, (parent, frame) in enumerate(zip(parents, stacks.frame.tolist(), strict=True)):
            above = place[parent] if parent >= 0 else -1
            caller = stacks.frames[stacks.frame[parent]] if parent >= 0 else None
            inner = caller and caller.place != "own" and stacks.frames[frame].place != "own"
            # A library that does nothing but call itself is drawn once.
            if inner and (own[node] == own[parent]).all():
                place.append(above)
                continue
            place.append(known.setdefault((above, stacks.frames[frame]), len(known)))
            if place[-1] == len(sums):
                sums.append(np.zeros(2, np.int64))
            sums[place[-1]] += own[node]
    return _largest(known, np.array(sums).reshape(-1, 2), (idle, busy))


def _largest(
    known: dict[tuple[int, CodeFrame], int], sums: IntArray, whole: tuple[int, int]
) -> tuple[StackPart, ...]:
    """The parts that can be seen; a caller has no less than what it called, and comes before it."""
    seen = (sums / np.maximum(whole, 1)).max(axis=1)
    order = np.argsort(-seen, kind="stable")[:MAX_PARTS]
    kept = sorted(order[seen[order] >= _LEAST].tolist())
    number = {place: i for i, place in enumerate(kept)}
    frames = list(known)
    return tuple(
        StackPart(
            parent=number.get(frames[place][0], -1),
            frame=frames[place][1],
            idle=int(sums[place, 0]),
            busy=int(sums[place, 1]),
        )
        for place in kept
    )
