"""What is written to cost much costs about as much as an honest log."""

import time
from pathlib import Path

import pytest

from fuzz.small_logs import log
from jobreport.readers.registry import read_job


def _cpu_s(tmp_path: Path, shape: str) -> float:
    (tmp_path / "gpu.csv").write_text(log(shape, 1_000_000))
    begin = time.process_time()
    read_job(tmp_path)
    return time.process_time() - begin


@pytest.mark.parametrize("shape", ["varied headers", "many names", "many UUIDs"])
def test_variety_costs_little(tmp_path: Path, shape: str) -> None:
    honest_s = _cpu_s(tmp_path, "honest")

    # That each of them was looked at made it 17 to 50 times as much; the rest is for a busy machine.
    assert _cpu_s(tmp_path, shape) < 8 * honest_s
