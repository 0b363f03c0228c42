"""Sound files read by arrays, against the reader of single lines, which reads everything, and numbers against ``float``."""

from __future__ import annotations

import gzip
import itertools
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobreport.readers.base import SourceFile
from jobreport.readers.system_samples import byte_texts, decimals
from jobreport.readers.system_samples import lines as sample_lines
from jobreport.readers.system_samples.lines import Rows
from jobreport.readers.system_samples.text import SoundFiles
from jobreport.readers.tally import Tally
from tests.once import slow_but
from tests.paths import CORPUS, needs_corpus

KEYS = ("Type", "Name", "Dimension", "Value", "NodeId", "Timestamp")
LINE = (
    b'{"Type":"gpu","Name":"gpu0","Dimension":"GPUUtilization","Value":94.00,'
    b'"NodeId":"algo-1","Timestamp":1741080180.002395}\n'
)
#: What damage may bring into a file.
PIECES = [
    *(bytes([byte]) for byte in b'\0\t\n\r "+,-.0159:E[\\]e{}\x7f\xff'),
    b"\n\n",
    b"\\u0041",
    b"\xc3\xbc",
    b'"Value":1.5,',
    b'"Extra":1.5,',
    b'"Name":null,',
    b"NaN",
    b"{}\n",
    LINE,
]

FILES = SoundFiles()

Found = dict[tuple[str | None, ...], list[tuple[int, int]]]

DIGITS = st.text("0123456789", min_size=1, max_size=19)
WHOLE = st.integers(0, 10**12).map(str) | DIGITS.map(lambda digits: digits.lstrip("0") or "0")
NUMBER = st.one_of(
    st.builds("{}{}.{}".format, st.sampled_from(["", "", "-"]), WHOLE, DIGITS),
    st.floats(0, 100).map(lambda value: f"{value:.2f}"),
    st.floats(1e-4, 1e15).map(repr),
).filter(lambda number: len(number) < decimals.LONGEST)
TIME = st.floats(1e9, 2e9).map(repr) | st.floats(1e9, 2e9).map("{:.6f}".format)
NAME = st.text([chr(c) for c in range(32, 127) if chr(c) not in '"\\,.}'], max_size=20)


def is_named_first(keys: list[str]) -> bool:
    """Whether the last number follows all names of the sensor."""
    last = max(map(keys.index, ("Value", "Timestamp")))
    return all(keys.index(name) < last for name in ("Type", "Name", "Dimension"))


@st.composite
def layouts(draw: st.DrawFn) -> str:
    keys = draw(st.permutations(KEYS).filter(is_named_first))
    colon = draw(st.sampled_from([":", ": ", ":  "]))
    comma = draw(st.sampled_from([",", ", "]))
    place = dict.fromkeys(KEYS, '"{}"') | {"Value": "{}", "Timestamp": "{}"}
    pairs = (f'"{key}"{colon}{place[key].format("{" + key + "}")}' for key in keys)
    start, end = draw(st.sampled_from([("", ""), (" ", ""), ("", " "), (" ", " ")]))
    return f"{{{{{start}{comma.join(pairs)}}}}}{end}\n"


@st.composite
def sound(draw: st.DrawFn) -> bytes:
    """The text of a sound file: sensors of one node in any order, often with a time in common."""
    layout = draw(layouts())
    node = draw(st.sampled_from(["algo-1", "ip-10.ec2.internal", ""]))
    sensors = draw(st.lists(st.tuples(NAME, NAME, NAME), min_size=1, max_size=6))
    times = draw(st.lists(TIME, min_size=1, max_size=4))
    lines = draw(
        st.lists(st.tuples(st.sampled_from(sensors), NUMBER, st.sampled_from(times)), min_size=1, max_size=30)
    )
    return "".join(
        layout.format(Type=type_, Name=name, Dimension=dimension, Value=value, NodeId=node, Timestamp=time)
        for (type_, name, dimension), value, time in lines
    ).encode()


@given(sound())
def test_sound_files_are_read_as_single_lines_are(text: bytes) -> None:
    assert is_taken_and_equal(text)


@given(st.data())
def test_a_damaged_file_is_left_alone_or_read_as_single_lines_are(data: st.DataObject) -> None:
    text = data.draw(sound())
    for _ in range(data.draw(st.integers(1, 2))):
        place = data.draw(st.integers(0, len(text)))
        gone = data.draw(st.sampled_from([0, 1, 1, 2, len(text)]))
        text = text[:place] + data.draw(st.sampled_from([b"", *PIECES])) + text[place + gone :]

    is_taken_and_equal(text)


@pytest.mark.parametrize(
    "piece",
    slow_but({b"\n", b'"', b"0"}, [b"\0", b"\n", b"\r", b" ", b'"', b",", b".", b"0", b"\\", b"\xff"]),
)
def test_every_byte_of_a_line_counts(piece: bytes) -> None:
    for place in range(len(LINE)):
        is_taken_and_equal(LINE + LINE[:place] + piece + LINE[place + 1 :] + LINE)


@pytest.mark.parametrize("key", [b"gpu0", b"algo-1"])
def test_many_sensors_in_a_small_table_are_not_mixed_up(monkeypatch: pytest.MonkeyPatch, key: bytes) -> None:
    monkeypatch.setattr(byte_texts, "_TABLE_BITS", 3)
    mixed: list[bool] = []
    in_order: list[bool] = []
    for count, start in itertools.product(range(2, 9), range(10, 90, 10)):
        names = [b"%d" % number for number in range(start, start + count)]
        for order, taken in ((names + names[::-1], mixed), (names * 3, in_order)):
            text = b"".join(LINE.replace(key, b"cpu" + name).replace(b"94", name) for name in order)
            taken.append(is_taken_and_equal(text))

    assert 0 < sum(mixed) < len(mixed)
    # Sensors in the order of the first ones need no table.
    assert all(in_order)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\n",
        LINE[:-1],
        LINE * 2 + b"\n",
        LINE + b"}\n",
        LINE + b"," * 7 + b"}\n",
        LINE.replace(b"\n", b"\r\n"),
        b"[" + LINE[:-1] + b"]\n",
        b"[1," + LINE[:-1] + b"]\n",
        b"[[" + LINE[:-1] + b",1]]\n",
        LINE.replace(b"94.00", b"94"),
        LINE.replace(b"94.00", b"9.4e1"),
        LINE.replace(b"94.00", b"094.00"),
        LINE.replace(b"94.00", b'"94.00"'),
        LINE.replace(b"94.00", b"0." + b"1" * 30),
        LINE.replace(b'"Dimension":"GPUUtilization",', b""),
        LINE.replace(b'"gpu0"', b"null"),
        LINE.replace(b"gpu0", b"\xc3\xbc"),
        LINE.replace(b"gpu0", b"gpu" * 500),
        LINE.replace(b"gpu0", b"gpu\\u0030"),
        LINE.replace(b'"Type":"gpu",', b'"Type":"gpu","Type":"gpu",'),
        LINE.replace(b"1741080180.002395", b"17410801800.002395"),
    ],
)
def test_unusual_files_are_left_alone(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "samples.json"
    path.write_bytes(text)

    assert SoundFiles().rows(0, path) is None


@pytest.mark.parametrize("length", [128, 131])
@pytest.mark.parametrize("fault", [b"", b"x"])
def test_a_large_file_is_read_part_by_part(tmp_path: Path, length: int, fault: bytes) -> None:
    path = tmp_path / "samples.json"
    line = LINE.replace(b"gpu0", b"g" * (length + 4 - len(LINE)))
    count = 2 * (4 << 20) // length + 3
    text = b"".join(line.replace(b"94.00", b"%.2f" % (10 + i % 90)) for i in range(count))
    path.write_bytes(text[: len(text) // 2] + fault + text[len(text) // 2 :])

    rows = SoundFiles().rows(7, path)

    if fault:
        assert rows is None
    else:
        assert rows is not None
        assert np.concatenate([row.values for row in rows]).tolist() == [10 + i % 90 for i in range(count)]
        assert {row[:5] for row in rows} == {(7, *by_lines(path)[0][1:5])}


def test_a_compressed_file_is_read_as_its_text(tmp_path: Path) -> None:
    path = tmp_path / "samples.json.gz"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbf" + LINE * 10)[:-1])
    assert SoundFiles().rows(0, path) is None

    path.write_bytes(gzip.compress(b"\xef\xbb\xbf" + LINE * 10))
    rows = SoundFiles().rows(0, path)
    assert rows is not None
    assert by_sensor(rows) == by_sensor(by_lines(path))


def test_a_file_is_read_the_same_behind_a_larger_one(tmp_path: Path) -> None:
    files = SoundFiles()
    for number, text in enumerate([LINE * 1000, LINE.replace(b"94", b"95"), LINE[:-1], LINE]):
        path = tmp_path / f"{number}.json"
        path.write_bytes(text)
        rows = files.rows(number, path)
        if text.endswith(b"\n"):
            assert rows is not None
            assert [row.file for row in rows] == [number]
            assert by_sensor(rows) == by_sensor(by_lines(path))
        else:
            assert rows is None


@needs_corpus
def test_nearly_all_real_files_are_sound_and_read_as_single_lines_are() -> None:
    paths = sorted(CORPUS.glob("sagemaker/**/incremental/*/*.json"))
    files = SoundFiles()
    taken = 0
    for path in paths:
        rows = files.rows(0, path)
        if rows is not None:
            assert by_sensor(rows) == by_sensor(by_lines(path)), path
            taken += 1

    assert taken >= 0.95 * len(paths) > 0


@given(st.lists(NUMBER, min_size=1, max_size=20))
def test_decimals_are_what_float_finds(numbers: list[str]) -> None:
    assert bits(parsed(numbers)) == bits(np.array(list(map(float, numbers))))


@pytest.mark.parametrize(
    "number",
    [
        *("9007199254740993.0", "9007199254740992.5", "900719925474099.25", "4503599627370497.5"),
        *("29.634999999999998", "0.00000000000000000001", "0.1234567890123456", "1234567890123456.7"),
        *("99999999.99999999", "9999999999999999.9999", "123456789.123456789", "-0.0", "-0.3"),
    ],
)
def test_hard_decimals_are_what_float_finds(number: str) -> None:
    assert bits(parsed(["0.1", number, "5.0"])) == bits(np.array([0.1, float(number), 5.0]))


@pytest.mark.parametrize(
    "number",
    [
        *("01.5", "00.5", "-01.5", "1.", ".5", "-.5", ".", "--1.5", "+1.5", "1 .5", "1. 5", "1.5e", "1_1.5"),
        *("a.5", "1.:", "1./", "\xb1.5", "1.2.3", "12345678:12345678.1", ":1234567812345678.1"),
        *("0.:00000000000000001", "1." + "1" * 23),
    ],
)
def test_what_is_no_decimal_is_refused(number: str) -> None:
    with pytest.raises(decimals.NoDecimalError):
        parsed(["0.1", number, "5.0"])


def parsed(numbers: list[str]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The numbers, from a text with all of them."""
    text = "7" * decimals.LONGEST
    places = []
    for number in numbers:
        begin = len(text)
        text += number + "7"
        places.append((begin, begin + number.find("."), begin + len(number)))
    found = decimals.decimals(
        np.frombuffer(text.encode("latin-1"), np.uint8), *np.array(places, np.int64).T.copy()
    )
    return np.asarray(found)


def is_taken_and_equal(text: bytes) -> bool:
    """Whether a file with that text is read, and if so, as single lines are."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "samples.json"
        path.write_bytes(text)
        rows = FILES.rows(0, path)
        if rows is not None:
            assert by_sensor(rows) == by_sensor(by_lines(path)), text
        return rows is not None


def by_lines(path: Path) -> list[Rows]:
    """The rows as the reader of single lines finds them."""
    file = SourceFile(name=path.name, place=str(path), size=path.stat().st_size)
    return sample_lines.rows(0, file, Tally())


def by_sensor(rows: list[Rows]) -> Found:
    """All rows of each sensor, ordered, with the bits of their numbers."""
    found: Found = {}
    for row in rows:
        key = (row.node, row.type, row.dimension, row.name)
        assert key not in found
        found[key] = sorted(zip(bits(row.seconds), bits(row.values), strict=True))
    return found


def bits(numbers: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> list[int]:
    result: list[int] = numbers.view(np.int64).tolist()
    return result
