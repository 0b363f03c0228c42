"""Damage that is more than a bad line: files, times and names of system samples, and a directory that changes."""

from __future__ import annotations

import gzip
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from jobreport.readers import text_files
from jobreport.readers.registry import read_job
from jobreport.readers.system_samples import lines as sample_lines
from jobreport.readers.system_samples.text import SoundFiles
from tests.report.readers.events import BASE_US, x
from tests.report.readers.samples import (
    FILE,
    HOUR,
    T0,
    read,
    remarks,
    sample,
    slow_tables,
    tables,
    values,
    write,
)

CUT = "compressed data is cut short or damaged; what comes before is used"


def ticks(count: int, at: float = T0, gpus: int = 2, node: str = "algo-1") -> list[str]:
    """All sensors of some GPUs, once a second."""
    return [
        sample(gpu + i % 50, at=at + i, name=f"gpu{gpu}", dimension=dimension, node=node)
        for i in range(count)
        for gpu in range(gpus)
        for dimension in ("GPUUtilization", "GPUMemoryUtilization")
    ]


# Files whose names say nothing


@pytest.mark.parametrize(
    "first",
    ["?", sample()[1:], '{"Type": "gpu", "Value": ', "\0" * 5000, "[" * 5000, '{"version": 1}', "\n\n\0"],
)
@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("name", ["samples.json", "samples.jsonl.gz"])
def test_a_damaged_first_line_costs_itself_alone(tmp_path: Path, first: str, end: str, name: str) -> None:
    text = f"{first}\n{sample(10)}{end}".encode()

    job, quality = read(tmp_path, {name: gzip.compress(text) if name.endswith("gz") else text})

    assert values(job) == [[10.0]]
    assert [(one.count, one.unit) for one in remarks(quality).values()] == [(1, "lines")]


def test_a_trace_with_an_unusual_name_stays_one_behind_a_sample(tmp_path: Path) -> None:
    rows = "".join(json.dumps(x(ts=BASE_US + i)) + ",\n" for i in range(3))

    job, quality = read(tmp_path, {"1700000060000000_33-algo-1_mine.json": f"{sample()}\n{rows}"})

    assert job.event_count == 3
    assert [one.source for one in quality.sources] == ["traces"]


# Compressed files


@pytest.mark.parametrize("place", [0.1, 0.5, 0.9])
def test_text_in_front_of_damaged_compressed_data_is_used_to_the_last_byte(
    tmp_path: Path, place: float
) -> None:
    rng = random.Random(3)
    lines = [sample(rng.random(), at=T0 + i) for i in range(2000)]
    packed = bytearray(gzip.compress("\n".join(lines).encode(), mtime=0))
    at = int(place * len(packed))
    packed[at : at + 16] = b"\xff" * 16

    job, quality = read(tmp_path, {f"{FILE}.gz": bytes(packed), FILE: [sample(1, name="gpu1")] * 2})

    known = [row[0] for row in values(job)]
    expected = [row[0] for row in slow_values(lines)]
    same = next((i for i, (a, b) in enumerate(zip(known, expected, strict=False)) if a != b), len(known))
    # What is unpacked from the damage itself may look like a number; what comes in front of it is all there.
    assert same >= (place - 0.05) * len(lines)
    assert remarks(quality)[CUT].place == f"{FILE}.gz"
    assert "not a complete sample" not in remarks(quality)


def slow_values(lines: list[str]) -> list[list[float]]:
    (table,) = slow_tables(lines).values()
    return [list(row.values()) for _, row in sorted(table.items())]


def test_compressed_data_without_end_costs_what_comes_behind_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_files, "_MAX_TEXT", 3 << 20)
    bomb = gzip.compress((sample(1) + "\n").encode() + b"\n" * (5 << 20))
    assert len(bomb) * 200 < 3 << 20

    job, quality = read(tmp_path, {f"{FILE}.gz": bomb})
    assert values(job) == [[1.0]]
    reason = "larger than the limit of 3 MiB when unpacked; what comes before is used"
    assert remarks(quality)[reason].place == f"{FILE}.gz"
    with pytest.raises(text_files.TooLargeError):
        assert sum(map(len, text_files.chunks(tmp_path / f"{FILE}.gz"))) <= 4 << 20


# Lines


def test_of_a_key_that_stands_twice_the_last_value_counts(tmp_path: Path) -> None:
    twice = sample(1).replace('"Value"', '"Value": 5, "Value"')

    assert values(read(tmp_path / "sound", {FILE: [twice]})[0]) == [[1.0]]
    assert values(read(tmp_path / "unsound", {FILE: [twice, "?"]})[0]) == [[1.0]]


@pytest.mark.parametrize("digits", [25, 400, 5000])
def test_numbers_without_end_are_dropped(tmp_path: Path, digits: int) -> None:
    lines = [sample(1), sample(2, at=T0 + 1).replace("2,", "9" * digits + ",")]

    job, quality = read(tmp_path, {FILE: lines})

    if digits == 25:
        assert values(job) == [[1.0], [100.0]]
    else:
        assert values(job) == [[1.0]]
        assert sum(remark.count for remark in remarks(quality).values()) == 1


# Times


# Directories


def test_two_jobs_in_one_directory_are_counted(tmp_path: Path) -> None:
    files = {f"a/{FILE}": ticks(60), f"b/{FILE}": ticks(60, at=T0 + 7200)}

    job, quality = read(tmp_path, files)

    assert tables(job) == slow_tables([line for lines in files.values() for line in lines])
    remark = remarks(quality)["samples in the folders of several jobs, read as one job"]
    assert (remark.action, remark.count, remark.unit, remark.place) == (
        "corrected",
        1,
        "nodes",
        f"b/{FILE}",
    )


def test_the_folders_of_a_job_are_not_taken_for_several(tmp_path: Path) -> None:
    other = FILE.replace("2023111422", "2023111423")
    files = {FILE: ticks(60), other: ticks(60, at=T0 + 60), f"x/{FILE}".replace("algo-1", "algo-2"): ticks(9)}

    assert "samples in the folders of several jobs, read as one job" not in remarks(read(tmp_path, files)[1])


@pytest.mark.parametrize("becomes", ["shorter", "longer", "gone", "folder", "pipe", "link", "no text"])
def test_a_file_that_changes_while_it_is_read_costs_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, becomes: str
) -> None:
    path = tmp_path / "job" / HOUR / "1700000160.algo-1.json"
    write(tmp_path, {f"job/{FILE}": ticks(60), "job/" + str(path.relative_to(tmp_path / "job")): ticks(60)})
    (tmp_path / "outside.json").write_text("\n".join(ticks(60, at=T0 + 100)))
    sound = SoundFiles.rows

    def changed(self: SoundFiles, number: int, place: Path) -> Any:
        if place == path:
            change(path, becomes, tmp_path / "outside.json")
        return sound(self, number, place)

    monkeypatch.setattr(SoundFiles, "rows", changed)
    job, quality = read_job(tmp_path / "job")

    assert job.samples_us == (T0 * 1e6, (T0 + 59) * 1e6)
    reasons = [remark.reason for remark in remarks(quality).values() if remark.place]
    assert (
        reasons
        == {
            "shorter": [],
            "longer": ["not complete JSON"],
            "gone": ["cannot be read: No such file or directory"],
            "folder": ["cannot be read: Is a directory"],
            "pipe": ["empty"],
            "link": ["cannot be read: Too many levels of symbolic links"],
            "no text": ["not complete JSON"],
        }[becomes]
    )


def change(path: Path, becomes: str, outside: Path) -> None:
    text = path.read_text()
    path.unlink()
    if becomes == "folder":
        path.mkdir()
    elif becomes == "pipe":
        os.mkfifo(path)
    elif becomes == "link":
        path.symlink_to(outside)
    elif becomes != "gone":
        made = {"shorter": text[: text.index("\n") + 1], "longer": text + '{"Type"', "no text": "\0\0\n" * 9}
        path.write_text(made[becomes])


def test_a_line_of_the_longest_kind_and_one_more_byte(tmp_path: Path) -> None:
    line = sample(2, at=T0 + 1)
    long = line[:-1] + " " * (sample_lines.MAX_LINE - len(line)) + "}"

    job, quality = read(tmp_path, {FILE: [sample(1), long, " " + long]})

    assert values(job) == [[1.0], [2.0]]
    assert remarks(quality)["too long for a sample"].place == f"{FILE}:3"
