"""Small trace files of the vendor's own tests, and the steps of a real job.

What is expected is counted here from the plain JSON, or written down from a look at the files.
"""

from __future__ import annotations

import gzip
import json
import shutil
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from jobreport.readers.base import Found, SourceFile
from jobreport.readers.traces.reader import Traces
from jobrules.model import EventSource
from tests.paths import CORPUS, needs_corpus
from tests.report.readers.events import lost_rows, read

FIXTURES = CORPUS / "sagemaker-fixtures"
TRACES = sorted(p for pattern in ("*timeline*.json", "*.trace.json.gz") for p in FIXTURES.rglob(pattern))
TREES = sorted(path for path in FIXTURES.glob("*") if path.is_dir())

pytestmark = needs_corpus


def _rows(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    content = json.loads(gzip.decompress(data) if path.name.endswith(".gz") else data)
    return list(content["traceEvents"] if isinstance(content, dict) else content)


def _names(rows: list[dict[str, Any]]) -> tuple[Counter[str], int]:
    """How often each name is that of an event, and the rows that these take."""
    names: Counter[str] = Counter()
    begun: defaultdict[int, list[str]] = defaultdict(list)
    used = 0
    for row in rows:
        if row.get("ph") == "X":
            names[row["name"]] += 1
            used += 1
        elif row.get("ph") == "B":
            begun[row["pid"]].append(row["name"])
        elif row.get("ph") == "E" and begun[row["pid"]]:
            names[begun[row["pid"]].pop()] += 1
            used += 2
    return names, used


def _found_names(found: Found) -> Counter[str]:
    return Counter(found.events.names[code] for code in found.events.name.tolist())


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name)
def test_a_file_alone_gives_what_it_holds(tmp_path: Path, path: Path) -> None:
    place = tmp_path / path.relative_to(FIXTURES)
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, place)

    found = read(tmp_path)

    rows = _rows(path)
    names, used = _names(rows)
    assert _found_names(found) == names
    assert lost_rows(found) == len(rows) - sum(row.get("ph") == "M" for row in rows) - used
    assert len(found.events) or found.quality.remarks


@pytest.mark.parametrize("tree", TREES, ids=lambda path: path.name)
def test_a_tree_gives_the_events_of_all_its_files(tree: Path) -> None:
    found = read(tree)

    names: Counter[str] = Counter()
    files = [path for path in TRACES if path.is_relative_to(tree)]
    for path in files:
        names += _names(_rows(path))[0]
    assert files
    assert _found_names(found) == names
    assert found.quality.files == sum(bool(_names(_rows(path))[0]) for path in files)


def test_files_next_to_a_profile_are_reported() -> None:
    found = read(FIXTURES / "tfprofiler_timeline_traces")

    skipped = [(r.count, r.reason) for r in found.quality.remarks if r.unit == "files"]
    assert skipped == [(5, "summary of the TensorFlow profiler; only its traces are read")]


def test_there_are_fixtures_of_every_kind() -> None:
    assert (len(TRACES), len(TREES)) == (16, 6)


@pytest.mark.parametrize(
    ("tree", "node", "rank", "source", "first_us"),
    [
        (
            "horovod_timeline_traces",
            "8c859046be41.ant.amazon.com",
            "88359",
            EventSource.HOROVOD,
            1592860687560103 + 8440610,
        ),
        ("model_timeline_traces", "0001", "", EventSource.MODEL, 1590461107892211 + 18057037),
        ("test_traces", "0000", "4487", EventSource.PYTHON, 1589930987655184 + 1008335),
        (
            "tfprofiler_timeline_traces",
            "8c859046be41.ant.amazon.com",
            "80807",
            EventSource.PROFILER,
            1596659864545103,
        ),
        ("tfprofiler_local_missing_metadata", "ip-172-31-19-241", "", EventSource.PROFILER, 1596634664000000),
    ],
)
def test_events_have_their_process_and_time(
    tree: str, node: str, rank: str, source: EventSource, first_us: int
) -> None:
    events = read(FIXTURES / tree).events

    assert {(lane.node, lane.rank, lane.source) for lane in events.lanes} == {(node, rank, source)}
    assert 0 <= events.start_us[0] - first_us <= (100_000 if source == EventSource.PROFILER else 0)


def test_ranks_that_became_ready_take_no_time() -> None:
    events = read(FIXTURES / "horovod_timeline_traces").events

    assert int(events.duration_us.max()) < 1_000_000


def test_the_steps_of_training_and_evaluation_are_found() -> None:
    steps = read(FIXTURES / "merge_traces").steps

    (path,) = (FIXTURES / "merge_traces").rglob("*pythontimeline.json")
    rows = [row for row in _rows(path) if row["ph"] == "X"]
    expected = sorted(
        (1594662605425850 + row["ts"], row["name"].split(".")[1], int(row["args"]["step_num"]))
        for row in rows
    )
    assert (
        list(zip(steps.start_us.tolist(), steps.mode.tolist(), steps.number.tolist(), strict=True))
        == expected
    )
    assert len(steps) == 40


def test_a_real_job_has_its_1179_steps() -> None:
    steps = read(CORPUS / "sagemaker" / "job-40").steps

    (path,) = (CORPUS / "sagemaker" / "job-40").rglob("*pythontimeline.json")
    rows = [row for row in _rows(path) if "Step" in row["name"]]
    assert len(steps) == len(rows) == 1179
    assert set(zip(steps.node.tolist(), steps.rank.tolist(), strict=True)) == {("algo-1", "1")}
    assert sum((steps.end_us - steps.start_us).tolist()) == sum(row["dur"] for row in rows)
    assert Counter(steps.mode.tolist()) == Counter(row["name"].removeprefix("Step:ModeKeys.") for row in rows)
    assert sorted(steps.number.tolist()) == sorted(int(row["args"]["step_num"]) for row in rows)


KINETO = sorted(
    path
    for path in (CORPUS / "kineto").rglob("*.json*")
    if ".pt.trace." not in path.name and path.name != "expected.json"
)


@pytest.mark.parametrize("path", KINETO, ids=lambda path: path.parent.name)
def test_a_trace_of_another_profiler_is_not_read_under_any_name(tmp_path: Path, path: Path) -> None:
    for name in ("worker0.trace.json", "1700000000000_host_trace.json"):
        shutil.copy(path, tmp_path / name)

        assert not Traces().matches_content(SourceFile(name=name, place=str(tmp_path / name)))
