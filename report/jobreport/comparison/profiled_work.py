"""Operators, marks, and kernels in the traces of several variants: which of them changed most."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from jobreport.comparison.document import Work, WorkTime
from jobrules.captures.kinds import STEP
from jobrules.captures.operators import MAX_ROWS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from jobrules.model.captures import Capture

#: Rows of a kind.
MAX_CHANGED = 8
#: Placeholders of names: those of two reports do not mean the same.
_PLACEHOLDER = re.compile(r".*\b(?:operator|kernel)-[0-9]+")


class _Table(Struct, frozen=True, kw_only=True):
    """The names of one capture that have most time."""

    #: Calls and nanoseconds.
    rows: dict[str, tuple[int, int]]
    #: Longest time of a name that is not among them.
    rest_ns: int


def changed_work(
    variants: Mapping[str, Sequence[Capture]], *, per_step: bool
) -> tuple[tuple[Work, ...], tuple[str, ...]]:
    """What changed most against the first variant, by kind; and the kinds of which all names could be compared.

    Amounts are those of a step of one rank, or of one capture where steps are not known. What is the same everywhere is
    left out.
    """
    kinds: dict[str, Callable[[Capture], _Table | None]] = {
        "operator": _operators,
        "mark": _marks,
        "kernel": _kernels,
    }
    found, compared = [], []
    for kind, table_of in kinds.items():
        recorded = {label: _recorded(own, table_of) for label, own in variants.items()}
        if not all(recorded.values()):
            continue
        names = {name for own in recorded.values() for _, table in own for name in table.rows}
        if names and not any(map(_PLACEHOLDER.match, names)):
            compared.append(kind)
        rows = [
            Work(
                kind=kind,
                name=name,
                variants={label: _time(own, name, per_step=per_step) for label, own in recorded.items()},
            )
            for name in names
            if not STEP.match(name) and not _PLACEHOLDER.match(name)
        ]
        changed = [row for row in rows if change_of(row)]
        found += sorted(changed, key=lambda row: (-change_of(row), row.name))[:MAX_CHANGED]
    return tuple(found), tuple(compared)


def change_of(row: Work) -> float:
    """Largest sure change of a variant against the first one."""
    base, *others = row.variants.values()
    return max(sure_change(base, other) for other in others)


def sure_change(one: WorkTime, other: WorkTime) -> float:
    """Seconds by which two times differ at least."""
    return max(0.0, one.low_s - other.high_s, other.low_s - one.high_s)


def _recorded(
    captures: Sequence[Capture], table_of: Callable[[Capture], _Table | None]
) -> list[tuple[Capture, _Table]]:
    return [(capture, table) for capture in captures if (table := table_of(capture))]


def _time(recorded: Sequence[tuple[Capture, _Table]], name: str, *, per_step: bool) -> WorkTime:
    whole = sum(capture.steps if per_step else 1 for capture, _ in recorded)
    rows = [table.rows.get(name) for _, table in recorded]
    known = [row for row in rows if row]
    low = sum(ns for _, ns in known)
    rest = sum(table.rest_ns for (_, table), row in zip(recorded, rows, strict=True) if row is None)
    return WorkTime(
        calls=None if rest else sum(calls for calls, _ in known) / whole,
        low_s=low / whole / 1e9,
        high_s=(low + rest) / whole / 1e9,
    )


def _operators(capture: Capture) -> _Table | None:
    """By their own time on the host; None if none were recorded."""
    rows = capture.operators
    # The first ones have most of it; the others are there for their time on devices.
    rest = rows[MAX_ROWS - 1].self_ns if capture.operator_names > len(rows) >= MAX_ROWS else 0
    return _summed([(row.name, row.calls, row.self_ns) for row in rows], rest) if rows else None


def _marks(capture: Capture) -> _Table | None:
    """By their time on the host, with what they hold; marks are recorded with operators."""
    rows = capture.marks
    rest = rows[-1].total_ns if len(rows) >= MAX_ROWS else 0
    return _summed([(row.name, row.calls, row.total_ns) for row in rows], rest) if capture.operators else None


def _kernels(capture: Capture) -> _Table | None:
    """By their time on all devices."""
    tables = [(device.kernels, device.kernel_names) for device in capture.devices if device.kernels]
    rest = sum(rows[-1].total_ns for rows, names in tables if names > len(rows))
    found = [(row.name, row.calls, row.total_ns) for rows, _ in tables for row in rows]
    return _summed(found, rest) if found else None


def _summed(rows: Iterable[tuple[str, int, int]], rest_ns: int) -> _Table:
    found: dict[str, tuple[int, int]] = {}
    for name, calls, ns in rows:
        before = found.get(name, (0, 0))
        found[name] = before[0] + calls, before[1] + ns
    return _Table(rows=found, rest_ns=rest_ns)
