"""Damaged traces: every row around the damage is read, and the damaged ones are counted."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from fuzz.mutations import applied, steps
from fuzz.trace_rows_reference import DAMAGED, Expected, rows, values
from jobreport.readers import text_files
from jobreport.readers.traces import damage as trace_damage
from jobreport.readers.traces import reader as traces
from jobreport.readers.traces import rows as trace_rows
from tests.report.readers.events import FILE, Row, base, lane, lost_rows, read, remarks, rows_of, text, x

COUNT = 9
ROWS: list[Row] = [
    base(),
    lane(1, "Forward"),
    *[x(f"e{i}", i, args={"pid": 33, "k": [i]}) for i in range(COUNT)],
]
LAYOUTS: dict[str, Callable[[list[Row]], str]] = {
    "a row a line": text,
    "one line": json.dumps,
    "many lines a row": lambda some: json.dumps(some, indent=2),
    "object": lambda some: json.dumps({"displayTimeUnit": "ns", "traceEvents": some, "more": {"a": [1]}}),
    "object of lines": lambda some: '{"traceEvents": ' + text(some).strip() + ',\n"more": 1}\n',
}
#: Of one row: what is in its place. Each costs that row alone.
DAMAGE: dict[str, Callable[[str], str]] = {
    "cut in front": lambda row: row[12:],
    "cut behind": lambda row: row[:-12],
    "quote lost": lambda row: row.replace('"', "", 1),
    "quote lost behind": lambda row: row[::-1].replace('"', "", 1)[::-1],
    "brace lost": lambda row: row.removeprefix("{"),
    "brace lost behind": lambda row: row.removesuffix("}"),
    "bracket lost": lambda row: row.replace("]", ""),
    "colon lost": lambda row: row.replace(":", "", 1),
    "comma lost": lambda row: row.replace(",", "", 1),
    "a word": lambda row: row.replace('"X"', "X"),
    "a number of another language": lambda row: row.replace('"ts": ', '"ts": 0x'),
    "a number with a zero in front": lambda row: row.replace('"ts": ', '"ts": 00'),
    "zeros": lambda row: "\0" * len(row),
    "zeros within": lambda row: row[:20] + "\0" * 20 + row[40:],
    "a line break in a name": lambda row: row.replace('"e4', '"e\n4'),
    "never ending lists": lambda row: row.replace("[", "[" * 5000),
    "half an escape": lambda row: row.replace('"e4', '"\\u12'),
    "nothing but a brace": lambda row: "{",
}


def _damaged(layout: str, change: Callable[[str], str], place: int = 4) -> str:
    """All rows in a layout, with one of them changed."""
    rows = [row if row.get("name") != f"e{place}" else {"here": 0} for row in ROWS]
    content = LAYOUTS[layout](rows)
    begin = content.index('"here"')
    begin, end = content.rindex("{", 0, begin), content.index("}", begin) + 1
    return content[:begin] + change(json.dumps(ROWS[2 + place])) + content[end:]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("place", [0, 4])
def test_a_damaged_row_costs_itself_alone(tmp_path: Path, layout: str, damage: str, place: int) -> None:
    def change(row: str) -> str:
        return DAMAGE[damage](row.replace(f"e{place}", "e4"))

    found = read(tmp_path, {FILE: _damaged(layout, change, place)})

    assert found.events.names == tuple(f"e{i}" for i in range(COUNT) if i != place)
    assert {one.event_type for one in found.events.lanes} == {"Forward"}
    assert [(what, count, unit) for what, count, unit, _ in remarks(found)] == [("skipped", 1, "rows")]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_damage_of_neighbors_costs_as_many_rows(tmp_path: Path, layout: str) -> None:
    content = LAYOUTS[layout](ROWS)
    for i in (3, 4, 5, 7):
        content = content.replace(f'"e{i}"', f'"e{i}')

    found = read(tmp_path, {FILE: content})

    assert found.events.names == ("e0", "e1", "e2", "e6", "e8")
    assert remarks(found) == [("skipped", 4, "rows", "not complete JSON")]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_stands_in_a_damaged_row_is_no_row_of_its_own(tmp_path: Path, layout: str) -> None:
    lists = {"k": [{"a": 1}, {"b": {"c": 2}}, {"d": 3}]}
    content = LAYOUTS[layout]([*ROWS, *[x(f"n{i}", i, args=lists) for i in range(3)], x("last", 9)])
    for i in range(3):
        content = content.replace(f'"n{i}"', f'"n{i}')

    found = read(tmp_path, {FILE: content})

    assert "last" in found.events.names
    assert remarks(found) == [("skipped", 3, "rows", "not complete JSON")]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_neighbors_without_their_braces_are_rows(tmp_path: Path, layout: str) -> None:
    content = LAYOUTS[layout](ROWS)
    for i in (4, 5, 6):
        begin = content.rindex("{", 0, content.index(f'"e{i}"'))
        content = content[:begin] + content[begin + 1 :]

    assert remarks(read(tmp_path, {FILE: content})) == [("skipped", 3, "rows", "not complete JSON")]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_place_in_which_a_file_can_be_cut(tmp_path: Path, layout: str) -> None:
    """All rows in front of the cut are in use, and the one in which it is, is told of the file."""
    content = LAYOUTS[layout](ROWS)
    for at in range(content.index('"e0"'), len(content), 23):
        found = read(tmp_path, {FILE: content[:at]})

        whole = sum(_end_of(content, i) <= at for i in range(COUNT))
        assert len(found.events) == whole, at
        assert len(remarks(found)) <= 1
        assert lost_rows(found) in (0, 1)


def _end_of(content: str, i: int) -> int:
    """Where a row ends."""
    begin = content.rindex("{", 0, content.index(f'"e{i}"'))
    return json.JSONDecoder().raw_decode(content, begin)[1]


def test_a_text_that_stands_there_twice_gives_its_rows_twice(tmp_path: Path) -> None:
    for layout, make in LAYOUTS.items():
        found = read(tmp_path / layout, {FILE: make(ROWS) * 2})

        assert Counter(event[4] for event in rows_of(found.events)) == {f"e{i}": 2 for i in range(COUNT)}
        assert remarks(found) == []


def test_a_copy_of_a_file_is_a_repetition(tmp_path: Path) -> None:
    found = read(tmp_path, {FILE: text(ROWS), f"copy/{FILE}": text(ROWS)[:-40]})

    assert len(found.events) == COUNT
    assert ("dropped", COUNT - 1, "rows", "repetition of an event in another file") in remarks(found)


@pytest.mark.parametrize("first", ["\ufeff", "\r\n\r\n", "Z\n", "\0", "]\n", "//\n"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_stands_in_front_of_a_text_hides_no_row(tmp_path: Path, layout: str, first: str) -> None:
    found = read(tmp_path, {FILE: first + LAYOUTS[layout](ROWS)})

    assert len(found.events) == COUNT
    assert lost_rows(found) <= 2


@pytest.mark.parametrize("layout", LAYOUTS)
def test_blanks_longer_than_a_block_hide_neither_rows_nor_lines(tmp_path: Path, layout: str) -> None:
    content = "\n" * (1 << 17) + LAYOUTS[layout](ROWS)
    begin = content.rindex("{", 0, content.index('"e3"'))

    found = read(tmp_path, {FILE: content.replace('"e3"', '"e3')})

    assert len(found.events) == COUNT - 1
    assert remarks(found) == [("skipped", 1, "rows", "not complete JSON")]
    assert found.quality.remarks[0].place == f"{FILE}:{content.count(chr(10), 0, begin) + 1}"


def test_zeros_that_a_dying_machine_left_at_the_end_hide_no_row(tmp_path: Path) -> None:
    found = read(tmp_path, {FILE: text(ROWS)[:-3] + "\0" * 4096})

    assert len(found.events) == COUNT
    assert [what for what, *_ in remarks(found)] == ["skipped", "corrected"]


def test_a_name_that_is_not_utf8_costs_its_row_and_one_that_is_not_used_nothing(tmp_path: Path) -> None:
    for layout, make in LAYOUTS.items():
        content = make([*ROWS, x("odd", 5, cat="of no use")]).encode()
        content = content.replace(b'"e3"', b'"e\xff"').replace(b"of no use", b"of \xc3 use")

        found = read(tmp_path / layout, {FILE: content})

        assert [event[4] for event in rows_of(found.events) if event[4] in ("e2", "e4", "odd")] == [
            "e2",
            "e4",
            "odd",
        ]
        assert remarks(found) == [("skipped", 1, "rows", "not UTF-8 text")]


@pytest.mark.parametrize("keep", [0.5, 0.9])
def test_compressed_data_that_is_cut_short_gives_what_stands_in_front(tmp_path: Path, keep: float) -> None:
    packed = gzip.compress(
        text([*ROWS, *[x(f"op{i % 97}", i * i, i) for i in range(5000)]]).encode(), mtime=0
    )

    found = read(tmp_path, {FILE: packed[: int(len(packed) * keep)]})

    assert len(found.events) > 5000 * (keep - 0.1)
    assert [(what, unit) for what, _, unit, _ in remarks(found)] == [("corrected", "files")]


def test_a_key_of_an_object_that_stands_there_twice_hides_no_row(tmp_path: Path) -> None:
    content = json.dumps({"traceEvents": ROWS[:6], "again": ROWS[6:]}).replace("again", "traceEvents")

    assert len(read(tmp_path, {FILE: content}).events) == COUNT


@pytest.mark.parametrize("key", ["traceEventz", "trace\\u0000vents", ""])
def test_a_damaged_key_of_the_list_hides_no_row(tmp_path: Path, key: str) -> None:
    content = json.dumps({"displayTimeUnit": "ns", "traceEvents": ROWS, "more": {"a": 1}}).replace(
        "traceEvents", key
    )

    found = read(tmp_path, {FILE: content})

    assert len(found.events) == COUNT
    assert remarks(found) == [("skipped", 1, "rows", "not complete JSON")]


def test_an_object_in_the_value_of_a_key_is_no_row(tmp_path: Path) -> None:
    row = '{"name": damaged, "args": {"name": "inner", "ph": "X", "ts": 5, "pid": 1}}'

    found = read(tmp_path, {FILE: text([*ROWS, row])})

    assert "inner" not in found.events.names
    assert lost_rows(found) == 1


def test_reading_past_damage_has_an_end_that_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_damage, "_MOST_LOOKS", 0)
    lines = [json.dumps(row) for row in ROWS]
    lines += [json.dumps(x(f"f{i}", i)).replace('"X"', "X" if i % 2 else '"X"') for i in range(40)]

    found = read(tmp_path, {FILE: text(lines)})

    told = {reason: count for _, count, _, reason in remarks(found)}
    assert told["behind more damage than is read past; not read"] > 20
    assert len(found.events) + lost_rows(found) == COUNT + 40


def test_rows_are_counted_alike_in_blocks_of_any_size(tmp_path: Path) -> None:
    lost = json.dumps(x("lost", 1)).replace('"ph": "X"', '"ph')
    inner = {"k": [x(f"in{i}", i) for i in range(4)]}
    content = "[" + ", ".join(
        [json.dumps(base()), *[json.dumps(x("e", 1, args=inner)), lost, f'"ts": 1, {lost}', lost] * 4] * 2
    )

    whole = read(tmp_path, {FILE: content})
    for size in range(150, 900, 50):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(trace_rows, "_BLOCK", size)
            patch.setattr(trace_rows, "_DAMAGED_BLOCK", size)
            patch.setattr(text_files, "_CHUNK", size)
            found = read(tmp_path, {FILE: content})

        assert rows_of(found.events) == rows_of(whole.events), size
        assert remarks(found) == remarks(whole), size


def test_damage_that_may_have_an_end_far_behind_hides_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_rows, "_BLOCK", 256)
    monkeypatch.setattr(trace_rows, "_DAMAGED_BLOCK", 256)
    monkeypatch.setattr(trace_rows, "_LARGEST", 2048)
    monkeypatch.setattr(text_files, "_CHUNK", 256)
    cut = '{"name": "cut", "ph": "X", "ts": 1, "args": {"k": [0'

    found = read(tmp_path, {FILE: text([*ROWS, cut, *[x(f"f{i}", i) for i in range(100)]])})

    assert len(found.events) == COUNT + 100
    assert remarks(found) == [("skipped", 1, "rows", "not complete JSON")]


def test_mutated_traces_are_read_as_a_careful_reader_reads_them(tmp_path: Path) -> None:
    """With rows in small blocks, and without arrays."""
    contents = [make(ROWS).encode() for make in LAYOUTS.values()]
    for seed in range(80):
        files = {FILE: contents[seed % len(contents)], FILE.replace("33", "34"): contents[seed % 2]}
        for step in steps(seed):
            files = applied(files, step)
        files = {name: files[name] for name in files if name.endswith("_pythontimeline.json")}
        (tmp_path / str(seed)).mkdir()
        with pytest.MonkeyPatch.context() as patch:
            for name in ("_BLOCK", "_DAMAGED_BLOCK"):
                patch.setattr(trace_rows, name, Random(seed).choice([64, 1 << 17]))
            patch.setattr(traces, "_MOST_MISSES", seed % 2 * 8)
            found = read(tmp_path / str(seed), files)

        expected = Expected(files)
        assert Counter(rows_of(found.events)) == expected.events, seed
        assert len(found.events) + lost_rows(found) == expected.rows, seed


# The careful reader itself


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b'[{"ph":"X"}]', [{"ph": "X"}]),
        (b'{"traceEvents":[{"a":1},[2,[]]],"b":[{"ph":"X"}]}', [{"a": 1}, 2]),
        (b'[{"ph":"X"},\n{"ph":X},\n{"ts":1},\n{"ph":"B"}]', [{"ph": "X"}, DAMAGED, DAMAGED, {"ph": "B"}]),
        (b'[{"ph":X,"args":[{"a":1},{"b":1},\n{"c":1}]},{"ph":"B"}]', [DAMAGED, {"ph": "B"}]),
        (b'[{"ph":X},"ph":"X"},{"ph":"B"}]', [DAMAGED, DAMAGED, {"ph": "B"}]),
        (b'[{"ph":"X"},{"ph":"B"', [{"ph": "X"}]),
        (b'[{"ph":"X"},{"ph":"B",}]', [{"ph": "X"}, DAMAGED]),
        (b'{"a":{"ph":"X"}, "b":', []),
        (b'["a": {"ph":"X"}, {"ph":"E"}]', [DAMAGED, {"ph": "E"}]),
        (b"[NaN, 1 2]", [pytest.approx(float("nan"), nan_ok=True), DAMAGED]),
        (b"", [DAMAGED][:0]),
    ],
)
def test_the_careful_reader_finds_what_a_reader_of_this_line_finds(
    content: bytes, found: list[object]
) -> None:
    assert values(content) == found


def test_the_careful_reader_counts_a_begin_and_its_end_as_one_and_metadata_as_none() -> None:
    pair: list[Row] = [{"ph": "B", "name": "b", "ts": 1}, {"ph": "E", "ts": 3}]
    told = [*ROWS, *pair, {"ph": "i"}, x(ts=-1)]

    assert rows({FILE: text(told).encode()}) == (COUNT + 3, COUNT + 1)
