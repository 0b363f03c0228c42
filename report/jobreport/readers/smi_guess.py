"""What the columns of an nvidia-smi log are that does not name them (``--format=csv,noheader``), as far as is certain.

The tool writes a unit behind most numbers, times and identifiers in forms of their own, and its users ask for the use of
the GPU before that of its memory. What that does not tell, as most of what is written without units, is not read.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

#: What the cells of a column look like, and what it is then.
_FORMS = (
    (re.compile(r"\d{4}/\d{2}/\d{2} \d{2}:\d{2}:\d{2}\.\d{3}"), "timestamp"),
    (re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "uuid"),
    (re.compile(r"[0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]"), "pci.bus_id"),
    (re.compile(r"0x[0-9A-Fa-f]{16}"), "clocks_event_reasons.active"),
)
_WITH_UNIT = re.compile(r"([0-9]+(?:\.[0-9]+)?) (%|MiB|W)")
_WHOLE = re.compile(r"[0-9]{1,3}")
_NONE = re.compile(r"\[.*\]|N/A|")
#: Columns with a unit, in their order; where there are more of a unit, none of them is certain.
_OF_UNIT = {"%": ("utilization.gpu", "utilization.memory"), "W": ("power.draw",), "MiB": ("memory.used",)}
UNKNOWN = "?"


def guessed(rows: Sequence[Sequence[str]]) -> tuple[str, ...] | None:
    """Names for the columns, as the tool would give them, ``?`` for what is not certain; none if these are no rows.

    There must be a time and something that was measured.
    """
    columns = [
        [cell.strip() for cell in column if not _NONE.fullmatch(cell.strip())]
        for column in zip(*rows, strict=True)
    ]
    names = [_by_form(cells) for cells in columns]
    for unit, known in _OF_UNIT.items():
        found = [i for i, cells in enumerate(columns) if _unit(cells) == unit]
        if unit != "%":
            # What there is of memory, and what may be drawn, does not change.
            found = [i for i in found if len(set(columns[i])) > 1]
        if len(found) <= len(known):
            for i, name in zip(found, known, strict=False):
                names[i] = name
    in_turn = [i for i, cells in enumerate(columns) if names[i] == UNKNOWN and _in_turn(cells)]
    if len(in_turn) == 1:
        names[in_turn[0]] = "index"
    measured = {name for known in _OF_UNIT.values() for name in known}
    return tuple(names) if "timestamp" in names and measured & {*names} else None


def _by_form(cells: Sequence[str]) -> str:
    return next((name for form, name in _FORMS if cells and all(map(form.fullmatch, cells))), UNKNOWN)


def _unit(cells: Sequence[str]) -> str:
    """The unit of all cells; empty where they have none, or several."""
    units = {match[2] if (match := _WITH_UNIT.fullmatch(cell)) else "" for cell in cells}
    return units.pop() if len(units) == 1 else ""


def _in_turn(cells: Sequence[str]) -> bool:
    """Whether the cells are the numbers of GPUs that are asked in turn: 0, 1, 2, 0, 1, 2."""
    if not cells or not all(map(_WHOLE.fullmatch, cells)):
        return False
    numbers = [int(cell) for cell in cells]
    count = max(numbers) + 1
    return numbers[0] == 0 and all(b == (a + 1) % count for a, b in itertools.pairwise(numbers))
