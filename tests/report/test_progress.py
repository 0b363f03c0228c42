from __future__ import annotations

import io

from jobreport import progress
from jobreport.progress import Bar, Lines, Progress


class Clock:
    """A clock that is set by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_stage_has_a_line_when_it_begins_and_one_a_minute_with_an_estimate() -> None:
    printed: list[str] = []
    clock = Clock()
    lines = Lines(printed.append, clock)
    lines.stage("Reading job", 1000, "B")
    for second in range(1, 151):
        clock.now = 100.0 + second
        lines.advance(4)
    lines.stage("Running 11 rules", 19)
    lines.advance(1)
    assert printed == [
        "Reading job",
        "Reading job: 24.0%, about 3\u00a0min 10\u00a0s left",
        "Reading job: 48.0%, about 2\u00a0min 10\u00a0s left",
        "Running 11 rules",
    ]


def test_at_the_end_of_its_bytes_a_stage_promises_no_end() -> None:
    printed: list[str] = []
    times = iter((0.0, 59.0, 61.0, 70.0, 122.0))
    lines = Lines(printed.append, lambda: next(times))
    lines.stage("Reading", 100, "B")
    for amount in (90, 10, 5, 0):
        lines.advance(amount)

    assert printed == ["Reading", *["Reading: all read, not finished yet"] * 2]


def test_what_was_added_during_a_task_is_part_of_the_finished_task() -> None:
    one = Progress()
    one.stage("reading", 100)
    one.advance(30)
    assert one.done == 30
    one.finish(40)
    assert one.done == 40
    one.advance(70)  # more than there should be
    assert one.done == 100


def test_a_bar_shows_its_stage_and_leaves_nothing() -> None:
    terminal = io.StringIO()
    bar = Bar(terminal)
    bar.stage("reading job", 2_000_000, "B")
    bar.advance(500_000)
    bar.finish(1_000_000)
    bar.stage("running the notebook")
    bar.close()
    seen = terminal.getvalue()
    assert "reading job:   0%" in seen
    assert "running the notebook" in seen
    # What is left on the line at the end is blank.
    assert not seen.rsplit("\r", 2)[-2].strip()


def test_advance_goes_to_the_progress_that_is_shown() -> None:
    one = Progress()
    one.stage("reading", 10)
    progress.advance(3)
    with progress.showing(one):
        progress.advance(4)
    progress.advance(5)
    assert one.done == 4
