"""The parts of the start-up, and what is compiled again."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from jobrules.model import Events, Job, Metric, in_words
from jobrules.verdict.starting import BEFORE, recompiled, start_up
from tests.copies import replace
from tests.jobs import joined_steps, make_events, make_job, make_panel, make_steps
from tests.verdicts import keys, verdict_of

#: Seconds from the first sample on: of rank 1, whose first step begins at 413 s, and of rank 0, which waits for it.
ROWS = {
    "1": [
        ("Start-up", "process", 27.5, 27.5),
        ("Start-up", "import torch", 30.0, 72.5),
        ("Start-up", "import transformers", 75.0, 87.5),
        ("Start-up", "model weights", 100.0, 305.0),
        # A second time, and a name that no recorder writes.
        ("Start-up", "model weights", 310.0, 330.0),
        ("Start-up", "<b>import</b>", 330.0, 400.0),
        ("DataLoaderIter", "fetch", 413.0, 421.0),
        ("torch.compile", "compile", 422.0, 442.0),
    ],
    "0": [("Start-up", "process", 25.0, 25.0), ("Start-up", "import torch", 27.5, 80.0)],
}


def job(*more: tuple[str, str, float, float], step: int = 40) -> Job:
    ends = 453.0 + 2.5 * np.arange(200)
    first = {"0": 411.0, "1": 413.0}
    tables = [make_steps([(first[rank], 453.0), *itertools.pairwise(ends)], rank=rank) for rank in first]
    busy = np.r_[np.zeros(82), np.full(110, 90.0)]
    events = [make_events(rows, rank=rank) for rank, rows in ROWS.items()]
    again = [make_events(list(more), rank="1", step=step)] if more else []
    return make_job(
        steps=replace(joined_steps(*tables), whole=True),
        events=Events.joined([*events, *again]),
        extra=(make_panel(Metric.GPU_UTILIZATION, np.c_[busy, busy], interval_s=5),),
    )


def test_parts_of_the_rank_that_began_last_add_up() -> None:
    found = start_up(job())

    assert found is not None
    assert (found.rank, found.largest.name) == ("1", "model weights")
    assert {part.name: round(part.us / 1e6, 3) for part in found.parts} == {
        BEFORE: 27.5,
        "import torch": 42.5,
        "import transformers": 12.5,
        "model weights": 225.0,
        "first batch fetch": 8.0,
        "first torch.compile": 20.0,
        "rest of the first step": 12.0,
        "other": 105.5,
    }
    assert sum(part.us for part in found.parts) == found.end_us - found.begin_us


def test_parts_of_processes_that_began_at_once_are_no_longer_than_all() -> None:
    found = start_up(job(("Start-up", "data set", 30.0, 400.0)))

    assert found is not None
    assert sum(part.us for part in found.parts) == found.end_us - found.begin_us


def test_finding_on_the_start_up_names_its_largest_part() -> None:
    (finding,) = (one for one in verdict_of(job()).findings if one.key == "start-up")

    assert "model weights, 3\u00a0min 45" in in_words(finding.evidence)
    assert "safetensors" in finding.advice[0]


@pytest.mark.parametrize(("step", "compiled"), [(3, False), (40, True)])
def test_compilations_after_the_first_steps_are_a_finding(step: int, compiled: bool) -> None:
    found = job(
        ("torch.compile", "compile", 600.0, 630.0), ("torch.compile", "compile", 650.0, 665.0), step=step
    )
    verdict = verdict_of(found)

    again = recompiled(found)
    assert (again is not None) == compiled
    assert ("recompiled" in keys(verdict)) == compiled
    if again:
        assert (again.rank, again.times, again.us) == ("1", 2, 45_000_000)
        assert again.share == pytest.approx(45 / 539.5, abs=0.001)
