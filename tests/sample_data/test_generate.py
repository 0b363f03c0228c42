"""The sample jobs are what the generator writes today, and behave as their README says."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
from pathlib import Path

import generate
import pytest
from generator.scenarios import SCENARIOS

# The generator is seldom changed, and the golden reports are made of what it wrote.
pytestmark = pytest.mark.slow

SAMPLE_DATA = Path(__file__).resolve().parents[2] / "sample_data"


def content_of(job_dir: Path) -> dict[str, bytes]:
    """Return what each file holds, unpacked."""
    files = (path for path in sorted(job_dir.rglob("*")) if path.is_file())
    return {
        path.relative_to(job_dir).as_posix(): gzip.decompress(path.read_bytes())
        if path.suffix == ".gz"
        else path.read_bytes()
        for path in files
    }


def bytes_of(job_dir: Path) -> dict[str, bytes]:
    files = (path for path in sorted(job_dir.rglob("*")) if path.is_file())
    return {path.relative_to(job_dir).as_posix(): path.read_bytes() for path in files}


def make(job_dir: Path, *options: str) -> Path:
    assert generate.main(["--out", str(job_dir), *options]) == 0
    return job_dir


# --- Reproducible ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "files"),
    [
        (
            ("--scenario=horovod", "--nodes=2", "--gzip"),
            {"system/": 5, "pythontimeline": 8, "horovod_timeline": 1},
        ),
        (
            ("--scenario=throttled", "--nodes=2", "--form=both", "--dialect=noisy", "--log-ahead=-2.5"),
            {"system/": 5, "nvidia-smi-algo-": 2},
        ),
    ],
)
def test_same_options_give_same_bytes_whatever_the_hash_seed_and_the_zone(
    options: tuple[str, ...], files: dict[str, int], tmp_path: Path
) -> None:
    for name, zone in (("a", {"PYTHONHASHSEED": "0"}), ("b", {"PYTHONHASHSEED": "4711", "TZ": "Asia/Tokyo"})):
        command = [sys.executable, str(SAMPLE_DATA / "generate.py"), "--duration=100", "--out", name]
        subprocess.run(
            [*command, *options], check=True, cwd=tmp_path, env=os.environ | zone, capture_output=True
        )

    first, second = bytes_of(tmp_path / "a"), bytes_of(tmp_path / "b")

    assert {part: sum(part in path for path in first) for part in files} == files
    assert first == second


def test_committed_samples_are_what_the_generator_writes_today(tmp_path: Path) -> None:
    stale = tmp_path / "cpu-only" / "system" / "incremental" / "1999010100" / "915148800.algo-1.json"
    stale.parent.mkdir(parents=True)
    stale.write_text("{}\n")
    (tmp_path / "throttled-4gpu").mkdir()
    (tmp_path / "throttled-4gpu" / "nvidia-smi-gpu0.csv").write_text("timestamp, index\n")

    assert generate.main(["--samples", "--out", str(tmp_path)]) == 0

    for name in generate.SAMPLES:
        today, stored = content_of(tmp_path / name), content_of(SAMPLE_DATA / name)
        assert today.keys() == stored.keys(), name
        changed = [path for path in today if today[path] != stored[path]]
        assert changed == [], f"{name}: run `python sample_data/generate.py --samples` if the change is meant"


# --- Layout and lines ------------------------------------------------------------------------------


def test_readme_states_size_and_lines_of_each_sample() -> None:
    text = (SAMPLE_DATA / "README.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| `([\w-]+)` \| [^|]+ \| [^|]+ \| ([\d.]+) MB \| ([\d,]+) \|$", text, re.MULTILINE)

    assert [name for name, _, _ in table] == list(generate.SAMPLES)
    for name, megabytes, lines in table:
        size = sum(len(content) for content in bytes_of(SAMPLE_DATA / name).values())
        assert f"{size / 1e6:.1f}" == megabytes
        count = sum(content.count(b"\n") for content in content_of(SAMPLE_DATA / name).values())
        assert f"{count:,}" == lines


def test_readme_states_what_each_scenario_triggers() -> None:
    text = (SAMPLE_DATA / "README.md").read_text(encoding="utf-8")

    table = "".join(
        f"| `{name}` | {', '.join(one.triggers) or '–'} | {', '.join(one.also) or '–'} |\n"
        for name, one in SCENARIOS.items()
    )

    assert f"|---|---|---|\n{table}\n" in text


def test_readme_names_the_commands_that_made_the_samples() -> None:
    text = (SAMPLE_DATA / "README.md").read_text(encoding="utf-8")

    for name, options in generate.SAMPLES.items():
        assert f"python sample_data/generate.py {' '.join(options)} --out sample_data/{name}\n" in text
    assert "python sample_data/generate.py --samples\n" in text


# --- Command line ----------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", ["healthy", "throttled"])
def test_a_folder_with_a_job_or_log_is_not_overwritten(
    scenario: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path / "job", "--duration", "10", "--scenario", scenario)
    before = bytes_of(tmp_path / "job")

    status = generate.main(
        ["--out", str(tmp_path / "job"), "--duration=10", "--seed=5", f"--scenario={scenario}"]
    )

    assert status == 1
    assert "exists already" in capsys.readouterr().err
    assert bytes_of(tmp_path / "job") == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "--out DIR"),
        (["--out", "x", "--scenario", "cpu", "--gpus", "2"], "has no GPU"),
        (["--out", "x", "--gpus", "0"], "needs a GPU"),
        (["--out", "x", "--duration", "soon"], "no duration"),
        (["--out", "x", "--duration", "0"], "no duration"),
        (["--out", "x", "--duration", "0.0000001s"], "no duration"),
        (["--out", "x", "--start", "9999-12-31T23:59:00"], "not between 1990 and 2100"),
        (["--out", "x", "--start", "noon"], "no time"),
        (["--out", "x", "--interval", "250"], "invalid choice"),
        (["--out", "x", "--nodes", "0"], "at least 1"),
        (["--out", "x", "--form", "nvidia-smi", "--dialect", "klingon"], "invalid choice"),
        (["--out", "x", "--form", "both", "--log-ahead", "a while"], "no number of seconds"),
        (["--out", "x", "--form", "nvidia-smi", "--log-zone", "Mars/Olympus"], "no time zone"),
        (["--out", "x", "--form", "nvidia-smi", "--scenario", "cpu"], "has no GPU"),
        (["--out", "x", "--dialect", "dmon"], "--form nvidia-smi"),
        (["--samples", "--seed", "3"], "--samples takes no option"),
    ],
)
def test_wrong_options_are_answered_with_a_sentence(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        generate.main(options)

    assert stop.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "microseconds"), [("90", 90e6), ("1.5s", 1.5e6), ("30m", 1800e6), ("12h", 43200e6)]
)
def test_durations_are_read_in_seconds_minutes_and_hours(text: str, microseconds: float) -> None:
    assert generate.duration_us(text) == microseconds


def test_a_start_without_a_zone_is_utc() -> None:
    assert generate.start_us("2025-03-04T09:21:17.5") == generate.start_us("2025-03-04T10:21:17.500+01:00")
