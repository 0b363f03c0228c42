"""The text of a log as tables of cells."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobreport.readers.nvidia_smi import headed, table
from jobreport.readers.nvidia_smi.table import Block, Table, Texts, columns_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jobreport.readers.nvidia_smi.table import Skipped


def tables(text: str) -> Iterator[Table | Skipped]:
    """Of a text of a few blocks."""
    lines = text.removesuffix("\n").split("\n")
    blocks = [Block(line=i + 1, lines=lines[i : i + 7]) for i in range(0, len(lines), 7)]
    return headed.tables(blocks, ())


def cells(column: Texts) -> list[str]:
    return [column.distinct[i] for i in column.code]


CELLS = st.text("0123456789.-+eEinfaNx %[/]'_\x0b\x00é", max_size=6) | st.sampled_from(
    ["007", "1e400", "True", "nan", "", " ", "0x1F", "123456789012345678901234567890"]
)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@given(
    rows=st.integers(2, 3).flatmap(lambda n: st.lists(st.lists(CELLS, min_size=n, max_size=n), min_size=1))
)
def test_cells_are_those_between_the_separators(separator: str, rows: list[list[str]]) -> None:
    names = ("index", "utilization.gpu", "name")[: len(rows[0])]
    sound = [row for row in rows if "".join(row).strip()]
    text = "\n".join(separator.join(row) for row in [[*names], *sound]) + "\n"

    found = list(tables(text))

    tables_ = [part for part in found if isinstance(part, Table)]
    assert [row for part in tables_ for row in zip(*map(cells, part.columns), strict=True)] == [
        *map(tuple, sound)
    ]
    assert [line for part in tables_ for line in part.lines.tolist()] == [i + 2 for i in range(len(sound))]


def test_a_cell_between_blanks_may_hold_any_character() -> None:
    text = "index   utilization.gpu [%]   name\n0       50 %                  A\x1fB\n1       60 %                  C\n"

    (found,) = tables(text)

    assert isinstance(found, Table)
    assert [cells(column) for column in found.columns] == [["0", "1"], ["50 %", "60 %"], ["A\x1fB", "C"]]


def test_rows_under_headers_in_turn_are_all_there() -> None:
    text = "index,utilization.gpu [%]\n0,50 %\nutilization.gpu [%],index\n40 %,1\n" * 50

    found = [part for part in tables(text) if isinstance(part, Table)]

    rows = {(part.names, *map(tuple, map(cells, part.columns))) for part in found}
    assert all({*first} | {*second} <= {"0", "50 %"} for names, first, second in rows if names[0] == "index")
    assert sorted(line for part in found for line in part.lines.tolist()) == [*range(2, 201, 2)]


@given(
    decimals=st.integers(0, 3),
    unit=st.sampled_from(["", " %", " MiB"]),
    whole=st.lists(st.integers(0, 99_999_999), min_size=99, max_size=99),
    odd=CELLS,
)
def test_numbers_that_are_written_alike_are_those_of_their_texts(
    decimals: int, unit: str, whole: list[int], odd: str
) -> None:
    alike = [f"{number / 10**decimals:.{decimals}f}" for number in whole]

    for texts in (alike, [*alike[1:], odd]):
        found, _ = columns_of([f" {one}{unit},x" for one in texts], ",", 2)
        plain = found.plain()

        if plain:
            assert (plain[0].tolist(), plain[1]) == ([*map(float, texts)], unit)
        elif texts is alike:
            assert max(map(len, texts)) > 8


@pytest.mark.parametrize("tries", [0, 1, 32])
def test_cells_of_many_rows(tries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "_TRIES", tries)
    rows = [("ab\u00e9" * 7)[i % 5 : i % 11 + i % 7] for i in range(300)]

    found = columns_of([f"{row},{row[:1]}" for row in rows], ",", 2)

    assert [cells(column) for column in found] == [rows, [row[:1] for row in rows]]


def test_one_long_cell_does_not_make_all_others_as_long() -> None:
    tracemalloc.start()
    try:
        found = columns_of([*["1,2"] * 2000, "1," + "2" * 200_000], ",", 2)
        assert [[one[0], len(one[2000])] for one in found] == [["1", 1], ["2", 200_000]]
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
