"""Facts of record-job: what is wrong with a file costs that file, and nothing else."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from jobrecord import facts as recorder
from jobrecord.hooks.training_log import TrainingLog
from jobrecord.settings import Settings
from jobreport.readers.registry import read_job
from jobreport.recordings import Recording
from jobreport.remarks import Quality
from tests.report.readers.samples import FILE, sample, write

FACTS = {
    "schema": 1,
    "recorder": "jobrecord 0.1.0",
    "node": "n",
    "started_us": 1_700_000_000_000_000,
    "interval_ms": 500,
}


def read(folder: Path, *contents: Any) -> tuple[list[Recording], list[tuple[str, int]], Quality]:
    files = {
        f"jobrecord/{i}.json": one if isinstance(one, bytes) else json.dumps(one)
        for i, one in enumerate(contents)
    }
    write(folder, {FILE: [sample()], **files})
    _, quality = read_job(folder, strict=True)
    source = quality.sources[-1]
    return list(source.recordings), [(one.code, one.count) for one in source.remarks], quality


def test_facts_that_are_not_given_are_not_known(tmp_path: Path) -> None:
    (found,), remarks, _ = read(tmp_path, FACTS)

    assert remarks == []
    assert (found.node, found.interval_s) == ("n", 0.5)
    assert [(run.end_us, run.ended_by, run.dropped_samples) for run in found.runs] == [(None, "", 0)]
    assert (found.cores, found.memory, found.hook_s, found.labels) == (None, None, None, ())


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "file.empty"),
        (b"{", "file.not_json"),
        (b"[" * 100_000, "facts.unknown"),
        (b'{"schema":1,"recorder":"\\ud800"}', "file.not_json"),
        (b" " * (9 << 20), "file.large"),
        (b"\xff\xfe{}", "file.not_json"),
        ([], "facts.unknown"),
        ({}, "facts.unknown"),
        (FACTS | {"schema": 2}, "facts.unknown"),
        (FACTS | {"node": None}, "facts.unknown"),
        (FACTS | {"late_ticks": -1}, "facts.unknown"),
        (FACTS | {"late_ticks": 10**30}, "facts.unknown"),
        (FACTS | {"started_us": 10**18}, "facts.unknown"),
        (FACTS | {"labels": {"a": [1]}}, "facts.unknown"),
        (FACTS | {"world_size": 0}, "facts.unknown"),
        (FACTS | {"git": {"commit": 5}}, "facts.unknown"),
        (FACTS | {"flops": {"per_step": [0]}}, "facts.unknown"),
    ],
)
def test_a_file_that_is_something_else_is_skipped(tmp_path: Path, content: Any, code: str) -> None:
    recordings, remarks, _ = read(tmp_path, FACTS, content)

    assert len(recordings) == 1
    assert remarks == [(code, 1)]


def test_texts_of_any_length_and_content_are_bounded(tmp_path: Path) -> None:
    text = "<b>\n" * 80
    (found,), _, _ = read(
        tmp_path,
        FACTS
        | {
            "node": text,
            "ended_by": text,
            "gpu_reason": text,
            "left_out": [{"sensor": text, "reason": text, "count": 1}] * 600,
            "labels": {str(i) * 120: text for i in range(600)},
            "config": {str(i) * 120: text for i in range(600)},
            "versions": {str(i) * 120: text for i in range(600)},
            "host": {"os": text, "cpu": text},
            "git": {"commit": text},
            "flops": {"per_step": [1.0] * 10_000, "source": text},
            "precision": text,
        },
    )

    assert "\n" not in found.node
    assert found.runs[0].ended_by == ""
    assert len(found.gpu_reason) < 400
    assert max(map(len, (found.left_out, found.labels, found.config, found.versions))) < 600
    assert max(len(found.system), len(found.cpu_model), *(len(one.number) for one in found.versions)) < 400
    assert (found.commit, found.flops_source, found.precision) == ("", "", "")
    assert len(found.flops_per_step) < 5000
    assert max(len(label.key) for label in found.labels) < 400


def test_facts_of_a_job_that_restarted_often_and_has_long_labels_are_read(tmp_path: Path) -> None:
    run = {"run": "r" * 100, "started_us": FACTS["started_us"], "dropped": {"reason": "x" * 300}}
    labels = {f"{i}": "\x01" * 1000 for i in range(60)}

    write(tmp_path, {"jobrecord/0.command.json": json.dumps(["python", "c" * (2 << 20)])})
    (found,), remarks, _ = read(tmp_path, FACTS | {"earlier": [run] * 1000, "labels": labels})

    assert (remarks, len(found.labels)) == ([], 60)
    assert found.command == f"python {'c' * 1993}"


@pytest.mark.parametrize("content", ["", "[", "{}", "[1]", '[["a"]]'])
def test_a_command_line_that_is_something_else_costs_no_facts(tmp_path: Path, content: str) -> None:
    write(tmp_path, {"jobrecord/0.command.json": content, "jobrecord/1.command.json": '["python", "a b.py"]'})

    recordings, remarks, _ = read(tmp_path, FACTS, FACTS | {"node": "m"}, FACTS | {"node": "o"})

    assert {one.node: one.command for one in recordings} == {"n": "", "m": "python 'a b.py'", "o": ""}
    assert len(remarks) == 1


@pytest.mark.skipif(not hasattr(os, "setresuid") or os.geteuid() != 0, reason="only root can be another user")
def test_facts_of_another_user_are_read_without_the_command_line(tmp_path: Path) -> None:
    """A report by root's colleague, of a recording by root in a container."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        out.chmod(0o755)
        chosen = Settings(out=out, node="n", run="r", record_command=True, labels={"a": "b"})
        recorder.claim(chosen, {}, ["python", "train.py"])
        write(out, {FILE: [sample()]})
        os.setresuid(65534, 65534, 0)
        try:
            _, quality = read_job(out, strict=True)
        finally:
            os.setresuid(0, 0, 0)

    (found,) = quality.sources[-1].recordings
    assert (found.node, found.command, len(found.labels)) == ("n", "", 1)
    assert [(one.code, one.count) for one in quality.remarks] == [("directory.denied", 1)]


def test_files_that_the_recorder_needs_for_itself_are_no_remark(tmp_path: Path) -> None:
    notes = ("jobrecord/hooks/n/0.json", "jobrecord/workers/n-0-1.json", "jobrecord/n.7.json.tmp")
    write(tmp_path, {FILE: [sample()], **dict.fromkeys(notes, "{}")})

    _, quality = read_job(tmp_path)

    assert quality.remarks == ()
    assert len(quality.sources) == 1


def test_what_the_recorder_logs_is_read(tmp_path: Path) -> None:
    log = TrainingLog(tmp_path / "job", "n")
    for step in range(5):
        log.scalars(step, "TRAIN", {"loss": 1 / (step + 1)})
    log.close(5)
    write(tmp_path / "job", {"jobrecord/n.json": json.dumps(FACTS), FILE: [sample()]})
    _, quality = read_job(tmp_path / "job", strict=True)
    (logged,) = quality.sources[-1].recordings[0].logged
    assert (logged.name, logged.values, logged.step, logged.value) == ("loss", 5, 4, 0.2)
    assert not quality.sources[-1].remarks
