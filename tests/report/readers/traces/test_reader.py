from __future__ import annotations

import gzip
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobreport.readers import text_files
from jobreport.readers.base import SourceFile
from jobreport.readers.registry import read_job
from jobreport.readers.system_samples.reader import SystemSamples
from jobreport.readers.traces import columns
from jobreport.readers.traces import rows as trace_rows
from jobreport.readers.traces.reader import Traces
from jobrules.model import EventSource, Lane, Loader
from tests import scenario_d1
from tests.report.readers.events import (
    BASE_US,
    DAY_US,
    FILE,
    HOUR,
    Row,
    base,
    lane,
    lost_rows,
    read,
    read_rows,
    remarks,
    rows_of,
    text,
    write,
    x,
)

PHASES = ("Forward", "Step:ModeKeys.TRAIN", "cpu_functions")
#: The last time that a reader takes for one: 2100.
LATEST_US = 4_102_444_800_000_000

# Of any rows

#: Rows that are no event of a lane, each counted as left out.
NO_EVENTS: tuple[Row | str, ...] = (
    {"ph": "i", "name": "mark", "ts": 5},
    {"ph": "C", "name": "counter", "ts": 5},
    x(dur=-1),
    x(name=None),
    x(name=5),
    x(ts="soon"),
    x(ts=...),
    x(dur=31 * DAY_US),
    x(args=[1]),
)


@st.composite
def _files(draw: st.DrawFn) -> dict[str, list[Row | str]]:
    """Rows of up to three files, whole or cut between two rows."""
    moment = st.one_of(st.integers(0, 10**9), st.floats(0, 1e9))
    sound = st.builds(x, st.sampled_from(["a", "b", "ü"]), moment, st.one_of(st.integers(0, 9), moment))
    rows = st.lists(st.one_of(sound, sound, sound, st.sampled_from(NO_EVENTS)), max_size=25)
    names = [f"{HOUR}/{1700000060000000 + i}_{33 + i}-algo-1_pythontimeline.json" for i in range(3)]
    return {name: draw(rows) for name in names[: draw(st.integers(1, 3))]}


@given(
    files=_files(),
    packed=st.booleans(),
    closed=st.booleans(),
    block=st.sampled_from([1, 200, 1 << 20]),
    many=st.sampled_from([1, 10, 1 << 20]),
)
def test_every_event_of_any_files_is_found_once_and_every_row_accounted_for(
    tmp_path_factory: pytest.TempPathFactory,
    files: dict[str, list[Row | str]],
    packed: bool,
    closed: bool,
    block: int,
    many: int,
) -> None:
    written = {name: text([base(), x("first"), *rows]) for name, rows in files.items()}
    if not closed:
        written = {name: content.removesuffix("\n]\n") + ",\n" for name, content in written.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace_rows, "_BLOCK", block)
        patch.setattr(columns, "_MANY_EVENTS", many)

        found = read(
            tmp_path_factory.mktemp("job"),
            {f"{name}.gz" if packed else name: content for name, content in written.items()},
        )

    sound = [
        (str(33 + i), row["name"], BASE_US + round(row["ts"]), BASE_US + round(row["ts"] + row["dur"]))
        for i, rows in enumerate(files.values())
        for row in [x("first"), *rows]
        if isinstance(row, dict) and row not in NO_EVENTS
    ]
    events = [(rank, name, start, end) for _, rank, _, _, name, start, end, *_ in rows_of(found.events)]
    assert Counter(events) == Counter(sound)
    assert [event[2:] for event in events] == sorted(event[2:] for event in events)
    assert found.quality.rows == len(events)
    assert lost_rows(found) == sum(len(rows) + 1 for rows in files.values()) - len(events)


def _old_writer(events: list[tuple[str, Row]]) -> list[Row]:
    """The first lane has number 1; each is announced before its first event."""
    numbers: dict[str, int] = {}
    rows = [base()]
    for phase, row in events:
        if phase not in numbers:
            numbers[phase] = len(numbers) + 1
            rows += [lane(numbers[phase], phase), {"name": "process_sort_index", "ph": "M", "pid": 1}]
        rows.append({**row, "pid": numbers[phase]})
    return rows


def _new_writer(events: list[tuple[str, Row]]) -> list[Row]:
    """The first lane has number 0, which counts as not announced: it is so before each of its events."""
    numbers: dict[str, int] = {}
    rows = [base()]
    for phase, row in events:
        if not numbers.get(phase):
            numbers.setdefault(phase, len(numbers))
            rows += [lane(numbers[phase], phase), {"name": "process_sort_index", "ph": "M", "pid": 0}]
        rows.append({**row, "pid": numbers[phase]})
    return rows


@given(data=st.data(), seed=st.integers(0, 999))
def test_neither_writer_nor_split_nor_order_of_files_matters(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, seed: int
) -> None:
    rng = random.Random(seed)
    phases = rng.sample(PHASES, k=rng.randint(1, 3))
    events = [
        (rng.choice(phases), x(f"e{rng.randrange(9)}", ts, rng.randrange(50), args={"step_num": str(i)}))
        for i, ts in enumerate(sorted(rng.randrange(10**6) for _ in range(data.draw(st.integers(1, 40)))))
    ]
    whole = read(tmp_path_factory.mktemp("whole"), {FILE: text(_old_writer(events))})
    files: dict[str, str | bytes] = {}
    rng.shuffle(events)
    left = list(events)
    while left:
        size = rng.randint(1, len(left))
        part, left = left[:size], left[size:]
        writer = rng.choice([_old_writer, _new_writer])
        ending = rng.choice([".json", ".json.gz"])
        name = f"any/{rng.randrange(9)}/{10**15 + rng.randrange(10**9)}_33-algo-1_pythontimeline{ending}"
        files[name] = text(writer(part))

    split = read(tmp_path_factory.mktemp("split"), files)

    assert len(whole.events) == len(events)
    assert split.events.lanes == whole.events.lanes
    assert split.events.names == whole.events.names
    assert rows_of(split.events) == rows_of(whole.events)
    assert remarks(split) == remarks(whole) == []


# One row


@pytest.mark.parametrize(
    ("row", "code"),
    [
        ({}, "no_type"),
        ({"ph": "i", "name": "CYCLE_START", "ts": 0, "s": "g"}, "instant"),
        ({"ph": "C", "name": "c", "ts": 0, "args": {"value": 1}}, "counter"),
        ({"ph": "s", "id": 1, "ts": 0}, "flow"),
        ({"ph": "b", "id": 1, "ts": 0}, "async"),
        ({"ph": "?", "ts": 0}, "other_type"),
        (x(ts=...), "no_start"),
        (x(name=...), "no_name"),
        (x(name=5), "odd_row"),
        (x(dur=None), "odd_row"),
        (x(pid=True), "odd_row"),
        (x(args=[1]), "odd_row"),
        (x(args={"step_num": "many"}), "odd_row"),
        (x(ts=-BASE_US - 1), "bad_time"),
        (x(dur=-1), "bad_time"),
        (x(dur=31 * 86400 * 10**6), "bad_time"),
        (x(ts=float("nan")), "no_start"),
        (x(dur=float("inf")), "bad_time"),
        (x(ts=10**100), "bad_time"),
        (
            '{"ph": "X", "name": "op", "ts": 1e400}',
            "bad_time",
        ),
        ('{"ph": "X", "name": "op", "ts": ' + "9" * 5000 + "}", "not_json"),
        ('{"ph": "X", "name": "op", "ts": 1', "not_json"),
        ('"ph"', "odd_row"),
        ("[1]", "odd_row"),
        ('{"ph": "X", "a": ' + "[" * 100_000 + "]" * 100_000 + "}", "not_json"),
        ({"ph": "E", "pid": 1, "ts": 9}, "end_only"),
        ({"ph": "B", "name": "b", "pid": 1, "ts": 9}, "begin_only"),
    ],
)
def test_a_row_that_is_no_event_costs_itself(tmp_path: Path, row: Row | str, code: str) -> None:
    found = read_rows(tmp_path, base(), lane(1, "Forward"), x("before"), row, x("after"))

    assert [event[4] for event in rows_of(found.events)] == ["after", "before"]
    assert remarks(found) == [(code, 1)]


@pytest.mark.parametrize(
    "row",
    [
        x(dur=...),
        x(dur=0, args=None),
        x(ts="1000", dur="0", cat={"a": 1}),
        x(dur=0, args={"loss": float("nan")}),
        '{"name": "x", "ph": "B", "ph": "X", "name": "op", "pid": 1, "ts": 7, "ts": 1000}',
        {"name": "process_name", "ph": "M", "pid": 1},
    ],
)
def test_an_odd_row_may_be_an_event(tmp_path: Path, row: Row | str) -> None:
    sound = x("sound", 1000, 0)
    found = read_rows(tmp_path, base(), lane(1, "Forward"), row, sound)

    names = [event[4] for event in rows_of(found.events)]
    assert names == (["sound"] if isinstance(row, dict) and row["ph"] == "M" else ["op", "sound"])
    assert {event[5:7] for event in rows_of(found.events)} == {(BASE_US + 1000, BASE_US + 1000)}
    assert remarks(found) == []


def test_arguments_name_step_process_and_thread(tmp_path: Path) -> None:
    found = read_rows(
        tmp_path,
        base(),
        x("a", 1, args={"pid": 33, "step_num": "7", "thread_id": 5}, tid=6),
        x("b", 2, args={"pid": "34", "step_num": 8, "tid": 9}, tid=6),
        x("c", 3, args={"step_num": 1.5, "tid": 9, "pid": 10**30}),
        x("d", 4, args=None),
    )

    assert [event[4:5] + event[7:] for event in rows_of(found.events)] == [
        ("a", 7, 33, 5),
        ("b", 8, 34, 6),
        ("c", -1, -1, 9),
        ("d", -1, -1, -1),
    ]


# Lanes, pairs, bases


def test_a_begin_pairs_with_an_end_of_the_same_thread_and_lane_of_its_file(tmp_path: Path) -> None:
    def row(ph: str, ts: int, pid: int, tid: int | None = None, **more: Any) -> Row:
        return {"ph": ph, "ts": ts, "pid": pid, "tid": tid, **more}

    name = f"{HOUR}/1700000060000000_0-algo-1_smdataparallel_timeline.json"
    found = read_rows(
        tmp_path,
        base(),
        lane(1, "One"),
        row("B", 10, 1, name="outer", args={"step_num": 3, "pid": 5}),
        row("B", 20, 1, name="inner"),
        row("B", 25, 1, 7, name="thread"),
        row("E", 30, 1),
        lane(1, "Two"),
        row("E", 40, 1, name="ignored", args={"pid": 6}),
        row("E", 50, 1, 7),
        row("E", 60, 2),
        name=name,
    )

    assert [(e[2], e[4], e[5] - BASE_US, e[6] - BASE_US, e[7], e[8]) for e in rows_of(found.events)] == [
        ("One", "outer", 10, 40, 3, 5),
        ("One", "inner", 20, 30, -1, -1),
        ("One", "thread", 25, 50, -1, -1),
    ]
    assert remarks(found) == [("end_only", 1)]


def test_a_pair_begins_on_the_base_of_its_begin_and_ends_on_that_of_its_end(tmp_path: Path) -> None:
    begin, end = {"name": "p", "ph": "B", "pid": 1, "ts": 9}, {"ph": "E", "pid": 1, "ts": 8}

    found = read_rows(tmp_path, base(), begin, base(BASE_US + 1000), end)

    assert [event[5:7] for event in rows_of(found.events)] == [(BASE_US + 9, BASE_US + 1008)]
    assert remarks(found) == []


def test_a_rank_that_became_ready_takes_no_time_whatever_horovod_wrote(tmp_path: Path) -> None:
    rows = (
        base(),
        x("4", 10, 812355471858),
        x("5", 11, float("nan")),
        x("a4", 12, 3),
        x("outer", 13, ..., ph="B"),
        x("6", 14, ..., ph="B"),
        x("", 16, ..., ph="E"),
        x("", 99, ..., ph="E"),
    )
    horovod = FILE.replace("pythontimeline", "horovod_timeline")

    of_horovod = read_rows(tmp_path / "h", *rows, name=horovod)
    of_python = read_rows(tmp_path / "p", x("4", 10, 812355471858), base(), x("4", 10, 8), x("a", 9, 1))

    assert [e[6] - e[5] for e in rows_of(of_horovod.events)] == [0, 0, 3, 86, 0]
    assert remarks(of_horovod) == []
    assert [e[6] - e[5] for e in rows_of(of_python.events)] == [1, 8]


def test_a_time_that_is_a_date_is_one_whatever_the_base(tmp_path: Path) -> None:
    found = read_rows(
        tmp_path,
        base(),
        x(ts=5),
        x(ts=BASE_US + 6.5),
        x("p", BASE_US + 10, ..., ph="B"),
        x("", 30, ..., ph="E"),
        x("q", 40, ..., ph="B"),
        x("", BASE_US + 60, ..., ph="E"),
        x("r", BASE_US + 70, ..., ph="B"),
        x("", BASE_US + 90, ..., ph="E"),
    )

    assert [(event[5] - BASE_US, event[6] - BASE_US) for event in rows_of(found.events)] == [
        (5, 15),
        (6, 16),
        (10, 30),
        (40, 60),
        (70, 90),
    ]
    assert remarks(found) == []


def test_the_end_is_rounded_as_the_start_of_what_follows(tmp_path: Path) -> None:
    found = read_rows(tmp_path, base(), x(ts=10.4, dur=0.4), x(ts=10.8, dur=1))

    assert found.events.end_us[0] == found.events.start_us[1] == BASE_US + 11


def test_an_event_that_ends_past_2100_has_no_date(tmp_path: Path) -> None:
    found = read_rows(tmp_path, base(), x(), x("late", LATEST_US - 5, 10))

    assert found.events.names == ("op",)
    assert remarks(found) == [("undated", 1)]


def test_events_without_a_date_are_used_only_where_no_event_has_one(tmp_path: Path) -> None:
    other = FILE.replace("33", "34")
    undated: dict[str, str | bytes] = {"horovod_timeline_raw.json": text([x(ts=77_000_000_000)])}

    alone = read(tmp_path / "alone", undated)
    beside = read(tmp_path / "beside", {**undated, other: text([base(), x()])})

    assert rows_of(alone.events) == [
        ("node", "", "Unknown", "horovod", "op", 77_000_000_000, 77_000_000_010, -1, -1, -1)
    ]
    assert remarks(alone) == [("relative", 1)]
    assert alone.finished is None
    assert len(beside.events) == 1
    assert remarks(beside) == [("undated", 1)]


def test_a_base_that_is_no_date_has_a_remark(tmp_path: Path) -> None:
    bases: tuple[object, ...] = (5, -1, 10**30, float("nan"), "x", [], True)
    for odd in bases:
        found = read_rows(tmp_path, base(), x(), base(odd), x("undated"))

        assert len(found.events) == 1
        assert ("time_base", 1) in remarks(found)


# Workers


def _steps_of(pid: int, first: int, last: int) -> str:
    name = "Step:ModeKeys.TRAIN"
    rows = [x(name, i * 1000, 900, args={"pid": pid, "step_num": str(i)}) for i in range(first, last)]
    return text([base(), lane(1, name), *rows])


def test_a_process_under_its_id_and_then_under_its_rank_is_one_worker(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        {
            f"{HOUR}/1700000060000000_33-algo-1_pythontimeline.json": _steps_of(33, 0, 3),
            f"{HOUR}/1700000120000000_0-algo-1_pythontimeline.json": _steps_of(33, 3, 6),
            f"{HOUR}/1700000120000000_1-algo-1_pythontimeline.json": _steps_of(34, 0, 6),
            f"{HOUR}/1700000120000000_0-algo-2_pythontimeline.json": _steps_of(33, 0, 6),
        },
    )

    workers = Counter(zip(found.steps.node.tolist(), found.steps.rank.tolist(), strict=True))
    assert workers == {("algo-1", "0"): 6, ("algo-1", "1"): 6, ("algo-2", "0"): 6}
    assert len(found.events.lanes) == 3
    assert remarks(found) == []


def test_an_event_under_the_id_and_the_rank_of_its_process_counts_once(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        {
            "framework/33-algo-1_pythontimeline.tmp": _steps_of(33, 0, 3),
            f"{HOUR}/1700000120000000_0-algo-1_pythontimeline.json": _steps_of(33, 0, 3),
        },
    )

    assert found.steps.rank.tolist() == ["0"] * 3
    assert ("repeated", 3) in remarks(found)


@pytest.mark.parametrize(
    "pids",
    [
        # Who has the process id 33 is not known, or several have it, or each has that of another.
        {"33": 35, "0": 33},
        {"33": 33, "0": 33, "1": 33},
        {"33": 33, "34": 34},
        {"33": 33, "0": 35},
    ],
)
def test_workers_stay_apart_where_it_is_not_clear_who_is_who(tmp_path: Path, pids: dict[str, int]) -> None:
    files = {
        f"{HOUR}/1700000060000000_{worker}-algo-1_pythontimeline.json": _steps_of(pid, 0, 3)
        for worker, pid in pids.items()
    }

    assert set(read(tmp_path, files).steps.rank.tolist()) == set(pids)


def test_the_loader_of_a_process_is_one_of_its_rank(tmp_path: Path) -> None:
    loader = x("_MultiProcessingDataLoaderIter.__init__", 9, pid=5, args={"num_workers": 4, "pid": 33})
    rows = text([base(), lane(5, "DataLoaderIterInitialize"), loader])

    found = read(
        tmp_path,
        {FILE: rows, f"{HOUR}/1700000120000000_0-algo-1_pythontimeline.json": rows},
    )

    assert [(one.rank, one.num_workers) for one in found.events.loaders] == [("0", 4)]


# Files


def test_an_event_in_two_files_counts_once_and_two_equal_ones_in_a_file_twice(tmp_path: Path) -> None:
    one, two = x("one", 1, 0), x("two", 2, 0)
    found = read(
        tmp_path,
        {
            FILE: text([base(), one, one, two]),
            f"{FILE}.gz": text([base(), one, one, two]),
            "framework/33-algo-1_pythontimeline.tmp": text([base(), one, two, two, two]).removesuffix("\n]\n")
            + ",",
        },
    )

    assert Counter(event[4] for event in rows_of(found.events)) == {"one": 2, "two": 3}
    assert remarks(found) == [
        ("repeated", 5),
        ("growing", 1),
    ]
    assert found.quality.files == 2


def test_the_steps_of_the_reference_scenario_are_found_to_the_microsecond(tmp_path: Path) -> None:
    scenario_d1.write_events(tmp_path)

    found = read(tmp_path)

    expected = scenario_d1.steps()
    order = np.lexsort((expected.end_us, expected.start_us))
    for column in ("node", "rank", "mode", "number", "start_us", "end_us"):
        assert getattr(found.steps, column).tolist() == getattr(expected, column)[order].tolist()
    assert remarks(found) == []
    assert set(found.events.pid.tolist()) == {33}
    assert found.events.lanes == tuple(
        Lane(node="algo-1", rank="33", event_type=f"Step:ModeKeys.{phase}", source=EventSource.PYTHON)
        for phase in ("EVAL", "TRAIN")
    )
    assert found.finished is False


def test_a_job_of_samples_and_traces_has_both_and_no_file_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobreport.readers.registry.READERS", (SystemSamples(), Traces()))
    scenario_d1.write_samples(tmp_path)
    scenario_d1.write_events(tmp_path)

    job, quality = read_job(tmp_path, strict=True)

    assert (len(job.steps), len(job.events), len(job.panels)) == (1650, 1650, 7)
    assert job.nodes == ("algo-1",)
    assert quality.remarks == ()
    assert [source.source for source in quality.sources] == ["system samples", "traces"]


@pytest.mark.parametrize(
    ("suffix", "steps"),
    [
        ("pythontimeline", 2),
        ("model_timeline", 2),
        ("my_timeline", 2),
        ("horovod_timeline", 0),
        ("smdataparallel_timeline", 0),
    ],
)
def test_a_step_is_what_the_script_or_the_framework_calls_so(tmp_path: Path, suffix: str, steps: int) -> None:
    rows = (base(), x("Step:ModeKeys.TRAIN", 1), x("Step:ModeKeys", 2), x("Step", 3))

    found = read_rows(tmp_path, *rows, name=f"1700000060000000_33-algo-1_{suffix}.json")

    assert len(found.events) == 3
    assert found.steps.mode.tolist() == ["TRAIN", "GLOBAL"][:steps]


def test_events_from_before_the_time_base_of_their_file_are_kept(tmp_path: Path) -> None:
    """A writer fixes its time base when it is created, and events may begin before."""
    rows = [lane(1, "Step:ModeKeys.TRAIN")]
    starts = [0.25, 999_999.5, 1_000_000, 59_000_000.5, 60_000_000]
    early = [x("Step:ModeKeys.TRAIN", ts - 60_000_000, 10.5) for ts in starts]
    late = [x("Step:ModeKeys.TRAIN", ts, 10.5) for ts in starts]

    shifted = read_rows(tmp_path / "a", base(BASE_US + 60_000_000), *rows, *early)
    usual = read_rows(tmp_path / "b", base(), *rows, *late)

    assert len(usual.steps) == 5
    assert shifted.steps.start_us.tolist() == usual.steps.start_us.tolist()
    assert remarks(shifted) == []
    # Without a time base there is nothing to begin before.
    assert ("bad_time", 1) in remarks(read_rows(tmp_path / "c", *rows, x(ts=5), x(ts=-1)))


def test_step_numbers_may_be_text_or_numbers(tmp_path: Path) -> None:
    step = "Step:ModeKeys.TRAIN"
    for numbers, as_text in (('"1" "2"', True), ("1 2", False), ("null 2", False)):
        rows = [x(step, i, args={"step_num": json.loads(n)}) for i, n in enumerate(numbers.split())]

        steps = read_rows(tmp_path / numbers, base(), lane(1, step), *rows).steps

        assert steps.numbers_as_text is as_text
        assert steps.number.tolist() == [-1 if "null" in numbers else 1, 2]
    assert read_rows(tmp_path, base(), x(step)).steps.numbers_as_text


def test_loaders_that_are_set_up_are_found(tmp_path: Path) -> None:
    multi, single = "_MultiProcessingDataLoaderIter", "_SingleProcessDataLoaderIter"
    found = read_rows(
        tmp_path,
        base(),
        lane(5, "DataLoaderIterInitialize"),
        x(f"{multi}.__init__", 9, pid=5, args={"num_workers": 4, "pin_memory": True, "pid": 33}),
        x(f"{single}.__init__", 2, pid=5, args={"num_workers": "many", "pin_memory": 1}),
        x(f"{single}.__init__", -1, pid=5, args={"num_workers": 0}),
        x(f"{single}.__init__", -BASE_US - 1, pid=5),
    )

    assert found.events.loaders == tuple(
        Loader(
            node="algo-1",
            rank="33",
            iterator=name,
            start_us=BASE_US + ts,
            num_workers=workers,
            pin_memory=pin,
        )
        for name, ts, workers, pin in ((single, -1, 0, None), (single, 2, None, None), (multi, 9, 4, True))
    )


@pytest.mark.parametrize(
    ("name", "node", "worker", "source"),
    [
        (FILE, "algo-1", "33", EventSource.PYTHON),
        ("1700000060000000_0-algo-12_model_timeline.json.gz", "algo-12", "0", EventSource.MODEL),
        (
            "x/1700000060000000_88359-8c85.ant.example.com_horovod_timeline.json",
            "8c85.ant.example.com",
            "88359",
            EventSource.HOROVOD,
        ),
        ("0-algo-1_smdataparallel_timeline.json.tmp", "algo-1", "0", EventSource.SMDATAPARALLEL),
        ("1700000060000000_0001_model_timeline.json", "0001", "", EventSource.MODEL),
        ("1700000060000000_4487_0000_pythontimeline.json", "0000", "4487", EventSource.PYTHON),
        ("1700000060000000000_1234-testhost_model_timeline.json", "testhost", "1234", EventSource.MODEL),
        ("pythontimeline.json", "node", "", EventSource.PYTHON),
        ("my_horovod_timeline.7.json", "node", "", EventSource.HOROVOD),
        ("1700000060000000_5-host_my_library.json", "host", "5", EventSource.OTHER),
        ("1700000060000000_5-host_merged_timeline.json", "host", "5", EventSource.OTHER),
        ("ip-10-0-1-2.ec2.trace.json", "ip-10-0-1-2", "", EventSource.PROFILER),
    ],
)
def test_the_name_of_a_file_tells_node_worker_and_source(
    tmp_path: Path, name: str, node: str, worker: str, source: EventSource
) -> None:
    found = read_rows(tmp_path, base(), lane(1, "L"), x(), name=name)

    assert found.events.lanes == (Lane(node=node, rank=worker, event_type="L", source=source),)


@pytest.mark.parametrize(
    "name",
    [
        "system/incremental/2023111422/1700000100.algo-1.json",
        "framework/tensorflow/cprofile/0-algo-1/x/python_stats",
        "framework/tensorflow/pyinstrument/0-algo-1/x/python_stats.json",
        "profilerconfig.json",
        "LowGPUUtilization.json",
        "worker0.pt.trace.json.gz",
        "worker0.1623143089861.pt.trace.json",
        "1700000060000000_0-algo-1_notes.json",
        "training_job_end.ts",
        "some.tmp",
        "model.pb",
    ],
)
def test_files_of_others_are_not_claimed(tmp_path: Path, name: str) -> None:
    content = (
        '{"Type": "cpu"}\n' if "notes" not in name else '[{"a": {"X": "ph"}}, {"ph": "7.4"}, {"ph": "7"}]'
    )

    found = read(tmp_path, {name: content})

    assert len(found.events) == 0
    assert remarks(found) == []


@pytest.mark.parametrize("name", ["worker0.trace.json", "1700000000000_host_trace.json"])
@pytest.mark.parametrize(
    "key", ["schemaVersion", "deviceProperties", "baseTimeNanoseconds", "distributedInfo", None]
)
def test_a_trace_of_another_profiler_is_not_claimed_under_any_name(
    tmp_path: Path, name: str, key: str | None
) -> None:
    head = {key: 1} if key else {}

    found = read(tmp_path, {name: json.dumps({**head, "traceEvents": [x(ts=BASE_US)]})})

    assert len(found.events) == (key is None)
    assert remarks(found) == []


@pytest.mark.parametrize(
    "damage",
    [
        ("[", "\0"),
        ("[", "[["),
        ("[\n{", "\0" * 5000),
        ('"ph"', '"'),
        ('"process_name"', '"\ud800'),
        ('{"name": "process_name"', "{" * 2000),
    ],
)
def test_a_trace_that_only_its_rows_tell_is_read_behind_damage(
    tmp_path: Path, damage: tuple[str, str]
) -> None:
    content = text([base(), lane(1, "L"), x(ts=BASE_US)]).replace(*damage, 1)

    found = read(tmp_path, {f"{HOUR}/1700000060000000_33-algo-1_mine.json": content})

    assert len(found.events) == 1


def test_a_file_made_of_the_others_is_read_only_alone(tmp_path: Path) -> None:
    merged = f"{HOUR}/1700000060000000_0-algo-1_merged_timeline.json"
    write(tmp_path, {merged: text([x(ts=BASE_US + 1000)])})

    alone = read(tmp_path)
    beside = read_rows(tmp_path, base(), x())

    assert len(alone.events) == len(beside.events) == 1
    assert alone.finished is None
    assert remarks(beside) == [("merged", 1)]


STEP = "framework/tensorflow/detailed_profiling/2020080513/000000005"
TRACE = f"{STEP}/plugins/profile/2020_08_05_13_37_44/ip-10-0-1-2.ec2.internal.trace.json.gz"


def _trace(*rows: Row) -> str:
    return json.dumps({"displayTimeUnit": "ns", "traceEvents": [lane(49, "/host:CPU"), *rows, {}]}, indent=2)


def test_metadata_above_a_profile_names_its_process_and_time(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        {
            TRACE: _trace(x("op", 1162.109, 0.972, pid=49, tid=7)),
            f"{STEP}/26-algo-1_1596659864545103_1596659864854168.metadata": "",
            f"{STEP}/events.out.tfevents.1.profile-empty": "x",
            f"{STEP}/plugins/profile/2020_08_05_13_37_44/a.overview_page.pb": "x",
            f"{STEP[:-1]}6/26-algo-1_1596659864545103_1596659864854168.metadata": "",
            "algo-1/tf_dataloader_start_flag.tmp": "",
        },
    )

    start = 1596659864545103
    assert rows_of(found.events) == [
        ("algo-1", "26", "/host:CPU", "profiler", "op", start + 1162, start + 1163, -1, -1, 7)
    ]
    assert remarks(found) == [
        ("summary", 2),
        ("flag", 1),
        ("unused_metadata", 1),
        ("no_type", 1),
    ]


def test_of_several_metadata_files_the_one_of_the_host_is_taken(tmp_path: Path) -> None:
    host = TRACE.rpartition("/")[2].removesuffix(".trace.json.gz")
    notes = {
        f"{STEP}/{i}-{name}_{1596659864000000 + i}_9999999999999999.metadata": ""
        for i, name in enumerate(("a", host, "z"))
    }

    found = read(tmp_path, {TRACE: _trace(x("op", 5, 1, pid=49)), **notes})

    assert rows_of(found.events)[0][:2] == (host, "1")
    assert found.events.start_us.tolist() == [1596659864000006]
    assert remarks(found) == [
        ("unused_metadata", 2),
        ("no_type", 1),
    ]


def test_a_trace_keeps_its_machine_where_it_is_not_clear_which_metadata_is_its_own(tmp_path: Path) -> None:
    start = 1_700_000_000_400_000
    notes = {f"{STEP}/{i}-algo-{i}_{start + i}_{start + 9}.metadata": "" for i in (1, 2)}
    trace = f"{STEP}/plugins/profile/2023_11_14_22_13_20/ip-10-0-0-1.trace.json"

    found = read(tmp_path, {**notes, trace: _trace(x("a", 100, 10))})

    assert [event[:2] + event[5:6] for event in rows_of(found.events)] == [("ip-10-0-0-1", "", start + 101)]
    assert remarks(found)[:2] == [
        ("unused_metadata", 1),
        ("no_type", 1),
    ]
    assert remarks(found)[2] == ("several_metadata", 1)


def test_metadata_above_the_folder_of_the_step_is_of_another(tmp_path: Path) -> None:
    note = f"{STEP.rpartition('/')[0]}/26-algo-1_1596659864545103_1596659864854168.metadata"

    found = read(tmp_path, {TRACE: _trace(x("op", 5, 1, pid=49)), note: ""})

    assert found.events.lanes[0].node == "ip-10-0-1-2"
    assert ("unused_metadata", 1) in remarks(found)


def test_without_metadata_the_folder_gives_the_time(tmp_path: Path) -> None:
    found = read(tmp_path, {TRACE: _trace(x("op", 5, 1, pid=49))})

    assert found.events.lanes[0].node == "ip-10-0-1-2"
    assert found.events.start_us.tolist() == [1596634664000005]
    assert ("no_metadata", 1) in remarks(found)


# Layouts and damage

SOUND = [base(), lane(1, "Forward"), *[x(f"e{i}", i) for i in range(6)]]
LAYOUTS: dict[str, Callable[[list[Row]], str]] = {
    "a row a line": text,
    "one line": json.dumps,
    "many lines a row": lambda rows: json.dumps(rows, indent=2),
    "compact": lambda rows: json.dumps(rows, separators=(",", ":")),
    "object": lambda rows: json.dumps({"displayTimeUnit": "ns", "traceEvents": rows, "more": {"a": [1]}}),
    "object of lines": lambda rows: '{"traceEvents": ' + text(rows).strip() + ',\n"more": {"a": []}}\n',
    "compact object of lines": lambda rows: (
        '{"a":{},\n"traceEvents":[\n' + ",\n".join(map(json.dumps, rows)) + "]}"
    ),
}


@pytest.mark.parametrize("block", [1, 100, 1 << 24])
@pytest.mark.parametrize(
    "content",
    [
        *(make(SOUND) for make in LAYOUTS.values()),
        "\ufeff" + text(SOUND),
        text(SOUND).replace("\n", "\r\n"),
        "\n\n  " + text(SOUND),
        text(SOUND).replace("\n]\n", ",\n"),
        text(SOUND).replace("\n]\n", ",\n]"),
        text(SOUND).removeprefix("[\n"),
        text(SOUND).replace('"e3"', '"e3", "loss": NaN'),
        text(SOUND).replace('"ph": "X", "ts": 2', '"ph": "X", "ts": 2, "of": [{"a": 1}, {"b": [2]}]'),
        json.dumps(SOUND).replace('"ts": 2', '"ts": 2, "of": [{"a": 1}, {"b": [2]}]'),
        json.dumps(SOUND).replace('"e3"', '"e3", "loss": NaN'),
    ],
)
def test_every_layout_of_the_same_rows_gives_the_same_events(
    tmp_path: Path, content: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_rows, "_BLOCK", block)
    monkeypatch.setattr(text_files, "_CHUNK", 100)

    found = read(tmp_path, {FILE: content})

    assert rows_of(found.events) == [
        ("algo-1", "33", "Forward", "python", f"e{i}", BASE_US + i, BASE_US + i + 10, -1, -1, -1)
        for i in range(6)
    ]
    assert remarks(found) == ([("no_end", 1)] if content.endswith(",\n") else [])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.slow
def test_a_file_of_many_blocks_is_read_with_a_part_of_it_in_memory(
    tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_rows, "_MAX_ROW_BYTES", 1 << 17)
    rows = [base(), *[x(f"e{i}", i, args={"k": [i]}) for i in range(9999)]]

    found = read(tmp_path, {FILE: LAYOUTS[layout](rows)})

    assert len(found.events) == 9999
    assert remarks(found) == []


@pytest.mark.parametrize("damage", ["zeros", "cut", "brace", "name"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_damage_costs_lines_or_the_rest_of_a_file(tmp_path: Path, layout: str, damage: str) -> None:
    content = LAYOUTS[layout](SOUND)
    begin = content.rindex("{", 0, content.index('"e3"'))
    end = content.index("}", begin)
    row = content[begin:end]
    changed = {
        "zeros": "\0" * len(row),
        "cut": row[:15],
        "brace": "x" + row[1:],
        "name": row.replace('"e3"', "e3"),
    }

    found = read(tmp_path, {FILE: content[:begin] + changed[damage] + content[end:]})

    if layout in ("a row a line", "object of lines", "compact object of lines"):
        assert found.events.names == ("e0", "e1", "e2", "e4", "e5")
        assert remarks(found) == [("not_json", 1)]
        assert found.quality.remarks[0].place == f"{FILE}:{content.count(chr(10), 0, begin) + 1}"
    else:
        assert found.events.names == ("e0", "e1", "e2")
        assert remarks(found) == [("rest", len(content) - len(row) + len(changed[damage]) - begin)]


def test_a_damaged_line_is_named_with_its_number_in_any_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_rows, "_BLOCK", 300)
    monkeypatch.setattr(trace_rows, "_HEAD", 300)
    monkeypatch.setattr(text_files, "_CHUNK", 100)
    lines = text([base(), *[x(f"e{i}", i) for i in range(99)]]).split("\n")
    lines[60] = "\x00garbage"

    found = read(tmp_path, {FILE: "\n".join(lines)})

    assert len(found.events) == 98
    assert [remark.place for remark in found.quality.remarks] == [f"{FILE}:61"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_place_in_which_a_file_can_be_cut(tmp_path: Path, layout: str) -> None:
    content = LAYOUTS[layout](SOUND)
    for at in range(content.index('"e0"'), len(content), 23):
        found = read(tmp_path, {FILE: content[:at]})

        ends = [content.index("}", content.index(f'"e{i}"')) + 1 for i in range(6)]
        assert len(found.events) == sum(end <= at for end in ends), at
        assert {code for code, _ in remarks(found)} <= {"no_end", "rest"}, at


@pytest.mark.parametrize("keep", [0.5, 0.9])
def test_compressed_data_that_is_cut_short_gives_what_stands_in_front(tmp_path: Path, keep: float) -> None:
    packed = gzip.compress(text([*SOUND, *[x(f"op{i % 97}", i * i, i) for i in range(5000)]]).encode())

    found = read(tmp_path, {FILE: packed[: int(len(packed) * keep)]})

    assert len(found.events) > 5000 * (keep - 0.1)
    assert remarks(found) == [("damaged_gzip", 1)]


def test_a_file_that_is_still_written_gives_its_complete_rows(tmp_path: Path) -> None:
    found = read(tmp_path, {"framework/33-algo-1_pythontimeline.tmp": text(SOUND)[:-30]})

    assert len(found.events) == 5
    assert remarks(found) == [("growing", 1)]


@pytest.mark.parametrize("first", ["\ufeff", "\r\n\r\n", "Z\n", "\0\n", "]\n", "//\n"])
def test_what_stands_in_front_of_lines_hides_no_row(tmp_path: Path, first: str) -> None:
    found = read(tmp_path, {FILE: first + text(SOUND)})

    assert len(found.events) == 6
    assert lost_rows(found) <= 1


def test_a_name_that_is_not_utf8_is_escaped(tmp_path: Path) -> None:
    for make in (text, json.dumps):
        content = make([*SOUND, x("odd", 5, cat="of no use")]).encode()
        content = content.replace(b'"e3"', b'"e\xff"').replace(b"of no use", b"of \xc3 use")

        found = read(tmp_path, {FILE: content})

        assert sorted(found.events.names) == ["e0", "e1", "e2", "e4", "e5", "e\\udcff", "odd"]
        assert remarks(found) == []


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("", "empty"),
        (" \n", "empty"),
        ("[]", "empty"),
        ("[\n", "empty"),
        ("{}", "no_type"),
        ('{"traceEvents": 5}', "no_type"),
        ("[" * 100_000, "rest"),
        ('{"a":' * 100_000, "rest"),
        ("\x00" * 1000, "rest"),
        ("null", "rest"),
        (gzip.compress(b"[", mtime=0)[:12], "damaged_gzip"),
        (b"\xff\xfe" * 99, "rest"),
        (text(SOUND).encode("utf-16"), "rest"),
    ],
)
def test_a_file_without_any_event_has_a_remark(tmp_path: Path, content: str | bytes, code: str) -> None:
    found = read(tmp_path, {FILE: content})

    assert len(found.events) == len(found.steps) == found.quality.files == 0
    assert found.finished is None
    assert code in dict(remarks(found))


@pytest.mark.parametrize(
    "part", ["{", "[", '"', "},\n{", '},{"', '{"ph":"X"},{"', "{}\n", "x\n", "\\", '{"a":[', "\n"]
)
@pytest.mark.parametrize("start", ["[", '{"traceEvents":[', ""])
def test_nonsense_of_any_length_costs_no_more_than_its_length(tmp_path: Path, start: str, part: str) -> None:
    begin = time.process_time()

    read(tmp_path, {FILE: start + part * 100_000})

    assert time.process_time() - begin < 4


def test_a_file_that_cannot_be_opened_has_a_remark(tmp_path: Path) -> None:
    write(tmp_path, {FILE: text(SOUND)})
    gone = SourceFile(name="gone_pythontimeline.json", place=str(tmp_path / "gone_pythontimeline.json"))
    found = Traces().read([gone, SourceFile(name=FILE, place=str(tmp_path / FILE))])

    assert len(found.events) == 6
    assert remarks(found) == [("unreadable", 1)]
    assert found.quality.remarks[0].reason == "cannot be read: No such file or directory"


# What names may hold


def test_names_are_kept_as_they_are_up_to_a_length(tmp_path: Path) -> None:
    names = ["</script><b>", "a\nb\x00\x1b", "ü\u2028", "", "n" * 1000]
    long = "l" * 1_000_000
    found = read_rows(
        tmp_path, base(), lane(1, long), *[x(name, i) for i, name in enumerate([*names, long, long])]
    )

    kept = "l" * 999 + "…"
    assert [event[4] for event in rows_of(found.events)] == [*names, kept, kept]
    assert found.events.lanes[0].event_type == kept
    assert remarks(found) == [("long_name", 1)]


def test_the_example_of_a_long_name_is_a_file_that_has_one(tmp_path: Path) -> None:
    long = FILE.replace("33", "34")

    found = read(tmp_path, {FILE: text(SOUND), long: text([base(), x("l" * 1001)])})

    assert [remark.place for remark in found.quality.remarks] == [long]


def test_half_a_character_becomes_an_escape(tmp_path: Path) -> None:
    found = read_rows(
        tmp_path, base(), x("op"), '{"name": "\\ud800", "ph": "X", "ts": 5, "dur": 1, "pid": 1}'
    )

    assert [event[4] for event in rows_of(found.events)] == ["\\ud800", "op"]


def test_a_node_that_cannot_be_printed_has_escapes(tmp_path: Path) -> None:
    odd = [FILE.replace("algo-1", name) for name in ("al\ngo", "al\rgo", "n" * 200)]
    found = read(tmp_path, {name: text(SOUND) for name in (*odd, FILE)})

    assert len(found.events) == 24
    assert remarks(found) == []
    nodes = {lane.node for lane in found.events.lanes}
    assert len(nodes) == 4
    assert {"algo-1", "n" * 200} < nodes
    assert all(node.isprintable() for node in nodes)
