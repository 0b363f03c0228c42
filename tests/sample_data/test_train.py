"""The training loop of ``make demo``: its recording shows which rank waits for what."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.record.hooks.written import events_of, trace_files
from tests.record.recordings import PYTHON, record

pytestmark = pytest.mark.slow


def test_one_rank_waits_for_its_data_and_the_other_one_for_that_rank(tmp_path: Path) -> None:
    run = record(tmp_path / "job", command=[PYTHON, str(ROOT / "sample_data" / "train.py")])

    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1].startswith("epoch 8 of 8: accuracy 9")
    spent: dict[str, Counter[str]] = {"0": Counter(), "1": Counter()}
    for file in trace_files(tmp_path / "job"):
        rank = file.name.partition("_")[2].partition("-")[0]
        for event in events_of(file):
            spent[rank][event.lane] += event.end_us - event.start_us
    half = {rank: lanes["Step:ModeKeys.TRAIN"] / 2 for rank, lanes in spent.items()}
    assert spent["0"]["AllReduce"] > half["0"]
    assert spent["1"]["DataLoaderIter"] > half["1"]
