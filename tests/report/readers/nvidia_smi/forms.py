"""GPU logs in the forms in which people make them, written from known truth, with what must become of each.

``python -m tests.report.readers.nvidia_smi.forms`` prints each form of which something else becomes, and why.
``page`` writes ``docs/log-forms.md``.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import asdict

from jobreport.errors import NothingReadableError
from jobreport.options import Options
from jobreport.readers import archive
from jobreport.readers.registry import read_directory
from jobreport.remarks import Remark
from jobrules.model import SECOND_US, Metric, natural_sorted
from tests.report.readers.nvidia_smi.tools import (
    MIB,
    TOTAL_MIB,
    boxed,
    gpustat,
    gpustat_json,
    query_text,
    query_xml,
)

SECOND = timedelta(seconds=1)
#: The day is above 12, which settles the order of day and month.
START = datetime(2025, 3, 14, 9, 21, 17, 512_000, tzinfo=UTC)
#: Mean utilization of each GPU of the machines.
LEVELS = {"node-1": (83, 31), "node-2": (58, 12)}


class Row(NamedTuple):
    """The truth about one GPU at one moment."""

    at: datetime
    machine: str
    gpu: int
    use: int
    memory: int
    power: float

    @property
    def time(self) -> datetime:
        return self.at

    def value(self, metric: Metric) -> float:
        """Of what is known; 0 of anything else."""
        known = {Metric.GPU_UTILIZATION: self.use, Metric.GPU_MEMORY_USED: self.memory * MIB}
        return {**known, Metric.GPU_POWER: self.power}.get(metric, 0.0)

    def whole(self, metric: Metric) -> int:
        """As it is written; memory in MiB."""
        return round(self.value(metric) / (MIB if metric.unit == "B" else 1))

    @property
    def uuid(self) -> str:
        return f"GPU-{self.machine[-1]}f0e4a{self.gpu}c-8a57-5b9c-0d1e-4e6f2a9b7c3{self.gpu}"

    @property
    def bus(self) -> str:
        return f"00000000:{0x17 + 0x20 * self.gpu + int(self.machine[-1]):02X}:00.0"


Rows = Sequence[Row]
Files = Mapping[str, str | bytes]


def rows_of(
    machine: str = "node-1",
    gpus: int = 2,
    moments: int = 60,
    start: datetime = START,
    seed: int = 0,
    every: timedelta = SECOND,
) -> list[Row]:
    """The rows of a machine, moment by moment."""
    random = Random(f"{machine} {seed}")
    found = []
    for moment in range(moments):
        for index in range(gpus):
            use = min(100, max(0, LEVELS[machine][index] - 20 * seed + random.randint(-12, 12)))
            memory = 9_000 + 13_000 * index + 5_000 * int(machine[-1]) + 11 * moment
            at = start + moment * every
            found.append(Row(at, machine, index, use, memory, round(70 + 3.1 * use + random.random(), 2)))
    return found


ONE = rows_of()
SINGLE = rows_of(gpus=1)
#: The second machine asks its GPUs 370 ms after the first one.
TWO = sorted([*ONE, *rows_of("node-2", start=START + 0.37 * SECOND)])
#: Two runs, the second one the next day.
RUNS = [*rows_of(seed=1), *rows_of(start=START + timedelta(days=1))]
NEWEST = RUNS[len(RUNS) // 2 :]
#: GPU 0 is lost in the middle.
LOST = [row for row in ONE if row.gpu or row.at < START + 30 * SECOND]
#: The clock is set back in the middle.
SET_BACK = [
    row._replace(at=row.at - 25 * SECOND) if row.at > START + 1500 * SECOND else row
    for row in rows_of(moments=300, every=10 * SECOND)
]


#: Forms whose times or ends are their point.
UNVARIED = {
    "query-more",
    "no-index-loss",
    "two-nodes",
    "two-nodes-one-file-tee",
    "ts-elapsed",
    "box-lms",
    "dmon",
}


def _idle(row: Row) -> Row:
    """The row without load for most of the time, equal on all machines."""
    return row._replace(use=0, memory=3, power=61.0) if row.at < START + 50 * SECOND else row


#: Other truths of the same forms: what loops and machines may have in common, or not.
VARIATIONS: dict[str, Callable[[Rows], list[Row]]] = {
    "whole-seconds": lambda rows: [row._replace(at=row.at.replace(microsecond=0)) for row in rows],
    "idle-at-first": lambda rows: [_idle(row._replace(at=row.at.replace(microsecond=0))) for row in rows],
    "each-7-seconds": lambda rows: [row._replace(at=START + 7 * (row.at - START)) for row in rows],
    "other-ends": lambda rows: [
        row for row in rows if row.machine == "node-1" or START + 4 * SECOND < row.at < START + 47 * SECOND
    ],
    "past-midnight": lambda rows: [row._replace(at=row.at + timedelta(hours=14, minutes=38)) for row in rows],
}


# Writers


class Word(NamedTuple):
    """A column of ``--query-gpu``."""

    name: str
    unit: str
    cell: Callable[[Row], object]


def stamp(row: Row) -> str:
    return f"{row.at:%Y/%m/%d %H:%M:%S}.{row.at.microsecond // 1000:03}"


def seconds(row: Row) -> str:
    return f"{row.at:%Y-%m-%d %H:%M:%S}"


def date(row: Row) -> str:
    return f"{row.at:%a %b} {row.at.day:2} {row.at:%H:%M:%S UTC %Y}"


def ctime(row: Row) -> str:
    return f"{row.at:%a %b} {row.at.day:2} {row.at:%H:%M:%S %Y}"


WORDS = {
    "time": Word("timestamp", "", stamp),
    "index": Word("index", "", lambda row: row.gpu),
    "uuid": Word("uuid", "", lambda row: row.uuid),
    "bus": Word("pci.bus_id", "", lambda row: row.bus),
    "name": Word("name", "", lambda row: "NVIDIA A100-SXM4-80GB"),
    "use": Word("utilization.gpu", "%", lambda row: row.use),
    "memory": Word("memory.used", "MiB", lambda row: row.memory),
    "total": Word("memory.total", "MiB", lambda row: TOTAL_MIB),
    "power": Word("power.draw", "W", lambda row: f"{row.power:.2f}"),
}
ALL = "time index use memory power"


def query(
    rows: Rows,
    words: str = ALL,
    *,
    header: bool = True,
    units: bool = True,
    separator: str = ", ",
    point: str = ".",
) -> str:
    """What ``nvidia-smi --query-gpu`` writes of columns, named as in ``WORDS``."""
    columns = [WORDS[word] for word in words.split()]
    named = [f"{one.name} [{one.unit}]" if one.unit and units else one.name for one in columns]
    lines = [separator.join(named)] if header else []
    for row in rows:
        cells = [
            f"{one.cell(row)}".replace(".", point if one.unit else ".")
            + f" {one.unit}" * bool(one.unit and units)
            for one in columns
        ]
        lines.append(separator.join(cells))
    return "\n".join(lines) + "\n"


def names(words: str) -> str:
    """The value of ``--columns``."""
    return ",".join(WORDS[word].name for word in words.split())


#: Columns of scripts.
USE: dict[str, Callable[[Row], object]] = {"index": lambda row: row.gpu, "gpu_util": lambda row: row.use}
MEMORY: dict[str, Callable[[Row], object]] = {"mem_used_mb": lambda row: row.memory}


def values(row: Row) -> dict[str, float]:
    """What a script writes of a row as JSON."""
    return {"time": row.at.timestamp(), "gpu": row.gpu, "gpu_util": row.use}


def home_made(rows: Rows, **columns: Callable[[Row], object]) -> str:
    """A CSV with columns of its own."""
    return _csv(rows, columns, ",")


def with_semicolons(rows: Rows, **columns: Callable[[Row], object]) -> str:
    """The same with semicolons."""
    return _csv(rows, columns, ";")


def _csv(rows: Rows, columns: Mapping[str, Callable[[Row], object]], separator: str) -> str:
    lines = [separator.join(columns)]
    lines += [separator.join(str(cell(row)) for cell in columns.values()) for row in rows]
    return "\n".join(lines) + "\n"


def moments(rows: Rows) -> list[list[Row]]:
    """The rows of each moment of a machine."""
    return [list(some) for _, some in groupby(rows, key=lambda row: (row.at, row.machine))]


def of(rows: Rows, machine: str = "", gpu: int | None = None) -> list[Row]:
    """The rows of a machine, or of a GPU."""
    return [row for row in rows if machine in ("", row.machine) and gpu in (None, row.gpu)]


def prefixed(text: str, rows: Rows, prefix: Callable[[Row], str]) -> str:
    """The lines of a log, each of them, also the header, behind a prefix."""
    lines = text.splitlines()
    padded = [rows[0]] * (len(lines) - len(rows)) + [*rows]
    return "".join(f"{prefix(row)}{line}\n" for row, line in zip(padded, lines, strict=True))


def by_moment(rows: Rows, text: Callable[[Rows], str]) -> str:
    """What a tool that repeats itself writes."""
    return "".join(map(text, moments(rows)))


def each_moment(rows: Rows, before: Callable[[Row], str], text: Callable[[Rows], str]) -> str:
    """What a loop writes: a line, then the tool's text of one moment."""
    return "".join(f"{before(some[0])}\n{text(some)}" for some in moments(rows))


#: Drivers that write boxes of different looks.
DRIVERS = ("470.57", "535.104", "550.54", "570.86", "581.15")


#: Columns of ``dmon``: name, unit, and the cell.
_DMON: dict[str, list[tuple[str, str, Callable[[Row], object]]]] = {
    "p": [("pwr", "W", lambda row: f"{row.power:.0f}"), ("gtemp", "C", lambda row: 45), ("mtemp", "C", lambda row: "-")],
    "u": [("sm", "%", lambda row: row.use), ("mem", "%", lambda row: 7), ("enc", "%", lambda row: 0), ("dec", "%", lambda row: 0)],
    "c": [("mclk", "MHz", lambda row: 1593), ("pclk", "MHz", lambda row: 1410)],
    "m": [("fb", "MB", lambda row: row.memory), ("bar1", "MB", lambda row: 1)],
}  # fmt: skip
_WHEN: dict[str, list[tuple[str, str, Callable[[Row], object]]]] = {
    "D": [("Date", "YYYYMMDD", lambda row: f"{row.at:%Y%m%d}")],
    "T": [("Time", "HH:MM:SS", lambda row: f"{row.at:%H:%M:%S}")],
}


def dmon(rows: Rows, select: str = "pucm", when: str = "", *, separator: str = "") -> str:
    """What ``nvidia-smi dmon -s … -o …`` writes."""
    columns = [column for letter in when for column in _WHEN[letter]]
    columns += [("gpu", "Idx", lambda row: row.gpu)]
    columns += [column for letter in select for column in _DMON[letter]]
    head = [[name for name, _, _ in columns], [unit for _, unit, _ in columns]]
    lines = []
    for number, row in enumerate(rows):
        if number % 32 == 0:
            lines += ["#" + _spread(some, separator) for some in head]
        lines.append(
            (" " if not separator else "") + _spread([str(cell(row)) for _, _, cell in columns], separator)
        )
    return "\n".join(lines) + "\n"


def _spread(cells: Sequence[str], separator: str) -> str:
    return separator.join(cells) if separator else " ".join(f"{cell:>6}" for cell in cells)


def pmon(rows: Rows, when: str = "") -> str:
    """What ``nvidia-smi pmon -o …`` writes of two processes for each GPU."""
    head = "#" + "".join(f"{'Date' if one == 'D' else 'Time':12}" for one in when)
    units = "#" + "".join(f"{'YYYYMMDD' if one == 'D' else 'HH:MM:SS':12}" for one in when)
    lines = [
        f"{head} gpu        pid  type    sm   mem   enc   dec   command",
        f"{units} Idx          #   C/G     %     %     %     %   name",
    ]
    for row in rows:
        date = "".join(f" {cell(row)}   " for one in when for _, _, cell in _WHEN[one])
        for pid, use in ((4001, row.use // 2), (4002, row.use - row.use // 2)):
            lines.append(f"{date}    {row.gpu}       {pid}     C    {use or '-'}     3     -     -   python")
    return "\n".join(lines) + "\n"


def archived(files: Files, kind: str) -> bytes:
    """A tar or zip file of them."""
    buffer = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(buffer, "w") as zipped:
            for name, content in contents(files).items():
                zipped.writestr(f"job/{name}", content)
        return buffer.getvalue()
    with tarfile.open(fileobj=buffer, mode="w:gz") as taped:
        for name, content in contents(files).items():
            member = tarfile.TarInfo(f"job/{name}")
            member.size = len(content)
            taped.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def shuffled(rows: Rows) -> list[Row]:
    """The rows in any order."""
    return Random(1).sample([*rows], len(rows))


def fallen(rows: Rows) -> list[Row]:
    """The rows without the first GPU from the middle on."""
    return [row for row in rows if row.gpu or row.at < START + 30 * SECOND]


def at_once(rows: Rows) -> list[Row]:
    """The rows without fractions of a second: both machines write within the same one."""
    return sorted((row._replace(at=row.at.replace(microsecond=0)) for row in rows), key=lambda row: row.at)


# The forms


class Form(NamedTuple):
    """A form of log, what makes it, and what must become of it."""

    #: A short name with hyphens, and what it is in words.
    name: str
    what: str
    #: The command line, or the line of a program.
    command: str
    #: Writes it from the rows of the truth.
    write: Callable[[Rows], Files]
    rows: Rows = ONE
    #: The rows that the report must have; none for a form that is refused. By default all of them.
    truth: Rows | None = None
    #: What a remark or the refusal must say: a pattern that is looked for in codes and sentences.
    says: str = ""
    #: Keywords of ``read_directory``, as the options of the command.
    options: Mapping[str, str] = {}
    #: The values that it holds: utilization, memory, power.
    holds: str = "ump"
    #: Whether the names of the machines must be found, and the dates.
    named: bool = False
    dated: bool = True
    #: Whether it may be refused as well: what tells its rows from one another is too little.
    either: bool = False

    @property
    def expected(self) -> Rows:
        return self.rows if self.truth is None else self.truth


REFUSED: Rows = ()
APPS = "timestamp, gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n"
ACCOUNTED = (
    "gpu_name, gpu_bus_id, pid, gpu_utilization [%], mem_utilization [%], max_memory_usage [MiB], time [ms]\n"
)
FAILED = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n"
)
LOOP = "nvidia-smi --query-gpu={} --format=csv{} -l 1 > gpu.csv"
Q = names(ALL)


def app_rows(rows: Rows) -> str:
    return "".join(f"{stamp(row)}, {row.uuid}, {4000 + row.gpu}, python, {row.memory} MiB\n" for row in rows)


def accounted_rows(rows: Rows) -> str:
    return "".join(
        f"NVIDIA A100-SXM4-80GB, {row.bus}, {4000 + n}, 12 %, 3 %, {row.memory} MiB, 73600 ms\n"
        for n, row in enumerate(rows)
    )


def gpu_csv(text: str | bytes) -> Files:
    return {"gpu.csv": text}


FORMS: tuple[Form, ...] = (
    # The tool's own CSV
    Form("query", "header, units", LOOP.format(Q, ""), lambda rows: gpu_csv(query(rows))),
    Form("query-nounits", "header, no units", LOOP.format(Q, ",nounits"),
         lambda rows: gpu_csv(query(rows, units=False))),
    Form("query-more", "more columns, every 500 ms",
         "nvidia-smi --query-gpu=timestamp,name,index,uuid,pci.bus_id,… --format=csv -lms 500 > gpu.csv",
         lambda rows: gpu_csv(query(rows, "time name index uuid bus use memory total power")),
         rows=rows_of(every=0.5 * SECOND)),
    Form("query-windows", "CRLF, byte order mark", "nvidia-smi … | Out-File -Encoding utf8 gpu.csv",
         lambda rows: gpu_csv("\ufeff" + query(rows).replace("\n", "\r\n"))),
    Form("query-powershell", "UTF-16", "nvidia-smi … > gpu.csv  (PowerShell 5)",
         lambda rows: gpu_csv(query(rows).replace("\n", "\r\n").encode("utf-16"))),
    Form("query-powershell-appended", "UTF-16 without a byte order mark",
         "nvidia-smi … >> gpu.csv  (PowerShell 5)",
         lambda rows: gpu_csv(query(rows).replace("\n", "\r\n").encode("utf-16-le"))),
    Form("query-again", "the header again at each call",
         "while sleep 1; do nvidia-smi --query-gpu=… --format=csv >> gpu.csv; done",
         lambda rows: gpu_csv("".join(query(some) for some in moments(rows)))),
    Form("query-by-gpu", "rows sorted by GPU", "sort -t, -k2 gpu.csv",
         lambda rows: gpu_csv(query(sorted(rows, key=lambda row: row.gpu)))),
    Form("query-newest-first", "newest row first", "tac gpu.csv",
         lambda rows: gpu_csv(query(sorted(rows, key=lambda row: row.at, reverse=True)))),
    Form("query-shuffled", "rows in any order", "cat parts/* > gpu.csv",
         lambda rows: gpu_csv(query(shuffled(rows)))),
    Form("query-quoted", "every cell in quotes", 'csv.writer(file, quoting=csv.QUOTE_ALL)',
         lambda rows: gpu_csv(re.sub(r"[^,\n]+", lambda found: f'"{found[0].strip()}"', query(rows)))),
    Form("query-pandas", "a first column without a name", "pandas.read_csv('gpu.csv').to_csv('gpu2.csv')",
         lambda rows: gpu_csv("," + query([], separator=",") + "".join(f"{n},{line}\n" for n, line in enumerate(query(rows, header=False, separator=",").splitlines())))),
    Form("query-tabs", "tabs", "nvidia-smi … | sed 's/, /\\t/g' > gpu.tsv",
         lambda rows: {"gpu.tsv": query(rows, separator="\t")}),
    Form("query-semicolons", "semicolons, decimal commas", "Excel, Save as CSV (German)",
         lambda rows: gpu_csv(query(rows, separator=";", point=",")), holds="ump"),
    Form("query-errors", "error messages between rows", LOOP.format(Q, ""),
         lambda rows: gpu_csv(query(rows[:40]) + "Unable to determine the device handle for GPU0000:3B:00.0: Unknown Error\n" * 3 + query(rows[40:], header=False)),
         says="not as many fields|message"),
    Form("query-faults", "a cut row, a message, and the header again", "nvidia-smi … >> gpu.csv, restarted",
         lambda rows: gpu_csv(query(rows[:10]) + query(rows[:1], header=False)[:30] + "\n" + query(rows[10:50]) + "Terminated\n" + query(rows[50:])),
         says=r"other_fields: .* gpu\.csv:12$"),
    Form("query-not-supported", "[N/A] for power", LOOP.format(Q, ""),
         lambda rows: gpu_csv(re.sub(r"[0-9.]+ W", "[N/A]", query(rows))), holds="um",
         says="no value reported"),
    Form("query-one-file-per-gpu", "one file per GPU, no index",
         "nvidia-smi -i $i --query-gpu=timestamp,utilization.gpu,… > gpu$i.csv",
         lambda rows: {f"gpu{i}.csv": query(of(rows, gpu=i), "time use memory power") for i in (0, 1)}),
    Form("query-one-gpu", "one GPU, no index",
         "nvidia-smi --query-gpu=timestamp,utilization.gpu,… --format=csv -l 1 > gpu.csv",
         lambda rows: gpu_csv(query(rows, "time use memory power")), rows=SINGLE),
    Form("query-rotated", "a rotated log, one part compressed", "logrotate",
         lambda rows: {"gpu.csv": query(rows[80:], header=True), "gpu.csv.1": query(rows[40:80]), "gpu.csv.2.gz": gzip.compress(query(rows[:40]).encode())}),
    Form("query-rotated-no-header", "a rotated log, the header in its first part", "logrotate, copytruncate",
         lambda rows: {"gpu.csv": " 9 %, 1 MiB\n" + query(rows[80:], header=False), "gpu.csv.1": query(rows[:80])},
         says=r"gpu\.csv\.1"),
    Form("query-gz", "compressed", "nvidia-smi … | gzip > gpu.csv.gz",
         lambda rows: {"gpu.csv.gz": gzip.compress(query(rows).encode())}),
    Form("query-in-output", "between the lines of the training",
         "nvidia-smi … -l 1 & python train.py  (one slurm-1.out)",
         lambda rows: {"slurm-1.out": each_moment(rows, lambda row: f"Epoch 1 step {row.at.second} loss 0.{row.use:02}", lambda some: query(some, header=some[0] == rows[0]))},
         says="not as many fields|message"),
    Form("query-carriage-returns", "a progress bar before the rows",
         "nvidia-smi … -l 1 & python train.py  (tqdm)",
         lambda rows: {"slurm-1.out": "".join(f" 10%|# | {n}/60 [00:01<00:09]\r{line}" for n, line in enumerate(query(rows).splitlines(True)))},
         says="not as many fields"),
    # Without a header
    Form("noheader", "no header, units", LOOP.format(Q, ",noheader"),
         lambda rows: gpu_csv(query(rows, header=False)), truth=REFUSED, says="--columns"),
    Form("noheader-nounits", "no header, no units", LOOP.format(Q, ",noheader,nounits"),
         lambda rows: gpu_csv(query(rows, header=False, units=False)), truth=REFUSED, says="--columns"),
    Form("noheader-columns", "no header, units, --columns", LOOP.format(Q, ",noheader"),
         lambda rows: gpu_csv(query(rows, header=False)), options={"columns": Q}),
    Form("noheader-nounits-columns", "no header, no units, --columns", LOOP.format(Q, ",noheader,nounits"),
         lambda rows: gpu_csv(query(rows, header=False, units=False)), options={"columns": Q}),
    Form("noheader-script", "no header, the query in a script in the folder",
         LOOP.format(Q, ",noheader,nounits"),
         lambda rows: {"gpu.csv": query(rows, header=False, units=False), "job.sh": f"#!/bin/bash\n{LOOP.format(Q, ',noheader,nounits')} &\npython train.py\n"},
         truth=REFUSED, says="--columns"),
    # Which GPU
    Form("uuid-only", "UUID, no index", LOOP.format(names("time uuid use memory power"), ""),
         lambda rows: gpu_csv(query(rows, "time uuid use memory power"))),
    Form("bus-only", "bus id, no index", LOOP.format(names("time bus use memory power"), ""),
         lambda rows: gpu_csv(query(rows, "time bus use memory power"))),
    Form("no-index", "no column that names the GPU", LOOP.format(names("time use memory power"), ""),
         lambda rows: gpu_csv(query(rows, "time use memory power")), says="in_turn"),
    Form("no-index-loss", "no column that names the GPU, and one falls off",
         LOOP.format(names("time use memory power"), ""),
         lambda rows: gpu_csv(query(fallen(rows), "time use memory power")),
         truth=[row for row in ONE if row.at < START + 30 * SECOND], says="GPU|moment"),
    Form("index-loss", "a GPU falls off", LOOP.format(Q, ""), lambda rows: gpu_csv(query(rows)),
         rows=fallen(ONE)),
    Form("uuid-renumbered", "a GPU falls off, and the driver numbers the others anew",
         LOOP.format(names("time index uuid use memory power"), ""),
         lambda rows: gpu_csv(query(rows, "time index uuid use memory power").replace(f" 1, {rows[-1].uuid}", f" 0, {rows[-1].uuid}").replace(f" 0, {rows[-1].uuid}", f" 1, {rows[-1].uuid}", 30)),
         rows=LOST),
    Form("gpu-is-the-use", "a column gpu with the utilization",
         "print(f'{time},{util},{mem}')  with the header time,gpu,mem",
         lambda rows: gpu_csv(home_made(rows, time=seconds, gpu=lambda row: row.use, mem=lambda row: row.memory)),
         rows=SINGLE, holds="um", says="gpu|mem"),
    Form("gpu-percent", "a column gpu% with the utilization",
         "print(f'{time},{util},{mem}')  with the header time,gpu%,mem%",
         lambda rows: gpu_csv(home_made(rows, **{"time": seconds, "gpu%": lambda row: row.use, **MEMORY})),
         rows=SINGLE, holds="um"),
    # Which machine
    Form("host-column", "a column with the host", 'nvidia-smi … | sed "s/^/$(hostname), /"',
         lambda rows: gpu_csv(prefixed(query(rows), rows, lambda row: f"{row.machine}, ").replace("node-1, timestamp", "hostname, timestamp")),
         rows=TWO, named=True),
    Form("folder-per-node", "a folder per node", "nvidia-smi … > $(hostname)/gpu.csv",
         lambda rows: {f"{one}/gpu.csv": query(of(rows, one)) for one in LEVELS}, rows=TWO, named=True),
    Form("folder-per-job", "a folder per job, one job after the other on a node", "nvidia-smi … > $JOB/gpu.csv",
         lambda rows: {"job-1/gpu.csv": query(rows[:120]), "job-2/gpu.csv": query(rows[120:])},
         rows=[*ONE, *rows_of(seed=1, start=START + 90 * SECOND)]),
    Form("file-per-node", "a file per node", "nvidia-smi … > gpu_$(hostname).csv",
         lambda rows: {f"gpu_{one}.csv": query(of(rows, one)) for one in LEVELS}, rows=TWO, named=True, says="machines"),
    Form("two-nodes-uuid", "two nodes append to one file, with UUIDs",
         "srun -N2 nvidia-smi --query-gpu=timestamp,index,uuid,… >> shared/gpu.csv",
         lambda rows: gpu_csv(query(rows, "time index uuid use memory power")), rows=TWO, says="machines"),
    Form("two-nodes-bus", "two nodes append to one file, with bus ids",
         "srun -N2 nvidia-smi --query-gpu=timestamp,index,pci.bus_id,… >> shared/gpu.csv",
         lambda rows: gpu_csv(query(rows, "time index bus use memory power")), rows=TWO, says="machines"),
    Form("two-nodes", "two nodes append to one file",
         "srun -N2 nvidia-smi --query-gpu=timestamp,index,… >> shared/gpu.csv",
         lambda rows: gpu_csv(query(rows)), rows=TWO, truth=REFUSED, says="machines"),
    Form("two-nodes-one-file-tee", "two nodes append to one file, each with a header",
         "pdsh -w node-[1-2] 'nvidia-smi … | tee -a shared/gpu.csv'",
         lambda rows: gpu_csv(query([]) + query(rows)), rows=TWO, truth=REFUSED, says="machines"),
    Form("two-nodes-whole-seconds", "two nodes append to one file, times in whole seconds",
         "python log.py >> shared/gpu.csv  on two nodes",
         lambda rows: gpu_csv(home_made(rows, timestamp=seconds, **USE)), rows=at_once(TWO), holds="u",
         says="writers|machines", either=True),
    Form("two-nodes-uuid-loss", "two nodes append to one file, with UUIDs, and a GPU of each falls off",
         "srun -N2 nvidia-smi --query-gpu=timestamp,index,uuid,… >> shared/gpu.csv",
         lambda rows: gpu_csv(query(rows, "time index uuid use memory power")), rows=fallen(TWO), says="machines"),
    Form("two-nodes-uuid-by-gpu", "two nodes append to one file, with UUIDs, sorted by GPU", "sort -t, -k2 gpu.csv",
         lambda rows: gpu_csv(query(sorted(rows, key=lambda row: row.gpu), "time index uuid use memory power")),
         rows=TWO, says="machines"),
    Form("two-nodes-sorted", "logs of two nodes in one, sorted by time", "sort node-1.csv node-2.csv > gpu.csv",
         lambda rows: gpu_csv(query([]) + "".join(sorted(query(rows, header=False).splitlines(keepends=True)))),
         rows=at_once(TWO), says="writers|machines", either=True),
    Form("two-nodes-shuffled", "logs of two nodes in one, in any order", "sort -R node-1.csv node-2.csv > gpu.csv",
         lambda rows: gpu_csv(query(shuffled(rows))), rows=at_once(TWO), says="writers|machines", either=True),
    Form("two-logs-of-one-node", "one log with indices, one with UUIDs, one with both",
         "two loops and nvidia-smi -L",
         lambda rows: {"use.csv": query(rows, "time index use"), "power.csv": query(rows, "time uuid memory power"), "gpus.csv": query(rows[:2], "time index uuid name use")}),
    Form("two-logs-that-cannot-be-joined", "one log with indices, one with UUIDs", "two loops",
         lambda rows: {"use.csv": query(rows, "time index use"), "power.csv": query(rows, "time uuid memory power")},
         holds="u", says="UUID|index"),
    Form("two-logs-joined", "utilization in one log, power in the other", "two loops",
         lambda rows: {"use.csv": query(rows, "time index use"), "power.csv": query(rows, "time index memory power")}),
    # Runs
    Form("two-runs", "two runs in one file", "nvidia-smi … >> gpu.csv  in two jobs",
         lambda rows: gpu_csv(query(rows[:120]) + query(rows[120:])), rows=RUNS, truth=NEWEST, says="run"),
    Form("two-runs-first", "two runs in one file, --run 1", "nvidia-smi … >> gpu.csv  in two jobs",
         lambda rows: gpu_csv(query(rows[:120]) + query(rows[120:])), rows=RUNS, truth=RUNS[:120],
         options={"run": "1"}, says="run"),
    Form("two-runs-all", "two runs in one file, --run all", "nvidia-smi … >> gpu.csv  in two jobs",
         lambda rows: gpu_csv(query(rows[:120]) + query(rows[120:])), rows=RUNS, options={"run": "all"}),
    # Launchers
    Form("srun-label", "srun --label", "srun --label nvidia-smi … > gpu.log",
         lambda rows: {"gpu.log": "".join(f"{int(one[-1]) - 1}: {line}\n" for one in LEVELS for line in query(of(rows, one)).splitlines())},
         rows=TWO),
    Form("srun-label-mixed", "srun --label, lines of the nodes in turn",
         "srun --label nvidia-smi … > gpu.log",
         lambda rows: {"gpu.log": "".join(f"{n}: {query([])}" for n in (0, 1)) + prefixed(query(rows, header=False), rows, lambda row: f"{int(row.machine[-1]) - 1}: ")},
         rows=TWO),
    Form("pdsh", "pdsh", "pdsh -w node-[1-2] nvidia-smi … > gpu.log",
         lambda rows: {"gpu.log": "".join(f"{one}: {query([])}" for one in LEVELS) + prefixed(query(rows, header=False), rows, lambda row: f"{row.machine}: ")},
         rows=TWO, named=True),
    Form("kubectl", "kubectl logs --timestamps", "kubectl logs --timestamps gpu-log > gpu.log",
         lambda rows: {"gpu.log": prefixed(query(rows), rows, lambda row: f"{row.at:%Y-%m-%dT%H:%M:%S}.{row.at.microsecond:06}789Z ")}),
    Form("kubectl-prefix", "kubectl logs --prefix", "kubectl logs --prefix -l app=train > gpu.log",
         lambda rows: {"gpu.log": prefixed(query(rows), rows, lambda row: "[pod/train-0/gpu] ")}),
    Form("compose", "docker compose logs", "docker compose logs gpu > gpu.log",
         lambda rows: {"gpu.log": prefixed(query(rows), rows, lambda row: "gpu-1  | ")}),
    Form("journalctl", "journalctl", "journalctl -u gpulog > gpu.log",
         lambda rows: {"gpu.log": prefixed(query(rows), rows, lambda row: f"{row.at:%b} {row.at.day:2} {row.at:%H:%M:%S} node-1 nvidia-smi[812]: ")}),
    Form("journalctl-iso", "journalctl -o short-iso", "journalctl -o short-iso -u gpulog > gpu.log",
         lambda rows: {"gpu.log": prefixed(query(rows), rows, lambda row: f"{row.at:%Y-%m-%dT%H:%M:%S}+0000 node-1 nvidia-smi[812]: ")}),
    Form("ts", "ts", "nvidia-smi … | ts > gpu.log",
         lambda rows: {"gpu.log": prefixed(query(rows), rows, lambda row: f"{row.at:%b %d %H:%M:%S} ")}),
    Form("ts-date", "ts '%F %T'", "nvidia-smi … | ts '%F %T' > gpu.log",
         lambda rows: {"gpu.log": prefixed(query(rows), rows, lambda row: f"{seconds(row)} ")}),
    Form("ts-elapsed", "ts -s", "nvidia-smi --query-gpu=index,… | ts -s > gpu.log",
         lambda rows: {"gpu.log": prefixed(query(rows, "index use memory power"), rows, lambda row: f"{(datetime.min + (row.at - START)):%H:%M:%S} ")},
         dated=False, says="no dates"),
    Form("torchrun", "torchrun --tee 3", "torchrun --tee 3 train.py > gpu.log",
         lambda rows: {"gpu.log": prefixed(query(rows), rows, lambda row: "[default0]:")}),
    Form("torchrun-rank", "torchrun --tee 3 of a rank", "torchrun --tee 3 --role rank train.py > gpu.log",
         lambda rows: {"gpu.log": prefixed(query(rows), rows, lambda row: "[rank3]: ")}),
    Form("mpirun", "mpirun --tag-output", "mpirun --tag-output nvidia-smi … > gpu.log",
         lambda rows: {"gpu.log": prefixed(query(rows), rows, lambda row: "[1,0]<stdout>:")}),
    Form("ray", "Ray", "ray job logs > gpu.log",
         lambda rows: {"gpu.log": prefixed(query(rows), rows, lambda row: "(log_gpus pid=4123, ip=10.0.0.2) ")}),
    # Times
    Form("date-lines", "a line of date before the rows",
         "while sleep 1; do date; nvidia-smi --query-gpu=index,… --format=csv; done > gpu.log",
         lambda rows: {"gpu.log": each_moment(rows, date, lambda some: query(some, "index use memory power"))}),
    Form("date-lines-noheader", "a line of date before rows without a header",
         "while sleep 1; do date; nvidia-smi … --format=csv,noheader; done > gpu.log",
         lambda rows: {"gpu.log": each_moment(rows, date, lambda some: query(some, "index use memory power", header=False))},
         options={"columns": names("index use memory power")}),
    Form("date-lines-no-columns", "a line of date before rows without a header, without --columns",
         "while sleep 1; do date; nvidia-smi … --format=csv,noheader; done > gpu.log",
         lambda rows: {"gpu.log": each_moment(rows, date, lambda some: query(some, "index use memory power", header=False))},
         truth=REFUSED, says="--columns"),
    Form("banners", "a banner with the time before the rows",
         'while sleep 1; do echo "=== $(date "+%F %T") ==="; nvidia-smi … ; done > gpu.log',
         lambda rows: {"gpu.log": each_moment(rows, lambda row: f"=== {seconds(row)} ===", lambda some: query(some, "index use memory power"))}),
    Form("banners-no-time", "a banner between the rows",
         'while sleep 1; do echo "--- GPU ---"; nvidia-smi … ; done > gpu.log',
         lambda rows: {"gpu.log": each_moment(rows, lambda row: "------ GPU ------", query)}),
    Form("date-column", "a column of $(date)",
         'echo "$(date),$(nvidia-smi --query-gpu=…,noheader)" >> gpu.csv',
         lambda rows: gpu_csv(home_made(rows, time=date, **USE, **MEMORY)), holds="um"),
    Form("set-back", "a clock that is set back", LOOP.format(Q, ""), lambda rows: gpu_csv(query(rows)),
         rows=SET_BACK),
    Form("date-iso-ns", "a column of $(date -Ins)", 'echo "$(date -Ins); …"',
         lambda rows: gpu_csv(with_semicolons(rows, time=lambda row: f"{row.at:%Y-%m-%dT%H:%M:%S},{row.at.microsecond:06}000+00:00", **USE)),
         holds="u"),
    Form("epoch", "seconds since 1970", 'echo "$(date +%s.%N),…"',
         lambda rows: gpu_csv(home_made(rows, timestamp=lambda row: f"{row.at.timestamp():.3f}", **USE, **MEMORY, power_w=lambda row: row.power))),
    Form("epoch-ms", "milliseconds since 1970", "Date.now()",
         lambda rows: gpu_csv(home_made(rows, ts=lambda row: round(1000 * row.at.timestamp()), **USE)),
         holds="u"),
    Form("elapsed", "seconds since the start", "time.monotonic() - start",
         lambda rows: gpu_csv(home_made(rows, elapsed_s=lambda row: f"{(row.at - START).total_seconds():.2f}", **USE)),
         holds="u", dated=False, says="no dates"),
    Form("clock-only", "a time of day", "strftime('%H:%M:%S')",
         lambda rows: gpu_csv(home_made(rows, time=lambda row: f"{row.at:%H:%M:%S}", **USE)), holds="u",
         dated=False, says="no dates"),
    Form("iso-zone", "ISO times with a zone", "datetime.now(UTC).isoformat()",
         lambda rows: gpu_csv(home_made(rows, timestamp=lambda row: row.at.isoformat(), **USE)), holds="u"),
    Form("timezone", "local times, --timezone", LOOP.format(Q, ""),
         lambda rows: gpu_csv(query([row._replace(at=row.at + timedelta(hours=1)) for row in rows])),
         options={"timezone": "Europe/Berlin"}, says="Europe/Berlin"),
    Form("excel-german", "Excel: day first, semicolons, decimal commas", "Excel, Save as CSV (German)",
         lambda rows: gpu_csv(with_semicolons(rows, timestamp=lambda row: f"{row.at:%d.%m.%Y %H:%M:%S}", **USE, power_w=lambda row: str(row.power).replace(".", ","))),
         holds="up"),
    Form("excel-us", "Excel: month first", "Excel, Save as CSV (US)",
         lambda rows: gpu_csv(home_made(rows, timestamp=lambda row: f"{row.at.month}/{row.at.day}/{row.at:%Y %H:%M:%S}", **USE)),
         holds="u"),
    Form("excel-am-pm", "Excel: month first, 12 hours", "Excel, Save as CSV (US)",
         lambda rows: gpu_csv(home_made(rows, timestamp=lambda row: f"{row.at.month}/{row.at.day}/{row.at:%Y %I:%M:%S %p}", **USE)),
         holds="u"),
    Form("excel-unclear", "dates of which day and month may be exchanged", "Excel, Save as CSV",
         lambda rows: gpu_csv(home_made(rows, timestamp=lambda row: f"{row.at:%d/%m/%Y %H:%M:%S}", **USE)),
         rows=rows_of(start=START.replace(day=4)), holds="u", truth=REFUSED, says="--date-order"),
    Form("excel-date-order", "dates of which day and month may be exchanged, --date-order",
         "Excel, Save as CSV",
         lambda rows: gpu_csv(home_made(rows, timestamp=lambda row: f"{row.at:%d/%m/%Y %H:%M:%S}", **USE)),
         rows=rows_of(start=START.replace(day=4)), holds="u", options={"date_order": "day-first"}),
    Form("no-time", "no column of times",
         "nvidia-smi --query-gpu=index,utilization.gpu,… --format=csv -l 1 > gpu.csv",
         lambda rows: gpu_csv(query(rows, "index use memory power")), truth=REFUSED, says="time"),
    Form("odd-time", "times that nobody can read", "a script",
         lambda rows: gpu_csv(home_made(rows, timestamp=lambda row: "Freitag kurz nach neun", **USE)),
         truth=REFUSED, says="Freitag kurz"),
    # Units
    Form("fraction", "utilization as a fraction", "GPUtil: print(time, gpu.id, gpu.load, gpu.memoryUsed)",
         lambda rows: gpu_csv(home_made(rows, timestamp=seconds, id=lambda row: row.gpu, load=lambda row: f"{row.use / 100:.2f}", memoryUsed=lambda row: row.memory)),
         holds="um", says="fraction"),
    Form("fraction-util", "utilization as a fraction, in a column util",
         "csv.writer(…).writerow([time, i, util / 100])",
         lambda rows: gpu_csv(home_made(rows, timestamp=seconds, index=lambda row: row.gpu, gpu_util=lambda row: row.use / 100, **MEMORY)), holds="um",
         says="fraction"),
    Form("fraction-unclear", "utilization that is 0 or 1", "a script",
         lambda rows: gpu_csv(home_made(rows, timestamp=seconds, index=lambda row: row.gpu, gpu_util=lambda row: int(row.use > 50), **MEMORY)),
         holds="m", says="fraction|0 or 1"),
    Form("raw-nvml", "mW and bytes, as NVML gives them",
         "pynvml: nvmlDeviceGetPowerUsage(h), nvmlDeviceGetMemoryInfo(h).used",
         lambda rows: gpu_csv(home_made(rows, timestamp=lambda row: f"{row.at.timestamp():.3f}", gpu=lambda row: row.gpu, gpu_util=lambda row: row.use, memory_used=lambda row: row.memory << 20, power=lambda row: round(1000 * row.power))),
         says="mW|1,000|unit|bytes"),
    Form("raw-nvml-wrong-name", "mW in a column that says W", "a Jetson script",
         lambda rows: gpu_csv(home_made(rows, timestamp=seconds, gpu=lambda row: row.gpu, gpu_util=lambda row: row.use, gpu_power_w=lambda row: round(1000 * row.power))),
         holds="u", says="power|W"),
    Form("units-in-names", "MiB, GiB, mW in the names", "a script",
         lambda rows: gpu_csv(home_made(rows, timestamp=seconds, index=lambda row: row.gpu, gpu_util_pct=lambda row: row.use, mem_used_gib=lambda row: f"{row.memory / 1024:.4f}", power_mw=lambda row: round(1000 * row.power)))),
    Form("mem-in-mib", "a column mem in MiB", "a script",
         lambda rows: gpu_csv(home_made(rows, timestamp=seconds, index=lambda row: row.gpu, util=lambda row: row.use, mem=lambda row: row.memory)),
         holds="um", says="mem"),
    Form("mem-in-percent", "a column mem% of memory activity", "a script",
         lambda rows: gpu_csv(home_made(rows, **{"timestamp": seconds, "index": lambda row: row.gpu, "util": lambda row: row.use, "mem%": lambda row: 7})),
         holds="u"),
    # Scripts and other tools around NVML
    Form("script", "a script's own names", "a script",
         lambda rows: gpu_csv(home_made(rows, time=seconds, gpu_id=lambda row: row.gpu, gpu_utilization=lambda row: row.use, gpu_memory_used_mb=lambda row: row.memory, gpu_power_draw=lambda row: row.power))),
    Form("script-fast", "whole seconds, every 500 ms", "a script",
         lambda rows: gpu_csv(home_made(rows, timestamp=seconds, **USE)), rows=rows_of(every=0.5 * SECOND),
         holds="u", says="machines|time|fast", either=True),
    Form("wide", "columns for each GPU", "a script",
         lambda rows: gpu_csv(home_made([some[0] for some in moments(rows)], **{"timestamp": seconds} | {f"gpu{i}_{name}": _of_gpu(rows, i, field) for i in (0, 1) for name, field in (("util", "use"), ("mem_mb", "memory"), ("power_w", "power"))})),
         holds="ump"),
    Form("wide-behind", "columns for each GPU, its number behind the measure", "a script",
         lambda rows: gpu_csv(home_made([some[0] for some in moments(rows)], **{"timestamp": seconds} | {f"{name}_{i}": _of_gpu(rows, i, field) for i in (0, 1) for name, field in (("util", "use"), ("mem_mb", "memory"), ("power_w", "power"))})),
         holds="ump"),
    Form("wide-and-mean", "columns for each GPU and for all of them", "a script",
         lambda rows: gpu_csv(home_made([some[0] for some in moments(rows)], **{"timestamp": seconds, "gpu_avg_util": lambda row: 50} | {f"gpu{i}_util": _of_gpu(rows, i, "use") for i in (0, 1)})),
         holds="u"),
    Form("statistics", "columns of a process and of the highest utilization", "a script",
         lambda rows: gpu_csv(home_made(rows, timestamp=seconds, gpu=lambda row: row.gpu, proc_gpu_util=lambda row: row.use // 2, gpu_util_max=lambda row: 100, gpu_util_mean=lambda row: row.use)),
         holds="u"),
    Form("smoothed", "a column of smoothed utilization", "a script",
         lambda rows: gpu_csv(home_made(rows, timestamp=seconds, gpu_util_smoothed=lambda row: 50, **USE)),
         holds="u", says="same measure"),
    Form("other-names", "names that say nothing", "a script",
         lambda rows: gpu_csv(home_made([some[0] for some in moments(rows)], time=seconds, gpu0=_of_gpu(rows, 0, "use"), gpu1=_of_gpu(rows, 1, "use"))),
         truth=REFUSED, says="--columns"),
    Form("other-names-columns", "names that say nothing, --columns", "a script",
         lambda rows: gpu_csv(home_made([some[0] for some in moments(rows)], time=seconds, gpu0=_of_gpu(rows, 0, "use"), gpu1=_of_gpu(rows, 1, "use"))),
         holds="u", options={"columns": "timestamp,gpu0_util,gpu1_util"}, says="time"),
    Form("gputil-table", "the table of GPUtil", "GPUtil.showUtilization()",
         lambda rows: {"gpu.txt": "".join("| ID | GPU | MEM |\n------------------\n" + "".join(f"|  {row.gpu} | {row.use}% | 13% |\n" for row in some) for some in moments(rows))},
         truth=REFUSED, says="nvidia-smi --query-gpu"),
    Form("nvitop", "nvitop's ResourceMetricCollector", "ResourceMetricCollector(…).daemonize(on_collect=…)",
         lambda rows: gpu_csv(_nvitop(rows)), says="mean|"),
    Form("gpustat", "gpustat", "gpustat --show-power -i 1 > gpustat.txt",
         lambda rows: {"gpustat.txt": by_moment(rows, gpustat)}, named=True),
    Form("gpustat-color", "gpustat in colors, without power", "gpustat --force-color -i 1 > gpustat.txt",
         lambda rows: {"gpustat.txt": re.sub(r"\[(\d)\]", "\x1b[36m[\\1]\x1b(B\x1b[m", by_moment(rows, partial(gpustat, options="")))},
         holds="um", named=True),
    Form("gpustat-json", "gpustat --json", "while sleep 1; do gpustat --json; done > gpustat.json",
         lambda rows: {"gpustat.json": by_moment(rows, gpustat_json)}, named=True),
    Form("json-lines", "JSON lines", "print(json.dumps({'time': …, 'gpu_util': …}))",
         lambda rows: {"gpu.json": "".join(json.dumps(values(row)) + "\n" for row in rows)},
         truth=REFUSED, says="JSON"),
    Form("json-array", "a JSON array", "DataFrame.to_json('gpu.json', orient='records', indent=1)",
         lambda rows: {"gpu.json": json.dumps([*map(values, rows)], indent=1)},
         truth=REFUSED, says="JSON"),
    Form("json-table", "a JSON object of columns", "DataFrame.to_json('gpu.json')",
         lambda rows: {"gpu.json": json.dumps({name: {n: values(row)[name] for n, row in enumerate(rows)} for name in values(rows[0])})},
         truth=REFUSED, says="JSON"),
    # Other outputs of nvidia-smi
    *(
        Form(f"box-{driver}", f"the table, driver {driver}", "nvidia-smi -l 1 > gpu.txt", lambda rows, driver=driver: {"gpu.txt": by_moment(rows, partial(boxed, driver=driver))})  # type: ignore[misc]
        for driver in DRIVERS
    ),
    Form("box-loop", "the table, with date", "while sleep 1; do date; nvidia-smi; done > gpu.txt",
         lambda rows: {"gpu.txt": each_moment(rows, lambda row: f"{row.at:%A %d %B %Y %I:%M:%S %p UTC}", boxed)}),
    Form("box-watch", "the table in watch", "watch -n 1 nvidia-smi > gpu.txt",
         lambda rows: {"gpu.txt": each_moment(rows, lambda row: f"\x1b[H\x1b[2JEvery 1.0s: nvidia-smi        {row.machine}: {ctime(row)}\n", boxed)},
         named=True),
    Form("box-lms", "the table, every 500 ms", "nvidia-smi -lms 500 > gpu.txt", lambda rows: {"gpu.txt": by_moment(rows, boxed)},
         rows=rows_of(every=0.5 * SECOND)),
    Form("query-watch", "rows without times in watch", "watch -t -n 1 nvidia-smi --query-gpu=index,… --format=csv > gpu.txt",
         lambda rows: {"gpu.txt": "".join(f"\x1b[H\x1b[2J{query(some, 'index use memory power')}" for some in moments(rows))},
         truth=REFUSED, says="time"),
    Form("gpustat-watch", "gpustat in watch", "watch -n 1 gpustat --show-power > gpu.txt",
         lambda rows: {"gpu.txt": each_moment(rows, lambda row: f"\x1b[H\x1b[2JEvery 1.0s: gpustat        {row.machine}: {ctime(row)}\n", gpustat)},
         named=True),
    Form("box-kubectl", "the table, kubectl logs --timestamps", "kubectl logs --timestamps pod > gpu.txt",
         lambda rows: {"gpu.txt": "".join(f"{some[0].at:%Y-%m-%dT%H:%M:%S.%f}789Z {line}\n" for some in moments(rows) for line in boxed(some).splitlines())}),
    Form("box-srun", "the table, srun --label of two nodes", "srun --label nvidia-smi -l 1 > gpu.txt",
         lambda rows: {"gpu.txt": "".join(f"{int(some[0].machine[-1]) - 1}: {line}\n" for some in moments(rows) for line in boxed(some).splitlines())},
         rows=TWO, truth=REFUSED, says="grep"),
    Form("box-no-date", "the table without its date", "nvidia-smi -l 1 | grep -v 2025 > gpu.txt",
         lambda rows: {"gpu.txt": "".join(boxed(some).partition("\n")[2] for some in moments(rows))},
         truth=REFUSED, says="nvidia-smi --query-gpu|date"),
    Form("box-part", "the table, cut in the middle", "nvidia-smi -l 1 > gpu.txt, and kill",
         lambda rows: {"gpu.txt": by_moment(rows[:-2], boxed) + boxed(rows[-2:])[:700]}, rows=ONE, truth=ONE[:-2]),
    Form("q-loop", "nvidia-smi -q", "nvidia-smi -q -l 1 > gpu.txt", lambda rows: {"gpu.txt": by_moment(rows, query_text)}),
    Form("q-xml", "nvidia-smi -q -x", "nvidia-smi -q -x -l 1 > gpu.xml",
         lambda rows: {"gpu.xml": by_moment(rows, query_xml)}),
    Form("dmon", "dmon", "nvidia-smi dmon -s pucm > dmon.log", lambda rows: {"dmon.log": dmon(rows)},
         dated=False, says="assumed_second"),
    Form("dmon-t", "dmon -o T", "nvidia-smi dmon -s pucm -o T > dmon.log",
         lambda rows: {"dmon.log": dmon(rows, when="T")}, dated=False, says="no dates"),
    Form("dmon-dt", "dmon -o DT", "nvidia-smi dmon -s pucm -o DT > dmon.log",
         lambda rows: {"dmon.log": dmon(rows, when="DT")}),
    Form("dmon-u", "dmon -s u and -s pm in two files", "nvidia-smi dmon -s u -o DT > u.log",
         lambda rows: {"u.log": dmon(rows, "u", "DT"), "p.log": dmon(rows, "pm", "DT")}),
    Form("dmon-csv", "dmon --format csv", "nvidia-smi dmon -s pucm -o DT --format csv > dmon.csv",
         lambda rows: {"dmon.csv": dmon(rows, when="DT", separator=", ")}),
    Form("dmon-and-query", "dmon next to a query, one machine", "both at once",
         lambda rows: {"dmon.log": dmon(rows, "u", "DT"), "gpu.csv": query(rows, "time index memory power")}),
    Form("pmon", "pmon", "nvidia-smi pmon > pmon.log", lambda rows: {"pmon.log": pmon(rows)}, truth=REFUSED,
         says="pmon -o DT"),
    Form("pmon-dt", "pmon -o DT", "nvidia-smi pmon -o DT > pmon.log",
         lambda rows: {"pmon.log": pmon(rows, "DT")}, holds="u"),
    Form("accounted-apps", "--query-accounted-apps",
         "nvidia-smi --query-accounted-apps=gpu_name,pid,gpu_util,… --format=csv > apps.csv",
         lambda rows: {"apps.csv": ACCOUNTED + accounted_rows(rows)}, truth=REFUSED, says="accounted-apps"),
    Form("accounted-apps-next-to-query", "--query-accounted-apps behind the usual log",
         "nvidia-smi --query-accounted-apps=… >> gpu.csv",
         lambda rows: gpu_csv(query(rows) + ACCOUNTED + accounted_rows(rows[:8])), says="accounted"),
    Form("accounted-apps-file-next-to-query", "--query-accounted-apps in a file next to the usual log",
         "nvidia-smi --query-accounted-apps=… > apps.csv",
         lambda rows: {"gpu.csv": query(rows), "apps.csv": ACCOUNTED + accounted_rows(rows[:8])},
         says="accounted"),
    Form("compute-apps", "--query-compute-apps",
         "nvidia-smi --query-compute-apps=timestamp,gpu_uuid,pid,… --format=csv -l 1 > apps.csv",
         lambda rows: {"apps.csv": APPS + app_rows(rows)}, truth=REFUSED, says="compute-apps"),
    Form("compute-apps-next-to-query", "--query-compute-apps next to the usual log", "two loops",
         lambda rows: {"gpu.csv": query(rows), "apps.csv": APPS + app_rows(rows)}, says="compute-apps"),
    Form("retired-pages", "--query-retired-pages",
         "nvidia-smi --query-retired-pages=… --format=csv > pages.csv",
         lambda rows: {"pages.csv": "timestamp, gpu_name, gpu_bus_id, gpu_uuid, retired_pages.address, retired_pages.cause\n" + "".join(f"{stamp(row)}, NVIDIA A100, {row.bus}, {row.uuid}, 0x0000000000012345, Single Bit ECC\n" for row in rows)},
         truth=REFUSED, says="retired-pages"),
    Form("stats", "nvidia-smi stats", "nvidia-smi stats -d gpuUtil > stats.csv",
         lambda rows: {"stats.csv": "".join(f"{row.gpu}, gpuUtil , {round(row.at.timestamp() * 1e6)}, {row.use}\n" for row in rows)},
         truth=REFUSED, says="nvidia-smi stats"),
    Form("list", "nvidia-smi -L", "nvidia-smi -L > gpus.txt",
         lambda rows: {"gpus.txt": "".join(f"GPU {row.gpu}: NVIDIA A100-SXM4-80GB (UUID: {row.uuid})\n" for row in rows[:2])},
         truth=REFUSED, says="nvidia-smi -L"),
    Form("column-t", "column -t", "nvidia-smi … | column -t -s, > gpu.txt",
         lambda rows: {"gpu.txt": query(rows, separator="     ")}),
    # Other tools
    Form("dcgmi", "dcgmi dmon", "dcgmi dmon -e 203,204,252,155 > dcgm.log",
         lambda rows: {"dcgm.log": "# Entity  GPUTL  MCUTL   FBUSD   POWER\n      Id                                \n" + "".join(f"    GPU {row.gpu}     {row.use}      7   {row.memory}   {row.power:.3f}\n" for row in rows)},
         truth=REFUSED, says="dcgmi"),
    Form("prometheus", "metrics of Prometheus", "curl -s localhost:9400/metrics > dcgm.prom",
         lambda rows: {"dcgm.prom": "# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).\n" + "".join(f'DCGM_FI_DEV_GPU_UTIL{{gpu="{row.gpu}",UUID="{row.uuid}"}} {row.use}\n' for row in rows)},
         truth=REFUSED, says="Prometheus"),
    Form("codecarbon", "CodeCarbon's emissions", "EmissionsTracker().start()",
         lambda rows: {"emissions.csv": home_made(rows, timestamp=seconds, project_name=lambda row: "train", duration=lambda row: 60.1, emissions=lambda row: 0.01, emissions_rate=lambda row: 1e-4, cpu_power=lambda row: 42.5, gpu_power=lambda row: row.power, energy_consumed=lambda row: 0.31, gpu_count=lambda row: 2, gpu_utilization_percent=lambda row: row.use)},
         truth=REFUSED, says="CodeCarbon"),
    Form("iostat", "iostat", "iostat -x 1 > iostat.log",
         lambda rows: {"iostat.log": "Linux 5.15.0-91-generic (node-1) \t11/30/2021 \t_x86_64_\t(8 CPU)\n\n" + "avg-cpu:  %user   %nice %system %iowait  %steal   %idle\n           0.14    0.00    0.16    0.00    0.00   99.70\n\nDevice            r/s     w/s    rkB/s    wkB/s  %util\nsda               0.02    0.13     0.01     0.00   0.01\n\n" * 3},
         truth=REFUSED, says="iostat"),
    Form("vmstat", "vmstat", "vmstat 1 > vmstat.txt",
         lambda rows: {"vmstat.txt": "procs -----------memory---------- ---swap-- -----io---- -system-- ------cpu-----\n r  b   swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa st\n 2  0      0 1544820   2120 1346152    0    0    15    23   52   76  1  0 99  0  0\n"},
         truth=REFUSED, says="vmstat"),
    Form("top", "top", "top -b -d 1 > top.txt",
         lambda rows: {"top.txt": "top - 11:20:43 up 10 days, 35 min,  3 users,  load average: 0.02, 0.03, 0.05\nTasks: 112 total,   2 running\n%Cpu(s):  3.1 us,  3.1 sy,  0.0 ni, 93.8 id\n"},
         truth=REFUSED, says="top"),
    Form("dool", "dool --output", "dool --output dool.csv 1",
         lambda rows: {"dool.csv": '"dool 1.3.0 CSV output"\n"Author:","Scott Baker"\n"Host:","node-1"\n\n"total usage","","","dsk/total",""\n"usr","sys","idl","read","writ"\n' + "12.1,3.0,84.9,4096,0\n" * 9},
         truth=REFUSED, says="dool"),
    Form("megatron", "the log of Megatron", "torchrun pretrain_gpt.py > train.log",
         lambda rows: {"train.log": "".join(f" [2026-01-03 10:{n:02}:17] iteration {n:8}/     500 | consumed samples: {256 * n:12} | elapsed time per iteration (ms): 1234.5 | lm loss: 7.{n}E+00 |\n" for n in range(1, 40))},
         truth=REFUSED, says="Megatron"),
    Form("other-csv", "another table", "table.to_csv('table.csv')",
         lambda rows: {"table.csv": "name,price,count\n" + "".join(f"{n},0.9,1.{n}\n" for n in range(9))},
         truth=REFUSED, says="without columns of GPUs"),
    Form("debugger-page", "SageMaker Debugger's page alone", "aws s3 cp …/profiler-report.html .",
         lambda rows: {"profiler-report.html": "<!DOCTYPE html>\n<html></html>\n"},
         truth=REFUSED, says=r"keep profiler-reports/\*\.json"),
    Form("values-with-names", "values with their names", "print(f'Temp: {t}C, Power: {p}W, Utilization: {u}%')",
         lambda rows: {"gpu.log": "".join(f"Temp: 58C, Power: {row.power:.0f}W, Utilization: {row.use}%\n" for row in rows)},
         truth=REFUSED, says="--columns"),
    Form("tegrastats", "tegrastats", "tegrastats --logfile tegra.log",
         lambda rows: {"tegra.log": "".join(f"{row.at:%m-%d-%Y %H:%M:%S} RAM 2871/7772MB (lfb 445x4MB) SWAP 0/3886MB (cached 0MB) CPU [12%@1190,9%@1190] EMC_FREQ 0% GR3D_FREQ {row.use}% GPU@45C VDD_IN 4939mW/4939mW\n" for row in rows)},
         truth=REFUSED, says="tegrastats"),
    Form("rocm-smi", "rocm-smi", "while sleep 1; do rocm-smi; done > rocm.log",
         lambda rows: {"rocm.log": "".join("======================= ROCm System Management Interface =======================\n================================= Concise Info =================================\nGPU  Temp   AvgPwr  SCLK    MCLK     Fan  Perf  PwrCap  VRAM%  GPU%\n" + "".join(f"{row.gpu}    45.0c  {row.power:.1f}W  800Mhz  1600Mhz  0%   auto  560.0W   13%   {row.use}%\n" for row in some) for some in moments(rows))},
         truth=REFUSED, says="rocm-smi"),
    Form("rocm-smi-csv", "rocm-smi --csv", "rocm-smi --showuse --showpower --csv > rocm.csv",
         lambda rows: {"rocm.csv": "device,Average Graphics Package Power (W),GPU use (%)\n" + "".join(f"card{row.gpu},{row.power},{row.use}\n" for row in rows)},
         truth=REFUSED, says="rocm-smi"),
    Form("amd-smi", "amd-smi metric --csv", "amd-smi metric --csv -w 1 > amd.csv",
         lambda rows: {"amd.csv": "timestamp,gpu,gfx_activity,umc_activity,mm_activity,socket_power,gfx_0_clk,edge,hotspot,mem\n" + "".join(f"{row.at.timestamp():.0f},{row.gpu},{row.use},0,N/A,{row.power:.0f},95,N/A,37,23\n" for row in rows)},
         truth=REFUSED, says="amd-smi"),
    Form("amd-smi-text", "amd-smi metric", "amd-smi metric > amd.txt",
         lambda rows: {"amd.txt": "".join(f"GPU: {row.gpu}\n    USAGE:\n        GFX_ACTIVITY: {row.use} %\n        UMC_ACTIVITY: 0 %\n" for row in rows)},
         truth=REFUSED, says="amd-smi"),
    Form("wandb", "an export of W&B", "run.history(stream='system').to_csv('system.csv')",
         lambda rows: {"system.csv": _csv([some[0] for some in moments(rows)], {"_runtime": lambda row: 0, "_timestamp": lambda row: row.at.timestamp()} | {f"system.gpu.{i}.gpu": _of_gpu(rows, i, "use") for i in (0, 1)}, ",")},
         truth=REFUSED, says="W&B"),
    Form("excel-days", "Excel: dates as numbers of days", "Excel, Save as CSV of a column that is no date",
         lambda rows: {"gpu.csv": re.sub(r"^[^,n]+ [^,]+,", lambda found: f"{(datetime.strptime(found[0], '%Y/%m/%d %H:%M:%S.%f,') - datetime(1899, 12, 30)) / timedelta(days=1):.6f},", query(rows), flags=re.MULTILINE)},
         rows=SINGLE, says="days"),
    Form("xlsx", "an Excel workbook", "Excel, Save",
         lambda rows: {"gpu.xlsx": archived({"xl/workbook.xml": ""}, "zip")}, truth=REFUSED, says="CSV"),
    # Nothing in it
    Form("empty", "an empty file", "nvidia-smi … > gpu.csv, stopped at once", lambda rows: gpu_csv(""),
         truth=REFUSED, says="empty"),
    Form("header-only", "a header alone", "nvidia-smi … > gpu.csv, stopped at once",
         lambda rows: gpu_csv(query([])), truth=REFUSED, says="without a row"),
    Form("failed", "nothing but the tool's failure", LOOP.format(Q, ""), lambda rows: gpu_csv(FAILED * 5),
         truth=REFUSED, says="driver"),
    Form("lfs", "a Git LFS pointer", "git clone without git lfs",
         lambda rows: gpu_csv("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 812345\n"),
         truth=REFUSED, says="git lfs pull"),
    # Archives
    Form("tar-gz", "a folder per node in .tar.gz", "tar czf job.tar.gz job",
         lambda rows: {"job.tar.gz": archived({f"{one}/gpu.csv": query(of(rows, one)) for one in LEVELS}, "tar")},
         rows=TWO),
    Form("nested", "an archive in an archive", "tar czf all.tar.gz job.tar.gz",
         lambda rows: {"all.tar.gz": archived({"job.tar.gz": archived(gpu_csv(query(rows)), "tar")}, "tar")},
         truth=REFUSED, says=r"all\.tar\.gz: .* an archive; .* \(job/job\.tar\.gz\)"),
    Form("zip", "a zip file", "zip -r job.zip job",
         lambda rows: {"job.zip": archived(gpu_csv(query(rows)), "zip")}),
)  # fmt: skip


def _of_gpu(rows: Rows, index: int, field: str) -> Callable[[Row], object]:
    """A cell of a row for all GPUs: the value of one of them at the moment of the row."""
    values = {row.at: getattr(row, field) for row in rows if row.gpu == index}
    return lambda row: values[row.at]


def _nvitop(rows: Rows) -> str:
    """A CSV of nvitop's ``ResourceMetricCollector``."""
    some = [one[0] for one in moments(rows)]
    columns: dict[str, Callable[[Row], object]] = {
        "timestamp": lambda row: f"{row.at.timestamp():.3f}",
        "resources/host/cpu_percent (%)/mean": lambda row: 12.5,
    }
    for i in (0, 1):
        columns |= {
            f"resources/gpu:{i}/gpu_utilization (%)/mean": _of_gpu(rows, i, "use"),
            f"resources/gpu:{i}/memory_used (MiB)/mean": _of_gpu(rows, i, "memory"),
            f"resources/gpu:{i}/power_usage (W)/mean": _of_gpu(rows, i, "power"),
        }
    return home_made(some, **columns)


# What becomes of them


class Means(NamedTuple):
    """What a report has of one GPU: samples and means."""

    samples: int
    values: dict[str, float]


class Outcome(NamedTuple):
    """What became of a form: the GPUs of each machine, the span in seconds since the epoch, and what was said."""

    machines: dict[str, list[Means]]
    span: tuple[float, float]
    remarks: tuple[Remark, ...]
    refusal: str
    #: The runs of the recording.
    runs: tuple[str, ...] = ()


_MEASURES = {
    "u": (Metric.GPU_UTILIZATION, 1.0),
    "m": (Metric.GPU_MEMORY_USED, MIB),
    "p": (Metric.GPU_POWER, 1.0),
}
#: Difference of a mean that rounding explains.
_TOLERANCE = {"u": 0.6, "m": 25.0, "p": 0.6}
#: A refusal helps if it names an option or a command.
HELP = re.compile(
    r" --[a-z]|nvidia-smi |git lfs pull|sed -E |record-job|jobrecord\.start|keep profiler-reports/"
)


def contents(files: Files) -> dict[str, bytes]:
    """The bytes of files."""
    return {name: text.encode() if isinstance(text, str) else text for name, text in files.items()}


def write(folder: Path, files: Files) -> None:
    """Write files into a folder."""
    for name, content in contents(files).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def outcome(form: Form, folder: Path) -> Outcome:
    """Write the form into an empty folder and read it."""
    files = form.write(form.rows)
    write(folder, files)
    (packed,) = [folder / name for name in files if name.endswith(archive.SUFFIXES)] or [folder]
    options: dict[str, Any] = {**form.options}
    if options.get("run", "all") != "all":
        options["run"] = int(options["run"])
    try:
        with archive.unpacked(packed) as source:
            reading = read_directory(source.directory, Options(strict=True, **options), shown=packed)
    except NothingReadableError as error:
        return Outcome({}, (0, 0), (), str(error))
    machines: defaultdict[str, list[Means]] = defaultdict(list)
    panels = {(panel.node, panel.metric): panel for panel in reading.job.panels}
    for node in natural_sorted({node for node, _ in panels}):
        gpus = natural_sorted(
            {gpu for (one, _), panel in panels.items() if one == node for gpu in panel.devices}
        )
        for gpu in gpus:
            values, samples = {}, 0
            for letter, (metric, unit) in _MEASURES.items():
                panel = panels.get((node, metric))
                if panel and gpu in panel.devices:
                    column = panel.values[:, panel.devices.index(gpu)]
                    samples = max(samples, int(np.count_nonzero(~np.isnan(column))))
                    values[letter] = float(np.nanmean(column)) / unit
            machines[node].append(Means(samples, values))
    times = [time for panel in panels.values() for time in (panel.time_us[0], panel.time_us[-1])]
    quality = reading.quality
    remarks = (*(remark for source in quality.sources for remark in source.remarks), *quality.remarks)
    runs = tuple(f"run {one}" for one in asdict(quality).get("runs", ()))
    return Outcome({**machines}, (min(times) / SECOND_US, max(times) / SECOND_US), remarks, "", runs)


def without_supported(refusal: str) -> str:
    """A refusal without the list of what can be read, which names options of other commands."""
    return re.sub(r" Supported: .*? \(profiler-reports.*?\)\.", "", refusal)


_JUDGED: dict[str, tuple[Outcome, str]] = {}


def judged(form: Form) -> tuple[Outcome, str]:
    """What becomes of a form, and what is wrong with that, read once."""
    if form.name not in _JUDGED:
        _JUDGED[form.name] = _judged(form)
    return _JUDGED[form.name]


def _judged(form: Form) -> tuple[Outcome, str]:
    with tempfile.TemporaryDirectory(prefix="job-") as folder:
        try:
            found = outcome(form, Path(folder))
        except Exception as error:  # noqa: BLE001 - a reader that stops is one of the answers
            return Outcome({}, (0, 0), (), ""), f"{type(error).__name__}: {error}"
        found = found._replace(refusal=found.refusal.replace(folder, "job"))
        return found, problem(form, found)


def problem(form: Form, found: Outcome) -> str:
    """What is wrong with the outcome of a form; empty if it is as expected."""
    said = [
        found.refusal.partition(" Supported: ")[0],
        *(f"{one.code}: {one.reason} {one.place}" for one in found.remarks),
    ]
    if not form.expected or (form.either and found.refusal):
        if not found.refusal:
            return f"read, where it must be refused: {found.machines}"
        if not HELP.search(without_supported(found.refusal)):
            return f"refused without a command or an option: {found.refusal}"
    elif found.refusal:
        return f"refused: {found.refusal}"
    elif wrong := _difference(form, found):
        return wrong + "".join(f"\n    {one}" for one in said)
    skipped = [one.reason for one in found.remarks if (one.action, one.unit) == ("skipped", "rows")]
    if skipped and form.expected and not form.says:
        return f"rows that are not read: {skipped}"
    if form.says and not any(re.search(form.says, one) for one in said):
        return f"nothing says {form.says!r}: {said}"
    return ""


def truth_of(rows: Rows, holds: str) -> dict[str, list[Means]]:
    """The GPUs of each machine as they must be found."""
    gpus: defaultdict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in rows:
        gpus[row.machine, row.gpu].append(row)
    found: defaultdict[str, list[Means]] = defaultdict(list)
    for (machine, _), some in sorted(gpus.items()):
        means = np.mean([(row.use, row.memory, row.power) for row in some], axis=0).tolist()
        found[machine].append(
            Means(len(some), {k: v for k, v in zip("ump", means, strict=True) if k in holds})
        )
    return found


def _difference(form: Form, found: Outcome) -> str:
    """Where the outcome is not the truth."""
    expected = truth_of(form.expected, form.holds)
    if form.named and expected.keys() != found.machines.keys():
        return f"machines {[*found.machines]}, not {[*expected]}"
    if different := machines_differ(expected, found.machines):
        return different
    times = [row.at.timestamp() for row in form.expected]
    first, last = found.span
    if form.dated and abs(first - min(times)) > 1.01:
        return f"begins at {datetime.fromtimestamp(first, UTC)}, not at {datetime.fromtimestamp(min(times), UTC)}"
    if abs((last - first) - (max(times) - min(times))) > 1.01:
        return f"spans {last - first} s, not {max(times) - min(times)} s"
    return ""


def machines_differ(expected: Mapping[str, list[Means]], found: Mapping[str, list[Means]]) -> str:
    """Where the GPUs of machines, whatever their names are, are not those expected; empty if they are."""

    def by_first(machines: Mapping[str, list[Means]]) -> list[list[Means]]:
        return sorted(machines.values(), key=lambda gpus: sorted(gpus[0].values.items()), reverse=True)

    if sorted(map(len, expected.values())) != sorted(map(len, found.values())):
        return (
            f"GPUs of machines: {sorted(map(len, found.values()))}, not {sorted(map(len, expected.values()))}"
        )
    for right, gpus in zip(by_first(expected), by_first(found), strict=True):
        for number, (one, other) in enumerate(zip(right, gpus, strict=True)):
            if one.values.keys() != other.values.keys():
                return f"values of gpu{number}: {[*other.values]}, not {[*one.values]}"
            wrong = [k for k in one.values if abs(one.values[k] - other.values[k]) > _TOLERANCE[k]]
            if wrong or abs(one.samples - other.samples) > 2:
                return f"gpu{number} has {other}, not {one}"
    return ""


# The page


def page() -> str:
    """The forms as a table for the docs: what it is, what makes it, and what becomes of it."""
    head = (
        "# Forms of GPU logs\n\nGenerated by `make docs`: each form is written from known utilization, memory, and power "
        f"and read. {len(FORMS)} forms. **Read** means: every mean is the one it was written from.\n\n"
        "| form | made by | result |\n|---|---|---|\n"
    )
    return head + "".join(
        f"| {_cell(form.what)} | `{_cell(form.command)}` | {_cell(_result(form))} |\n" for form in FORMS
    )


#: Remarks that every log without a zone has.
_USUAL = {"nvidia_smi.zone"}
#: What every refusal says.
_FRAME = re.compile(r"No readable input in \S+: [^.]*?found( \(.*?\))?\. | See docs/job-directory\.md\.")


def _result(form: Form) -> str:
    found, wrong = judged(form)
    if wrong:
        return f"**not as it should be**: {wrong.partition(chr(10))[0]}"
    if found.refusal:
        return f"Not read. {_FRAME.sub('', found.refusal)}"
    said = sorted({one.reason for one in found.remarks if one.code not in _USUAL})
    return "".join([f"**Read**{_options(form)}", *(f"; {one}" for one in said)])


def _options(form: Form) -> str:
    names = {"date_order": "date-order"}
    return "".join(f" with `--{names.get(key, key)} {value}`" for key, value in form.options.items())


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text.replace("|", "\\|"))


def main() -> None:
    """Print what becomes of each form that is not as it should be."""
    wrong = [(form.name, reason) for form in FORMS if (reason := judged(form)[1])]
    for name, reason in wrong:
        print(f"{name}: {reason}")
    print(f"{len(wrong)} of {len(FORMS)} forms are not as they should be")


if __name__ == "__main__":
    main()
