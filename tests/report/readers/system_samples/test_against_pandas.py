"""The sample jobs read by pandas, line by line and without our code, and by ours: equal figures."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from jobreport.readers.registry import read_job
from jobrules.model import Metric
from tests.paths import SYSTEM_SAMPLES

NAMES = {
    Metric.GPU_UTILIZATION: ("gpu", "GPUUtilization"),
    Metric.GPU_MEMORY_ACTIVITY: ("gpu", "GPUMemoryUtilization"),
    Metric.CPU_UTILIZATION: ("cpu", "CPUUtilization"),
    Metric.IO_WAIT: ("cpu", "I/OWaitPercentage"),
}


@pytest.mark.parametrize("sample", SYSTEM_SAMPLES, ids=lambda path: path.name)
def test_counts_times_and_means_are_those_that_pandas_finds(sample: Path) -> None:
    lines = [
        line
        for path in sample.rglob("system/**/*.json.gz")
        for line in gzip.decompress(path.read_bytes()).splitlines()
    ]
    frame = pd.DataFrame(map(json.loads, lines))

    job, quality = read_job(sample)

    (used,) = (source.rows for source in quality.sources if source.source == "system samples")
    assert used == len(frame)
    assert job.samples_us == (round(frame.Timestamp.min() * 1e6), round(frame.Timestamp.max() * 1e6))
    for metric, (kind, dimension) in NAMES.items():
        rows = frame[(frame.Type == kind) & (frame.Dimension == dimension)]
        panels = job.panels_of(metric)
        assert {(p.node, device) for p in panels for device in p.devices} == set(
            rows[["NodeId", "Name"]].itertuples(index=False, name=None)
        )
        for panel in panels:
            for column, device in enumerate(panel.devices):
                values = rows[(rows.NodeId == panel.node) & (rows.Name == device)].Value
                assert len(panel.series(column)[1]) == len(values)
                assert panel.series(column)[1].mean() == pytest.approx(values.mean())
                assert panel.series(column)[1].max() == values.max()


@pytest.mark.parametrize("sample", SYSTEM_SAMPLES, ids=lambda path: path.name)
def test_steps_are_those_that_pandas_finds(sample: Path) -> None:
    rows = []
    for path in sample.rglob("*_pythontimeline.json.gz"):
        base = 0
        for row in json.loads(gzip.decompress(path.read_bytes())):
            args = row.get("args", {})
            base = args.get("start_time_since_epoch_in_micros", base)
            if row["ph"] == "X" and row["name"].startswith("Step:"):
                rows.append(
                    (
                        path.name.split("_")[1],
                        row["name"],
                        int(args["step_num"]),
                        base + row["ts"],
                        row["dur"],
                    )
                )
    frame = pd.DataFrame(rows, columns=["who", "name", "number", "start", "dur"])

    steps = read_job(sample)[0].steps

    assert len(steps) == len(frame)
    if len(frame):
        assert steps.span_us == (frame.start.min(), (frame.start + frame.dur).max())
        assert int((steps.end_us - steps.start_us).sum()) == frame.dur.sum()
        assert set(zip(steps.rank.tolist(), steps.node.tolist(), strict=True)) == {
            tuple(who.split("-", 1)) for who in frame.who
        }
        told = {f"Step:ModeKeys.{phase}" for phase in np.unique(steps.mode)}
        assert told == set(frame.name)
        assert int(steps.number.sum()) == frame.number.sum()
