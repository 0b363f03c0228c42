"""A trace of a job, in the format of Chrome's traces: https://perfetto.dev/docs/getting-started/other-formats."""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np
from msgspec import Struct

from jobreport import __version__
from jobreport.errors import UsageError
from jobreport.timeline import LIMIT, METRICS
from jobreport.timeline.captures import of_captures, placed
from jobreport.timeline.learning import of_scalars, with_scalars
from jobreport.timeline.rows import BESIDE, NODES, Chosen, Name, Rows, of_node, ranks_of, step_window, text
from jobrules.measures.clock_offsets import Clocks, offsets
from jobrules.model import Metric, span_of
from jobrules.text import count, dated

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    from jobreport.timeline.captures import Read
    from jobreport.timeline.rows import LeftOut, Means
    from jobrules.model import Finding, IntArray, Job

#: Nodes that a file can tell apart, and rows that are put into words at a time.
_MAX_NODES, _AT_ONCE = 1000, 1 << 16


class TraceSummary(Struct, frozen=True, kw_only=True):
    """What a trace holds."""

    #: Steps and events, counters of samples and scalars, and lanes.
    events: int
    counters: int
    lanes: int
    #: Events that moved to a lane beside theirs, because they overlap another one there.
    split: int
    #: What is not in the file, as sentences.
    left_out: tuple[str, ...]
    bytes: int


def write_trace(
    job: Job,
    path: Path,
    findings: Sequence[Finding] = (),
    *,
    start_us: int | None = None,
    end_us: int | None = None,
    steps: tuple[int, int] | None = None,
    metrics: Collection[str] = METRICS,
    sources: Collection[str] | None = None,
    means: Means | None = None,
    read: Read | None = None,
    learning: bool = False,
    absolute: bool = False,
    limit: int = LIMIT,
) -> TraceSummary:
    """Write steps, events, samples, and findings of a job into a file, compressed if its name ends in ``.gz``.

    ``read`` gives the events of a capture; without it, there are none of captures. ``learning`` adds scalars. Times are
    microseconds: since the first record, or with ``absolute`` since the epoch. ``start_us`` and ``end_us`` (since the epoch,
    the end is no part) choose a time, ``steps`` the training steps from a number to before another: of each process its own,
    and some process must have one. ``sources`` are those of events; ``means`` gives what is written instead of samples.

    Raises ``UsageError`` if there are more rows than ``limit``, or no such folder.
    """
    if not path.parent.is_dir():
        raise UsageError(f"There is no folder {path.parent}.")
    clocks = Clocks.of(job)
    captures, without = placed(job, clocks) if read else ([], Counter())
    spans = [*([(clocks.start_us, clocks.end_us)] if job.facts else []), *(one.span_us for one in captures)]
    recorded = job.learning if learning else None
    first_us, last_us = with_scalars(span_of(spans), recorded, clocks)
    chosen = Chosen(
        start_us=first_us if start_us is None else start_us,
        end_us=last_us + 1 if end_us is None else end_us,
        steps=steps,
        metrics=[one for one in Metric if one in metrics],
        sources=sources,
        means=means,
        limit=limit,
    )
    if steps:
        chosen.start_us, chosen.end_us = _window_of(job, steps, clocks)
    nodes = job.nodes[:_MAX_NODES]
    # What is of no node is of the job.
    names = [] if nodes else [Name(pid=NODES, name=job.name, sort=0)]
    rows: list[Rows] = []
    for number, part in enumerate(job.one_by_one(nodes)):
        found = of_node(part, number, chosen, clocks)
        names += found[0]
        rows += found[1]
    if read:
        rows += of_captures(captures, read, chosen, names, without)
    if recorded:
        rows += of_scalars(recorded, nodes, chosen, (first_us, last_us), clocks, without)
    if chosen.count > limit:
        raise UsageError(
            f"The trace would have {count(chosen.count, 'row')}, more than {limit:,}. Choose a time or steps (start, end, step), "
            "fewer events (sources, captures), or fewer samples (every, metrics), or raise the limit."
        )
    counters = sum(int((one.tail >= 0).sum()) for one in rows if one.tid == 0)
    rows += _of_findings(findings, chosen)
    left_out = tuple(_left_out(job, without))
    facts = {
        "tool": f"jobreport {__version__}",
        "job": job.name,
        "t0_us": str(0 if absolute else first_us),
        "clock": "utc" if dated(first_us) else "elapsed",
        "nodes": len(job.nodes),
        "offset_us": {
            one.node: {"applied": -clocks.late_us(one.node), "spread": one.spread_us}
            for one in offsets(job)
            if clocks.late_us(one.node)
        },
        # Each is set right as its node is.
        "captures": {one.capture.file: one.node for one in captures},
        "left_out": left_out,
    }
    size = _write(path, names, rows, facts, 0 if absolute else first_us)
    lasting = [one for one in rows if len(one.length_us) and one.length_us[0] >= 0]
    return TraceSummary(
        events=sum(len(one.start_us) for one in lasting),
        counters=counters,
        lanes=len(lasting),
        split=sum(len(one.start_us) for one in rows if one.tid >= BESIDE),
        left_out=left_out,
        bytes=size,
    )


def _window_of(job: Job, steps: tuple[int, int], clocks: Clocks) -> tuple[int, int]:
    """From the first begin to the last end of the steps of all processes, on the clock of the job."""
    found = [
        (window[0] - late_us, window[1] - late_us)
        for part in job.one_by_one(job.nodes[:_MAX_NODES])
        for late_us in [clocks.late_us(part.nodes[0])]
        for rank in ranks_of(part)
        if (window := step_window(part, rank, steps))
    ]
    return min(start for start, _ in found), max(end for _, end in found)


def _of_findings(findings: Sequence[Finding], chosen: Chosen) -> Iterator[Rows]:
    """Marks where a finding begins, and where it ends."""
    marks = []
    for one in findings:
        args = json.dumps({"severity": one.severity, "advice": " ".join(one.advice)[:200]})
        for at_us, title in ((one.start_us, one.title), (one.end_us, f"{one.title}: ends")):
            if at_us and chosen.start_us <= at_us < chosen.end_us:
                marks.append((at_us, f'{{"name":{text(title)},"cat":"finding","ph":"i","s":"g"', args))
    if marks:
        every = np.arange(len(marks))
        yield Rows(
            pid=NODES,
            tid=0,
            start_us=np.array([at_us for at_us, *_ in marks], np.int64),
            length_us=np.full(len(marks), -1),
            heads=[head for _, head, _ in marks],
            head=every,
            tails=[args for *_, args in marks],
            tail=every,
        )


def _left_out(job: Job, without: LeftOut) -> Iterator[str]:
    if len(job.nodes) > _MAX_NODES:
        yield f"{count(len(job.nodes) - _MAX_NODES, 'node')} after the first {_MAX_NODES:,}"
    yield from (f"{count(number, what)} {why}" for (what, why), number in without.items())


def _write(
    path: Path, names: Sequence[Name], rows: Sequence[Rows], facts: dict[str, Any], zero_us: int
) -> int:
    """Write the file, whole or not at all; returns its size."""
    part = path.with_name(f"{path.name}.{os.urandom(4).hex()}.part")
    try:
        with ExitStack() as stack:
            file: BinaryIO = stack.enter_context(part.open("xb"))
            if path.name.endswith(".gz"):
                # Without a time, so that the same job gives the same bytes.
                packed = gzip.GzipFile("", "wb", fileobj=file, mtime=0, compresslevel=6)
                file = cast(BinaryIO, stack.enter_context(packed))
            file.write(b'{"traceEvents":[')
            file.write(",\n".join(_metadata(names)).encode())
            for line in _lines(rows, zero_us):
                file.write(line.encode())
            file.write(f'],\n"displayTimeUnit":"ms","otherData":{json.dumps(facts)}}}\n'.encode())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return path.stat().st_size


def _metadata(names: Sequence[Name]) -> Iterator[str]:
    for one in sorted(names, key=lambda one: (one.pid, one.tid or 0)):
        place = f'"ph":"M","pid":{one.pid},"tid":{one.tid or 0}'
        kind = "process" if one.tid is None else "thread"
        yield f'{{"name":"{kind}_name",{place},"args":{{"name":{text(one.name)}}}}}'
        yield f'{{"name":"{kind}_sort_index",{place},"args":{{"sort_index":{one.sort}}}}}'
        if one.labels:
            yield f'{{"name":"process_labels",{place},"args":{{"labels":{text(one.labels)}}}}}'


def _lines(rows: Sequence[Rows], zero_us: int) -> Iterator[str]:
    """The rows by time, those that hold others first."""
    if not rows:
        return
    lengths = [len(one.start_us) for one in rows]
    of_rows = np.repeat(np.arange(len(rows), dtype=np.int32), lengths)
    heads, head = _listed([(one.heads, one.head) for one in rows])
    tails, tail = _listed([(one.tails, one.tail) for one in rows])
    start_us, length_us = (
        np.concatenate([getattr(one, name) for one in rows]) for name in ("start_us", "length_us")
    )
    pid, tid = (np.array([getattr(one, name) for one in rows]) for name in ("pid", "tid"))
    order = np.lexsort((tid[of_rows], pid[of_rows], -length_us, start_us))
    columns = (start_us, length_us, pid[of_rows], tid[of_rows], head, tail)
    for begin in range(0, len(order), _AT_ONCE):
        some = order[begin : begin + _AT_ONCE]
        lines = []
        for us, length, own_pid, own_tid, which, more in zip(
            *(column[some].tolist() for column in columns), strict=True
        ):
            dur = f',"dur":{length}' if length >= 0 else ""
            args = f',"args":{tails[more]}' if more >= 0 else ""
            lines.append(
                f',\n{heads[which]},"pid":{own_pid},"tid":{own_tid},"ts":{us - zero_us}{dur}{args}}}'
            )
        yield "".join(lines)


def _listed(several: Sequence[tuple[Sequence[str], IntArray]]) -> tuple[list[str], IntArray]:
    """All texts, and the positions of the rows among them; -1 stays."""
    texts, places, first = list[str](), [], dict[int, int]()
    for some, place in several:
        # Lanes beside each other have the same texts.
        if id(some) not in first:
            first[id(some)] = len(texts)
            texts += some
        places.append(np.where(place < 0, -1, place + first[id(some)]).astype(np.int32))
    return texts, np.concatenate(places)
