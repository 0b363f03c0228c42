"""Progress of a run: a bar on a terminal, otherwise a line for each stage and a line a minute."""

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
#: A bar of parts, of bytes, and of a stage without a known end.
_PARTS = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt} of {total_fmt}, {elapsed} elapsed, {remaining} left"
_BYTES = _PARTS + " at {rate_fmt}"
_UNKNOWN = "{desc}"


class Progress:
    """Progress of one stage. The base class prints nothing."""

    words, total, unit = "", 0, ""
    _finished = _underway = 0

    def stage(self, words: str, total: int = 0, unit: str = "") -> None:
        """Begin the next stage, of ``total`` units (``B`` for bytes); 0 if the total is not known."""
        self.words, self.total, self.unit = words, total, unit
        self._finished = self._underway = 0
        self.show()

    def advance(self, amount: int) -> None:
        """Add units of a task that is under way."""
        self._underway += amount
        self.show()

    def finish(self, amount: int) -> None:
        """Add all units of a task that is finished, in place of those added while it was under way."""
        self._finished += amount
        self._underway = 0
        self.show()

    @property
    def done(self) -> int:
        """Units done in this stage."""
        return min(self._finished + self._underway, self.total)

    def show(self) -> None:
        """Print the progress, if it is time."""

    def close(self) -> None:
        """End the last stage."""


class Lines(Progress):
    """A line for each stage, and one a minute with an estimate while it lasts."""

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._write, self._clock = write, clock
        self._stage = ""

    def show(self) -> None:
        """Print a stage when it begins, then a line a minute."""
        now = self._clock()
        if self.words != self._stage:
            self._stage, self._began, self._due = self.words, now, now + LINE_S
            self._write(self.words)
        elif now >= self._due and self.done:
            if self.done == self.total:
                self._write(f"{self.words}: all read, not finished yet")
                self._due = now + LINE_S
                return
            left_s = (now - self._began) * (self.total - self.done) / self.done
            self._write(
                f"{self.words}: {percent(100 * self.done / self.total)}, about {duration(left_s * 1e6)} left"
            )
            self._due = now + LINE_S


class Bar(Progress):
    """A bar on a terminal, with the stage, the units done, and an estimate of the rest."""

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal
        self._stage = ""
        self._bar: tqdm[Any] | None = None

    def show(self) -> None:
        """Draw the bar again, if it is time."""
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
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


_current = Progress()
#: The part of a task that this process does.
_part = 1.0


def stage(words: str, total: int = 0) -> None:
    """Begin the next stage of this process's run."""
    _current.stage(words, total)


def advance(amount: int) -> None:
    """Add units to the progress of this process's run; does nothing in the processes of an engine."""
    _current.advance(round(amount / _part))


@contextlib.contextmanager
def sharing(part: float) -> Iterator[None]:
    """Count what this process does for all that share its task, of which it does this part: others print nothing."""
    global _part  # noqa: PLW0603 - see showing
    before, _part = _part, part
    try:
        yield
    finally:
        _part = before


def silence() -> None:
    """End the output of ``advance`` in this process."""
    global _current  # noqa: PLW0603 - see showing
    _current = Progress()


@contextlib.contextmanager
def showing(progress: Progress) -> Iterator[None]:
    """Use this progress for ``stage`` and ``advance``."""
    global _current  # noqa: PLW0603 - code deep in a reader has no other way to the terminal
    before, _current = _current, progress
    try:
        yield
    finally:
        _current = before
        progress.close()
