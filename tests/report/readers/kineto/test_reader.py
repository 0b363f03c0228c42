"""Folders with traces: of several ranks, next to other files, of other attempts."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from jobreport.pipeline import make_report
from jobreport.readers.base import SourceFile
from jobreport.readers.kineto.reader import Kineto
from jobreport.readers.registry import read_job
from tests.kineto import Recording
from tests.paths import SYSTEM_SAMPLES

SECOND = 1_000_000
#: Microseconds since the epoch.
MORNING = 1_700_000_000 * SECOND


def of_rank(rank: int | None, late: float = 0, clock: float = MORNING) -> bytes:
    """A trace of ten collectives, to each of which the rank comes later than others."""
    trace = Recording(rank, clock=clock, world=4)
    for number in range(10):
        at = 1000 * number + 1000
        trace.operator("aten::mm", at, at + 50)
        trace.kernel("gemm", at + 10, at + 300 + late, launch=(at + 5, at + 9))
        trace.kernel("ncclDevKernel_AllReduce", at + 310 + late, at + 600, 20, (at + 20, at + 25))
    return trace.text()


def job(folder: Path, **files: bytes) -> Path:
    for name, text in files.items():
        (folder / f"{name}.pt.trace.json").write_bytes(text)
    return folder


def test_the_ranks_of_a_folder_are_compared(tmp_path: Path) -> None:
    found, quality = read_job(
        job(tmp_path, **{f"worker{rank}": of_rank(rank, 50 * (rank == 2)) for rank in range(4)})
    )

    assert [one.rank for one in found.captures] == [0, 1, 2, 3]
    assert found.across_ranks is not None
    assert (found.across_ranks.ranks, found.across_ranks.world_size) == ((0, 1, 2, 3), 4)
    assert {one.rank: one.last for one in found.across_ranks.waiting} == {0: 0, 1: 0, 2: 10, 3: 0}
    assert [source.source for source in quality.sources] == ["PyTorch traces"]
    assert (found.nodes, found.span_us[0]) == ((), MORNING + 1000)


def test_a_copy_takes_no_part(tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    job(tmp_path / "again", a=of_rank(0))

    found, quality = read_job(job(tmp_path, a=of_rank(0), b=of_rank(1, 50)))

    assert [(one.file, one.copy_of) for one in found.captures] == [
        ("a.pt.trace.json", ""),
        ("again/a.pt.trace.json", "a.pt.trace.json"),
        ("b.pt.trace.json", ""),
    ]
    assert found.across_ranks is not None
    assert found.across_ranks.matched == 10
    assert [one.code for one in quality.remarks] == ["kineto.copy"]


def test_several_captures_of_a_rank_are_matched_with_those_of_their_time(tmp_path: Path) -> None:
    later = MORNING + 60 * SECOND
    files = {"a1": of_rank(0), "b1": of_rank(1, 50), "a2": of_rank(0, 50, later), "b2": of_rank(1, 0, later)}

    found, _ = read_job(job(tmp_path, **files))

    assert found.across_ranks is not None
    assert found.across_ranks.matched == 20
    assert {one.rank: one.last for one in found.across_ranks.waiting} == {0: 10, 1: 10}


def test_a_rank_of_another_attempt_takes_no_part(tmp_path: Path) -> None:
    files = {"a": of_rank(0), "b": of_rank(1, 50), "old": of_rank(2, 90, MORNING - 3600 * SECOND)}

    found, _ = read_job(job(tmp_path, **files))

    assert found.across_ranks is not None
    assert found.across_ranks.ranks == (0, 1)
    assert found.across_ranks.alone == ("old.pt.trace.json",)


@pytest.mark.parametrize("name", ["rank7.pt.trace.json", "x_rank-7.1.pt.trace.json", "Rank[7].json"])
def test_the_name_of_a_file_may_say_its_rank(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(of_rank(None))

    (found,) = read_job(tmp_path)[0].captures

    assert found.rank == 7


@pytest.mark.parametrize(
    ("name", "host"),
    [("node-3_41.1074", "node-3"), ("frank-3_41.1074", "frank-3"), ("rank-34.Jul_15_10_52_41.1074", "")],
)
def test_a_name_that_begins_with_a_rank_names_no_host(tmp_path: Path, name: str, host: str) -> None:
    (tmp_path / f"{name}.pt.trace.json").write_bytes(of_rank(0))

    (found,) = read_job(tmp_path)[0].captures

    assert found.host == host


def test_the_group_of_all_ranks_knows_the_rank_better_than_the_name_of_the_file(tmp_path: Path) -> None:
    trace = Recording()
    group: dict[str, Any] = {
        "Group size": 16,
        "Process Group Description": '"default_pg"',
        "Rank": "3",
        "Collective name": "allreduce",
    }
    trace.operator("record_param_comms", 1000, 1010, **group)
    (tmp_path / "rank7.json").write_bytes(trace.text())

    (found,) = read_job(tmp_path)[0].captures

    assert (found.rank, found.world_size) == (3, 16)


@pytest.mark.parametrize("name", ["trace.json", "log.txt", "17000000000000_node_any.json", "a.trace.json.gz"])
def test_a_trace_is_known_by_its_content(tmp_path: Path, name: str) -> None:
    text = of_rank(0)
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)

    found, _ = read_job(tmp_path)

    assert [one.file for one in found.captures] == [name]


def test_a_list_of_events_may_begin_with_many_names_of_rows(tmp_path: Path) -> None:
    rows = [{"name": "thread_name", "ph": "M", "pid": 1, "tid": i, "args": {}} for i in range(400)]
    path = tmp_path / "a.json"
    path.write_text(json.dumps(rows + json.loads(of_rank(0))["traceEvents"]))

    assert Kineto().matches_content(SourceFile(name="a.json", place=str(path)))


def test_a_trace_that_ends_in_front_of_its_events_is_one(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'{\n  "schemaVersion": 1,\n  "deviceProperties": [\n')

    assert Kineto().matches_content(SourceFile(name="a.json", place=str(path)))


@pytest.mark.parametrize(
    "text",
    [
        b'{"schema": "1.0.1", "nodes": [{"id": 1, "name": "cat"}]}',
        b'{"traceEvents": [{"ph": "X", "cat": "FEE", "name": "f"}], "viztracer_metadata": {"schemaVersion": 1}}',
        b'{"traceEvents": [{"ph": "M", "args": {"start_time_since_epoch_in_micros": "1", "correlation": 1}}]}',
        b'[{"ph": "X", "cat": "Operator", "name": "a", "args": {}}]',
        b"[[1, 2], [3, 4]]",
        b"{",
        b"",
    ],
)
def test_other_json_is_no_such_trace(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(text)

    assert not Kineto().matches_content(SourceFile(name="a.json", place=str(path)))


@pytest.mark.slow
def test_a_report_is_made_of_a_single_file(tmp_path: Path) -> None:
    path = job(tmp_path, a=of_rank(0)) / "a.pt.trace.json"

    outcome = make_report(path, tmp_path / "out")

    assert outcome.failure is None
    assert isinstance(outcome.report.captures, tuple)
    assert [one.file for one in outcome.report.captures] == ["a.pt.trace.json"]


def test_traces_next_to_samples_leave_the_samples_as_they_are(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    shutil.copytree(SYSTEM_SAMPLES[0], folder)
    alone, _ = read_job(folder)

    both, quality = read_job(job(folder, a=of_rank(0)))

    assert both.facts == alone.facts
    assert both.span_us == alone.span_us
    assert [one.rank for one in both.captures] == [0]
    assert "PyTorch traces" in [source.source for source in quality.sources]
