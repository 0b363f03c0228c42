"""Logs without a header line next to the script that wrote them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobreport.errors import NothingReadableError
from jobreport.options import Options
from jobreport.readers.registry import read_directory, read_job
from jobrules.model import Metric

NAMES = "timestamp,index,utilization.gpu,memory.used,memory.total,pstate"
COMMAND = f"nvidia-smi --query-gpu={NAMES} --format=csv,noheader,nounits -l 1 > gpu.csv &\n"
LOG = "".join(
    f"2025/02/03 11:58:{i:02}.433, {gpu}, {i + 10 * gpu}, {1000 + i}, 12288, P0\n"
    for i in range(40)
    for gpu in (0, 1)
)


def job_of(folder: Path, log: str = LOG, **scripts: str) -> Path:
    (folder / "gpu.csv").write_text(log)
    for name, text in scripts.items():
        (folder / name.replace("_", ".")).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("name", "script"),
    [
        ("train_sh", COMMAND),
        ("train_sbatch", f"#!/bin/bash\n{COMMAND}{COMMAND}python train.py\n"),
        ("train_sh", f"nvidia-smi --query-gpu={NAMES.replace(',', ', ')!r} --format=csv,noheader"),
        ("train_py", f'Popen(["nvidia-smi", "--query-gpu={NAMES}", "--format=csv,noheader"])'),
        ("train_ipynb", json.dumps({"source": [f'Popen("nvidia-smi --query-gpu={NAMES} -l 1")\n']})),
        ("slurm-12_log", f"+ {COMMAND}"),
        ("README_md", f"`nvidia-smi --query-gpu=timestamp,power.draw` or `nvidia-smi --query-gpu={NAMES}`"),
    ],
)
def test_the_columns_are_those_of_the_command(name: str, script: str, tmp_path: Path) -> None:
    job, quality = read_job(job_of(tmp_path, **{name: script}), strict=True)

    panels = {panel.metric: panel for panel in job.panels}
    assert set(panels) == {Metric.GPU_UTILIZATION, Metric.GPU_MEMORY_USED, Metric.GPU_MEMORY_TOTAL}
    assert panels[Metric.GPU_UTILIZATION].values.tolist() == [[i, i + 10] for i in range(40)]
    (remark,) = (r for r in quality.sources[0].remarks if r.code == "nvidia_smi.script")
    assert remark.fields == {"name": name.replace("_", ".")}
    assert remark.place == "gpu.csv"


@pytest.mark.parametrize(
    ("script", "log"),
    [
        ("python train.py", LOG),
        (COMMAND.replace("memory.total,", ""), LOG),
        (COMMAND + COMMAND.replace("memory.used,memory.total", "memory.total,memory.used"), LOG),
        (COMMAND.replace("index,utilization.gpu", "utilization.gpu,uuid"), LOG),
        (COMMAND.replace("timestamp,index", "index,timestamp"), LOG),
        (COMMAND.replace("utilization.gpu,memory.used", "memory.used,utilization.gpu"), LOG),
        (COMMAND.replace("pstate", "power.draw"), LOG),
        (COMMAND + "#" * (1 << 20), LOG),
    ],
    ids=["none", "fewer", "two", "no uuid", "no time", "no share", "no power", "large"],
)
def test_a_command_that_is_not_certainly_that_of_the_log_is_not_used(
    script: str, log: str, tmp_path: Path
) -> None:
    with pytest.raises(NothingReadableError, match="--columns"):
        read_job(job_of(tmp_path, log, train_sh=script), strict=True)


def test_the_script_that_is_used_is_no_file_of_an_unknown_format(tmp_path: Path) -> None:
    _, quality = read_job(job_of(tmp_path, train_sh=COMMAND, other_sh="sleep 1"), strict=True)

    assert [(one.count, one.place) for one in quality.remarks] == [(1, "other.sh")]


def test_a_damaged_row_does_not_rule_out_the_command(tmp_path: Path) -> None:
    log = LOG * 5 + LOG.replace("2025/02/03 11:58:07.433, 1, 17", "2025/02/03 11:58:07.433, 1, x")

    job, _ = read_job(job_of(tmp_path, log, train_sh=COMMAND), strict=True)

    assert job.panels[0].values.shape == (40, 2)


def test_epochs_without_units_are_read_with_the_command(tmp_path: Path) -> None:
    log = "".join(f"{1765191233 + i},{i}, 24564\n" for i in range(9))
    command = "nvidia-smi --query-gpu=timestamp,utilization.gpu,memory.total --format=csv,noheader"

    job, _ = read_job(job_of(tmp_path, log, run_sh=command), strict=True)

    assert job.panels[0].values[:, 0].tolist() == list(range(9))


def test_given_columns_stand_above_a_command_with_as_many(tmp_path: Path) -> None:
    given = "timestamp,index,utilization.memory,memory.used,memory.total,pstate"
    (tmp_path / "other.csv").write_text("".join(f"{1738583880 + i}, {i}\n" for i in range(9)))
    commands = COMMAND + COMMAND.replace(NAMES, "timestamp,temperature.gpu")

    quality = read_directory(job_of(tmp_path, train_sh=commands), Options(columns=given, strict=True)).quality

    (remark,) = (r for r in quality.sources[0].remarks if r.code == "nvidia_smi.script")
    assert remark.place == "other.csv"
    assert quality.sources[0].rows == len(LOG.splitlines()) + 9


def test_the_header_of_a_log_stands_above_commands(tmp_path: Path) -> None:
    header = NAMES.replace("memory.used,memory.total", "memory.total,memory.used")

    job, quality = read_job(job_of(tmp_path, f"{header}\n{LOG}", train_sh=COMMAND), strict=True)

    assert "nvidia_smi.script" not in {r.code for r in quality.sources[0].remarks}
    (used,) = (panel for panel in job.panels if panel.metric is Metric.GPU_MEMORY_USED)
    assert {*used.values.ravel().tolist()} == {12288.0 * (1 << 20)}
