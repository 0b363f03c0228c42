"""Logs whose lines are not only rows: who wrote them, when, in which encoding; each holds the same two GPUs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from jobreport.errors import NothingReadableError
from jobreport.options import Options
from jobreport.readers.nvidia_smi import lines
from jobreport.readers.nvidia_smi.table import Skipped
from jobreport.readers.registry import read_directory
from jobrules.model import JobInMemory, Metric

NAMES = "index, utilization.gpu [%], memory.used [MiB]"
DATED = f"timestamp, {NAMES}"
SECONDS = range(5)
START = datetime(2026, 1, 13, 15, tzinfo=UTC)


def row(second: int, gpu: int) -> str:
    return f"{gpu}, {10 * second + gpu} %, {1000 + second} MiB"


def dated(second: int, gpu: int) -> str:
    return f"2026/01/13 15:00:{second:02}.000, {row(second, gpu)}"


def log(names: str, line: str) -> str:
    """A log with a line for each GPU and second: ``{s}``, ``{row}`` and ``{dated}`` stand in it, in front a header."""
    made = [
        line.format(s=second, row=row(second, gpu), dated=dated(second, gpu))
        for second in SECONDS
        for gpu in (0, 1)
    ]
    return "\n".join([names, *made]) + "\n"


def moments(between: str, *, again: str = "") -> str:
    """A log with a line before the rows of each second."""
    text = f"{NAMES}\n"
    for second in SECONDS:
        text += between.format(s=second) + "\n" + again
        text += "".join(f"{row(second, gpu)}\n" for gpu in (0, 1))
    return text


def read(folder: Path, text: str | bytes, **options: object) -> tuple[JobInMemory, dict[str, int]]:
    """The job, and rows that are not in use by the code of the remark."""
    (folder / "gpu.log").write_bytes(text if isinstance(text, bytes) else text.encode())
    reading = read_directory(folder, Options(strict=True, **options))  # type: ignore[arg-type]
    (source,) = reading.quality.sources
    return reading.job, {r.code: r.count for r in source.remarks if r.unit == "rows"}  # type: ignore[return-value]


def check(job: JobInMemory, *, nodes: tuple[str, ...] = ("node",), start: datetime = START) -> None:
    """All rows are there, at their times."""
    panels = job.panels_of(Metric.GPU_UTILIZATION)
    assert tuple(sorted(panel.node for panel in panels)) == nodes
    for panel in panels:
        assert panel.devices == ("gpu0", "gpu1")
        assert panel.values.tolist() == [[10.0 * second, 10.0 * second + 1] for second in SECONDS]
        seconds = [(int(one) / 1e6) - start.timestamp() for one in panel.time_us]
        assert seconds == pytest.approx([*SECONDS], abs=0.9)


@pytest.mark.parametrize(
    ("prefix", "start"),
    [
        ("2026-01-13T15:00:0{s}.123456789Z ", START),
        ("2026-01-13T17:00:0{s}+02:00 gpu-7 smi[312]: ", START),
        ("[2026-01-13 15:00:0{s}] ", START),
        ("Jan 13 15:00:0{s} ", datetime(1970, 1, 1, 15, tzinfo=UTC)),
    ],
)
def test_the_time_in_front_of_a_line_is_that_of_a_row_without_one(
    prefix: str, start: datetime, tmp_path: Path
) -> None:
    job, _ = read(tmp_path, log(prefix.format(s=0) + NAMES, prefix + "{row}"))

    check(job, nodes=("gpu-7",) if "gpu-7" in prefix else ("node",), start=start)


@pytest.mark.parametrize("again", ["", f"{NAMES}\n"])
@pytest.mark.parametrize(
    "between",
    [
        "Tue Jan 13 15:00:0{s} EST 2026",
        "Tue Jan 13 03:00:0{s} PM EST 2026",
        "Tue 13 Jan 2026 03:00:0{s} PM EST",
        "Tue, 13 Jan 2026 15:00:0{s} +0000",
        "===== 2026-01-13 15:00:0{s} =====",
        "--------\n2026-01-13T15:00:0{s}Z\n--- sample {s} ---",
    ],
)
def test_a_date_between_rows_is_the_time_of_the_rows_behind_it(
    between: str, again: str, tmp_path: Path
) -> None:
    job, left = read(tmp_path, moments(between, again=again))

    check(job)
    assert not left


def test_a_date_before_each_moment_of_dmon(tmp_path: Path) -> None:
    text = "".join(
        f"Tue Jan 13 15:00:0{s} UTC 2026\n# gpu   pwr   sm   mem\n# Idx     W    %    %\n"
        f"    0   100   {10 * s}   3\n    1   100   {10 * s + 1}   3\n"
        for s in SECONDS
    )
    job, left = read(tmp_path, text)

    check(job)
    assert not left


@pytest.mark.parametrize(
    "time",
    [
        "2026-01-13T10:00:0{s},123456789-05:00",
        "2026-01-13 15:00:0{s},123",
    ],
)
def test_a_comma_in_front_of_the_fraction_of_a_second_separates_nothing(time: str, tmp_path: Path) -> None:
    job, left = read(tmp_path, log(DATED, time + ", {row}"))

    check(job)
    assert not left


def test_the_order_of_dates_is_asked_for_where_none_shows_it(tmp_path: Path) -> None:
    text = log(DATED, "1/2/2026 15:00:0{s}, {row}")
    with pytest.raises(NothingReadableError, match="--date-order"):
        read(tmp_path, text)

    for order, start in (("day-first", (2026, 2, 1)), ("month-first", (2026, 1, 2))):
        job, _ = read(tmp_path, text, date_order=order)
        check(job, start=datetime(*start, 15, tzinfo=UTC))


def test_a_later_block_shows_the_order_of_dates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_PIECE", 64)
    days = [f"{1}/{12 + second}/2026 15:00" for second in SECONDS]
    text = f"{DATED}\n" + "".join(f"{day}, {row(s, g)}\n" for s, day in enumerate(days) for g in (0, 1))

    job, left = read(tmp_path, text, date_order="day-first")

    (panel,) = job.panels_of(Metric.GPU_UTILIZATION)
    found = [datetime.fromtimestamp(int(one) / 1e6, UTC) for one in panel.time_us]
    assert [(one.month, one.day) for one in found] == [(1, 12 + second) for second in SECONDS]
    assert not left


@pytest.mark.parametrize("has_header", [True, False])
@pytest.mark.parametrize(
    ("prefixes", "nodes"),
    [
        (("0: ", "1: "), ("task-0", "task-1")),
        (("node-1: ", "node-2: "), ("node-1", "node-2")),
        (("[rank0]:", "[rank8]:"), ("rank0", "rank8")),
    ],
)
def test_several_writers_are_several_machines(
    prefixes: tuple[str, str], nodes: tuple[str, str], has_header: bool, tmp_path: Path
) -> None:
    made = [log(one + DATED, one + "{dated}").splitlines()[not has_header :] for one in prefixes]
    text = "".join(f"{one}\n{other}\n" for one, other in zip(*made, strict=True))

    job, left = read(tmp_path, text, columns=None if has_header else f"timestamp,{NAMES}")

    check(job, nodes=nodes)
    assert not left


TEXT = log(DATED, "{dated}")


@pytest.mark.parametrize(
    "data",
    [
        TEXT.encode("utf-16-le"),
        TEXT.encode("utf-16-be"),
        TEXT.encode("utf-16"),
        TEXT[:200].encode() + TEXT[200:].replace("\n", "\r\n").encode("utf-16-le"),
        TEXT.replace("\n", "\r").encode(),
        TEXT.replace("\n", "\r\n").encode("utf-8-sig"),
        TEXT.replace(", ", "\x1b[0m, \x1b[1;32m").replace("2026/", "\x1b]0;title\x072026/").encode(),
        TEXT.replace("\n", "\n" + "\0" * 5000, 3).encode(),
        log(DATED.replace(", ", "   "), "{dated}").replace(", ", "   ").encode(),
    ],
    ids=["LE", "BE", "mark", "appended", "CR", "CRLF", "ANSI", "nothing", "column -t -s,"],
)
@pytest.mark.parametrize("piece", [1 << 21, 50])
def test_encodings_and_ends_of_lines(
    data: bytes, piece: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "_PIECE", piece)
    job, left = read(tmp_path, data)

    check(job)
    assert not left


@pytest.mark.parametrize(
    "line", ["sep=,", "Script started on 2026-01-13 14:59:58+00:00", "$ nohup ./log.sh &"]
)
def test_a_line_in_front_of_the_header_is_no_row_without_one(line: str, tmp_path: Path) -> None:
    job, left = read(tmp_path, f"{line}\n{TEXT}")

    check(job)
    assert left == {"nvidia_smi.other_fields": 1}


def test_a_line_that_is_too_long_is_one_row(tmp_path: Path) -> None:
    head, *rest = TEXT.splitlines()
    text = "\n".join([head, "x" * (lines.MAX_LINE + 1), *rest[:3], "7, " * lines.MAX_LINE, *rest[3:]]) + "\n"

    job, left = read(tmp_path, text)

    check(job)
    assert left == {"nvidia_smi.long_line": 2}


@pytest.mark.parametrize("size", [1, 2, 7, 100])
def test_blocks_have_the_lines_of_the_text_and_their_numbers(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MAX_LINE", 20)
    monkeypatch.setattr(lines, "_PIECE", size)
    data = f"\n\nab\ncd\u00e9\n{'x' * 21}\n{'y' * 20}\nlast".encode()
    skipped: list[Skipped] = []

    found = list(lines.blocks((data[i : i + size] for i in range(0, len(data), size)), skipped.append))

    numbered = [(block.line + i, line) for block in found for i, line in enumerate(block.lines)]
    assert numbered == [*enumerate(["", "", "ab", "cd\u00e9", "", "y" * 20, "last"], start=1)]
    assert [(one.line, one.text) for one in skipped] == [(5, "x" * 20)]
    assert [block.cut for block in found] == [False] * (len(found) - 1) + [True]
