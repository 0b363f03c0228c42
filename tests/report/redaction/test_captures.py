"""Names in traces of PyTorch's profiler, and their placeholders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobreport.options import Options
from jobreport.pipeline import make_report
from tests.kineto import Recording

SECRETS = (
    "alice",
    "secretmodel",
    "host77",
    "secretgroup",
    "secretkernel",
    "secrettype",
    "secretstream",
    "secretcard",
    "secretcall",
)


def names_of(found: dict[str, Any]) -> set[str]:
    (one,) = found["captures"]
    (device,) = one["devices"]
    (table,) = found["across_ranks"]["collectives"]
    rows = (*one["operators"], *device["kernels"], *one["step_lines"]["lanes"])
    names = {one["file"], one["host"], device["name"], table["group"], table["dtype"]}
    return names | {row["name"] for row in rows if row["name"]}


@pytest.fixture
def job(tmp_path: Path) -> Path:
    trace = Recording(0)
    trace.top |= {"hostname": "host77", "username": "alice", "traceName": "/home/alice/run"}
    trace.top["deviceProperties"] = [{"id": 0, "name": "secretcard"}]
    trace.step(1, 1000, 1400)
    trace.operator("secretmodel::forward", 1000, 1100)
    trace.operator("aten::mm", 1100, 1200)
    trace.mark("alice's phase", 1000, 1200)
    trace.kernel("secretkernel_v2", 1050, 1150, launch=(1010, 1020))
    known: dict[str, Any] = {
        "Collective name": "allreduce",
        "Process Group Description": "secretgroup",
        "dtype": "secrettype",
    }
    trace.kernel("ncclDevKernel_AllReduce", 1200, 1300, 20, (1110, 1120), **known)
    trace.events[-1]["args"]["stream"] = "secretstream"
    copy = "Memcpy HtoD (Pageable -> Device)"
    trace.kernel(copy, 1300, 1350, 21, (1120, 1130), category="gpu_memcpy")
    trace.events[-2]["name"] = "secretcall"
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "host77_1234.1699999999.pt.trace.json").write_bytes(trace.text())
    return folder


def test_a_redacted_report_has_none_of_them(job: Path, tmp_path: Path) -> None:
    outcome = make_report(job, tmp_path / "out", Options(redact=True, formats=["md"]))

    text = (outcome.folder / "report.json").read_text()
    assert not [name for name in SECRETS if name in text]
    assert names_of(json.loads(text)) == {
        "capture-1",
        "node-1",
        "operator-2",
        "aten::mm",
        "kernel-3",
        "ncclDevKernel_AllReduce",
        "model-1",
        "group-1",
        "type-1",
        "stream-1",
        "7",
        "21",
    }


def test_what_a_trace_says_of_its_user_is_never_read(job: Path, tmp_path: Path) -> None:
    outcome = make_report(job, tmp_path / "out", Options(formats=["md"]))

    text = (outcome.folder / "report.json").read_text()
    assert "/home/alice" not in text
    assert "secretmodel" in text
