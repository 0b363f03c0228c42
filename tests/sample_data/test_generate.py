"""The sample jobs are what the generator writes today, and behave as their README says."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import generate
import numpy as np
import pytest
from generator.scenarios import SCENARIOS

# The generator is seldom changed, and the golden reports are made of what it wrote.
pytestmark = pytest.mark.slow

SAMPLE_DATA = Path(__file__).resolve().parents[2] / "sample_data"
KEYS = {"Type", "Name", "Dimension", "Value", "NodeId", "Timestamp"}
PERCENTAGES = {"cpu", "gpu", "memory"}
WINDOW = 500
PATIENCE = 1000
#: The committed jobs with samples; the others are logs.
SAMPLED = [name for name in generate.SAMPLES if (SAMPLE_DATA / name / "system").is_dir()]


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


@dataclass
class ReadJob:
    """A job read with the json module, line by line."""

    #: (minute of the file, row), in the order of files and lines.
    rows: list[tuple[int, dict[str, Any]]]

    def series(self, dimension: str) -> dict[str, list[tuple[float, float]]]:
        found: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for _, row in self.rows:
            if row["Dimension"] == dimension:
                found[row["Name"]].append((row["Timestamp"], row["Value"]))
        return dict(found)


def read(job_dir: Path) -> ReadJob:
    rows: list[tuple[int, dict[str, Any]]] = []
    for name, text in content_of(job_dir / "system" / "incremental").items():
        minute = int(Path(name).name.split(".")[0])
        rows.extend((minute, json.loads(line)) for line in text.decode("ascii").splitlines())
    return ReadJob(rows)


@pytest.fixture(scope="module")
def committed() -> dict[str, ReadJob]:
    return {name: read(SAMPLE_DATA / name) for name in SAMPLED}


# --- Reproducible ----------------------------------------------------------------------------------


def test_same_options_give_same_bytes_whatever_the_hash_seed(tmp_path: Path) -> None:
    for name, hash_seed in (("a", "0"), ("b", "4711")):
        command = [
            sys.executable,
            str(SAMPLE_DATA / "generate.py"),
            "--scenario=horovod",
            "--duration=100",
            "--nodes=2",
            "--gzip",
        ]
        environment = {
            **os.environ,
            "PYTHONHASHSEED": hash_seed,
            "TZ": "Asia/Tokyo" if name == "b" else "UTC",
        }
        subprocess.run(
            [*command, "--out", name], check=True, cwd=tmp_path, env=environment, capture_output=True
        )

    first, second = bytes_of(tmp_path / "a"), bytes_of(tmp_path / "b")

    assert sum("system/" in name for name in first) > 4
    assert sum("pythontimeline" in name for name in first) == 8
    assert sum("horovod_timeline" in name for name in first) == 1
    assert first == second


def test_another_seed_gives_other_values_in_the_same_files(tmp_path: Path) -> None:
    first = content_of(make(tmp_path / "a", "--duration", "70", "--seed", "1"))
    second = content_of(make(tmp_path / "b", "--duration", "70", "--seed", "2"))

    assert first.keys() == second.keys()
    assert all(first[name] != second[name] for name in first if name.endswith(".json"))


def test_a_minute_is_the_same_in_a_longer_job(tmp_path: Path) -> None:
    short = content_of(make(tmp_path / "a", "--duration", "4m", "--nodes", "2", "--no-steps"))
    long = content_of(make(tmp_path / "b", "--duration", "10m", "--nodes", "3", "--no-steps"))

    # The last minutes hold the end of the job, which does depend on its length.
    settled = [name for name in sorted(short) if name.endswith(".json")][:-4]

    assert len(settled) >= 6
    assert [name for name in settled if short[name] != long[name]] == []


def test_compressed_files_hold_the_same_lines_and_no_time_or_name(tmp_path: Path) -> None:
    plain = content_of(make(tmp_path / "a", "--duration", "70"))
    packed = make(tmp_path / "b", "--duration", "70", "--gzip")

    assert {name.removesuffix(".gz"): text for name, text in content_of(packed).items()} == plain
    for path in packed.rglob("*.gz"):
        header = path.read_bytes()[:8]
        assert header == b"\x1f\x8b\x08\x00\x00\x00\x00\x00"


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


def test_committed_samples_stay_small() -> None:
    size = sum(path.stat().st_size for name in generate.SAMPLES for path in (SAMPLE_DATA / name).rglob("*.*"))

    assert 500_000 < size < 6_000_000


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


@pytest.mark.parametrize("name", SAMPLED)
def test_every_line_has_the_six_keys_in_the_order_and_style_of_real_files(name: str) -> None:
    for path, text in content_of(SAMPLE_DATA / name / "system" / "incremental").items():
        assert text.endswith(b"}\n"), path
        for line in text.decode("ascii").splitlines():
            row = json.loads(line)
            assert set(row) == KEYS
            style = (
                f'{{"Type":"{row["Type"]}","Name":"{row["Name"]}","Dimension":"{row["Dimension"]}",'
                f'"Value":{row["Value"]:.2f},"NodeId":"algo-1","Timestamp":{row["Timestamp"]:.6f}}}'
            )
            assert line == style


@pytest.mark.parametrize("name", SAMPLED)
def test_files_are_named_by_hour_and_minute_and_the_end_is_marked(name: str) -> None:
    system = SAMPLE_DATA / name / "system"

    assert (system / "training_job_end.ts").read_bytes() == b""
    for path in (system / "incremental").rglob("*.json.gz"):
        minute = int(path.name.removesuffix(".algo-1.json.gz"))
        hour = np.datetime64(minute, "s").astype("datetime64[h]")
        assert minute % 60 == 0
        assert path.parent.name == str(hour).replace("-", "").replace("T", "")


def test_samples_lie_in_the_file_of_their_minute(committed: dict[str, ReadJob]) -> None:
    for name, job in committed.items():
        assert all(minute <= row["Timestamp"] < minute + 60 for minute, row in job.rows), name


@pytest.mark.parametrize("start", ["2025-06-01T10:59:59.994Z", "2025-06-01T11:00:00Z"])
@pytest.mark.parametrize("interval", [100, 1000, 60000])
def test_samples_at_the_edge_of_a_minute_are_neither_lost_nor_misplaced(
    tmp_path: Path, start: str, interval: int
) -> None:
    options = ("--start", start, "--interval", str(interval), "--cores", "2", "--gpus", "1", "--nodes", "3")

    job = read(make(tmp_path / "job", *options, "--duration", "2m"))

    counts: dict[tuple[str, str, str, str], int] = defaultdict(int)
    for minute, row in job.rows:
        counts[row["NodeId"], row["Type"], row["Name"], row["Dimension"]] += 1
        assert minute <= row["Timestamp"] < minute + 60
    ticks = 120_000 // interval
    assert len(counts) == 3 * 14
    for (_, kind, _, _), count in counts.items():
        # Rates have no value at the first tick.
        assert count == (ticks if kind in {"gpu", "memory"} else ticks - 1)


def test_percentages_stay_in_range_and_rates_are_not_negative(committed: dict[str, ReadJob]) -> None:
    for name, job in committed.items():
        for _, row in job.rows:
            limit = 100.0 if row["Type"] in PERCENTAGES else 1e11
            assert 0.0 <= row["Value"] <= limit, (name, row)


def test_waiting_for_io_is_part_of_the_time_a_core_is_not_idle(committed: dict[str, ReadJob]) -> None:
    for job in committed.values():
        busy, wait = job.series("CPUUtilization"), job.series("I/OWaitPercentage")
        for core, samples in wait.items():
            assert all(w <= b for (_, w), (_, b) in zip(samples, busy[core], strict=True))


def test_families_share_a_timestamp_and_lie_less_than_20_ms_apart(committed: dict[str, ReadJob]) -> None:
    for name, job in committed.items():
        ticks: dict[int, dict[str, set[float]]] = defaultdict(lambda: defaultdict(set))
        first = min(row["Timestamp"] for _, row in job.rows)
        for _, row in job.rows:
            ticks[round((row["Timestamp"] - first) / 0.5)][row["Type"]].add(row["Timestamp"])

        for families in ticks.values():
            assert all(len(stamps) == 1 for stamps in families.values())
            stamps = [stamp for one in families.values() for stamp in one]
            assert max(stamps) - min(stamps) < 0.02
        assert any(len({s for one in tick.values() for s in one}) >= 4 for tick in ticks.values()), name


def test_every_sensor_of_the_catalog_is_there(committed: dict[str, ReadJob]) -> None:
    shape = {
        "healthy-8gpu": (8, 32),
        "fluctuating-1gpu": (1, 8),
        "cpu-bottleneck-2gpu": (2, 8),
        "cpu-only": (0, 16),
    }
    assert list(shape) == list(committed) == SAMPLED
    for name, (gpus, cores) in shape.items():
        expected = {
            *(("gpu", f"gpu{k}", d) for k in range(gpus) for d in ("GPUUtilization", "GPUMemoryUtilization")),
            *(("cpu", f"cpu{k}", d) for k in range(cores) for d in ("CPUUtilization", "I/OWaitPercentage")),
            ("memory", "MemoryUsedPercent", ""),
            ("i/o", "IOPS", ""),
            ("i/o", "ReadThroughputInBytesPerSecond", ""),
            ("i/o", "WriteThroughputInBytesPerSecond", ""),
            *(
                ("network", f"{way}BytesPerSecond", owner)
                for way in ("Receive", "Transmit")
                for owner in ("Algorithm", "Platform")
            ),
        }
        seen = {(row["Type"], row["Name"], row["Dimension"]) for _, row in committed[name].rows}
        assert seen == expected


def test_samples_start_between_full_minutes(committed: dict[str, ReadJob]) -> None:
    for job in committed.values():
        minute, row = job.rows[0]
        assert 5.0 < row["Timestamp"] - minute < 55.0


# --- What the rules will see -----------------------------------------------------------------------


def quantile(values: list[float], share: float) -> float:
    """Interpolate between order statistics."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def scan_ends(samples: list[tuple[float, float]]) -> list[int]:
    """Return how many samples each scan with enough patience has seen, minute by minute."""
    first_minute = samples[0][0] // 60 * 60
    scans = int((samples[-1][0] - first_minute) // 60) + 1
    counts = [sum(stamp < first_minute + 60 * (k + 1) for stamp, _ in samples) for k in range(scans)]
    return [count for count in counts if count > PATIENCE]


def low_gpu_kind(window: list[float]) -> str:
    p95, p5 = quantile(window, 0.95), quantile(window, 0.05)
    if p95 < 70.0:
        return "low"
    return "fluctuating" if p5 < 10.0 else "fine"


def batch_size_triggers(job: ReadJob, gpu: str) -> int:
    cores = list(job.series("CPUUtilization").values())
    cpu = [(tick[0][0], sum(value for _, value in tick) / len(tick)) for tick in zip(*cores, strict=True)]
    memory = [value for _, value in job.series("GPUMemoryUtilization")[gpu]]
    samples = job.series("GPUUtilization")[gpu]
    used = [value for _, value in samples]
    # The first tick has no CPU sample, so both series end at the same time, one apart in length.
    return sum(
        quantile([value for _, value in cpu][end - 1 - WINDOW : end - 1], 0.95) < 70.0
        and quantile(used[end - WINDOW : end], 0.95) < 70.0
        and quantile(memory[end - WINDOW : end], 0.95) < 70.0
        for end in scan_ends(samples)
    )


def test_the_trigger_conditions_are_told_apart() -> None:
    assert low_gpu_kind([69.0] * 500) == "low"
    assert low_gpu_kind([90.0] * 474 + [0.0] * 26) == "fluctuating"
    assert low_gpu_kind([90.0] * 480 + [0.0] * 20) == "fine"


def test_healthy_job_triggers_neither_low_gpu_utilization_nor_batch_size(
    committed: dict[str, ReadJob],
) -> None:
    job = committed["healthy-8gpu"]
    series = job.series("GPUUtilization")

    assert len(series) == 8
    for gpu, samples in series.items():
        values = [value for _, value in samples]
        # Stricter than the scans: any window that patience allows, not only those at a full minute.
        ends = range(PATIENCE + 1, len(values) + 1)
        windows = np.lib.stride_tricks.sliding_window_view(np.array(values), WINDOW)
        p95 = np.quantile(windows, 0.95, axis=1)[[end - WINDOW for end in ends]]
        p5 = np.quantile(windows, 0.05, axis=1)[[end - WINDOW for end in ends]]
        assert p95.min() > 80.0
        assert p5.min() > 80.0
        kinds = {low_gpu_kind(values[end - WINDOW : end]) for end in scan_ends(samples)}
        assert kinds == {"fine"}
        assert batch_size_triggers(job, gpu) == 0


def test_healthy_job_has_a_start_dips_and_one_step_of_memory(committed: dict[str, ReadJob]) -> None:
    job = committed["healthy-8gpu"]
    values = [value for _, value in job.series("GPUUtilization")["gpu0"]]
    memory = [value for _, value in job.series("GPUMemoryUtilization")["gpu0"]]

    assert max(values[:150]) == 0.0
    assert 4 <= sum(value < 10.0 for value in values[200:]) <= 20
    assert np.median(values) > 90.0
    assert max(memory[:150]) == 0.0
    assert min(memory[200:]) >= 70.0
    assert max(memory) <= 80.0
    assert len(scan_ends(job.series("GPUUtilization")["gpu0"])) >= 8


def test_fluctuating_job_triggers_both_kinds_and_batch_size(committed: dict[str, ReadJob]) -> None:
    job = committed["fluctuating-1gpu"]
    samples = job.series("GPUUtilization")["gpu0"]
    values = [value for _, value in samples]

    kinds = [low_gpu_kind(values[end - WINDOW : end]) for end in scan_ends(samples)]

    assert kinds.count("low") > kinds.count("fluctuating") >= 2
    assert kinds.count("fine") == 0
    assert batch_size_triggers(job, "gpu0") >= 3


def test_fluctuating_job_has_one_pause_of_three_minutes(committed: dict[str, ReadJob]) -> None:
    stamps = [stamp for stamp, _ in committed["fluctuating-1gpu"].series("")["MemoryUsedPercent"]]

    distances = np.diff(stamps)

    pauses = np.flatnonzero(distances > 1.0)
    assert len(pauses) == 1
    assert 175.0 < distances[pauses[0]] < 190.0
    assert 0.3 < pauses[0] / len(stamps) < 0.7


def test_cpu_job_has_busy_cores_and_no_gpu(committed: dict[str, ReadJob]) -> None:
    job = committed["cpu-only"]
    cores = job.series("CPUUtilization")
    wait = job.series("I/OWaitPercentage")

    assert "gpu" not in {row["Type"] for _, row in job.rows}
    for core, samples in cores.items():
        training = [value for _, value in samples[200:-30]]
        assert 60.0 < quantile(training, 0.1) < quantile(training, 0.9) < 85.0
        assert 1.0 < np.mean([value for _, value in wait[core][200:-30]]) < 10.0


# --- Command line ----------------------------------------------------------------------------------


def test_a_folder_with_a_job_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(tmp_path / "job", "--duration", "10")
    before = bytes_of(tmp_path / "job")

    status = generate.main(["--out", str(tmp_path / "job"), "--duration", "10", "--seed", "5"])

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


def test_without_steps_the_samples_are_the_same(tmp_path: Path) -> None:
    traced = content_of(make(tmp_path / "a", "--duration", "100"))
    plain = content_of(make(tmp_path / "b", "--duration", "100", "--no-steps"))

    assert any("pevents" in name for name in traced)
    assert plain == {name: text for name, text in traced.items() if name.startswith("system/")}


def test_help_explains_each_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        generate.main(["--help"])

    text = capsys.readouterr().out
    assert all(name in text and scenario.summary in text for name, scenario in SCENARIOS.items())


@pytest.mark.parametrize(
    ("text", "microseconds"), [("90", 90e6), ("1.5s", 1.5e6), ("30m", 1800e6), ("12h", 43200e6)]
)
def test_durations_are_read_in_seconds_minutes_and_hours(text: str, microseconds: float) -> None:
    assert generate.duration_us(text) == microseconds


def test_a_start_without_a_zone_is_utc() -> None:
    assert generate.start_us("2025-03-04T09:21:17.5") == generate.start_us("2025-03-04T10:21:17.500+01:00")
