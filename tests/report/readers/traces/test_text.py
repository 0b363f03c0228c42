"""Sound trace files read by arrays, against the reader that reads everything."""

from __future__ import annotations

import gzip
import itertools
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import generate
import numpy as np
import pytest
from generator.events import trace_files
from generator.scenarios import SCENARIOS
from hypothesis import given, settings
from hypothesis import strategies as st

from jobreport.readers import byte_texts
from jobreport.readers.base import SourceFile
from jobreport.readers.byte_texts import UnsoundError
from jobreport.readers.tally import Tally
from jobreport.readers.traces import reader as traces
from jobreport.readers.traces import text as trace_text
from jobreport.readers.traces.columns import Columns, FileOfRows, WholeNumbers, add_blocks
from jobreport.readers.traces.files import Origin
from jobreport.readers.traces.row import Row
from jobreport.readers.traces.rows import scan
from jobreport.readers.traces.text import SoundTraces
from jobrules.measures.data_loading import SET_UP
from jobrules.model import Events, EventSource, Steps
from tests.paths import CORPUS, needs_corpus
from tests.report.readers.events import base, lane, read, text, write

SOUND = SoundTraces()
ORIGIN = Origin(node="algo-1", rank="0", source=EventSource.PYTHON)
NUMBERS = ("file", "start", "duration", "base", "step", "pid", "thread")

EVENT = (
    '{"name": "ResNet", "pid": 2, "ph": "X", "ts": 41819, "dur": 15, "args": {"pid": 53, "step_num": "82"}}'
)
TEXT = text([base(), lane(2, "Forward"), EVENT, EVENT.replace("41819", "7"), EVENT]).encode()
#: What damage may bring into a file.
PIECES = [
    *(bytes([byte]) for byte in b'\0\t\n\r "+,-.0159:E[\\]e{}\x7f\xff'),
    *(
        b"\n\n",
        b",\n",
        b"},\n{",
        b"\\u0041",
        b"\xc3\xbc",
        b"NaN",
        b"{}",
        b"null",
        b'"ts": 5, ',
        b'"x": 12345, ',
    ),
    EVENT.encode(),
    json.dumps(lane(3, "Backward")).encode() + b",\n",
]

NUMBER = st.integers(0, 9) | st.integers(0, 10**12) | st.integers(10**15, (1 << 53) - 1)
NAME = st.sampled_from(["aten::conv2d", "Step:ModeKeys.TRAIN", "layer1.0", "GPU-kernel", "{", "Größe", "\\u"])
PID = st.sampled_from([0, 1, 2, 7, "1", None, 1.0])
SMALL = st.integers(0, 9)
ARGS: list[dict[str, st.SearchStrategy[object]]] = [
    {},
    {"pid": SMALL, "step_num": NUMBER.map(str)},
    {"step_num": NUMBER, "pid": SMALL, "tid": SMALL},
    {"num_workers": SMALL, "pin_memory": st.booleans(), "pid": SMALL},
    {"thread_id": SMALL.map(str), "device": SMALL, "time": st.integers(1000, 10**15)},
]
METADATA = st.one_of(
    st.builds(lane, PID, st.sampled_from(["Forward", SET_UP, "Step:ModeKeys.TRAIN", "Ä", 5])),
    st.builds(base, st.sampled_from([1_700_000_000_000_000, 1_700_000_000_000_001.5])),
    st.just({"name": "process_sort_index", "ph": "M", "pid": 1, "args": {"sort_index": 1}}),
)


def in_order(values: dict[str, st.SearchStrategy[object]]) -> st.SearchStrategy[dict[str, object]]:
    """Dictionaries whose keys stand in this order, which ``fixed_dictionaries`` does not keep."""
    return st.tuples(*values.values()).map(lambda row: dict(zip(values, row, strict=True)))


@st.composite
def jobs(draw: st.DrawFn, most: int = 2) -> list[bytes]:
    """Texts of sound files, written alike: events of some layouts in any order, metadata among them."""
    order = draw(st.permutations(["name", "pid", "ph", "ts", "dur", "args", "tid"]))
    separators = draw(st.sampled_from([(", ", ": "), (",", ":"), (",", ": ")]))
    layouts = []
    # A writer has the numbers of steps in quotes, or has not.
    other = draw(st.sampled_from(ARGS[1:3]))
    for args in draw(
        st.lists(st.sampled_from([one for one in ARGS if one is not other]), min_size=1, max_size=3)
    ):
        values: dict[str, st.SearchStrategy[object]] = {
            "name": NAME,
            "pid": PID,
            "ph": st.just("X"),
            "ts": NUMBER,
            "dur": NUMBER,
            "tid": SMALL,
        }
        values["args"] = in_order(args)
        left_out = draw(st.sampled_from(["", "args", "tid"]))
        layouts.append(in_order({key: values[key] for key in order if key != left_out}))
    is_ascii = draw(st.booleans())
    files = []
    for _ in range(draw(st.integers(1, most))):
        rows = draw(st.lists(st.one_of(*layouts), max_size=30))
        for row, at in draw(st.lists(st.tuples(METADATA, st.integers(0, 30)), min_size=1, max_size=6)):
            rows.insert(at, row)
        lines = [json.dumps(row, separators=separators, ensure_ascii=is_ascii) for row in rows]
        files.append(text(lines).encode())
    return files


@settings(max_examples=150)
@given(jobs())
def test_sound_files_are_read_as_the_parser_reads_them(files: list[bytes]) -> None:
    assert is_taken_and_equal(*files)


def test_numbers_with_quotes_and_without_are_not_mixed_up() -> None:
    # As many colons, and the same keys in front of the same ones.
    quoted = '{"args": {"pid": 0, "step_num": "7"}, "pid": 0, "name": "a::b", "dur": 1, "ph": "X", "ts": 5}'
    bare = '{"tid": 0, "args": {"step_num": 7, "pid": 0, "tid": 0}, "pid": 0, "name": "c", "dur": 1, "ph": "X", "ts": 5}'

    assert is_taken_and_equal(text([quoted]).encode())
    assert is_taken_and_equal(text([bare]).encode())
    # Others read what is not certain.
    assert not is_taken_and_equal(text([quoted, bare]).encode())


@settings(max_examples=150)
@given(st.data())
def test_a_damaged_file_is_left_to_the_parser_or_read_as_it_reads_it(data: st.DataObject) -> None:
    files = data.draw(jobs())
    for _ in range(data.draw(st.integers(1, 2))):
        place = data.draw(st.integers(0, len(files[0])))
        gone = data.draw(st.sampled_from([0, 1, 1, 2, len(files[0])]))
        files[0] = files[0][:place] + data.draw(st.sampled_from([b"", *PIECES])) + files[0][place + gone :]

    is_taken_and_equal(*data.draw(st.permutations(files)))


@pytest.mark.parametrize("piece", [b"\0", b"\n", b" ", b'"', b",", b"0", b":", b"}", b"\\", b"\xff"])
def test_every_byte_counts(piece: bytes) -> None:
    for place, gone in itertools.product(range(len(TEXT)), (0, 1)):
        is_taken_and_equal(TEXT[:place] + piece + TEXT[place + gone :])


@settings(max_examples=50)
@given(jobs(most=8))
def test_a_file_larger_than_a_block_is_read_in_several(files: list[bytes]) -> None:
    whole = text(line for file in files for line in file.decode()[2:-3].split(",\n"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace_text, "LARGEST", 1100)

        assert is_taken_and_equal(whole.encode(), reader=SoundTraces())


def test_many_names_in_a_small_table_are_not_mixed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_texts, "_TABLE_BITS", 3)
    taken = []
    for count, start in itertools.product(range(2, 9), range(10, 90, 10)):
        names = [f"layer{number}" for number in range(start, start + count)]
        taken.append(is_taken_and_equal(text(EVENT.replace("ResNet", name) for name in names * 3).encode()))

    assert 0 < sum(taken) < len(taken)


@pytest.mark.parametrize(
    "unusual",
    [
        b"",
        b"[",
        b"[\n]\n",
        b"\xef\xbb\xbf" + TEXT,
        gzip.compress(TEXT),
        TEXT.replace(b"\n", b"\r\n"),
        TEXT.replace(b"\n", b""),
        TEXT.removesuffix(b"\n]\n"),
        TEXT.replace(b"\n]\n", b",\n]\n"),
        TEXT.replace(b"}},\n", b"}}\n,"),
        b'{"traceEvents": ' + TEXT + b"}",
        TEXT.replace(b'"X"', b'"B"'),
        TEXT.replace(b"41819", b"41819.5"),
        TEXT.replace(b"41819", b"4e3"),
        TEXT.replace(b"41819", b"-4"),
        TEXT.replace(b"41819", b"041819"),
        TEXT.replace(b"41819", b'"41819"'),
        TEXT.replace(b"41819", str(1 << 53).encode()),
        TEXT.replace(b"41819", b"1" * 17),
        TEXT.replace(b', "ts": 41819', b', "ts": 1, "ts": 41819'),
        TEXT.replace(b'"pid": 53', b'"pid": -53'),
        TEXT.replace(b'"pid": 53', b'"pid": [53]'),
        TEXT.replace(b"ResNet", b"R" * 300),
        TEXT.replace(b"Forward", b"F" * 1001),
        TEXT.replace(b"1700000000000000", b"5"),
        TEXT.replace(b'"M"', b'"C"'),
        text(EVENT.replace("ResNet", f"op{number}") for number in range(100)).encode(),
        text(EVENT.replace('"args"', '"args"' + " " * number) for number in range(50)).encode(),
    ],
)
def test_unusual_files_are_left_to_the_parser(unusual: bytes) -> None:
    assert not is_taken_and_equal(unusual)


def test_values_that_look_like_those_of_events_are_not_taken_for_them() -> None:
    rows = [f'{{"ph": "X", "ts": 1, "dur": 2, "args": {{"ts": {n}, "dur": {n}}}}}' for n in range(3)]

    assert not is_taken_and_equal(text(rows).encode())


@needs_corpus
def test_real_files_are_read_as_the_parser_reads_them() -> None:
    paths = sorted(CORPUS.glob("sagemaker*/**/pevents/*/*timeline.json"))
    taken = [is_taken_and_equal(path.read_bytes()) for path in paths]

    assert sum(taken) >= len(taken) / 2 > 0


@pytest.mark.parametrize("scenario", [name for name, one in SCENARIOS.items() if one.steps])
def test_jobs_are_read_the_same_without_arrays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scenario: str
) -> None:
    parser = generate.build_parser()
    options = [f"--scenario={scenario}"]
    write(
        tmp_path / "framework" / "pevents",
        dict(trace_files(generate.spec_from(parser, parser.parse_args(options)))),
    )
    asked: list[str] = []

    def scan_and_note(file: SourceFile, tally: Tally, *, growing: bool) -> Iterator[list[Row]]:
        asked.append(file.name)
        return scan(file, tally, growing=growing)

    monkeypatch.setattr(traces, "scan", scan_and_note)
    by_arrays, left = read(tmp_path), len(asked)
    monkeypatch.setattr(traces, "_MOST_MISSES", 0)
    by_parser, all_files = read(tmp_path), len(asked) - left

    assert left < all_files / 2
    assert len(by_parser.events)
    assert by_arrays.quality == by_parser.quality
    assert contents(by_arrays.events) == contents(by_parser.events)
    assert contents(by_arrays.steps) == contents(by_parser.steps)


def contents(table: Events | Steps) -> dict[str, Any]:
    """All fields of a table of the job."""
    fields = {name: getattr(table, name) for name in table.__struct_fields__}
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in fields.items()
    }


def is_taken_and_equal(*files: bytes, reader: SoundTraces = SOUND) -> bool:
    """Whether files with these texts are read, and if so, as the parser reads them."""
    with tempfile.TemporaryDirectory() as directory:
        sources = []
        for number, content in enumerate(files):
            path = Path(directory) / str(number)
            path.write_bytes(content)
            sources.append(SourceFile(name=path.name, place=str(path), size=len(content)))
        columns, tally = Columns(), Tally()
        rows = rows_of(sources, columns, tally)
        try:
            add_blocks(rows, reader.blocks([source.path for source in sources]), columns)
        except UnsoundError:
            return False
        expected = Columns()
        for source, one in zip(sources, rows_of(sources, expected, tally), strict=True):
            for some in scan(source, tally):
                one.add(some)
            one.close()
    assert told(columns) == told(expected), files
    assert not tally.remarks()
    return True


def rows_of(sources: list[SourceFile], columns: Columns, tally: Tally) -> list[FileOfRows]:
    numbers = WholeNumbers()
    return [FileOfRows(at, file, ORIGIN, columns, numbers, tally) for at, file in enumerate(sources)]


def told(columns: Columns) -> dict[str, list[Any]]:
    """All that columns tell."""
    lanes, names = list(columns.lanes), [*columns.names.texts, None]
    found = {name: columns.column(name).tolist() for name in NUMBERS}
    found["lane"] = [lanes[at] for at in columns.column("lane").tolist()]
    found["name"] = [names[at] for at in columns.column("name").tolist()]
    found["set up"] = [(at, args.num_workers, args.pin_memory) for at, args in columns.set_ups.items()]
    return found
