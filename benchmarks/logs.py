"""Logs of nvidia-smi: made with ``logs.py make KIND --out DIR``, read into panels with ``logs.py read DIR``.

``honest`` is a log of 2 GB as ``--query-gpu`` writes it. ``hostile`` are files and archives that are small on the disk
or become large when they are read, each in a folder of its own next to a row that must survive.
"""

from __future__ import annotations

import gzip
import io
import random
import sys
import tarfile
import uuid
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

HONEST_BYTES = 2_000_000_000
GPUS = 8
NAMES = (
    "timestamp, index, uuid, utilization.gpu [%], utilization.memory [%], memory.used [MiB], memory.total [MiB], "
    "power.draw [W], temperature.gpu, clocks.current.sm [MHz]\n"
)
ROW = "timestamp, index, utilization.gpu [%]\n2026/01/03 15:00:00.000, 0, 50 %\n"
#: What is repeated in the hostile files, and how often.
MIB, MANY = 1 << 20, 1000


def rows() -> Iterator[str]:
    """Rows without end: training that is busy for minutes and waits in between."""
    chance = random.Random(1)  # noqa: S311 - no secret
    names = [f"GPU-{uuid.UUID(int=chance.getrandbits(128))}" for _ in range(GPUS)]
    at, busy = datetime(2026, 1, 3, 15, tzinfo=UTC), True
    while True:
        at += timedelta(seconds=1)
        busy ^= chance.random() < 0.01
        for gpu, name in enumerate(names):
            use = int(chance.triangular(80, 100, 99)) if busy else int(chance.triangular(0, 10, 0))
            watts = chance.gauss(620.0 if busy else 110.0, 12.0)
            yield (
                f"{at:%Y/%m/%d %H:%M:%S}.{200 + 3 * gpu}, {gpu}, {name}, {use} %, {use * 2 // 3} %, "
                f"{61_000 + 64 * chance.randrange(9)} MiB, 81559 MiB, {watts:.2f} W, {40 + use // 4}, "
                f"{1980 - 15 * chance.randrange(9)} MHz\n"
            )


def make_honest(folder: Path) -> None:
    """One log."""
    size = 0
    with (folder / "gpu.csv").open("w", encoding="ascii") as log:
        log.write(NAMES)
        for row in rows():
            size += log.write(row)
            if size > HONEST_BYTES:
                return


def make_hostile(folder: Path) -> None:
    """A folder for each of ``HOSTILE``."""
    for kind in HOSTILE:
        (folder / kind).mkdir()
        if not kind.endswith("archive"):
            (folder / kind / "row.csv").write_text(ROW, "ascii")
    with (folder / "sparse" / "gpu.csv").open("wb") as log:
        log.write(ROW.encode())
        log.truncate(MANY << 30)
    with (folder / "endless" / "gpu.csv").open("wb") as log:
        log.write(ROW.encode())
        for _ in range(MANY):
            log.write(b"7, " * (MIB // 3))
    with gzip.open(folder / "gzip" / "gpu.csv.gz", "wb") as packed:
        packed.write(ROW.encode())
        for _ in range(MANY):
            packed.write(b"7, " * (MIB // 3))
    contents = {
        "row.csv": ROW.encode(),
        "nothing.csv": bytes(MANY * MIB),
        "line.csv": b"7, " * (MANY * MIB // 3),
    }
    with tarfile.open(folder / "tar-archive" / "job.tgz", "w:gz") as tar:
        for name, content in contents.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    with zipfile.ZipFile(folder / "zip-archive" / "job.zip", "w", zipfile.ZIP_DEFLATED) as zip_:
        for name, content in contents.items():
            zip_.writestr(name, content)


#: Folders of hostile files, and what they are.
HOSTILE = {
    "sparse": f"sparse file of {MANY:,} GiB, a few kB on the disk",
    "endless": f"line of {MANY:,} MiB",
    "gzip": f"the same line as .gz, {MANY} MiB in 1 MB",
    "tar-archive": f".tgz of {2 * MANY:,} MiB of nothing and of one line, in 3 MB",
    "zip-archive": "the same as .zip",
}


def read(folder: Path) -> None:
    """Read the logs of a folder into panels, and say how large these are."""
    from jobreport.readers.listing import listing
    from jobreport.readers.nvidia_smi.reader import NvidiaSmi
    from jobreport.readers.tally import Tally

    found = NvidiaSmi().read(listing(folder, Tally()))
    size = sum(panel.values.nbytes for panel in found.panels)
    print(f"{found.quality.rows:,} rows, {len(found.panels)} panels of {size / 1e6:,.0f} MB")


if __name__ == "__main__":
    task, *words = sys.argv[1:]
    if task == "read":
        read(Path(words[0]))
    else:
        kind, _, out = words
        Path(out).mkdir()
        {"honest": make_honest, "hostile": make_hostile}[kind](Path(out))
