"""What the hooks write, in the report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nbconvert", reason="the report's dependencies are not installed")

TRAIN = """
import sys, time, jobrecord
from tests.record.hooks.fake_torch import Loader

jobrecord.start()
loader = Loader(200, lambda batch: time.sleep(0.03))
for epoch in range(2):
    for _ in jobrecord.data(loader):
        time.sleep(0.005)
        jobrecord.batch(samples=8)
        jobrecord.step()
    with jobrecord.eval():
        for _ in jobrecord.data(Loader(5)):
            time.sleep(0.005)
    with jobrecord.phase("Checkpoint </script>"):
        time.sleep(0.05)
    if "kill" in sys.argv and epoch:
        import os; os.kill(os.getpid(), 9)
"""


def recorded(folder: Path, *arguments: str) -> dict[str, Any]:
    """The report of a job that runs for 15 s."""
    (folder / "train.py").write_text(TRAIN)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "RANK": "0"}
    for name in ("RUN", "DIR", "NODE"):
        environment.pop(f"JOBRECORD_{name}", None)
    environment |= {"JOBRECORD_DIR": str(folder / "job"), "JOBRECORD_GPUS": "none"}
    subprocess.run(
        [sys.executable, folder / "train.py", *arguments], env=environment, check=False, timeout=60
    )
    # The sampler ends by itself where the training was killed.
    time.sleep(2 if arguments else 0)
    command: list[str | Path] = [
        sys.executable,
        "-c",
        "from jobreport.cli import main; main()",
        "--job-dir",
        folder / "job",
        "--out",
        folder / "report",
    ]
    subprocess.run([*command, "--strict", "--formats", "json,md"], env=environment, check=True, timeout=60)
    report: dict[str, Any] = json.loads((folder / "report" / "report.json").read_text())
    return report


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [(), ("kill",)], ids=["to its end", "killed"])
def test_report_reads_steps_and_data_loading(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    report = recorded(tmp_path, *arguments)

    traces = next(one for one in report["quality"]["sources"] if one["source"] == "traces")
    expected = [] if not arguments else ["traces.growing"]
    assert [remark["code"] for remark in traces["remarks"]] == expected
    trained, evaluated = (
        next(row["steps"] for row in report["steps"]["rows"] if row["mode"] == mode)
        for mode in ("TRAIN", "EVAL")
    )
    # The last second of a killed process is lost.
    assert trained == 400 if not arguments else trained > 370
    assert evaluated == 10 if not arguments else evaluated >= 5
    (loader,) = {(one["iterator"], one["num_workers"]) for one in report["data_loading"]["setups"]}
    assert loader == ("_SingleProcessDataLoaderIter", 0)
    dataloader = next(rule for rule in report["rules"] if rule["name"] == "Dataloader")
    assert dataloader["status"] in {"triggered", "passed"}
