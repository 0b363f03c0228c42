"""Traces for viewers, against a check of the format of our own."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobreport.errors import UsageError
from jobreport.readers.registry import read_directory
from jobreport.timeline.trace import write_trace
from jobrules.model import Events, EventSource, Finding, Job, Metric, Severity
from tests.copies import replace
from tests.jobs import START_US, joined_steps, make_events, make_job, make_panel, make_steps
from tests.learning_data import learning_job, scalars
from tests.paths import SAMPLES
from tests.report.library.frames import opened

Row = dict[str, Any]


def rows_of(job: Job, tmp_path: Path, **options: Any) -> list[Row]:
    write_trace(job, tmp_path / "trace.json", **options)
    return checked((tmp_path / "trace.json").read_bytes())


def checked(data: bytes) -> list[Row]:
    """The rows of a file in the right format, without names of processes and lanes."""

    def refused(token: str) -> None:
        raise AssertionError(token)

    whole = json.loads(data, parse_constant=refused)
    assert {*whole} == {"traceEvents", "displayTimeUnit", "otherData"}
    named: set[tuple[int, int]] = set()
    open_us: dict[tuple[int, int], list[int]] = {}
    rows: list[Row] = whole["traceEvents"]
    last = (-1, 0)
    for row in rows:
        place = row["pid"], row["tid"]
        assert all(type(one) is int for one in place)
        texts = [row["name"], *(one for one in row.get("args", {}).values() if isinstance(one, str))]
        assert all(len(one) <= 200 for one in texts)
        if row["ph"] == "M":
            assert last == (-1, 0)
            named.add(place)
            continue
        assert place in named
        assert type(row["ts"]) is int
        length = row.get("dur", -1)
        assert (row["ts"], -length) >= last
        last = row["ts"], -length
        if row["ph"] == "X":
            assert type(length) is int
            assert length >= 0
            within = open_us.setdefault(place, [])
            while within and within[-1] <= row["ts"]:
                within.pop()
            assert not within or row["ts"] + length <= within[-1]
            within.append(row["ts"] + length)
        elif row["ph"] == "C":
            assert row["args"]
            assert all(type(one) in (int, float) for one in row["args"].values())
        else:
            assert row["ph"] == "i"
            assert row["s"] in "gp"
    return [row for row in rows if row["ph"] != "M"]


def lasting(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["ph"] == "X"]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name)
def test_all_of_a_job_is_there_once(sample: Path, tmp_path: Path) -> None:
    job = read_directory(sample).job
    rows = lasting(rows_of(job, tmp_path))
    start_us = job.span_us[0]
    events, steps = job.events, job.steps
    kept = ~events.in_lanes(lambda lane: lane.event_type.startswith("Step:"))
    wanted = Counter(
        zip(
            (events.names[code] for code in events.name[kept].tolist()),
            (events.start_us[kept] - start_us).tolist(),
            events.duration_us[kept].tolist(),
            strict=True,
        )
    )
    wanted.update(
        (f"{mode} {number}", start - start_us, length)
        for mode, number, start, length in zip(
            steps.mode.tolist(),
            steps.number.tolist(),
            steps.start_us.tolist(),
            steps.duration_us.tolist(),
            strict=True,
        )
    )
    assert Counter((row["name"], row["ts"], row["dur"]) for row in rows) == wanted


def test_the_same_job_gives_the_same_bytes(tmp_path: Path) -> None:
    job = make_job(gpu=[1.0, 2.0], steps=make_steps([(0, 1)]))
    for name in ("a.json.gz", "b.json.gz"):
        summary = write_trace(job, tmp_path / name)
    first, second = ((tmp_path / name).read_bytes() for name in ("a.json.gz", "b.json.gz"))
    assert first == second
    assert len(checked(gzip.decompress(first))) == summary.events + summary.counters == 3
    assert [path.name for path in tmp_path.iterdir()] == ["a.json.gz", "b.json.gz"]


def test_processes_have_small_numbers_that_stay(tmp_path: Path) -> None:
    steps = [
        make_steps([(0, 1)], node=node, rank=str(rank)) for node in ("algo-1", "algo-2") for rank in range(8)
    ]
    write_trace(make_job(steps=joined_steps(*steps)), tmp_path / "trace.json")
    rows = json.loads((tmp_path / "trace.json").read_bytes())["traceEvents"]
    named = {row["args"]["name"]: row["pid"] for row in rows if row["name"] == "process_name"}
    sorts = {row["pid"]: row["args"]["sort_index"] for row in rows if row["name"] == "process_sort_index"}
    assert named["algo-2 rank 3"] == sorts[2003] == 2003
    assert named["algo-2"] == 2_000_001
    assert sorts[2_000_001] == 1999


def test_events_that_overlap_have_lanes_beside_each_other(tmp_path: Path) -> None:
    events = make_events([("Forward", "a", 0, 10), ("Forward", "b", 5, 15), ("Forward", "c", 6, 9)])
    job = make_job(events=events)
    tids = {row["name"]: row["tid"] for row in lasting(rows_of(job, tmp_path))}
    assert tids == {"a": 10, "b": 10_010, "c": 10}
    assert write_trace(job, tmp_path / "again.json").split == 1


def test_a_counter_ends_where_nothing_is_measured(tmp_path: Path) -> None:
    ticks = np.array([*range(40), *range(280, 300)]) * 500_000
    panel = make_panel(Metric.GPU_UTILIZATION, np.full(60, 97.0), time_us=START_US + ticks)
    rows = rows_of(make_job(extra=[panel]), tmp_path)
    (gap,) = (row for row in rows if row["ph"] == "i")
    assert (gap["name"], gap["ts"]) == ("GPU: not measured", 20_000_000)
    assert sum(row["ph"] == "C" for row in rows) == 60


def test_every_so_often_is_a_mean_as_of_the_samples(tmp_path: Path) -> None:
    late_us = 125 * 10**6
    seconds = [*range(30), *range(180, 220)]
    parts = [
        make_job(
            extra=[
                make_panel(
                    Metric.GPU_UTILIZATION,
                    np.column_stack([np.arange(70.0), np.full(70, 5.0)]),
                    time_us=start_us + np.array(seconds) * 10**6,
                    node=node,
                )
            ],
            steps=make_steps([(i, i + 0.9) for i in range(220)], node=node, start_us=start_us),
        )
        for node, start_us in (("algo-1", START_US), ("algo-2", START_US + late_us))
    ]
    job = opened(*parts)

    summary = job.trace(tmp_path / "trace.json", every="10s", absolute=True, step=slice(0, 15))
    every = job.trace(tmp_path / "all.json", every="10s", absolute=True)

    rows = [row for row in checked((tmp_path / "all.json").read_bytes()) if row["name"] == "GPU"]
    found = job.samples(every="10s").dropna()
    for pid, node, late in ((2_000_000, "algo-1", 0), (2_000_001, "algo-2", late_us)):
        own = found[found["node"] == node].pivot(index="time_us", columns="device", values="value")
        begins = [max(one - late, START_US) for one in own.index]
        drawn = [row for row in rows if row["pid"] == pid]
        assert [row["ts"] for row in drawn] == begins
        assert [[*row["args"].values()] for row in drawn] == [
            [float(f"{one:.6g}") for one in values] for values in own.to_numpy()
        ]
    assert every.counters == len(rows)
    assert every.counters > summary.counters > 0
    marks = [row for row in checked((tmp_path / "all.json").read_bytes()) if row["ph"] == "i"]
    assert len([one for one in marks if one["name"] == "GPU: not measured"]) == 2


def test_events_of_some_sources_are_written_and_every_step(tmp_path: Path) -> None:
    events = Events.joined(
        [
            make_events([("Forward", "a", 0, 1)]),
            make_events([("NEGOTIATE", "b", 0, 1)], source=EventSource.HOROVOD),
        ]
    )
    job = opened(make_job(events=events, steps=make_steps([(0, 1)])))

    job.trace(tmp_path / "trace.json", sources="horovod", captures=False)

    assert {row["name"] for row in checked((tmp_path / "trace.json").read_bytes())} == {"TRAIN 0", "b"}
    with pytest.raises(KeyError, match="did you mean horovod"):
        job.trace(tmp_path / "trace.json", sources="horvod")


def test_a_device_without_a_sample_is_left_out_of_its_moment(tmp_path: Path) -> None:
    rows = rows_of(make_job(gpu=[[1.0, 2.0], [3.0, float("nan")]]), tmp_path)
    assert [row["args"] for row in rows] == [{"gpu0": 1, "gpu1": 2}, {"gpu0": 3}]


def test_many_devices_are_drawn_together(tmp_path: Path) -> None:
    rows = rows_of(make_job(gpu=[[float(i) for i in range(17)]] * 2), tmp_path)
    assert rows[0]["args"] == {"mean": 8, "min": 0, "max": 16}


def test_steps_are_chosen_of_each_process_by_itself(tmp_path: Path) -> None:
    spans = [(float(i), i + 1.0) for i in range(6)]
    later = [(start + 0.3, end + 0.3) for start, end in spans]
    steps = joined_steps(make_steps(spans, rank="0"), make_steps(later, rank="1"))
    events = Events.joined(
        [make_events([("Forward", f"of {rank}", start + 0.1, start + 0.2) for start, _ in own], rank=rank)
         for rank, own in (("0", spans), ("1", later))]
    )  # fmt: skip
    job = make_job(gpu=[50.0] * 14, steps=steps, events=events)
    rows = rows_of(job, tmp_path, steps=(3, 5))
    assert [row["args"]["step"] for row in rows if row.get("cat") == "step"] == [3, 3, 4, 4]
    assert [row["ts"] // 1000 for row in rows if row["name"] == "of 1"] == [3400, 4400]
    assert [row["ts"] // 1000 for row in rows if row["ph"] == "C"] == [3000, 3500, 4000, 4500, 5000]


def test_a_time_is_chosen(tmp_path: Path) -> None:
    job = make_job(gpu=[50.0] * 6, steps=make_steps([(0, 1), (1, 2), (2, 3)]))
    rows = rows_of(job, tmp_path, start_us=START_US + 10**6, end_us=START_US + 2 * 10**6, absolute=True)
    assert [row["name"] for row in rows] == ["TRAIN 1", "GPU", "GPU"]
    assert rows[0]["ts"] == START_US + 10**6


def test_too_many_rows_are_refused_and_counted(tmp_path: Path) -> None:
    job = make_job(gpu=[50.0] * 60, steps=make_steps([(0, 1)]))
    with pytest.raises(UsageError, match=r"61\srows, more than 10.*start.*sources.*every"):
        write_trace(job, tmp_path / "trace.json", limit=10)
    assert not [*tmp_path.iterdir()]


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "none"
    with pytest.raises(UsageError) as raised:
        write_trace(make_job(gpu=[50.0] * 6), folder / "trace.json")
    assert str(raised.value) == f"There is no folder {folder}."


def test_findings_are_marks(tmp_path: Path) -> None:
    finding = Finding(
        key="x", severity=Severity.WARNING, title="<b>", evidence=(), advice=("Do less.",), rules=(), section="steps",
        start_us=START_US + 10**6, end_us=START_US + 2 * 10**6,
    )  # fmt: skip
    rows = rows_of(
        make_job(gpu=[50.0] * 6), tmp_path, findings=[finding, replace(finding, start_us=0, end_us=0)]
    )
    marks = [(row["name"], row["ts"], row["args"]) for row in rows if row["ph"] == "i"]
    args = {"severity": "warning", "advice": "Do less."}
    assert marks == [("<b>", 10**6, args), ("<b>: ends", 2 * 10**6, args)]


def test_marks_of_a_job_without_nodes_have_a_process_with_its_name(tmp_path: Path) -> None:
    finding = Finding(
        key="x", severity=Severity.INFO, title="x", evidence=(), advice=(), rules=(), section="steps", start_us=START_US,
    )  # fmt: skip
    job = learning_job(replace(scalars([1.0]), time_us=np.array([START_US])))

    rows = rows_of(job, tmp_path, findings=[finding], learning=True)

    assert [row["ph"] for row in rows] == ["C", "i"]


def test_names_are_texts_whatever_they_hold(tmp_path: Path) -> None:
    name = '"}\ud800\x00' + "x" * 300
    (row,) = rows_of(make_job(events=make_events([("Forward", name, 0, 1)])), tmp_path)
    assert row["name"].startswith('"}')
    assert len(row["name"]) == 200
