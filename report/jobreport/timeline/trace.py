"""A trace of a job, in the format of Chrome's traces: https://perfetto.dev/docs/getting-started/other-formats."""

from __future__ import annotations

import gzip
import json
import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np
from msgspec import Struct

from jobreport import __version__
from jobreport.errors import UsageError
from jobreport.timeline import LIMIT, METRICS
from jobreport.timeline.rows import NODES, Chosen, Name, Rows, of_node, ranks_of, step_window, text
from jobrules.measures.clock_offsets import Clocks, offsets
from jobrules.model import Metric
from jobrules.text import count, dated

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    from jobrules.model import Finding, Job

#: Nodes that a file can tell apart, and rows that are put into words at a time.
_MAX_NODES, _AT_ONCE = 1000, 1 << 16


class TraceSummary(Struct, frozen=True, kw_only=True):
    """What a trace holds."""

    #: Steps and events, values of samples, and lanes.
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
    absolute: bool = False,
    limit: int = LIMIT,
) -> TraceSummary:
    """Write steps, events, samples, and findings of a job into a file, compressed if its name ends in ``.gz``.

    Times are microseconds: since the start of the job, or with ``absolute`` since the epoch. ``start_us`` and ``end_us``
    (since the epoch, the end is no part) choose a time, ``steps`` the training steps from a number to before another: of
    each process its own, and some process must have one.

    Raises ``UsageError`` if there are more rows than ``limit``.
    """
    clocks = Clocks.of(job)
    chosen = Chosen(
        start_us=clocks.start_us if start_us is None else start_us,
        end_us=clocks.end_us + 1 if end_us is None else end_us,
        steps=steps,
        metrics=[one for one in Metric if one in metrics],
        limit=limit,
    )
    if steps:
        chosen.start_us, chosen.end_us = _window_of(job, steps, clocks)
    names: list[Name] = []
    rows: list[Rows] = []
    for number, part in enumerate(job.one_by_one(job.nodes[:_MAX_NODES])):
        found = of_node(part, number, chosen, clocks)
        names += found[0]
        rows += found[1]
    if chosen.count > limit:
        raise UsageError(
            f"The trace would have {count(chosen.count, 'row')}, more than {limit:,}. Choose a time, some steps, or fewer "
            "metrics, or raise the limit."
        )
    rows += _of_findings(findings, chosen)
    left_out = tuple(_left_out(job))
    facts = {
        "tool": f"jobreport {__version__}",
        "job": job.name,
        "t0_us": str(0 if absolute else clocks.start_us),
        "clock": "utc" if dated(clocks.start_us) else "elapsed",
        "nodes": len(job.nodes),
        "offset_us": {
            one.node: {"applied": -clocks.late_us(one.node), "spread": one.spread_us}
            for one in offsets(job)
            if clocks.late_us(one.node)
        },
        "left_out": left_out,
    }
    size = _write(path, names, rows, facts, 0 if absolute else clocks.start_us)
    lasting = [one for one in rows if len(one.length_us) and one.length_us[0] >= 0]
    return TraceSummary(
        events=sum(len(one.start_us) for one in lasting),
        counters=sum(int((one.tail >= 0).sum()) for one in rows if one.tid == 0),
        lanes=len(lasting),
        split=sum(one.moved for one in rows),
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


def _left_out(job: Job) -> Iterator[str]:
    if len(job.nodes) > _MAX_NODES:
        yield f"{count(len(job.nodes) - _MAX_NODES, 'node')} after the first {_MAX_NODES:,}"
    if job.captures:
        yield f"kernels and operators of {count(len(job.captures), 'PyTorch trace')}, whose clocks are their own"


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
    start_us = np.concatenate([one.start_us for one in rows])
    length_us = np.concatenate([one.length_us for one in rows])
    of_rows = np.repeat(np.arange(len(rows), dtype=np.int32), lengths)
    at = np.concatenate([np.arange(length, dtype=np.int32) for length in lengths])
    pid, tid = (np.array([getattr(one, name) for one in rows])[of_rows] for name in ("pid", "tid"))
    order = np.lexsort((tid, pid, -length_us, start_us))
    columns = [(one.heads, one.head.tolist(), one.tails, one.tail.tolist(), one.pid, one.tid) for one in rows]
    for begin in range(0, len(order), _AT_ONCE):
        some = order[begin : begin + _AT_ONCE]
        lines = []
        for us, length, which, row in zip(
            (start_us[some] - zero_us).tolist(),
            length_us[some].tolist(),
            of_rows[some].tolist(),
            at[some].tolist(),
            strict=True,
        ):
            heads, head, tails, tail, own_pid, own_tid = columns[which]
            dur = f',"dur":{length}' if length >= 0 else ""
            args = f',"args":{tails[tail[row]]}' if tail[row] >= 0 else ""
            lines.append(f',\n{heads[head[row]]},"pid":{own_pid},"tid":{own_tid},"ts":{us}{dur}{args}}}')
        yield "".join(lines)
