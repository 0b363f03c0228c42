"""Traces that are damaged, or that writers lay out in other ways: what is sound is read, the rest is counted."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jobreport.readers.base import SourceFile
from jobreport.readers.kineto import text as text_module
from jobreport.readers.kineto.reader import Kineto
from jobreport.readers.kineto.table import read_trace
from jobreport.readers.tally import Tally
from tests.kineto import Recording, capture, read_text


def small_trace() -> Recording:
    trace = Recording(0)
    known: dict[str, Any] = {"memory bandwidth (GB/s)": 1.5}
    for number in range(5):
        at = 1000 + 100 * number
        trace.operator("aten::mm", at, at + 50)
        trace.kernel("gemm", at + 20, at + 90, launch=(at + 5, at + 10), **known)
    return trace


def codes(found: Any) -> dict[str, int]:
    return {one.code: one.count for one in found.quality.remarks}


def events_of(found: Any) -> int:
    (one,) = found.captures
    return int(sum(device.events for device in one.devices))


#: What stands in the text of the second kernel instead of something else; codes; kernels that are left of 5.
DAMAGE = {
    "NaN": ('"memory bandwidth (GB/s)": 1.5', '"memory bandwidth (GB/s)": NaN', "value", 5),
    "minus nan": ('"memory bandwidth (GB/s)": 1.5', '"memory bandwidth (GB/s)": -nan', "value", 5),
    "N/A": ('"memory bandwidth (GB/s)": 1.5', '"memory bandwidth (GB/s)": N/A', "value", 5),
    "line break": ('"gemm"', '"ge\nmm"', "value", 5),
    "backslash": ('"gemm"', '"C:\\Users\\gemm"', "value", 5),
    "backslash at the end": ('"gemm"', '"C:\\gemm\\"', "unreadable", 4),
    "no UTF-8": ('"gemm"', '"ge\udcffmm"', "value", 5),
    "quotes": ('"gemm"', '"x {"a": "b"}"', "unreadable", 4),
    "one quote": ('"gemm"', '"ge"mm"', "unreadable", 4),
    "trailing comma": ('(GB/s)": 1.5', '(GB/s)": 1.5,', "unreadable", 4),
    "start of 0": ('"ts": 1120', '"ts": 0', "zero_time", 4),
    "negative duration": ('"dur": 70', '"dur": -3', "no_duration", 4),
    "no duration": ('"dur": 70,', "", "no_duration", 4),
    "no name": ('"gemm"', "null", "no_name", 4),
    "no start": ('"ts": 1120', '"ts": "soon"', "no_start", 4),
    "years": ('"dur": 70', '"dur": 7e12', "long", 4),
    "arguments of another type": ('"args": {', '"args": [], "x": {', "unreadable", 5),
    "text as arguments": ('"args": {', '"args": "", "x": {', "unreadable", 5),
    "an array": ('"name": "gemm"', '"name": []', "unreadable", 4),
    "text as process": ('"pid": 0', '"pid": "Spans"', "", 5),
    "a number beyond 64 bits": ('"stream": 7', '"stream": 7, "Comms Id": 18446744073709551615', "", 5),
    "times as text": ('"ts": 1120', '"ts": "1120.5"', "", 5),
}


def damaged(old: str, new: str) -> bytes:
    """The trace with another text in the second kernel."""
    whole = small_trace().text().decode()
    begin = whole.index("gemm", whole.index("gemm") + 1) - 100
    assert old in whole[begin:]
    at = whole.index(old, begin)
    return (whole[:at] + new + whole[at + len(old) :]).encode("utf-8", "surrogateescape")


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_costs_one_event_at_most_and_is_counted(tmp_path: Path, name: str) -> None:
    old, new, code, kernels = DAMAGE[name]

    found = read_text(tmp_path, trace=damaged(old, new))

    assert events_of(found) == kernels
    assert codes(found) == ({f"kineto.{code}": 1} if code else {})


#: What stands instead of ``}},{"ph": "X"`` between a kernel and the next operator; kernels and operators left of 5.
BORDERS = {
    "no brace": ('}},"ph": "X"', 4, 4),
    "no comma": ('}}{"ph": "X"', 4, 4),
    "no end": (',{"ph": "X"', 4, 4),
    "a letter": ('}}x,{"ph": "X"', 4, 4),
    "nothing": (": 0", 4, 4),
    "an end of the list": ('}],"more": 0},{"ph": "X"', 4, 5),
}


@pytest.mark.parametrize("name", BORDERS)
def test_damage_between_events_mixes_none_of_their_values(tmp_path: Path, name: str) -> None:
    instead, kernels, operators = BORDERS[name]
    parts = json.dumps(
        small_trace().top | {"traceEvents": small_trace().events}, separators=(",", ": ")
    ).split(border := '}},{"ph": "X"')

    found = read_text(tmp_path, trace=(border.join(parts[:6]) + instead + border.join(parts[6:])).encode())

    (one,) = found.captures
    assert one.devices[0].kernels[0].total_ns == kernels * 70_000
    assert one.operator_calls == operators
    assert codes(found) == {"kineto.unreadable": 1}


@pytest.mark.parametrize(
    ("key", "code"), [("cat", "category"), ("name", "no_name"), ("ts", "no_start"), ("dur", "no_duration")]
)
def test_both_halves_of_an_event_that_is_split_are_counted(tmp_path: Path, key: str, code: str) -> None:
    whole = json.dumps(small_trace().top | {"traceEvents": small_trace().events}, separators=(",", ":"))
    at = whole.index(f',"{key}":', whole.index('"cat":"kernel"') - 20)

    found = read_text(tmp_path, trace=(whole[:at] + "},{" + whole[at + 1 :]).encode())

    assert events_of(found) == 4
    assert codes(found) == {f"kineto.{code}": 1, "kineto.no_type": 1}


def test_damage_in_the_last_event_leaves_what_stands_behind_it(tmp_path: Path) -> None:
    trace = small_trace()
    events = json.dumps(trace.events).replace("gemm", "g", 4).replace('"gemm"', '"ge"mm"')

    found = read_text(
        tmp_path, trace=f'{{"traceEvents": {events}, "distributedInfo": {{"rank": 3}}}}'.encode()
    )

    assert (found.captures[0].rank, events_of(found)) == (3, 4)
    assert codes(found) == {"kineto.unreadable": 1}


def test_the_place_of_damage_is_the_number_of_the_event(tmp_path: Path) -> None:
    found = read_text(tmp_path, trace=damaged('"dur": 70', '"dur": -3'))

    assert [one.place for one in found.quality.remarks] == ["trace.pt.trace.json:6"]


@pytest.mark.parametrize(
    "end", ['{"ph": "X", "dur": 5', '{"ph": "X"', '{"p', "{", "", '{"args": {"stream": 7']
)
def test_a_cut_file_is_read_up_to_its_last_complete_event(tmp_path: Path, end: str) -> None:
    whole = small_trace().text().decode()
    last = whole.rindex('{\n   "ph"')

    found = read_text(tmp_path, trace=(whole[:last] + end).encode())

    assert events_of(found) == 4
    assert codes(found) == {"kineto.cut": 1}


def test_times_keep_all_digits_that_the_file_has(tmp_path: Path) -> None:
    trace = small_trace()
    trace.events = trace.events[2:3]
    text = trace.text().decode().replace('"ts": 1020,', '"ts": 1712195495501020.217,')

    starts = [
        read_text(tmp_path, trace=one.encode()).captures[0].devices[0].start_ns
        for one in (text, text.replace("1712195495501020.217", '"1712195495501020.217"'))
    ]

    assert starts == [1_712_195_495_501_020_217] * 2


def test_a_fraction_that_a_float_rounds_away_counts_in_front_of_others(tmp_path: Path) -> None:
    trace = small_trace()
    trace.events = trace.events[2:6:3]
    text = trace.text().decode()
    for start, exact in (("1020", "1712195495501020.1"), ("1120", "1712195495501120.7")):
        text = text.replace(f'"ts": {start},', f'"ts": {exact},')

    (device,) = read_text(tmp_path, trace=text.encode()).captures[0].devices

    assert (device.start_ns, device.window_ns) == (1_712_195_495_501_020_100, 170_600)


def test_device_events_may_begin_before_the_base_of_time(tmp_path: Path) -> None:
    trace = small_trace()
    for event in trace.events:
        event["ts"] -= 1300

    found = read_text(tmp_path, trace=trace.text())

    assert (events_of(found), codes(found)) == (5, {})


@pytest.mark.parametrize(
    "top",
    [
        '{"distributedInfo": {"rank": 3, "pg_config": [%s]}, "traceEvents": EVENTS}'
        % ("{}, " * 40_000 + "{}"),
        '{"schemaVersion": 1, "traceEvents": EVENTS, "distributedInfo": {"rank": 3}}',
        '{"schemaVersion": 1, "traceEvents": EVENTS,\n "distributedInfo": {"rank": 3, "cut": ',
    ],
    ids=["in front", "behind", "behind and cut"],
)
def test_the_rank_stands_in_front_of_the_events_or_behind_them(tmp_path: Path, top: str) -> None:
    events = json.dumps(small_trace().events, indent=1)

    found = read_text(tmp_path, trace=top.replace("EVENTS", events).encode())

    assert found.captures[0].rank == 3
    assert events_of(found) == 5


@pytest.mark.parametrize("block", [100, 1000, 1 << 18])
def test_lists_behind_the_events_are_no_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    trace = small_trace()
    for number in range(100):
        trace.operator("aten::add", 2000 + number, 2001 + number)
    rank = trace.top.pop("distributedInfo")
    top = {"traceEvents": trace.events, "deviceProperties": [{"id": n, "name": "A100"} for n in range(8)]}
    monkeypatch.setattr(text_module, "_BLOCK", block)
    monkeypatch.setattr("jobreport.readers.text_files._CHUNK", block)

    found = read_text(tmp_path, trace=json.dumps(top | {"distributedInfo": rank}).encode())

    assert (found.captures[0].rank, found.captures[0].devices[0].name) == (0, "A100")
    assert (events_of(found), codes(found)) == (5, {})


@pytest.mark.parametrize("indent", [None, 1, 4])
@pytest.mark.parametrize("first", ["ph", "name", "args", "cat"])
def test_other_writers_lay_events_out_as_they_like(tmp_path: Path, indent: int | None, first: str) -> None:
    trace = small_trace()
    trace.events = [{first: event[first], **event} for event in trace.events]
    trace.events[0]["args"] = {"Input Dims": [{"name": "a"}, {"name": "b"}, {"ph": "X"}, {"ph": "X"}]}
    text = json.dumps(trace.events, indent=indent).encode()

    found = read_text(tmp_path, trace=text)

    assert events_of(found) == 5
    assert not codes(found)


@pytest.mark.parametrize("block", [1, 100, 1000, 5000])
@pytest.mark.parametrize("name", ["NaN", "quotes", "negative duration", "trailing comma"])
def test_where_blocks_end_makes_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, name: str
) -> None:
    text = damaged(*DAMAGE[name][:2])
    whole = read_text(tmp_path, trace=text)

    monkeypatch.setattr(text_module, "_BLOCK", block)
    monkeypatch.setattr("jobreport.readers.text_files._CHUNK", block)

    split = read_text(tmp_path, trace=text)
    assert (split.captures, split.quality) == (whole.captures, whole.quality)


def test_where_blocks_end_orders_no_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = Recording(0)
    trace.step(1, 1000, 3000)
    for number in range(10):
        at = 1000 + 200 * number
        trace.mark(f"mark {number}", at, at + 190)
        trace.kernel(f"kernel {number}", at + 20, at + 90, 9 - number % 2, launch=(at + 5, at + 10))
        trace.kernel("Memcpy", at + 20, at + 90, 100, launch=(at + 15, at + 18), category="gpu_memcpy")
    whole = read_text(tmp_path, trace=trace.text()).captures

    monkeypatch.setattr(text_module, "_BLOCK", 500)
    monkeypatch.setattr("jobreport.readers.text_files._CHUNK", 100)

    assert read_text(tmp_path, trace=trace.text()).captures == whole


def test_the_first_event_may_begin_with_another_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = small_trace()
    for number in range(200):
        trace.operator("aten::add", 2000 + number, 2001 + number)
    trace.events.insert(0, {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "python"}})
    monkeypatch.setattr(text_module, "_BLOCK", 500)
    monkeypatch.setattr(text_module, "_MAX_EVENT", 1000)
    monkeypatch.setattr("jobreport.readers.text_files._CHUNK", 100)

    found = read_text(tmp_path, trace=trace.text())

    assert events_of(found) == 5
    assert codes(found) == {"kineto.naming": 1}


@pytest.mark.parametrize(
    "text",
    [
        b'{"schemaVersion": 1}',
        b'{"schemaVersion": 1, "traceEvents": []}',
        b'{"schemaVersion": 1, "traceEvents": null}',
        b'{"schemaVersion": 1, "deviceProperties": [',
    ],
)
def test_a_trace_without_events_says_so(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(text)
    tally = Tally()

    trace, rows = read_trace(SourceFile(name="a.json", place=str(path)), tally)

    assert rows == len(trace.device_events) == 0
    assert [one.code for one in tally.remarks()] == ["kineto.no_events"]


def test_gzip_that_is_cut_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    trace = Recording(0)
    for number in range(20_000):
        trace.kernel(f"kernel {number * 7919 % 10_007}", 1000 + 10 * number, 1005 + 10 * number)
    data = gzip.compress(trace.text())
    path = tmp_path / "a.json.gz"
    path.write_bytes(data[: len(data) // 2])

    found = Kineto().read([SourceFile(name="a.json.gz", place=str(path))])

    assert 1000 < events_of(found) < 20_000
    assert codes(found) == {"file.cut": 1, "kineto.cut": 1}


def test_every_event_is_used_or_counted(tmp_path: Path) -> None:
    trace = small_trace()
    trace.mark("step", 1000, 2000)
    trace.add("python_function", "main.py: run", 1000, 1010)
    trace.add("gpu_user_annotation", "step", 1000, 1010)
    trace.add("cuda_sync", "Stream Sync", 1000, 1010)
    for record in (17, -1, -1):
        trace.add("cuda_sync", "Event Sync", 1000, 1010, wait_on_cuda_event_record_corr_id=record)
    trace.add("newest_thing", "?", 1000, 1010)
    trace.events += [
        {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 1, "ts": 1000, "pid": 1, "tid": 1},
        {"ph": "C", "name": "power", "ts": 1000, "args": {"W": 300}},
        {"ph": "i", "name": "Record Window End", "ts": 9e14, "pid": "", "tid": ""},
        {"ph": "M", "name": "process_name", "ts": 0, "pid": 1, "args": {"name": "python"}},
        {"ph": "b", "name": "async", "ts": 1},
        {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 0, "dur": 1},
        *trace.events[1:3],
    ]

    found = read_text(tmp_path, trace=trace.text())

    lost = sum(one.count for one in found.quality.remarks if one.action in ("skipped", "dropped"))
    assert found.quality.rows + lost == len(trace.events)
    assert codes(found)["kineto.repeated"] == 2
    assert (codes(found)["kineto.synchronization"], codes(found)["kineto.unknown_wait"]) == (2, 2)
    assert {one.fields.get("name") for one in found.quality.remarks} >= {"newest_thing"}


@pytest.mark.parametrize(
    "text",
    [
        b'{"schemaVersion": 1, "traceEvents": ' + b"[" * 1_000_000,
        b'{"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "kernel", "args": ' + b'{"a":' * 1_000_000,
        b'{"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "kernel", "name": "' + b"a" * 20_000_000,
        b'{"schemaVersion": 1, "traceEvents": [' + b'{"ph": "X"' * 300_000,
        b'{"schemaVersion": 1, "traceEvents": [' + b'{"ph": "X"},' * 300_000,
        b'{"schemaVersion": 1, "traceEvents": [' + b"}," * 2_000_000,
        b'{"schemaVersion": 1, ' + b'"traceEvents"' * 500_000,
        b'[{"ph": "X", "cat": "cpu_op", "args": {"External id": 1}}' + b", " * 5_000_000,
        b'{"schemaVersion": 1, "traceEvents": [{"ph": "X", "args": {"a": [' + b'{}],"b":[{' * 100_000,
    ],
    ids=["arrays", "objects", "string", "no ends", "empty", "closed", "keys", "commas", "ends"],
)
@pytest.mark.slow
def test_hostile_text_costs_little(tmp_path: Path, text: bytes) -> None:
    found = read_text(tmp_path, trace=text)

    assert found.quality.rows == 0


def test_a_bomb_of_gzip_stops_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json.gz"
    head = b'{"schemaVersion": 1, "traceEvents": [{"ph": "X", "name": "'
    monkeypatch.setattr("jobreport.readers.text_files._MAX_TEXT", 1 << 20)
    path.write_bytes(gzip.compress(head + b"a" * (40 << 20), compresslevel=9))

    found = Kineto().read([SourceFile(name="a.json.gz", place=str(path))])

    assert "file.unpacked" in codes(found)


def test_one_name_of_many_kilobytes_is_cut(tmp_path: Path) -> None:
    trace = small_trace()
    trace.kernel("k" * 9000, 2000, 2100)

    found = capture(tmp_path, trace)

    assert max(len(one.name) for one in found.devices[0].kernels) == 512


def test_devices_beyond_those_of_any_machine_are_dropped_and_counted(tmp_path: Path) -> None:
    trace = Recording(0)
    for device in range(2000):
        trace.kernel("gemm", 1000 + device, 1001 + device, device=device)
        trace.memory(1000 + device, 10, **{"Device Id": device})

    found = read_text(tmp_path, trace=trace.text())

    (one,) = found.captures
    assert [each.device for each in one.devices] == list(range(256))
    assert len(one.memory) == 256
    assert codes(found) == {"kineto.devices": 2 * (2000 - 256)}
    assert found.quality.rows == 2 * 256


def test_long_names_take_no_more_memory_than_is_kept_of_them(tmp_path: Path) -> None:
    trace = Recording(0)
    for number in range(4000):
        trace.operator(f"{number}{'k' * 10_000}", 1000 + number, 1001 + number)
    path = tmp_path / "a.json"
    path.write_bytes(trace.text())

    tracemalloc.start()
    read_trace(SourceFile(name="a.json", place=str(path)), Tally())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 12e6 < path.stat().st_size / 3


@pytest.mark.parametrize(
    "different",
    [
        {"name": "k{}"},
        {"cat": "c{}"},
        {"tid": "{}"},
        {"args": {"device": 0, "stream": "{}"}},
        {"args": {"device": "{}"}},
        {"args": {"Collective name": "allreduce", "Process Group Name": "{}", "Comms Id": "{}"}},
    ],
    ids=lambda value: str(next(iter(value.values())))[:20],
)
@pytest.mark.slow
def test_many_kinds_of_events_make_no_large_report(tmp_path: Path, different: dict[str, Any]) -> None:
    trace = Recording(0)
    trace.kernel("ncclDevKernel_AllReduce", 1000, 1001)
    event = trace.events[0] | different
    events = (json.dumps(event).replace("{}", str(number)) for number in range(10_000))
    text = ",\n".join([json.dumps(trace.events[0]), *events])

    found = read_text(tmp_path, trace=f'{{"schemaVersion": 1, "traceEvents": [{text}]}}'.encode())

    assert found.quality.rows + sum(one.count for one in found.quality.remarks) == 10_001
    assert len(msgspec.json.encode(found.captures)) < 400_000


def test_values_that_json_does_not_have_are_counted_in_each_event(tmp_path: Path) -> None:
    found = read_text(tmp_path, trace=small_trace().text().replace(b'(GB/s)": 1.5', b'(GB/s)": inf'))

    assert (events_of(found), codes(found)) == (5, {"kineto.value": 5})
