from __future__ import annotations

import io

from jobreport import progress
from jobreport.progress import Bar, Lines, Progress


class Clock:
    """A clock that is set by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_stage_is_told_when_it_begins_and_once_a_minute_with_an_estimate() -> None:
    told: list[str] = []
    clock = Clock()
    lines = Lines(told.append, clock)
    lines.stage("reading job", 1000, "B")
    for second in range(1, 151):
        clock.now = 100.0 + second
        lines.advance(4)
    lines.stage("judging by 11 rules", 19)
    lines.advance(1)
    assert told == [
        "reading job …",
        "reading job: 24.0%, about 3\u00a0min 10\u00a0s left",
        "reading job: 48.0%, about 2\u00a0min 10\u00a0s left",
        "judging by 11 rules …",
    ]


def test_what_was_told_of_a_task_is_part_of_the_finished_task() -> None:
    one = Progress()
    one.stage("reading", 100)
    one.advance(30)
    assert one.done == 30
    one.finish(40)
    assert one.done == 40
    one.advance(70)  # more than there should be
    assert one.done == 100


def test_a_bar_tells_what_is_read_how_far_and_an_estimate_and_leaves_nothing() -> None:
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


def test_advance_goes_to_whoever_is_told_and_else_nowhere() -> None:
    one = Progress()
    one.stage("reading", 10)
    progress.advance(3)
    with progress.telling(one):
        progress.advance(4)
    progress.advance(5)
    assert one.done == 4
