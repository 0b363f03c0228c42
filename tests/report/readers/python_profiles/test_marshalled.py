from __future__ import annotations

import cProfile
import marshal
import struct
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobreport.readers.python_profiles.marshalled import NotReadableError, Value, loads

VERSIONS = range(2, 6)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**134), 2**134)
    | st.integers(-300, 300)
    | st.floats(allow_nan=False)
    | st.text(max_size=300)
    | st.sampled_from(["", "a", "ä", "\udc80", "x" * 255, "x" * 256, "\N{SNOWMAN}" * 90])
)
KEYS = SCALARS | st.tuples(SCALARS, SCALARS)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=5).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=5)
        # The same object twice is written as a reference.
        | inner.map(lambda value: (value, value))
    ),
    max_leaves=25,
)


def plain(value: Value) -> object:
    """With dictionaries made of their pairs."""
    if isinstance(value, list):
        return {plain(key): plain(one) for key, one in value}
    return tuple(plain(one) for one in value) if isinstance(value, tuple) else value


def typed(value: object) -> object:
    """A value that differs where types or signs differ: 1 == 1.0 == True, 0.0 == -0.0."""
    if isinstance(value, tuple):
        return "tuple", [typed(one) for one in value]
    if isinstance(value, dict):
        return "dict", [(typed(key), typed(one)) for key, one in value.items()]
    return type(value).__name__, repr(value)


@given(VALUES, st.sampled_from(VERSIONS))
def test_what_python_writes_is_read_in_every_version(value: Any, version: int) -> None:
    assert typed(plain(loads(marshal.dumps(value, version)))) == typed(value)


@pytest.mark.parametrize(
    "value",
    [b"bytes", [1], {1}, frozenset({1}), 1j, ..., StopIteration, compile("1", "", "eval"), bytearray(b"x")],
    ids=lambda value: type(value).__name__,
)
def test_what_no_profile_holds_is_refused_by_its_type(value: Any) -> None:
    for version in VERSIONS:
        with pytest.raises(NotReadableError):
            loads(marshal.dumps(("x", value), version))


TRUE = b"T"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"i\1\0\0",
        b"z\5abc",
        b"u\x01\0\0\0\xff",
        b"z\1\xff",
        b"f\1x",
        b"TT",
        b"0",
        b")\0010",
        b"{T00",
        b"u\xff\xff\xff\xff",
        b"(\xff\xff\xff\x7f" + TRUE,
        b"a\xff\xff\xff\x7f" + TRUE,
        b"l\x0a\0\0\0" + b"\1\0" * 10,
        b"l\xf6\xff\xff\xff" + b"\1\0" * 10,
        b"r\0\0\0\0",
        b"r\xff\xff\xff\xff",
        b")\1" * 33 + TRUE,
        b"{T" * 100_000,
        b"(\0\x09\x3d\0" + TRUE * 4_000_000,
    ],
)
def test_damage_and_malice_are_refused(data: bytes) -> None:
    with pytest.raises(NotReadableError):
        loads(data)


def test_a_container_that_contains_itself_contains_none() -> None:
    assert loads(b"\xa9\1r\0\0\0\0") == (None,)
    assert loads(b"\xfbTr\0\0\0\x000") == [(True, None)]


def test_tuples_of_references_to_each_other_stay_small() -> None:
    """Written out, the last would have 250^30 elements."""
    bomb = b"\xa9\0"
    for level in range(30):
        bomb = b"\xa9" + bytes([250]) + bomb + (b"r" + struct.pack("<i", 30 - level)) * 249

    started = time.process_time()
    value = loads(bomb)

    assert isinstance(value, tuple)
    assert value[0] is value[249]
    assert time.process_time() - started < 2


def test_truncation_anywhere_is_an_error(dump: bytes) -> None:
    for end in range(len(dump)):
        with pytest.raises(NotReadableError):
            loads(dump[:end])


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What cProfile writes of a small program."""
    profile = cProfile.Profile()
    profile.runcall(sorted, ["b", "a", "c"], key=lambda text: len(text.upper()))
    path = tmp_path_factory.mktemp("profile") / "python_stats"
    profile.dump_stats(path)
    return path.read_bytes()
