"""Which scalars of several event files are those of one training.

A script that is started again writes another file. Its steps replace what earlier files have of them, as in TensorBoard.
In a folder of its own, it may be another training, or the rest of one.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobrules.model.learning import EVALUATION, TRAINING, Scalars

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from jobreport.readers.base import SourceFile
    from jobreport.readers.tally import Tally
    from jobrules.model import FloatArray

SOURCE = "TensorBoard"
#: Folders that Keras names after the mode, and ``add_scalars`` after tag and mode.
_MODES = {
    TRAINING: re.compile(r"(?:.*[_-])?train(?:ing)?", re.IGNORECASE | re.DOTALL),
    EVALUATION: re.compile(
        r"(?:.*[_-])?(?:val|valid|validation|eval|evaluation|test)", re.IGNORECASE | re.DOTALL
    ),
}
_NEVER = float("inf")


class Place(Struct, frozen=True, kw_only=True):
    """What the folders of a file say of it."""

    #: The folder of its training.
    run: str
    mode: str
    #: In front of names.
    prefix: str


class Part(Struct, frozen=True, kw_only=True):
    """What one writer wrote until it began again, some number at the least."""

    place: Place
    #: When it began.
    start_us: int
    #: The step at which the writer says that it begins.
    begins: float
    #: (n, 3) of each number: step, time in microseconds, and value, in the order of the file.
    rows: dict[str, FloatArray]

    def __len__(self) -> int:
        return sum(map(len, self.rows.values()))

    @property
    def first_step(self) -> float:
        """The first step of any number."""
        return min(float(rows[:, 0].min()) for rows in self.rows.values())

    @property
    def end_us(self) -> float:
        """The last time of any number."""
        return max(float(rows[:, 1].max()) for rows in self.rows.values())


def places(files: Iterable[SourceFile]) -> dict[SourceFile, Place]:
    """The places of files. A folder below one that has event files too is a part of that one."""
    of_files: dict[SourceFile, tuple[str, str]] = {}
    for file in files:
        folder = file.name.rpartition("/")[0]
        above, _, last = folder.rpartition("/")
        mode = next((mode for mode, pattern in _MODES.items() if pattern.fullmatch(last)), "")
        of_files[file] = (above, mode) if mode else (folder, TRAINING)
    folders = {folder for folder, _ in of_files.values()}
    found = {}
    for file, (folder, mode) in of_files.items():
        names = folder.split("/")
        above_it = ("/".join(names[:depth]) for depth in range(len(names)))
        run = next((one for one in above_it if one in folders), folder)
        prefix = "" if run == folder else folder.removeprefix(run).lstrip("/") + "/"
        found[file] = Place(run=run, mode=mode, prefix=prefix)
    return found


def scalars_of(parts: Sequence[Part], tally: Tally) -> tuple[Scalars, ...]:
    """The numbers of the last training, and of those that it continues."""
    kept: defaultdict[tuple[str, str], list[FloatArray]] = defaultdict(list)
    #: Steps from which on later parts have a number, and all numbers of a mode.
    first: dict[tuple[str, str], float] = {}
    begins: dict[str, float] = {}
    in_order = sorted(_of_last_run(parts, tally), key=lambda one: one.start_us)
    for part in reversed(in_order):
        mode = part.place.mode
        for name, rows in part.rows.items():
            key = mode, part.place.prefix + name
            is_own = rows[:, 0] < min(first.get(key, _NEVER), begins.get(mode, _NEVER))
            tally.note("tensorboard.again", count=int((~is_own).sum()))
            first[key] = min(first.get(key, _NEVER), float(rows[:, 0].min()))
            kept[key].append(_counted_on(rows[is_own], tally))
        begins[mode] = min(begins.get(mode, _NEVER), part.begins)
    found = (_scalars(*key, np.concatenate(rows[::-1]), tally) for key, rows in sorted(kept.items()))
    return tuple(one for one in found if len(one))


def _of_last_run(parts: Sequence[Part], tally: Tally) -> Iterator[Part]:
    """The parts of all runs but those that ended before another one began at the same step or an earlier one."""
    runs: defaultdict[str, list[Part]] = defaultdict(list)
    for part in parts:
        runs[part.place.run].append(part)
    later: list[tuple[float, float]] = []
    for name, some in sorted(runs.items(), key=lambda run: min(one.start_us for one in run[1]), reverse=True):
        first_step, end_us = min(one.first_step for one in some), max(one.end_us for one in some)
        if any(step <= first_step and start_us >= end_us for step, start_us in later):
            tally.note("tensorboard.other_run", count=sum(map(len, some)), file=name)
            continue
        later.append((first_step, min(one.start_us for one in some)))
        yield from some


def _counted_on(rows: FloatArray, tally: Tally) -> FloatArray:
    """Rows of which the steps go on where they begin again, as those of scripts do that count in each epoch."""
    step = rows[:, 0]
    again = 1 + np.flatnonzero((np.diff(step) < 0) & (step[1:] <= step[:1]))
    if not len(again):
        return rows
    tally.note("learning.counted_on")
    distance = np.median(np.diff(step)[np.diff(step) > 0]) if (np.diff(step) > 0).any() else 1.0
    added = np.zeros(len(step))
    added[again] = step[again - 1] + np.round(distance) - step[again]
    return np.column_stack([step + np.cumsum(added), rows[:, 1:]])


def _scalars(mode: str, name: str, rows: FloatArray, tally: Tally) -> Scalars:
    if len(rows) > 1 and not rows[:, 0].any():
        tally.note("tensorboard.no_steps")
        rows = np.column_stack([np.arange(len(rows)), rows[:, 1:]])
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    return Scalars(
        name=name,
        logged_as=name,
        mode=mode,
        source=SOURCE,
        step=rows[:, 0].astype(np.int64),
        time_us=rows[:, 1].astype(np.int64),
        value=rows[:, 2],
    )
