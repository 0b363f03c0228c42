"""The sample jobs read by pandas, line by line and without our code, and by ours: equal figures."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pandas as pd
import pytest

from jobreport.readers import read_job
from jobrules.job import Metric
from tests.paths import SAMPLES

NAMES = {
    Metric.GPU_USE: ("gpu", "GPUUtilization"),
    Metric.GPU_MEMORY: ("gpu", "GPUMemoryUtilization"),
    Metric.CPU_USE: ("cpu", "CPUUtilization"),
    Metric.IO_WAIT: ("cpu", "I/OWaitPercentage"),
}


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name)
def test_counts_times_and_means_are_those_that_pandas_finds(sample: Path) -> None:
    lines = [
        line for path in sample.rglob("system/**/*.json.gz") for line in gzip.decompress(path.read_bytes()).splitlines()
    ]
    frame = pd.DataFrame(map(json.loads, lines))

    job, quality = read_job(sample)

    (rows,) = (source.rows for source in quality.sources if source.source == "system samples")
    assert rows == len(frame)
    steps = steps_in(sample)
    assert len(job.steps) == len(steps)
    assert (job.steps.span_us or (None, None)) == (steps.start.min(), steps.end.max()) if len(steps) else True
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
