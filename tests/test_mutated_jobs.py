"""Damaged jobs: a report or a refusal, with every row accounted for. Thousands of them: ``python -m fuzz.jobs``."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from fuzz import jobs, mutations, sample_rows_reference
from fuzz.bases import bases
from fuzz.mutations import Job, applied, mutated
from jobreport import pipeline
from jobreport.readers.system_samples import lines
from jobreport.readers.tally import UnusableError
from tests.once import slow_but


@pytest.fixture(scope="module")
def small() -> Job:
    return bases()["sample"]["cpu-bottleneck-2gpu"]


@pytest.fixture(scope="module")
def samples(small: Job) -> Job:
    """The files of its system samples."""
    return {name: content for name, content in small.items() if "/incremental/" in name}


@pytest.mark.parametrize("first", slow_but(1, range(1, 31, 10)))
def test_a_damaged_job_gives_a_report_or_is_refused(first: int) -> None:
    for seed in range(first, first + 10):
        _, job, damage = jobs.job_of(seed)
        assert jobs.outcome(jobs.damaged(job, damage)).what in jobs.ALLOWED, seed


def test_a_number_always_does_the_same_damage_and_changes_nothing_given(small: Job) -> None:
    before = dict(small)

    results = [mutated(small, seed) for seed in range(40)]

    assert results == [mutated(small, seed) for seed in range(40)]
    assert before == small
    assert sum(result != small for result in results) > 35


@pytest.mark.parametrize("damage", [*mutations._OF_BYTES, *mutations._OF_LINES])
def test_every_kind_of_damage_changes_something(damage: Any, samples: Job) -> None:
    text = mutations._plain(next(iter(samples.values())))

    assert any(damage(Random(seed), text) != text for seed in range(20))


@pytest.mark.parametrize("damage", mutations._OF_FILES)
def test_every_kind_of_damage_to_files_changes_something(damage: Any, small: Job) -> None:
    found = [dict(small) for _ in range(20)]
    for seed, job in enumerate(found):
        damage(Random(seed), job)

    assert any(job != small for job in found)


def test_nothing_is_left_to_damage_in_a_job_without_files() -> None:
    assert applied({}, 1) == {}
    assert all(isinstance(mutated({"a.json": b""}, seed), dict) for seed in range(200))


# What is found


def test_rows_that_are_not_counted_are_found(monkeypatch: pytest.MonkeyPatch, samples: Job) -> None:
    job = broken(samples)
    assert jobs.outcome(job).what == "report"

    read = lines.rows
    monkeypatch.setattr(lines, "rows", lambda number, *others: read(number, *others) if number else [])
    assert jobs.outcome(job).what == "samples that are not accounted for"


def test_a_lost_sample_is_found(monkeypatch: pytest.MonkeyPatch, samples: Job) -> None:
    unusual = lines._unusual

    def strict(line: bytes | None) -> Any:
        if line and b'"gpu0"' in line:
            raise UnusableError("samples.long")
        return unusual(line)

    job = broken(samples)
    monkeypatch.setattr(lines, "_unusual", strict)
    monkeypatch.setattr(lines, "_usual", lambda line: None)
    found = jobs.outcome(job)

    assert found.what == "other samples in use than a careful reader keeps"
    assert "samples.long" in found.fault


def test_a_refused_job_with_a_sample_is_found(monkeypatch: pytest.MonkeyPatch, samples: Job) -> None:
    monkeypatch.setattr("jobreport.readers.system_samples.reader.sensor", lambda *_: None)

    assert jobs.outcome(samples).what == "other samples in use than a careful reader keeps"


def test_a_lost_file_without_a_name_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    job = {name: b"?" + content for name, content in bases()["nameless"]["step-outliers"].items()}
    assert jobs.outcome(job).what == "report"

    monkeypatch.setattr("jobreport.readers.system_samples.reader._begins_with_samples", lambda _: False)
    assert jobs.outcome(job).what == "samples that are not accounted for"


@pytest.mark.parametrize(
    ("place", "what"),
    [
        ("jobreport.readers.system_samples.reader.node_panels", "the reader of system samples stopped"),
        ("jobreport.build.balance", "balance"),
        ("jobreport.build.utilization", "ZeroDivisionError at test_mutated_jobs.py"),
    ],
)
def test_what_raises_is_found(monkeypatch: pytest.MonkeyPatch, place: str, what: str, small: Job) -> None:
    monkeypatch.setattr(place, lambda *_: 1 // 0)

    assert what in jobs.outcome(small).what


def test_faults_are_written_with_their_job_and_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise ValueError("gpu1")

    monkeypatch.setattr(pipeline, "make_report", failing)
    found = jobs._found(7, page=False, folder=tmp_path)
    assert "ValueError: gpu1" in (tmp_path / "7" / "fault.txt").read_text()
    assert "damage: []" in (tmp_path / "7" / "fault.txt").read_text()

    monkeypatch.setattr(jobs, "run", lambda *_, **__: iter([found, jobs.Found(8, jobs.Outcome("refused"))]))
    assert jobs.main(["--jobs", "2"]) == 1
    assert "job 7: ValueError at test_mutated_jobs.py" in capsys.readouterr().out


@pytest.mark.slow
def test_processes_give_the_outcomes_that_one_gives(tmp_path: Path) -> None:
    found = {one.seed: one.outcome for one in jobs.run(range(1, 4), pages=0, processes=2, folder=tmp_path)}

    assert found == {
        seed: jobs.outcome(jobs.damaged(job, damage))
        for seed in range(1, 4)
        for _, job, damage in (jobs.job_of(seed),)
    }


def test_the_reference_counts_by_hand() -> None:
    line = '{"Type":"gpu","Name":"gpu0","Dimension":"GPUUtilization","Value":%s,"NodeId":"a","Timestamp":%s}'
    lines = [
        line % (1, 1_700_000_000),
        line % (1, 1_700_000_000),
        line % (2, 1_700_000_000.01),
        line % (3, 1_700_000_001),
        line % ("NaN", 1_700_000_002),
        line % (4, 17),
        line.replace("gpu", "fan") % (5, 1_700_000_003),
        "",
        " \r",
        "{",
    ]

    assert sample_rows_reference.rows({"1700000000.a.json": "\n".join(lines).encode()}) == (8, 2)


def broken(job: Job) -> Job:
    """With a line in each file that is no sample, so that all are read line by line."""
    return {name: mutations._plain(content) + b"?\n" for name, content in job.items()}
