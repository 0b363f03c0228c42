"""Samples of stacks: as tables, and as the files that record-job writes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Literal, cast

import numpy as np

from jobrules.model import CodeFrame, ProcessStacks
from tests.jobs import START_US

#: Outermost first: ``train.py:10 main``, or with ``library:`` or ``python:`` in front.
Stack = Sequence[str]
#: Microseconds after the start, and the stack.
Samples = Iterable[tuple[int, Stack]]
#: What lies above the own code of a loader process that was forked.
FORKED = (
    "train.py:30 main",
    "library:torch/utils/data/dataloader.py:400 DataLoader.__iter__",
    "python:multiprocessing/process.py:314 BaseProcess._bootstrap",
    "library:torch/utils/data/_utils/worker.py:340 _worker_loop",
)


def frame(text: str) -> CodeFrame:
    """``library:PIL/Image.py:3300 open``."""
    place, _, rest = text.partition(":")
    if place not in ("library", "python"):
        place, rest = "own", text
    where, function = re.split(r"(?<=[0-9]) ", rest, maxsplit=1)
    file, _, line = where.rpartition(":")
    known = cast("Literal['own', 'library', 'python']", place)
    return CodeFrame(place=known, file=file, line=int(line), function=function)


def make_stacks(
    samples: Samples,
    *,
    node: str = "algo-1",
    rank: str = "33",
    kind: Literal["main", "loader"] = "main",
    pid: int = 33,
    interval_us: int = 100_000,
) -> ProcessStacks:
    """The table of one process."""
    frames: dict[CodeFrame, int] = {}
    nodes: dict[tuple[int, int], int] = {}
    rows = []
    for us, stack in samples:
        at = -1
        for text in stack:
            one = frames.setdefault(frame(text), len(frames))
            at = nodes.setdefault((at, one), len(nodes))
        rows.append((START_US + us, at))
    parents, codes = zip(*nodes, strict=True)
    times, stacks = zip(*rows, strict=True)
    return ProcessStacks(
        node=node,
        rank=rank,
        kind=kind,
        pid=pid,
        interval_us=interval_us,
        frames=tuple(frames),
        parent=np.array(parents, np.int32),
        frame=np.array(codes, np.int32),
        time_us=np.array(times, np.int64),
        stack=np.array(stacks, np.int32),
    )


def as_file(stacks: ProcessStacks) -> bytes:
    """The file that record-job writes; all names stand in front."""
    about = {
        "writer": "jobrecord 0.1.0",
        "pid": stacks.pid,
        "kind": stacks.kind,
        "interval_us": stacks.interval_us,
        "switch_us": 5000,
        "started_us": START_US,
    }
    rows: list[list[object]] = [["stacks", 1, about]]
    rows += [["frame", i, f.place, f.file, f.line, f.function] for i, f in enumerate(stacks.frames)]
    pairs = zip(stacks.parent.tolist(), stacks.frame.tolist(), strict=True)
    rows += [["stack", i, parent, code] for i, (parent, code) in enumerate(pairs)]
    # Every second sample is 3 ms late.
    late_us = np.arange(len(stacks.stack)) % 2 * 3000
    columns = np.column_stack([stacks.time_us - START_US + late_us, stacks.stack, late_us])
    rows += columns.tolist()
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def plain(place: object) -> str:
    """``data.py:41 load → PIL.Image.open``: as in a sentence, without marks of code."""
    return str(place).replace("`", "")
