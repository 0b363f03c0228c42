"""Engines keep what functions make, in memory, on disk or in other processes, and give the same report."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from jobreport.engine import Cores, Here, Local, _processes
from jobreport.pipeline import make_report
from jobreport.readers import read_directory, read_job
from tests.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jobreport.engine import Made
    from jobrules.job import Job

SAMPLES = sorted(path.parent for path in (ROOT / "sample_data").glob("*/system"))


def make(things: Sequence[Any], size: int, text: str) -> Made:
    """Two arrays, and what is told of them."""
    base = sum(int(one.sum()) for one in things)
    return [np.arange(size) + base, np.array([text] * size)], (size, text)


def asked(things: Sequence[Any], factor: int) -> tuple[Any, ...]:
    """What stands in the arrays."""
    return tuple(one.tolist() * factor for one in things)


def on_disk() -> Here:
    """In this process, with nothing in memory."""
    return Here(in_memory=0)


def processes() -> Cores:
    """In two processes."""
    return Cores(2)


ENGINES: tuple[Callable[[], Any], ...] = (Here, on_disk, processes)


@pytest.mark.parametrize("opened", ENGINES)
def test_what_is_kept_can_be_asked_about_and_made_into_more(opened: Callable[[], Any]) -> None:
    finished: list[int] = []
    with opened() as engine:
        made = engine.keep(make, [((), (3, "a")), ((), (2, "b"))], [1, 1], finished.append)
        assert [told for _, told in made] == [(3, "a"), (2, "b")]
        assert sorted(finished) == [0, 1]
        (numbers, _), _ = made[0]
        more = engine.keep(make, [([numbers], (2, "c"))], [1], finished.append)
        questions = [(handles, (2,)) for handles, _ in (*made, *more)]
        assert engine.ask(asked, questions) == [
            ([0, 1, 2] * 2, ["a"] * 6),
            ([0, 1] * 2, ["b"] * 4),
            ([3, 4] * 2, ["c"] * 4),
        ]


def first_snapshot(part: Job) -> tuple[str, int]:
    """A question of a user's own, whose module no other process needs to know."""
    return part.nodes[0], min(int(panel.time_us[0]) for panel in part.panels)


@pytest.mark.parametrize("opened", ENGINES)
def test_a_user_asks_for_whole_tables_and_for_parts(opened: Callable[[], Any]) -> None:
    here = read_job(SAMPLES[0])[0]
    with opened() as engine:
        job = read_directory(SAMPLES[0], engine=engine).job
        assert job.each(first_snapshot) == here.each(first_snapshot)
        assert job.each(lambda part: len(part.panels)) == [len(here.panels)]
        assert job.gathered(lambda part: part.nodes) == list(here.nodes)
        for mine, theirs in zip(job.panels, here.panels, strict=True):
            assert (mine.node, mine.metric, mine.devices) == (theirs.node, theirs.metric, theirs.devices)
            np.testing.assert_array_equal(mine.values, theirs.values)
        assert len(job.steps) == len(here.steps)
        assert len(job.events) == len(here.events)
        del job, mine


def test_nothing_is_left_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def interrupted(_: int) -> None:
        assert list(tmp_path.iterdir())
        raise KeyboardInterrupt

    for opened in ENGINES[1:]:
        with opened() as engine:
            engine.keep(make, [((), (3, "a"))], [1], print)
            assert list(tmp_path.iterdir())
        assert not list(tmp_path.iterdir())
    with pytest.raises(KeyboardInterrupt), Here(in_memory=0) as here:
        here.keep(make, [((), (3, "a"))], [1], interrupted)
    assert not list(tmp_path.iterdir())


def test_little_is_read_here_and_much_in_as_many_processes_as_memory_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 16)
    mib = 1 << 20
    assert _processes([]) == 1
    assert _processes([400 * mib]) == 1
    assert _processes([900 * mib]) == 1
    assert _processes([300 * mib] * 4) == 3
    assert _processes([600 * mib, 20 * mib]) == 1
    assert _processes([900 * mib] * 32) == 2
    assert _processes([10_000 * mib] * 32) == 1


def test_local_answers_without_anything_to_keep() -> None:
    with Local(print) as engine:
        assert engine.ask(operator.itemgetter(0), []) == []


@pytest.mark.parametrize("job", SAMPLES, ids=lambda path: path.name)
def test_the_report_is_the_same_from_memory_from_disk_and_from_processes(job: Path, tmp_path: Path) -> None:
    made = []
    for number, opened in enumerate(ENGINES):
        with opened() as engine:
            make_report(job, tmp_path / f"{number}", formats=("json",), strict=True, engine=engine)
        made.append((tmp_path / f"{number}" / "report.json").read_bytes())
    assert made[1] == made[0]
    assert made[2] == made[0]
