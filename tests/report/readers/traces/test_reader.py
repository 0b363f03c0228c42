from __future__ import annotations

import gzip
import json
import random
import time
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz.trace_rows_reference import LATEST_US, Expected
from jobreport.readers.base import Found, SourceFile
from jobreport.readers.registry import read_job
from jobreport.readers.system_samples.reader import SystemSamples
from jobreport.readers.traces import row as trace_row
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

SLOW = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

# Against the slow reader

PHASES = ("Forward", "Step:ModeKeys.TRAIN", "cpu_functions", "Unknown")
SUFFIXES = ("pythontimeline", "model_timeline", "horovod_timeline")


def _args() -> st.SearchStrategy[object]:
    number = st.one_of(
        st.integers(-2, 40), st.integers(0, 40).map(str), st.sampled_from([None, "x", "", 2.0, 2.5, "-3"])
    )
    known = st.fixed_dictionaries(
        {}, optional={"pid": number, "step_num": number, "thread_id": number, "tid": number}
    )
    return st.one_of(known, known, st.sampled_from([None, {}, "text", [1], 5, {"step_num": [1]}]))


def _sound() -> st.SearchStrategy[Row]:
    moment = st.one_of(st.integers(0, 10**9), st.floats(0, 1e9))
    return st.fixed_dictionaries(
        {
            "name": st.sampled_from(["a", "b", "Step:ModeKeys.TRAIN", "4", "ü"]),
            "pid": st.integers(0, 3),
            "ph": st.just("X"),
            "ts": moment,
            "dur": st.one_of(st.integers(0, 9), moment),
        },
        optional={"args": _args(), "tid": st.integers(0, 3)},
    )


def _odd() -> st.SearchStrategy[Row]:
    moment: st.SearchStrategy[object] = st.one_of(
        st.integers(-3, 99),
        st.sampled_from([None, "7", -0.5, float("nan"), float("inf"), 1e300, 10**30, 10**300, True, [], {}]),
        st.integers(BASE_US, BASE_US + 99),
        st.just(2 * DAY_US),
    )
    return st.fixed_dictionaries(
        {},
        optional={
            "name": st.sampled_from(["a", "7", "", None, 5, ["a"]]),
            "pid": st.sampled_from([0, 1, "one", None, 2]),
            "ph": st.sampled_from(["X", "X", "B", "E", "i", "C", "s", "", None, 3, "M"]),
            "ts": moment,
            "dur": moment,
            "args": _args(),
            "tid": st.sampled_from([0, 1, "t", None]),
        },
    )


def _announcement() -> st.SearchStrategy[Row]:
    bases = st.sampled_from([BASE_US, BASE_US + 5_000_000, 0, 5]).map(base)
    return st.one_of(st.builds(lane, st.integers(0, 3), st.sampled_from(PHASES)), bases)


@st.composite
def _rows(draw: st.DrawFn) -> list[Row]:
    pair = st.tuples(st.integers(0, 2), st.integers(0, 99)).map(
        lambda t: {"name": "p", "ph": "B", "pid": t[0], "ts": t[1]}
    )
    end = st.tuples(st.integers(0, 2), st.integers(0, 200)).map(
        lambda t: {"ph": "E", "pid": t[0], "ts": t[1], "args": {"step_num": 1}}
    )
    rows = st.lists(st.one_of(_sound(), _sound(), pair, end, _announcement(), _odd()), max_size=25)
    return [base()] * draw(st.integers(0, 1)) + draw(rows)


@st.composite
def _files(draw: st.DrawFn) -> dict[str, bytes]:
    """Some files, whole or cut, packed or not, some of them twice."""
    files: dict[str, bytes] = {}
    for i, rows in enumerate(draw(st.lists(_rows(), min_size=1, max_size=4))):
        who, suffix = (
            draw(st.sampled_from(["33-algo-1", "34-algo-1", "0-b.c"])),
            draw(st.sampled_from(SUFFIXES)),
        )
        data = text(rows).encode()
        packed = draw(st.booleans())
        name = f"{HOUR}/{1700000060000000 + i}_{who}_{suffix}.json{'.gz' * packed}"
        data = gzip.compress(data, mtime=0) if packed else data
        if draw(st.booleans()):
            data = data[: draw(st.integers(20 if packed else 0, len(data)))]
        files[name] = data
        if draw(st.booleans()):
            files[name.replace("pevents", "copy")] = data
    return files


def _check(found: Found, expected: Expected) -> None:
    rows = rows_of(found.events)
    assert Counter(rows) == expected.events
    assert [row[5:7] for row in rows] == sorted(row[5:7] for row in rows)
    assert lost_rows(found) == expected.rows - len(rows)
    assert found.quality.rows == len(rows)


@SLOW
@given(files=_files(), block=st.sampled_from([1, 200, 1 << 20]))
def test_every_event_of_any_files_is_found_once_and_every_row_accounted_for(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes], block: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace_rows, "_BLOCK", block)

        found = read(tmp_path_factory.mktemp("job"), files)

    _check(found, Expected(files))


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


@SLOW
@given(data=st.data(), seed=st.integers(0, 999))
def test_neither_writer_nor_split_nor_order_of_files_matters(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, seed: int
) -> None:
    rng = random.Random(seed)
    phases = rng.sample(PHASES[:3], k=rng.randint(1, 3))
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
    ("row", "reason"),
    [
        ({}, "does not say of what kind it is"),
        ({"ph": "i", "name": "CYCLE_START", "ts": 0, "s": "g"}, "marks a moment and has no duration"),
        ({"ph": "C", "name": "c", "ts": 0, "args": {"value": 1}}, "counter, has no duration"),
        ({"ph": "s", "id": 1, "ts": 0}, "connects other rows and has no duration"),
        ({"ph": "b", "id": 1, "ts": 0}, "part of an asynchronous operation, which is not read"),
        ({"ph": "?", "ts": 0}, "of a kind that is not read"),
        (x(ts=...), "has no start"),
        (x(name=...), "has no name"),
        (x(name=5), "has no name"),
        (x(ts=-1), "start or duration is negative, NaN, infinite or too large"),
        (x(dur=-1), "start or duration is negative, NaN, infinite or too large"),
        (x(dur=31 * 86400 * 10**6), "start or duration is negative, NaN, infinite or too large"),
        (x(ts=float("nan")), "start or duration is negative, NaN, infinite or too large"),
        (x(dur=float("inf")), "start or duration is negative, NaN, infinite or too large"),
        (x(ts=10**100), "start or duration is negative, NaN, infinite or too large"),
        (x(ts="12"), "start or duration is negative, NaN, infinite or too large"),
        (
            '{"ph": "X", "name": "op", "ts": 1e400}',
            "start or duration is negative, NaN, infinite or too large",
        ),
        (
            '{"ph": "X", "name": "op", "ts": ' + "9" * 5000 + "}",
            "start or duration is negative, NaN, infinite or too large",
        ),
        ('{"ph": "X", "name": "op", "ts": 1', "not complete JSON"),
        ('"ph"', "not a JSON object"),
        ("[1]", "not a JSON object"),
        ('{"ph": "X", "a": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply"),
        ({"ph": "E", "pid": 1, "ts": 9}, "ends what did not begin in its file"),
        ({"ph": "B", "name": "b", "pid": 1, "ts": 9}, "begins what does not end in its file"),
    ],
)
def test_a_row_that_is_no_event_costs_itself_and_is_told(tmp_path: Path, row: Row | str, reason: str) -> None:
    found = read_rows(tmp_path, base(), lane(1, "Forward"), x("before"), row, x("after"))

    assert [event[4] for event in rows_of(found.events)] == ["after", "before"]
    assert remarks(found) == [("skipped", 1, "rows", reason)]


@pytest.mark.parametrize(
    "row",
    [
        x(dur=...),
        x(dur=None, args=None),
        x(dur=0, args="text"),
        x(dur=0, args=[1]),
        x(dur=0, tid=[1], cat={"a": 1}),
        x(dur=0, args={"loss": float("nan")}),
        '{"name": "x", "ph": "B", "ph": "X", "name": "op", "pid": 1, "ts": 7, "ts": 1000}',
        {"name": "process_name", "ph": "M", "pid": 1},
    ],
)
def test_an_odd_row_that_tells_enough_is_an_event(tmp_path: Path, row: Row | str) -> None:
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
        x("c", 3, args={"step_num": "many", "tid": 9, "pid": 10**30}),
        x("d", 4, args=None),
    )

    assert [event[4:5] + event[7:] for event in rows_of(found.events)] == [
        ("a", 7, 33, 5),
        ("b", 8, 34, 6),
        ("c", -1, -1, 9),
        ("d", -1, -1, -1),
    ]


# Lanes, pairs, bases


def test_the_last_announcement_of_a_lane_holds(tmp_path: Path) -> None:
    found = read_rows(
        tmp_path, base(), x("a", 1, pid=0), lane(0, "One"), x("b", 2, pid=0), lane(0, "Two"), x("c", 3, pid=0)
    )

    assert [event[2] for event in rows_of(found.events)] == ["Unknown", "One", "Two"]


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
        ("One", "outer", 10, 40, 3, 6),
        ("One", "inner", 20, 30, -1, -1),
        ("One", "thread", 25, 50, -1, -1),
    ]
    assert remarks(found) == [("skipped", 1, "rows", "ends what did not begin in its file")]


def test_a_pair_that_ends_before_it_begins_costs_itself(tmp_path: Path) -> None:
    begin, end = {"name": "p", "ph": "B", "pid": 1, "ts": 9}, {"ph": "E", "pid": 1, "ts": 8}

    found = read_rows(tmp_path, base(), x(), begin, end)

    assert len(found.events) == 1
    assert [remark[1] for remark in remarks(found)] == [1]


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


def test_a_second_base_holds_for_the_rows_behind_it(tmp_path: Path) -> None:
    found = read_rows(tmp_path, base(), x(ts=5), base(BASE_US + 100), x(ts=5))

    assert found.events.start_us.tolist() == [BASE_US + 5, BASE_US + 105]


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
    assert remarks(found) == [("dropped", 1, "rows", "time is no date, for want of a time base in the file")]


def test_times_that_are_dates_need_no_base(tmp_path: Path) -> None:
    found = read_rows(tmp_path, x(ts=BASE_US + 5), x(ts=BASE_US + 6.5))

    assert found.events.start_us.tolist() == [BASE_US + 5, BASE_US + 6]
    assert remarks(found) == []


def test_events_without_a_date_are_used_only_where_no_event_has_one(tmp_path: Path) -> None:
    other = FILE.replace("33", "34")
    undated: dict[str, str | bytes] = {"horovod_timeline_raw.json": text([x(ts=77_000_000_000)])}

    alone = read(tmp_path / "alone", undated)
    beside = read(tmp_path / "beside", {**undated, other: text([base(), x()])})

    assert rows_of(alone.events) == [
        ("node", "", "Unknown", "horovod", "op", 77_000_000_000, 77_000_000_010, -1, -1, -1)
    ]
    reason = "time is no date, for want of a time base in the file"
    assert remarks(alone) == [("corrected", 1, "rows", f"{reason}; only durations and distances are right")]
    assert alone.finished is None
    assert len(beside.events) == 1
    assert remarks(beside) == [("dropped", 1, "rows", reason)]


def test_a_base_that_is_no_date_is_told(tmp_path: Path) -> None:
    bases: tuple[object, ...] = (5, -1, 10**30, float("nan"), "x", [], True)
    for odd in bases:
        found = read_rows(tmp_path, base(), x(), base(odd), x("undated"))

        assert len(found.events) == 1
        assert ("skipped", 1, "time bases", "time base is no date") in remarks(found)


def test_events_far_from_all_others_are_dropped(tmp_path: Path) -> None:
    far = BASE_US - 400 * 86400 * 10**6

    found = read_rows(tmp_path, base(), *[x(ts=i) for i in range(200)], base(far), x("stray"))

    assert found.events.names == ("op",)
    assert len(found.events) == 200
    assert remarks(found) == [
        ("dropped", 1, "rows", "time lies more than 30 days from nearly all other events")
    ]


def test_the_set_up_of_a_loader_far_from_all_events_is_no_loader(tmp_path: Path) -> None:
    lanes = (lane(1, "Forward"), lane(5, "DataLoaderIterInitialize"))
    far = BASE_US - 400 * 86400 * 10**6
    loader = x("_MultiProcessingDataLoaderIter.__init__", 9, pid=5, args={"num_workers": 4})

    found = read_rows(tmp_path, base(), *lanes, *[x(ts=i) for i in range(200)], base(far), loader)

    assert (len(found.events), found.events.loaders) == (200, ())


ENDLESS = "ends more than a day after the job's last event begins"


@pytest.mark.parametrize(
    ("count", "long", "dropped"),
    [
        (300, [29 * DAY_US], 1),
        (1, [2 * DAY_US], 1),
        (300, [29 * DAY_US, 3 * DAY_US], 2),
        # Lives of loader processes, and a job that is one event.
        (300, [5 * 3600 * 10**6], 0),
        (300, [26 * 3600 * 10**6] * 8, 0),
        (0, [2 * DAY_US], 0),
    ],
)
def test_an_event_that_goes_on_long_after_all_others_began_is_dropped(
    tmp_path: Path, count: int, long: list[int], dropped: int
) -> None:
    steps = [x("Step:ModeKeys.TRAIN", i * 10**6, 900_000) for i in range(count)]

    found = read_rows(tmp_path, base(), *steps, *[x(f"long{i}", i, dur) for i, dur in enumerate(long)])

    assert len(found.events) == count + len(long) - dropped
    assert remarks(found) == ([("dropped", dropped, "rows", ENDLESS)] if dropped else [])


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
    assert ("dropped", 3, "rows", "repetition of an event in another file") in remarks(found)


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
        ("dropped", 5, "rows", "repetition of an event in another file"),
        ("corrected", 1, "files", "still being written; the complete rows are in use"),
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


def test_the_set_up_of_loaders_is_told(tmp_path: Path) -> None:
    multi, single = "_MultiProcessingDataLoaderIter", "_SingleProcessDataLoaderIter"
    found = read_rows(
        tmp_path,
        base(),
        lane(5, "DataLoaderIterInitialize"),
        x(f"{multi}.__init__", 9, pid=5, args={"num_workers": 4, "pin_memory": True, "pid": 33}),
        x(f"{single}.__init__", 2, pid=5, args={"num_workers": "many", "pin_memory": 1}),
        x(f"{single}.__init__", -1, pid=5, args={"num_workers": 0}),
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
        for name, ts, workers, pin in ((single, 2, None, None), (multi, 9, 4, True))
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
        '{"Type": "cpu"}\n' if "notes" not in name else '[{"a": {"ph": "X"}}, {"ph": "7.4"}, {"ph": "7"}]'
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


@pytest.mark.parametrize("start", ["[", "{", '{"a":', '[{"a":[', '{"a":{"ph":"X"},', " \n", "{}\n\n"])
def test_the_look_at_the_first_rows_is_short(tmp_path: Path, start: str) -> None:
    content, begin = start * 30_000, time.process_time()

    found = read(tmp_path, {f"{HOUR}/1700000060000000_33-algo-1_mine.json": content})

    assert time.process_time() - begin < 1
    assert remarks(found) == []


def test_a_file_made_of_the_others_is_read_only_alone(tmp_path: Path) -> None:
    merged = f"{HOUR}/1700000060000000_0-algo-1_merged_timeline.json"
    write(tmp_path, {merged: text([x(ts=BASE_US + 1000)])})

    alone = read(tmp_path)
    beside = read_rows(tmp_path, base(), x())

    assert len(alone.events) == len(beside.events) == 1
    assert alone.finished is None
    assert remarks(beside) == [("skipped", 1, "files", "made of the other traces")]


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
        ("skipped", 2, "files", "summary of the TensorFlow profiler; only its traces are read"),
        ("skipped", 1, "files", "flag for the recording of data loading; it holds no event"),
        ("skipped", 1, "files", "tells the time of a trace that is not there"),
        ("skipped", 1, "rows", "does not say of what kind it is"),
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
        ("skipped", 2, "files", "tells the time of a trace that is not there"),
        ("skipped", 1, "rows", "does not say of what kind it is"),
    ]


def test_a_host_may_be_known_by_the_first_part_of_its_name(tmp_path: Path) -> None:
    notes = {f"{STEP}/{i}-{name}_159665986400000{i}_9.metadata": "" for i, name in enumerate(("a", "b"))}
    notes = {name.replace("_9.", "_9999999999999999."): content for name, content in notes.items()}
    mine = f"{STEP}/7-ip-10-0-1-2_1596659864000007_9999999999999999.metadata"

    found = read(tmp_path, {TRACE: _trace(x("op", 5, 1, pid=49)), **notes, mine: ""})

    assert rows_of(found.events)[0][:2] == ("ip-10-0-1-2", "7")
    assert not any("several" in reason for *_, reason in remarks(found))


def test_two_machines_in_one_folder_have_each_its_own_time(tmp_path: Path) -> None:
    folder = f"{STEP}/plugins/profile"
    first, second = 1_700_000_000_400_000, 1_700_000_500_300_000
    found = read(
        tmp_path,
        {
            f"{STEP}/0-algo-1_{first}_{first + 9}.metadata": "",
            f"{STEP}/1-algo-2_{second}_{second + 9}.metadata": "",
            # The second is in the time of a zone seven hours behind.
            f"{folder}/2023_11_14_22_13_20/ip-10-0-0-1.trace.json": _trace(x("a", 100, 10)),
            f"{folder}/2023_11_14_15_21_40/ip-10-0-0-2.trace.json": _trace(x("b", 100, 10)),
        },
    )

    assert [event[:2] + event[4:6] for event in rows_of(found.events)] == [
        ("algo-1", "0", "a", first + 100),
        ("algo-2", "1", "b", second + 100),
    ]
    assert remarks(found) == [("skipped", 2, "rows", "does not say of what kind it is")]


def test_a_trace_keeps_its_machine_where_it_is_not_clear_which_metadata_is_its_own(tmp_path: Path) -> None:
    start = 1_700_000_000_400_000
    notes = {f"{STEP}/{i}-algo-{i}_{start + i}_{start + 9}.metadata": "" for i in (1, 2)}
    trace = f"{STEP}/plugins/profile/2023_11_14_22_13_20/ip-10-0-0-1.trace.json"

    found = read(tmp_path, {**notes, trace: _trace(x("a", 100, 10))})

    assert [event[:2] + event[5:6] for event in rows_of(found.events)] == [("ip-10-0-0-1", "", start + 101)]
    assert remarks(found)[:2] == [
        ("skipped", 1, "files", "tells the time of a trace that is not there"),
        ("skipped", 1, "rows", "does not say of what kind it is"),
    ]
    assert remarks(found)[2][0] == "corrected"
    assert remarks(found)[2][3].startswith("one of several .metadata files")


def test_metadata_above_the_folder_of_the_step_is_of_another(tmp_path: Path) -> None:
    note = f"{STEP.rpartition('/')[0]}/26-algo-1_1596659864545103_1596659864854168.metadata"

    found = read(tmp_path, {TRACE: _trace(x("op", 5, 1, pid=49)), note: ""})

    assert found.events.lanes[0].node == "ip-10-0-1-2"
    assert ("skipped", 1, "files", "tells the time of a trace that is not there") in remarks(found)


def test_without_metadata_and_time_the_step_in_the_path_tells_about_when(tmp_path: Path) -> None:
    trace = f"{STEP}/plugins/profile/x/ip-10-0-0-1.trace.json"
    steps = {FILE: _steps_of(33, 4, 7), FILE.replace("33", "34"): _steps_of(34, 5, 9)}
    said = "no .metadata file; its times are about those of the step that its folder names"

    found = read(tmp_path / "a", {**steps, trace: _trace(x("op", 50, 1))})
    missing = read(tmp_path / "b", {**steps, trace.replace("05/p", "95/p"): _trace(x("op", 50, 1))})

    assert [e[5] for e in rows_of(found.events) if e[4] == "op"] == [BASE_US + 5 * 1000 + 50]
    assert ("corrected", 1, "files", said) in remarks(found)
    assert "op" not in missing.events.names
    assert remarks(missing)[-1] == (
        "dropped",
        1,
        "rows",
        "time is no date, for want of a time base in the file",
    )


def test_without_metadata_the_folder_tells_about_when(tmp_path: Path) -> None:
    found = read(tmp_path, {TRACE: _trace(x("op", 5, 1, pid=49))})

    assert found.events.lanes[0].node == "ip-10-0-1-2"
    assert found.events.start_us.tolist() == [1596634664000005]
    assert (
        "corrected",
        1,
        "files",
        "no .metadata file; its times are about those of its folder, taken for UTC",
    ) in remarks(found)


# Layouts and damage

SOUND = [base(), lane(1, "Forward"), *[x(f"e{i}", i) for i in range(6)]]


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(SOUND),
        json.dumps(SOUND, indent=2),
        json.dumps(SOUND)[:-1],
        json.dumps(SOUND)[:-1] + ",]",
        "\ufeff" + text(SOUND),
        text(SOUND).replace("\n", "\r\n"),
        "\n\n  " + text(SOUND),
        text(SOUND).replace("\n]\n", ",\n"),
        text(SOUND).replace("\n]\n", ",\n]"),
        text(SOUND).removeprefix("[\n"),
        json.dumps({"traceEvents": SOUND}),
        "\n" + json.dumps({"traceEvents": SOUND}, indent=1),
        json.dumps({"traceEvents": SOUND, "other": {"a": [1]}})[:-4],
    ],
)
@pytest.mark.parametrize("block", [1, 100, 1 << 24])
def test_every_layout_of_the_same_rows_gives_the_same_events(
    tmp_path: Path, content: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_rows, "_BLOCK", block)

    found = read(tmp_path, {FILE: content})

    assert rows_of(found.events) == [
        ("algo-1", "33", "Forward", "python", f"e{i}", BASE_US + i, BASE_US + i + 10, -1, -1, -1)
        for i in range(6)
    ]
    assert lost_rows(found) == 0


@pytest.mark.parametrize("make", [json.dumps, lambda rows: json.dumps(rows, indent=2)])
def test_a_text_without_a_row_a_line_gives_the_rows_around_the_damage(tmp_path: Path, make: Any) -> None:
    content = make(SOUND).replace('"e2"', '"e2" oops')

    found = read(tmp_path, {FILE: content[: content.index('"e5"')]})

    assert found.events.names == ("e0", "e1", "e3", "e4")
    assert remarks(found) == [
        ("skipped", 1, "rows", "not complete JSON"),
        (
            "corrected",
            1,
            "files",
            "has no end: cut short, or still being written; the complete rows are in use",
        ),
    ]


@pytest.mark.parametrize("damaged", [1, 50, 250, 999])
def test_damage_without_lines_costs_the_damaged_rows_alone(tmp_path: Path, damaged: int) -> None:
    rows = [json.dumps(x(f"op{i % 7}", i)) for i in range(1000)]
    for i in range(damaged):
        at = (4 * i + i // 250) % 1000
        rows[at] = rows[at][:-3] + ","

    found = read(tmp_path, {FILE: f"[{json.dumps(base())}, {', '.join(rows)}]"})

    assert len(found.events) == 1000 - damaged
    assert remarks(found) == [("skipped", damaged, "rows", "not complete JSON")]


@pytest.mark.parametrize("start", [",\n", ", ", "\n[", ",\n[\n"])
@pytest.mark.parametrize("end", [',\n{"na', ",", "]", "\n\x00"])
def test_several_rows_on_a_line_of_a_damaged_file_are_found(tmp_path: Path, start: str, end: str) -> None:
    head = ",\n".join(json.dumps(row) for row in SOUND[:3])
    body = ", ".join(json.dumps(row) for row in SOUND[3:6])

    found = read(tmp_path, {FILE: f"[\n{head}{start}{body},\n{json.dumps(SOUND[6])}{end}"})

    assert found.events.names == ("e0", "e1", "e2", "e3", "e4")
    assert [row[2] for row in rows_of(found.events)] == ["Forward"] * 5


def test_an_object_may_hold_numbers_that_json_does_not_have(tmp_path: Path) -> None:
    rows = [*SOUND, x("loss", 7, args={"loss": float("nan")})]

    found = read(tmp_path, {FILE: json.dumps({"traceEvents": rows, "other": {"a": [1]}})})

    assert found.events.names == ("e0", "e1", "e2", "e3", "e4", "e5", "loss")
    assert remarks(found) == []


@pytest.mark.parametrize("end", ['{"name": "x\n\x00\n', '{"a"\n\x00\n' + json.dumps(x("last"))])
def test_damage_at_the_end_of_a_cut_file_is_told_and_hides_no_row(tmp_path: Path, end: str) -> None:
    found = read(tmp_path, {FILE: text(SOUND).replace("\n]\n", ",\n") + end})

    assert len(found.events) == 6 + ("last" in end)
    assert [remark[0] for remark in remarks(found)] == ["skipped", "corrected"][1 - ("last" in end) :]


def test_a_text_in_another_encoding_is_damage(tmp_path: Path) -> None:
    found = read(tmp_path, {FILE: text(SOUND).encode("utf-16")})

    assert ("skipped", 1, "rows", "not complete JSON") in remarks(found)


@pytest.mark.parametrize("keep", [-3, 130, 400])
@pytest.mark.parametrize("make", [text, json.dumps, lambda rows: json.dumps({"traceEvents": rows})])
def test_a_cut_file_is_told_in_one_remark(tmp_path: Path, make: Any, keep: int) -> None:
    content = make(SOUND)[:keep].encode()
    packed = zlib.compressobj(wbits=31)
    data = packed.compress(content) + packed.flush(zlib.Z_FULL_FLUSH)

    cut = read(tmp_path / "plain", {FILE: content})
    damaged = read(tmp_path / "packed", {FILE: data})

    assert rows_of(cut.events) == rows_of(damaged.events)
    assert [(action, unit) for action, _, unit, _ in remarks(cut)] == [("corrected", "files")]
    assert remarks(damaged) == [
        ("corrected", 1, "files", "compressed data is cut short or damaged; what comes before is in use")
    ]


def test_a_damaged_line_is_named_with_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_rows, "_BLOCK", 300)
    lines = text(SOUND).split("\n")
    lines[6] = "\x00garbage"

    found = read(tmp_path, {FILE: "\n".join(lines)})

    assert found.events.names == ("e0", "e1", "e2", "e4", "e5")
    (remark,) = found.quality.remarks
    assert (remark.count, remark.unit, remark.place) == (1, "rows", f"{FILE}:7")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "empty"),
        ("[]", None),
        ("[\n", "has no end: cut short, or still being written; the complete rows are in use"),
        ("{}", "has no list 'traceEvents'"),
        ('{"traceEvents": 5}', "has no list 'traceEvents'"),
        ("[" * 100_000, None),
        ('{"a":' * 100_000, None),
        ("\x00" * 1000, None),
        ("null", None),
        (
            gzip.compress(b"[", mtime=0)[:12],
            "compressed data is cut short or damaged; what comes before is in use",
        ),
        (b"\xff\xfe" * 99, None),
    ],
)
def test_a_file_without_any_event_is_told(tmp_path: Path, content: str | bytes, reason: str | None) -> None:
    found = read(tmp_path, {FILE: content})

    assert len(found.events) == len(found.steps) == found.quality.files == 0
    assert found.finished is None
    assert found.quality.remarks
    assert reason is None or reason in [remark.reason for remark in found.quality.remarks]


def test_a_text_too_large_to_hold_is_read_as_far_as_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_rows, "_BLOCK", 1000)
    monkeypatch.setattr(trace_rows, "_LARGEST", 1 << 16)
    rows = [base(), *[x(f"e{i}", i) for i in range(9999)]]

    content = '{"traceEvents": [' + "  ,  ".join(map(json.dumps, rows)) + "]}"

    whole = read(tmp_path, {FILE: content})

    assert 500 < len(whole.events) < 9999
    assert remarks(whole) == [
        ("skipped", 1, "files", "larger than 0 MiB and cannot be read in parts; the rest is not read")
    ]


class _Never(msgspec.Struct):
    in_no_row: int


@SLOW
@given(files=_files(), block=st.sampled_from([1, 200, 1 << 20]))
def test_rows_decoded_one_by_one_give_what_rows_decoded_in_blocks_give(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes], block: int
) -> None:
    root = tmp_path_factory.mktemp("job")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace_rows, "_BLOCK", block)
        fast = read(root, files)
        # No row is known, so that each is taken apart by Python's own decoder, with values of any type.
        patch.setattr(trace_rows, "_ROWS", msgspec.json.Decoder(list[_Never]))
        patch.setattr(trace_row, "_ROW", msgspec.json.Decoder(_Never))
        slow = read(root)

    assert rows_of(fast.events) == rows_of(slow.events)
    assert fast.quality == slow.quality


@pytest.mark.parametrize("end", ["]}", '], "more": [{"name": 1},\n{"name": 2}], "z": 3}'])
@pytest.mark.parametrize("start", ['{"traceEvents":[', '{"deep": [{"traceEvent": []}],\n"traceEvents": [\n'])
@pytest.mark.parametrize("between", [",\n", ", ", ","])
def test_the_rows_of_an_object_are_read_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str, end: str, between: str
) -> None:
    monkeypatch.setattr(trace_rows, "_BLOCK", 1000)
    monkeypatch.setattr(trace_rows, "_LARGEST", 1 << 17)
    rows = [base(), *[x(f"e{i}", i) for i in range(9999)]]

    found = read(tmp_path, {FILE: start + between.join(map(json.dumps, rows)) + end})

    assert len(found.events) == 9999
    assert remarks(found) == []


def test_a_damaged_row_of_a_long_object_costs_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_rows, "_BLOCK", 1000)
    rows = [*map(json.dumps, [base(), *[x(f"e{i}", i) for i in range(9999)]])]
    rows[5000] = '{"name": damaged}'

    found = read(tmp_path, {FILE: '{"traceEvents": [\n' + ",\n".join(rows) + "\n]}"})

    assert len(found.events) == 9998
    assert remarks(found) == [("skipped", 1, "rows", "not complete JSON")]
    assert found.quality.remarks[0].place == f"{FILE}:5002"


@pytest.mark.parametrize("separators", [(", ", ": "), (",", ":"), (",\n", ": ")])
def test_an_array_is_read_in_parts_however_its_rows_are_parted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, separators: tuple[str, str]
) -> None:
    monkeypatch.setattr(trace_rows, "_BLOCK", 1000)
    monkeypatch.setattr(trace_rows, "_LARGEST", 1 << 16)
    rows = [base(), *[x(f"e{i}", i, args={"of": [{"a": 1}, {"a": 2}]}) for i in range(9999)]]

    found = read(tmp_path, {FILE: json.dumps(rows, separators=separators)})

    assert len(found.events) == 9999
    assert remarks(found) == []


@pytest.mark.parametrize(
    "part", ["{", "[", '"', "},\n{", '},{"', '{"ph":"X"},{"', "{}\n", "x\n", "\\", '{"a":[', "\n"]
)
@pytest.mark.parametrize("start", ["[", '{"traceEvents":[', ""])
def test_nonsense_of_any_length_costs_no_more_than_its_length(tmp_path: Path, start: str, part: str) -> None:
    begin = time.process_time()

    read(tmp_path, {FILE: start + part * 100_000})

    assert time.process_time() - begin < 4


def test_a_file_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    write(tmp_path, {FILE: text(SOUND)})
    gone = SourceFile(name="gone_pythontimeline.json", place=str(tmp_path / "gone_pythontimeline.json"))
    found = Traces().read([gone, SourceFile(name=FILE, place=str(tmp_path / FILE))])

    assert len(found.events) == 6
    assert remarks(found) == [("skipped", 1, "files", "cannot be read: No such file or directory")]


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
    assert remarks(found) == [("corrected", 3, "names", "name has more than 1000 characters, shortened")]


def test_the_example_of_a_long_name_is_a_file_that_has_one(tmp_path: Path) -> None:
    long = FILE.replace("33", "34")

    found = read(tmp_path, {FILE: text(SOUND), long: text([base(), x("l" * 1001)])})

    assert [remark.place for remark in found.quality.remarks] == [long]


def test_half_a_character_becomes_an_escape(tmp_path: Path) -> None:
    found = read_rows(
        tmp_path, base(), x("op"), '{"name": "\\ud800", "ph": "X", "ts": 5, "dur": 1, "pid": 1}'
    )

    assert [event[4] for event in rows_of(found.events)] == ["\\ud800", "op"]


def test_a_node_that_cannot_be_printed_is_told_with_escapes(tmp_path: Path) -> None:
    odd = [FILE.replace("algo-1", name) for name in ("al\ngo", "al\rgo", "n" * 200)]
    found = read(tmp_path, {name: text(SOUND) for name in (*odd, FILE)})

    assert len(found.events) == 24
    assert remarks(found) == []
    nodes = {lane.node for lane in found.events.lanes}
    assert len(nodes) == 4
    assert {"algo-1", "n" * 200} < nodes
    assert all(node.isprintable() for node in nodes)
