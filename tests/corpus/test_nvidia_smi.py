"""Real nvidia-smi logs: rows, GPUs, times and means are those that pandas finds without our reader."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from jobreport.readers.registry import read_job
from jobrules.model import Metric
from tests.paths import CORPUS, needs_corpus

pytestmark = needs_corpus

FOLDER = CORPUS / "nvidia-smi"
#: What the columns of these files hold, and what makes a number of it one of ours.
METRICS = {
    "utilization_gpu_percent": (Metric.GPU_UTILIZATION, 1.0),
    "gpu_util_pct": (Metric.GPU_UTILIZATION, 1.0),
    "gpu_utilization": (Metric.GPU_UTILIZATION, 1.0),
    "power_W": (Metric.GPU_POWER, 1.0),
    "power_w": (Metric.GPU_POWER, 1.0),
    "temperature_C": (Metric.GPU_TEMPERATURE, 1.0),
    "temp_c": (Metric.GPU_TEMPERATURE, 1.0),
    "mem_used_mb": (Metric.GPU_MEMORY_USED, float(1 << 20)),
    "memory_used": (Metric.GPU_MEMORY_USED, float(1 << 20)),
    "mem_total_mb": (Metric.GPU_MEMORY_TOTAL, float(1 << 20)),
    "memory_total": (Metric.GPU_MEMORY_TOTAL, float(1 << 20)),
}
NAMES = ("8gpu-0720309.csv", "8gpu-c35da19.csv", "excerpt-a.csv", "excerpt-b.csv")


def frame_of(path: Path) -> pd.DataFrame:
    """A file with its times as microseconds, and a number for every GPU."""
    frame = pd.read_csv(path, skipinitialspace=True)
    times = frame.iloc[:, 0]
    if times.name == "timestamp" and not pd.api.types.is_numeric_dtype(times):
        since = pd.to_datetime(times, utc=True) - pd.Timestamp(0, tz="UTC")
        frame["us"] = since // pd.Timedelta(microseconds=1)
    else:
        frame["us"] = (times * 1e6).round().astype("int64")
    frame["gpu"] = frame.get("gpu_index", 0)
    for name in METRICS.keys() & set(frame):
        # A line break and a stray digit follow the power in one of them.
        first = frame[name].astype(str).str.split("\n").str[0]
        frame[name] = pd.to_numeric(first)
    return frame


def test_these_are_all_files_of_the_folder() -> None:
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_rows_gpus_times_and_means_are_those_that_pandas_finds(name: str, tmp_path: Path) -> None:
    shutil.copy(FOLDER / name, tmp_path)
    frame = frame_of(FOLDER / name)

    job, quality = read_job(tmp_path, strict=True)

    (found,) = quality.sources
    assert found.rows == len(frame)
    # A cell of excerpt-a is in quotes with a line break: what stands behind the break is a line of its own, and no row.
    expected = [("nvidia_smi.other_fields", 10)] if name == "excerpt-a.csv" else []
    assert [(r.code, r.count) for r in found.remarks if r.action in ("skipped", "dropped")] == expected
    assert job.nodes == ("node",)
    assert job.samples_us == (frame.us.min(), frame.us.max())
    gpus = sorted(frame.gpu.unique())
    columns = {METRICS[column][0]: column for column in frame if column in METRICS}
    assert {panel.metric for panel in job.panels} == set(columns)
    for panel in job.panels:
        column = columns[panel.metric]
        assert panel.devices == tuple(f"gpu{gpu}" for gpu in gpus)
        for place, gpu in enumerate(gpus):
            mine = frame[frame.gpu == gpu].sort_values("us")
            values = mine[column].to_numpy(float) * METRICS[column][1]
            assert np.array_equal(panel.series(place)[0], mine.us)
            assert np.array_equal(panel.series(place)[1], values)
            assert panel.series(place)[1].mean() == pytest.approx(values.mean())


def test_a_log_and_the_same_log_at_a_later_moment_are_one(tmp_path: Path) -> None:
    for name in NAMES[:2]:
        shutil.copy(FOLDER / name, tmp_path)
    early, late = (frame_of(FOLDER / name) for name in NAMES[:2])
    both = pd.concat([early, late]).drop_duplicates(["us", "gpu"])

    job, quality = read_job(tmp_path, strict=True)

    (found,) = quality.sources
    assert len(both) == len(late)
    assert found.rows == len(both)
    assert sum(r.count for r in found.remarks if r.action == "dropped") == len(early)
    assert job.samples_us == (both.us.min(), both.us.max())
    (use,) = job.panels_of(Metric.GPU_UTILIZATION)
    for gpu in range(8):
        expected = both[both.gpu == gpu].utilization_gpu_percent.mean()
        assert use.series(gpu)[1].mean() == pytest.approx(expected)
