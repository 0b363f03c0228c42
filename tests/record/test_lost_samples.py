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
from jobrules.text import NBSP
from tests.record.recordings import PYTHON, facts, record
from tests.record.reports import report

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
    out: Path,
    *,
    sampled_s: tuple[int, int],
    steps_s: tuple[int, int],
    step_s: float = 0.9,
    gap_s: tuple[int, int] = (0, 0),
    gpus: int = 2,
    **dropped: Any,
) -> None:
    """A recording whose samples and steps, but for a gap, cover these seconds of the job; those of `dropped`, too."""
    files = SampleFiles(out, "n", 1 << 30)
    for second in range(*sampled_s):
        values = [Row("gpu", f"gpu{n}", "GPUUtilization", 60 + (7 * second + n) % 40) for n in range(gpus)]
        values += [Row("cpu", f"cpu{n}", "CPUUtilization", (5 * second + n) % 30) for n in range(3)]
        files.write(START_S + second, values)
    files.close()
    rows: list[dict[str, Any]] = [
        {
            "name": "process_name",
            "ph": "M",
            "pid": 0,
            "args": {"start_time_since_epoch_in_micros": START_S * 10**6, "writer": "jobrecord 0.1.0"},
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
        if not gap_s[0] <= at_s < gap_s[1]:
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
    found = report(out, "md")
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
    assert line.startswith(f"**{title}.".replace(NBSP, " "))


def lost(what: str, many: int, reason: str, since_us: int, until_us: int) -> dict[str, Any]:
    return {what: many, "reason": reason, "since_us": since_us, "until_us": until_us}


FULL, QUOTA, FAULT = "No space left on device", "Disk quota exceeded", "Input/output error"


@pytest.mark.parametrize(
    ("sampled_s", "steps_s", "dropped", "severity", "title", "others"),
    [
        # A pause with lost samples is told once.
        (
            (0, 130),
            (0, 400),
            lost("samples", 1350, QUOTA, 130, 400),
            "first",
            "1,350 of 2,000\u00a0samples",
            set(),
        ),
        # A few are no reason to doubt the rest.
        ((0, 400), (0, 400), lost("samples", 7, FAULT, 30, 31), "info", "7 of 2,007\u00a0samples", set()),
        # Times that do not overlap for another reason are still told.
        (
            (0, 100),
            (4000, 4400),
            lost("samples", 90, FULL, 5000, 5100),
            "",
            "90 of 590\u00a0samples",
            {"disjoint-times"},
        ),
        # Lost events say nothing against the samples.
        ((0, 300), (0, 100), lost("events", 431, FULL, 101, 300), "warning", "431 of 533\u00a0events", set()),
    ],
)
def test_what_was_lost_is_told_once_and_doubted_as_far_as_it_matters(
    sampled_s: tuple[int, int],
    steps_s: tuple[int, int],
    dropped: dict[str, Any],
    severity: str,
    title: str,
    others: set[str],
    tmp_path: Path,
) -> None:
    out = tmp_path / "job"
    made(out, sampled_s=sampled_s, steps_s=steps_s, **dropped)

    found, line = judged(out)

    (own,) = (one for one in found if one["key"] == "lost-samples")
    assert own["title"] == f"{title} were lost: {dropped['reason']}"
    assert {one["key"] for one in found} & {"disjoint-times"} == others
    assert line.startswith(f"**{title}".replace(NBSP, " ")) == (found[0] is own and own["severity"] != "info")
    if severity == "first":
        assert found[0] is own
        assert not {one["key"] for one in found} & {*KEYS}
    elif severity:
        assert own["severity"] == severity


@pytest.mark.parametrize(("events", "others"), [(200, set[str]()), (0, {"between-steps"})])
def test_steps_that_were_lost_are_no_time_without_a_record(
    events: int, others: set[str], tmp_path: Path
) -> None:
    out, reason = tmp_path / "job", FULL if events else None
    lost: dict[str, Any] = {"events": events, "reason": reason, "since_us": 100, "until_us": 300}
    made(out, sampled_s=(0, 400), steps_s=(0, 400), gap_s=(100, 300), gpus=0, **lost)

    found, _ = judged(out)

    assert {one["key"] for one in found} & {"between-steps"} == others
    assert (found[0]["key"] == "lost-samples") == bool(events)


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


@pytest.mark.slow
def test_a_real_recording_on_a_full_disk(small_disk: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)

    done = record(small_disk / "job", "--interval", "100ms", command=[PYTHON, "train.py", "6"], cwd=tmp_path)
    copied = subprocess.run(["cp", "-r", small_disk / "job", tmp_path / "job"], check=True)

    assert (done.returncode, copied.returncode) == (0, 0), done.stderr
    (first, *others), line = judged(tmp_path / "job")
    assert first["key"] == "lost-samples"
    assert first["title"].endswith(" lost: No space left on device")
    assert f"{facts(tmp_path / 'job')['dropped']['samples']:,} of " in first["title"]
    assert line.startswith(f"**{first['title']}.".replace(NBSP, " "))
    assert not {one["key"] for one in others} & {*KEYS}


@pytest.mark.slow
def test_a_real_recording_with_max_bytes(tmp_path: Path) -> None:
    out = tmp_path / "job"
    (tmp_path / "train.py").write_text(TRAIN)

    record(out, "--interval", "100ms", "--max-bytes", "8KB", command=[PYTHON, "train.py", "5"])

    (first, *_), line = judged(out)
    assert first["key"] == "lost-samples"
    assert first["title"].endswith(" lost: --max-bytes 8000 reached")
    assert line.startswith(f"**{first['title']}.".replace(NBSP, " "))
