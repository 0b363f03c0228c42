"""What the recorder could not write is the first thing that a report says, before what follows from it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobrecord.files import Row, SampleFiles
from tests.record.recordings import PYTHON, facts, record
from tests.record.reports import report

pytest.importorskip("nbconvert", reason="the report's dependencies are not installed")

START_S = 1_700_000_040
KEYS = ("disjoint-times", "not-measured")
TRAIN = """
import sys, time, jobrecord
jobrecord.start()
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    with jobrecord.phase("Forward"):
        time.sleep(0.02)
    jobrecord.step()
"""


def made(
    out: Path, *, sampled_s: tuple[int, int], steps_s: tuple[int, int], step_s: float = 0.9, **dropped: Any
) -> None:
    """A recording whose samples and steps cover these seconds of the job; times of `dropped` are seconds of it, too."""
    files = SampleFiles(out, "n", 1 << 30)
    for second in range(*sampled_s):
        values = [Row("gpu", f"gpu{n}", "GPUUtilization", 60 + (7 * second + n) % 40) for n in range(2)]
        values += [Row("cpu", f"cpu{n}", "CPUUtilization", (5 * second + n) % 30) for n in range(3)]
        files.write(START_S + second, values)
    files.close()
    rows: list[dict[str, Any]] = [
        {
            "name": "process_name",
            "ph": "M",
            "pid": 0,
            "args": {"start_time_since_epoch_in_micros": START_S * 10**6},
        },
        {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "Step:ModeKeys.TRAIN"}},
    ]
    at_s, number = float(steps_s[0]), 0
    while at_s < steps_s[1]:
        step = {
            "name": "Step:ModeKeys.TRAIN",
            "ph": "X",
            "pid": 1,
            "args": {"pid": 1, "step_num": f"{number}"},
        }
        rows.append(step | {"ts": int(at_s * 1e6), "dur": int(step_s * 1e6)})
        at_s, number = at_s + step_s * 1.1, number + 1
    events = (
        out / "framework/pevents/2023111422" / f"{(START_S + steps_s[1]) * 10**6}_0-n_pythontimeline.json"
    )
    events.parent.mkdir(parents=True)
    events.write_text(json.dumps(rows))
    for name in ("since_us", "until_us"):
        if name in dropped:
            dropped[name] = (START_S + dropped[name]) * 10**6
    known = {"schema": 1, "recorder": "jobrecord 0.1.0", "node": "n", "interval_ms": 1000, "ended_by": "exit"}
    known |= {"started_us": START_S * 10**6, "ended_us": (START_S + steps_s[1]) * 10**6, "dropped": dropped}
    (out / "jobrecord").mkdir()
    (out / "jobrecord/n.json").write_text(json.dumps(known))


def judged(out: Path) -> tuple[list[dict[str, Any]], str]:
    """The findings, and the first line of the verdict."""
    found = report(out, "json,md")
    lines = (out.with_name("report") / "summary.md").read_text().replace("\\", "").split("\n")
    return found["verdict"]["findings"], lines[2]


@pytest.mark.parametrize(
    ("samples", "reason", "sampled_s", "advice"),
    [
        (383, "No space left on device", 70, "Free space"),
        (5_210, "--max-bytes 40000 reached", 95, "Raise `--max-bytes`"),
        (1_001, "Permission denied", 41, "Record into a folder"),
    ],
)
def test_lost_samples_come_before_what_follows_from_them(
    samples: int, reason: str, sampled_s: int, advice: str, tmp_path: Path
) -> None:
    out = tmp_path / "job"
    lost: dict[str, Any] = {"samples": samples, "reason": reason, "since_us": sampled_s, "until_us": 400}
    made(out, sampled_s=(0, sampled_s), steps_s=(120, 400), **lost)

    (first, *others), line = judged(out)

    title = f"{samples:,} of {samples + 5 * sampled_s:,}\u00a0samples were lost: {reason}"
    assert (first["key"], first["title"]) == ("lost-samples", title)
    assert first["severity"] in {"critical", "warning"}
    assert first["advice"][0].startswith(advice)
    assert not {one["key"] for one in others} & {*KEYS}
    assert line.startswith(f"**{title}. ")


def test_a_pause_with_lost_samples_is_told_once(tmp_path: Path) -> None:
    out = tmp_path / "job"
    made(
        out,
        sampled_s=(0, 130),
        steps_s=(0, 400),
        samples=1350,
        reason="Disk quota exceeded",
        since_us=130,
        until_us=400,
    )

    (first, *others), _ = judged(out)

    assert first["key"] == "lost-samples"
    assert not {one["key"] for one in others} & {*KEYS}


def test_a_few_lost_samples_are_no_reason_to_doubt_the_rest(tmp_path: Path) -> None:
    out = tmp_path / "job"
    made(
        out,
        sampled_s=(0, 400),
        steps_s=(0, 400),
        samples=7,
        reason="Input/output error",
        since_us=30,
        until_us=31,
    )

    found, line = judged(out)

    (lost,) = (one for one in found if one["key"] == "lost-samples")
    assert (lost["severity"], lost["title"]) == (
        "info",
        "7 of 2,007\u00a0samples were lost: Input/output error",
    )
    assert "lost:" not in line


def test_times_that_do_not_overlap_for_another_reason_are_still_told(tmp_path: Path) -> None:
    out = tmp_path / "job"
    made(
        out,
        sampled_s=(0, 100),
        steps_s=(4000, 4400),
        samples=90,
        reason="No space left on device",
        since_us=5000,
        until_us=5100,
    )

    found, _ = judged(out)

    assert "disjoint-times" in {one["key"] for one in found}


def test_lost_events_are_told_but_say_nothing_against_the_samples(tmp_path: Path) -> None:
    out = tmp_path / "job"
    lost: dict[str, Any] = {
        "events": 431,
        "reason": "No space left on device",
        "since_us": 101,
        "until_us": 300,
    }
    made(out, sampled_s=(0, 300), steps_s=(0, 100), **lost)

    found, line = judged(out)

    (one,) = (one for one in found if one["key"] == "lost-samples")
    assert (one["severity"], one["title"]) == (
        "warning",
        "431 of 533\u00a0events were lost: No space left on device",
    )
    assert line.startswith("**431") == (found[0] is one)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for a few seconds of samples."""
    (disk := tmp_path / "disk").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if (
        not hasattr(os, "geteuid")
        or os.geteuid()
        or subprocess.run(mount, capture_output=True, check=False).returncode
    ):
        pytest.skip("only root can make a small disk")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_real_recording_on_a_full_disk(small_disk: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)

    done = record(small_disk / "job", "--interval", "100ms", command=[PYTHON, "train.py", "6"], cwd=tmp_path)
    copied = subprocess.run(["cp", "-r", small_disk / "job", tmp_path / "job"], check=True)

    assert (done.returncode, copied.returncode) == (0, 0), done.stderr
    (first, *others), line = judged(tmp_path / "job")
    assert first["key"] == "lost-samples"
    assert first["title"].endswith(" lost: No space left on device")
    assert f"{facts(tmp_path / 'job')['dropped']['samples']:,} of " in first["title"]
    assert line.startswith(f"**{first['title']}. ")
    assert not {one["key"] for one in others} & {*KEYS}


def test_a_real_recording_with_max_bytes(tmp_path: Path) -> None:
    out = tmp_path / "job"
    (tmp_path / "train.py").write_text(TRAIN)

    record(out, "--interval", "100ms", "--max-bytes", "8KB", command=[PYTHON, "train.py", "5"])

    (first, *_), line = judged(out)
    assert first["key"] == "lost-samples"
    assert first["title"].endswith(" lost: --max-bytes 8000 reached")
    assert line.startswith(f"**{first['title']}. ")
