"""Telling how far long work has come: a bar on a terminal, else a line a stage and a line a minute."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

from jobrules.text import duration, percent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TextIO

    from tqdm import tqdm

#: Between two lines of one stage.
LINE_S = 60.0
#: A bar of bytes, of parts, and of what has no known end.
_PARTS = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt} of {total_fmt}, {elapsed} gone, {remaining} left"
_BYTES = _PARTS + " at {rate_fmt}"
_UNKNOWN = "{desc} …"


class Progress:
    """How far one stage has come; by itself it tells nobody."""

    words, total, unit = "", 0, ""
    _finished = _underway = 0

    def stage(self, words: str, total: int = 0, unit: str = "") -> None:
        """Begin the next stage; ``total`` units (``B`` for bytes) are to be done, 0 where that is not known."""
        self.words, self.total, self.unit = words, total, unit
        self._finished = self._underway = 0
        self.told()

    def advance(self, amount: int) -> None:
        """So much of a task was done."""
        self._underway += amount
        self.told()

    def finish(self, amount: int) -> None:
        """A task is finished, so much in all; what was told of it while it was under way is part of that."""
        self._finished += amount
        self._underway = 0
        self.told()

    @property
    def done(self) -> int:
        """Units done in this stage."""
        return min(self._finished + self._underway, self.total)

    def told(self) -> None:
        """Something changed."""

    def close(self) -> None:
        """There is nothing more to come."""


class Lines(Progress):
    """A line for each stage, and one a minute with an estimate while it lasts."""

    def __init__(self, tell: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._tell, self._clock = tell, clock
        self._stage = ""

    def told(self) -> None:
        """Tell a stage when it begins, and then what is due."""
        now = self._clock()
        if self.words != self._stage:
            self._stage, self._began, self._due = self.words, now, now + LINE_S
            self._tell(f"{self.words} …")
        elif now >= self._due and self.done:
            left_s = (now - self._began) * (self.total - self.done) / self.done
            self._tell(
                f"{self.words}: {percent(100 * self.done / self.total)}, about {duration(left_s * 1e6)} left"
            )
            self._due = now + LINE_S


class Bar(Progress):
    """A bar on a terminal, with what is done, how far, and an estimate of the rest."""

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal
        self._stage = ""
        self._bar: tqdm[Any] | None = None

    def told(self) -> None:
        """Draw the bar anew, if it is time."""
        from tqdm import tqdm  # noqa: PLC0415 - only for a terminal

        bar: tqdm[Any] | None = self._bar
        if bar is None or self.words != self._stage:
            self.close()
            self._stage = self.words
            bar = tqdm(
                desc=self.words,
                total=self.total or None,
                unit=self.unit,
                unit_scale=self.unit == "B",
                bar_format=_BYTES if self.unit == "B" else _PARTS if self.total else _UNKNOWN,
                file=self._terminal,
                leave=False,
                dynamic_ncols=True,
            )
            self._bar = bar
        bar.update(self.done - bar.n)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


_current = Progress()


def advance(amount: int) -> None:
    """So much of a task was done, wherever that is told; in a process of an engine, nowhere."""
    _current.advance(amount)


def silence() -> None:
    """What ``advance`` tells goes nowhere from now on."""
    global _current  # noqa: PLW0603 - see telling
    _current = Progress()


@contextlib.contextmanager
def telling(progress: Progress) -> Iterator[None]:
    """What ``advance`` tells goes here."""
    global _current  # noqa: PLW0603 - work deep in a reader has no other way to the terminal
    before, _current = _current, progress
    try:
        yield
    finally:
        _current = before
        progress.close()
