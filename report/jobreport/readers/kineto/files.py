"""Which files are traces of PyTorch's profiler: known by their content."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING

from jobreport.readers import text_files
from jobreport.readers.kineto.columns import KNOWN_CATEGORIES
from jobreport.readers.kineto.text import EVENTS_BEGIN, MAX_HEAD

if TYPE_CHECKING:
    from jobreport.readers.base import SourceFile

#: Bytes by which a file is known, and events of the list among them.
_HEAD, _EVENTS = 1 << 16, 200
_OWN_KEYS = re.compile(rb'"(?:deviceProperties|baseTimeNanoseconds|distributedInfo)"\s*+:')
_VERSION = re.compile(rb'"schemaVersion"\s*+:')
_OTHERS = (
    b'"viztracer_metadata"',
    b'"rocprofiler-sdk-tool"',
    b"highres-ticks",
    b"start_time_since_epoch_in_micros",
)
#: An execution trace has both.
_EXECUTION = (re.compile(rb'"nodes"\s*+:'), re.compile(rb'"schema"\s*+:'))
_CATEGORY = re.compile(
    rb'"cat"\s*+:\s*+"(?:' + b"|".join(sorted(one.encode() for one in KNOWN_CATEGORIES)) + rb')"',
    re.IGNORECASE,
)
_ARGS = re.compile(rb'"(?:[Ee]xternal id|correlation|Ev Idx|cbid)"\s*+:')
#: Names of rows come before the events, however many threads a process has.
_EVENT = re.compile(rb'"ph"\s*+:\s*+"X"')


def is_kineto(file: SourceFile) -> bool:
    """Whether the first bytes of a file are those of such a trace; of 4 MiB if its events begin that late."""
    head = b""
    try:
        for piece in text_files.chunks(file.path):
            head += piece
            if len(head) >= _HEAD and (
                head.lstrip()[:1] not in (b"{",) or _has_events(head) or len(head) > MAX_HEAD
            ):
                break
            if head.lstrip()[:1] not in (b"", b"{", b"["):
                return False
    except (OSError, text_files.DamagedError):
        pass
    head = head[:MAX_HEAD].lstrip()
    if not head.startswith((b"{", b"[")) or any(one in head[:_HEAD] for one in _OTHERS):
        return False
    if all(pattern.search(head) for pattern in _EXECUTION) and not _has_events(head):
        return False
    # A job may end while its trace is written, in front of all events.
    if head.startswith(b"{") and (_OWN_KEYS.search(head) or (_has_events(head) and _VERSION.search(head))):
        return True
    return _begins_with_events(head)


def _has_events(head: bytes) -> bool:
    return b'"traceEvents"' in head


def _begins_with_events(head: bytes) -> bool:
    begin = EVENTS_BEGIN.search(head)
    if begin is None:
        return False
    ends = [found.start() for found in islice(_EVENT.finditer(head, begin.end()), _EVENTS + 1)]
    some = head[begin.end() : ends[_EVENTS] if len(ends) > _EVENTS else len(head)]
    return bool(_CATEGORY.search(some) and _ARGS.search(some))
