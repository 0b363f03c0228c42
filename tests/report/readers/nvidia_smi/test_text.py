"""Rows of a log taken apart: the same however many there are, in time that grows with their number."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobreport.readers.nvidia_smi import columns as smi_columns
from jobreport.readers.nvidia_smi import text as smi_text
from jobreport.readers.nvidia_smi.text import Table, tables
from jobreport.readers.registry import read_job

if TYPE_CHECKING:
    from pathlib import Path

HEADER = "timestamp, index, host, utilization.gpu [%]\n"
CELLS = st.text("0123456789.-+eEinfaNx %[/]'_\x0b\x00é", max_size=6) | st.sampled_from(
    ["007", "1e400", "True", "nan", "", " ", "0x1F", "123456789012345678901234567890"]
)


@given(st.integers(2, 3).flatmap(lambda n: st.lists(st.lists(CELLS, min_size=n, max_size=n), min_size=1)))
def test_few_rows_are_taken_apart_as_many_are(cells: list[list[str]]) -> None:
    rows = [",".join(row) for row in cells]
    found = []
    for few in (0, len(rows) + 1):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(smi_text, "_FEW", few)
            columns = smi_text._columns(rows, ",", len(cells[0]))
        found.append([[column.distinct[i] for i in column.code] for column in columns])

    assert found == [[list(column) for column in zip(*cells, strict=True)]] * 2


@pytest.mark.parametrize("moments", [2, 400])
def test_names_of_digits_keep_their_zeros(moments: int, tmp_path: Path) -> None:
    (tmp_path / "gpus.csv").write_text(
        HEADER
        + "".join(
            f"2026/01/03 10:{i // 60:02d}:{i % 60:02d}, 0, {host}, {50 + i % 7} %\n"
            for i in range(moments)
            for host in ("0012", "12")
        )
    )

    job, _ = read_job(tmp_path)

    assert sorted(job.nodes) == ["0012", "12"]


@pytest.mark.parametrize("moments", [2, 400])
def test_numbers_may_be_written_with_a_sign_or_begin_with_a_dot(moments: int, tmp_path: Path) -> None:
    rows = "".join(f"{1_700_000_000 + i},+0,.5\n" for i in range(moments))
    (tmp_path / "gpus.csv").write_text(f"timestamp,index,utilization.gpu\n{rows}")

    (panel,) = read_job(tmp_path)[0].panels

    assert panel.devices == ("gpu0",)
    assert panel.values.ravel().tolist() == [0.5] * moments


def test_headers_line_after_line_are_understood_once(monkeypatch: pytest.MonkeyPatch) -> None:
    column = Mock(wraps=smi_columns.column)
    monkeypatch.setattr(smi_columns, "column", column)
    smi_columns._told.cache_clear()
    names = [f"utilization.gpu.{i}" for i in range(200)]

    assert all(smi_columns.columns(names)[0] for _ in range(50))
    assert column.call_count == len(names)


def test_tables_of_a_few_rows_need_no_parser_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pandas.read_csv", Mock(side_effect=AssertionError))
    text = "index,utilization.gpu [%]\n0,50 %\nutilization.gpu [%],index\n50 %,0\n" * 50

    found = list(tables(text))

    assert len(found) == 100
    assert all(isinstance(part, Table) for part in found)


def test_rows_are_looked_at_once_for_all_headers_that_may_be_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Mock(wraps=smi_text._usual)
    monkeypatch.setattr(smi_text, "_usual", usual)
    headers = {((f"h{i}", *"abcd"[: i % 5]), sep) for i in range(300) for sep in ",;\t"}

    list(tables("1,2,3\n" * 10, headers))

    assert 0 < usual.call_count <= 4
