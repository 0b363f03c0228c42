"""Recordings of trainings, with times that do not depend on the machine."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import jobrecord
from generator.learning.scenarios import SCENARIOS
from generator.learning.training import train

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from generator.learning.scenarios import Scenario

#: 2025-03-09 10:00:00 UTC; what a step takes, and a record.
_START_US, _STEP_US, _COST_US = 1_741_514_400_000_000, 250_000, 500
#: What comes first in a file, and last.
_ORDER = {"head": 0, "names": 1, "end": 3}


class _Recorder:
    """``jobrecord``, started anew where the job is resumed."""

    log = staticmethod(jobrecord.log)
    eval = staticmethod(jobrecord.eval)
    classes = staticmethod(jobrecord.classes)

    def learn(self, model: Any, optimizer: Any, *, step: int, **options: Any) -> None:
        jobrecord.stop()
        jobrecord.start()
        if step:
            jobrecord.resume(step)
        jobrecord.learn(model, optimizer, **options)


def record(scenario: Scenario, seed: int, job_dir: Path, **options: Any) -> None:
    """Train a scenario and write what ``jobrecord`` recorded into a folder, compressed."""
    with TemporaryDirectory() as folder:
        known = {"JOBRECORD_DIR": f"{folder}/job", "JOBRECORD_NODE": "node-1", "JOBRECORD_RUN": "learning"}
        # As under record-job: the machine is not sampled.
        with patch.dict(os.environ, known):
            if scenario.task == "trees":
                from generator.learning.boosting import boost  # noqa: PLC0415 - needs XGBoost

                boost(scenario, seed)
            else:
                train(scenario, seed, _Recorder(), **options)
            jobrecord.stop()
        for path in sorted(Path(folder).rglob("training-*.jsonl")):
            into = job_dir / "jobrecord" / f"{path.name}.gz"
            into.parent.mkdir(parents=True, exist_ok=True)
            data = "".join(_still(path.read_text("utf-8").splitlines())).encode()
            into.write_bytes(gzip.compress(data, mtime=0))


def record_all(folder: Path) -> None:
    """Record each scenario with its first seed into a folder of its name, in brief."""
    for name, scenario in SCENARIOS.items():
        shutil.rmtree(folder / name / "jobrecord", ignore_errors=True)
        record(scenario, scenario.seeds[0], folder / name, every=15, histograms=False)
        size = sum(path.stat().st_size for path in (folder / name).rglob("*.gz"))
        print(f"{folder / name}: {size:,} bytes")


def _still(lines: Sequence[str]) -> Iterator[str]:
    """Lines with the same times, process, and order wherever they were recorded: a thread writes some of them."""
    known = [json.loads(text) for text in lines]
    first = min(line["step"] for line in known if "step" in line)
    known.sort(key=lambda line: (_ORDER.get(line["kind"], 2), line.get("step", 0), line["kind"]))
    for line in known:
        time_us = _START_US + _STEP_US * line.get("step", first)
        fixed = {"time_us": time_us, "cost_us": _COST_US, "pid": 1 + first}
        line |= {name: value for name, value in fixed.items() if name in line}
        yield json.dumps(line, separators=(",", ":")) + "\n"
