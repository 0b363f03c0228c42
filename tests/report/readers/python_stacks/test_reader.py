from __future__ import annotations

import gzip
import json
import time
from pathlib import Path

import msgspec
import numpy as np
import pytest

from jobreport.options import Options
from jobreport.readers.base import Found, SourceFile
from jobreport.readers.python_stacks.reader import PythonStacks
from jobreport.readers.registry import read_directory
from jobreport.redaction.pseudonyms import redacted
from jobreport.settings import load
from jobrules.model import ProcessStacks
from tests.jobs import START_US
from tests.stacks import FORKED, as_file, make_stacks

NAME = "framework/pythonstacks/0-algo-1/123.jsonl"
MAIN = ("train.py:30 main", "data.py:41 Data.load", "library:PIL/Image.py:3300 open")
STACKS = make_stacks([(100_000, MAIN), (205_000, MAIN[:1]), (300_000, MAIN)], rank="0")


def read(directory: Path, content: bytes, name: str = NAME) -> Found:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    reader = PythonStacks()
    file = SourceFile(name=name, place=str(path))
    assert reader.matches_name(file)
    return reader.read([file])


def counts(found: Found) -> dict[str, int]:
    return {remark.code: remark.count for remark in found.quality.remarks}


def same(one: ProcessStacks, other: ProcessStacks) -> bool:
    return all(
        np.array_equal(getattr(one, name), getattr(other, name)) for name in ProcessStacks.__struct_fields__
    )


@pytest.mark.parametrize(("name", "pack"), [(NAME, bytes), (f"{NAME}.gz", gzip.compress)])
def test_reads_what_the_recorder_writes(tmp_path: Path, name: str, pack: type[bytes]) -> None:
    found = read(tmp_path, pack(as_file(STACKS)), name)
    (stacks,) = found.stacks
    assert same(stacks, STACKS)
    assert not found.quality.remarks
    assert (found.quality.files, found.quality.rows) == (1, 3)


LINES = as_file(STACKS).splitlines(keepends=True)
HEAD, SAMPLES = LINES[:7], LINES[7:]


def lines(*rows: object) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


@pytest.mark.parametrize(
    ("content", "samples", "remarks"),
    [
        (b"", 0, {"file.empty": 1}),
        (b"{}\n", 0, {"stacks.unknown": 1}),
        (LINES[0].replace(b", 1,", b", 2,"), 0, {"stacks.unknown": 1}),
        (LINES[0].replace(b"main", b"other"), 0, {"stacks.unknown": 1}),
        (b"".join(LINES)[:-5], 2, {"stacks.line": 1}),
        (b"".join(LINES)[:-1], 3, {}),
        (b"".join([*LINES, b"\x00\xff\n", b"x" * 20000 + b"\n", b"[1]\n", b"\n"]), 3, {"stacks.line": 3}),
        # The frame of the first node is lost: so are the nodes below it, and their samples.
        (b"".join([LINES[0], *LINES[2:]]), 0, {"stacks.lost": 3, "stacks.unknown_stack": 3}),
        # A caller that comes later, itself, or is not there.
        (b"".join([*HEAD, *SAMPLES, lines(["stack", 9, 9, 0], [1, 9, 0])]), 3, {"stacks.lost": 1, "stacks.unknown_stack": 1}),
        (b"".join([*LINES, lines(["stack", 1, -1, 2], ["frame", 0, "own", "x.py", 1, "f"])]), 3, {"stacks.lost": 1}),
        (b"".join([*LINES, lines([-1, 0, 0], [1, -1, 0], [1, 0, -1], [10**14, 0, 0], [1.5, 0, 0])]), 3, {"stacks.line": 5}),
        (b"".join([*LINES, lines(["gap", 5, "disk full"], [400_000, 0, 1])]), 4, {"stacks.gap": 1}),
        (b"".join([*LINES, b'["frame", 9, "own", "\\ud800", 1, "f"]\n']), 3, {"stacks.line": 1}),
        (b"".join([*LINES, b"[" * 5000 + b"\n", b'["frame"' + b"[" * 5000 + b"\n"]), 3, {"stacks.line": 2}),
    ],
)  # fmt: skip
def test_damage_costs_what_it_touches(
    tmp_path: Path, content: bytes, samples: int, remarks: dict[str, int]
) -> None:
    found = read(tmp_path, content)
    assert sum(len(one.time_us) for one in found.stacks) == samples
    assert counts(found) == remarks


def test_cut_compressed_files_keep_what_comes_before(tmp_path: Path) -> None:
    many = as_file(make_stacks([(100_000 * i, MAIN) for i in range(5000)]))
    found = read(tmp_path, gzip.compress(many)[:-3000], f"{NAME}.gz")
    assert 0 < len(found.stacks[0].time_us) < 5000
    assert counts(found)["file.cut"] == 1


def test_times_are_sorted_and_names_are_printable(tmp_path: Path) -> None:
    more = lines(["frame", 3, "own", "a\u202eb\n.py", 1, "f\x00"], ["stack", 3, -1, 3], [302_000, 3, 250_000])
    (stacks,) = read(tmp_path, b"".join(LINES) + more).stacks
    assert (stacks.time_us - START_US).tolist() == [52_000, 100_000, 205_000, 300_000]
    last = stacks.frames[stacks.frame[stacks.stack[0]]]
    assert (last.file, last.function) == ("a\\u202eb\\n.py", "f\\x00")


def test_what_is_numbered_again_is_the_same(tmp_path: Path) -> None:
    again = [
        line.replace(b'["frame", ', b'["frame", 1').replace(b'["stack", ', b'["stack", 1')
        for line in HEAD[1:]
    ]
    again = [
        line.replace(b", -1, ", b", -1, 1")
        .replace(b", 0, 1]", b", 10, 11]")
        .replace(b", 1, 2]", b", 11, 12]")
        for line in again
    ]
    (stacks,) = read(
        tmp_path, b"".join([*LINES, *again]) + lines([400_000, 12, 0]), f"{NAME[:-6]}-2.jsonl"
    ).stacks
    assert np.array_equal(stacks.parent, STACKS.parent)
    assert stacks.stack.tolist() == [2, 0, 2, 2]
    assert stacks.frames == STACKS.frames


def test_deep_and_many_stacks_are_bounded(tmp_path: Path) -> None:
    deep = [["stack", i, i - 1, 0] for i in range(5000)]
    frames = [["frame", i, "own", "x.py", i, "f"] for i in range(1, 1600)]
    wide = [["stack", 5000 + i, i % 190, 1 + i // 190] for i in range(300_000)]
    began = time.process_time()
    found = read(tmp_path, LINES[0] + LINES[1] + lines(*frames, *deep, *wide, [1, 100, 0], [2, 4999, 0]))
    assert time.process_time() - began < 10
    (stacks,) = found.stacks
    assert len(stacks.parent) == 1 << 18
    assert (stacks.parent < np.arange(len(stacks.parent))).all()
    assert counts(found)["stacks.unknown_stack"] == 1


def test_own_names_are_redacted_and_public_ones_stay(tmp_path: Path) -> None:
    (tmp_path / "gpu.csv").write_text(
        "timestamp, index, utilization.gpu [%]\n"
        + "".join(f"2023/11/14 22:14:{i:02}.000, 0, {i} %\n" for i in range(60))
    )
    frames = [
        *("acme.py:41 Secret.load", "library:PIL/Image.py:3300 open", "library:secretlib/x.py:1 hidden"),
        *("python:threading.py:300 Condition.wait", "python:<frozen importlib._bootstrap>:3 _load"),
    ]
    folder = tmp_path / "framework/pythonstacks/0-secretnode"
    folder.mkdir(parents=True)
    stacks = make_stacks([(1, [one]) for one in (*frames, *FORKED)], rank="0", node="secretnode")
    (folder / "9.jsonl").write_bytes(as_file(stacks))
    reading = read_directory(tmp_path, Options())
    assert not any(b"secret" in msgspec.json.encode(one.facts).lower() for one in reading.job.kept)
    (folder.parent / "0-node").mkdir()
    (folder.parent / "0-node/9.jsonl").write_bytes(as_file(stacks))
    reading = read_directory(tmp_path, Options())
    changed, _, _ = redacted(reading, reading.quality, load())
    (one,) = changed.job.stacks
    files = [(frame.file, frame.function) for frame in one.frames]
    assert files[:5] == [
        ("file-1.py", "function-1"),
        ("PIL/Image.py", "open"),
        ("file-2.py", "function-2"),
        ("threading.py", "Condition.wait"),
        ("<frozen importlib._bootstrap>", "_load"),
    ]
    assert ("multiprocessing/process.py", "BaseProcess._bootstrap") in files
    assert one.node == "node-1"
