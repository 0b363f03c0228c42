"""What the columns of an nvidia-smi log are that does not name them (``--format=csv,noheader``).

Times and identifiers have forms of their own, and the only watts that change are those drawn: that is certain. That one
percentage is the use of the GPU, and a second one next to it that of its memory, is assumed: a fan has one too. The rest
is not read, nor is memory, since what is free changes as what is used does.
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
_WITH_UNIT = re.compile(r"([0-9]+(?:\.[0-9]+)?) (%|W)")
_WHOLE = re.compile(r"[0-9]{1,3}")
_NONE = re.compile(r"\[.*\]|N/A|")
#: Percentages in the order in which the tool tells of them.
_USES = ("utilization.gpu", "utilization.memory")
_POWER = "power.draw"
UNKNOWN = "?"


def guessed(rows: Sequence[Sequence[str]]) -> tuple[str, ...] | None:
    """Names for the columns, as the tool would give them, ``?`` for what nothing tells; none if these are no rows.

    There must be a time and something that was measured.
    """
    columns = [
        [cell.strip() for cell in column if not _NONE.fullmatch(cell.strip())]
        for column in zip(*rows, strict=True)
    ]
    names = [_by_form(cells) for cells in columns]
    for i, name in zip(_uses(columns), _USES, strict=False):
        names[i] = name
    # What may be drawn does not change.
    drawn = [i for i, cells in enumerate(columns) if _unit(cells) == "W" and len(set(cells)) > 1]
    if len(drawn) == 1:
        names[drawn[0]] = _POWER
    in_turn = [i for i, cells in enumerate(columns) if names[i] == UNKNOWN and _in_turn(cells)]
    if len(in_turn) == 1:
        names[in_turn[0]] = "index"
    return tuple(names) if "timestamp" in names and {*_USES, _POWER} & {*names} else None


def _uses(columns: Sequence[Sequence[str]]) -> list[int]:
    """Which column may be the use of the GPU, and which that of its memory; none where another reading is as near."""
    found = [i for i, cells in enumerate(columns) if _unit(cells) == "%"]
    if not all(columns):  # any of them may be in a column without values
        return []
    if len(found) == len(_USES):
        gpu, memory = (sum(float(cell.split()[0]) for cell in columns[i]) / len(columns[i]) for i in found)
        # The memory is seldom at work longer than the GPU; a fan may be in front.
        return found if found[1] == found[0] + 1 and memory <= gpu else []
    return found if len(found) == 1 else []


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
