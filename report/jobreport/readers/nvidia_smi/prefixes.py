"""Who wrote a line, and when, by what a launcher puts in front of each."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobreport.readers.nvidia_smi.table import Block
    from jobrules.model import IntArray

_DATE, _CLOCK = r"\d{4}-\d\d-\d\d", r"\d\d:\d\d:\d\d(?:\.\d+)?"
_ZONED = rf"{_DATE}T{_CLOCK}(?:Z|[-+]\d\d:?\d\d)"
_MONTH = r"[A-Z][a-z]{2} [ \d]\d"
#: What launchers and collectors of logs put in front of each line: groups ``host`` or ``task``, and ``time``.
PREFIXES = tuple(
    map(
        re.compile,
        (
            # srun --label
            r"\s*(?P<task>\d{1,6}): ",
            # torchrun, mpirun --tag-output
            r"\[(?P<task>(?:rank|default|[a-z_]*)\d{1,6})\]:\s?",
            r"\[\d+,(?P<task>\d{1,6})\]<std(?:out|err)>:\s?",
            # Ray
            r"\((?:\S+ )?pid=\d+(?:, ip=(?P<host>[\w.:-]+))?\) ",
            # kubectl logs --prefix, docker compose
            r"\[pod/(?P<host>[^\]\s]+)\] ",
            r"(?P<host>[\w.-]+)\s+\| ",
            # journalctl, in both its forms, kubectl logs --timestamps, ts
            rf"(?P<time>{_MONTH} {_CLOCK}|{_ZONED}) (?P<host>[\w.-]+) [^\s:\[]+(?:\[\d+\])?: ",
            rf"(?P<time>{_ZONED}) ",
            rf"(?P<time>{_MONTH} {_CLOCK}) ",
            rf"\[?(?P<time>(?:{_DATE}[ T])?{_CLOCK})\]? ",
            # pdsh, clush
            r"(?P<host>[A-Za-z][\w.-]*): ",
        ),
    )
)


class Written(Struct, frozen=True, kw_only=True, eq=False):
    """Lines of one writer."""

    lines: list[str]
    #: (n,) number of each in its file, from 1.
    numbers: IntArray
    #: When each was written; empty if nothing in front of it says so.
    times: list[str] = field(default_factory=list)


def prefix_of(lines: Sequence[str]) -> re.Pattern[str] | None:
    """What stands in front of every line."""
    there = [line for line in lines if line.strip()]
    return next((prefix for prefix in PREFIXES if there and all(map(prefix.match, there))), None)


def without_prefix(block: Block, prefix: re.Pattern[str]) -> Block:
    """The block with nothing in front of its lines."""
    return replace(block, lines=[prefix.sub("", line, count=1) for line in block.lines])


def by_writer(lines: Sequence[str], prefix: re.Pattern[str]) -> tuple[list[str], list[str], list[str | None]]:
    """Of each line the text behind what stands in front, the time in that, and who wrote it; ``None`` for nobody."""
    texts, times, writers = [], [], list[str | None]()
    for line in lines:
        match = prefix.match(line)
        said = match.groupdict() if match else {}
        texts.append(line[match.end() :] if match else line)
        times.append(said.get("time") or "")
        writers.append(_writer(said) if match else None)
    return texts, times, writers


def writer_of(line: str, prefix: re.Pattern[str]) -> str:
    """Who wrote a line; empty if nothing in front of it says so."""
    match = prefix.match(line)
    return _writer(match.groupdict()) if match else ""


def _writer(said: Mapping[str, str | None]) -> str:
    """The machine of a line, else its task."""
    task = said.get("task") or ""
    return said.get("host") or (f"task-{task}" if task.isdigit() else task)
