"""Logs that are small on the disk and large when they are read: they cost little memory, and no other row."""

from __future__ import annotations

import gzip
import io
import tarfile
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from jobreport.readers import archive, text_files
from jobreport.readers.registry import read_job
from jobrules.model import Metric
from tests.once import slow_but

ROW = b"timestamp, index, utilization.gpu [%]\n2026/01/03 15:00:00.000, 0, 50 %\n"
MIB = 1 << 20
#: How much is read, and how much memory may be in use at once.
SIZE, PEAK = 100 * MIB, 32 * MIB


def sparse(folder: Path) -> None:
    with (folder / "gpu.csv").open("wb") as log:
        log.write(ROW)
        log.truncate(1 << 40)


def nothing_else(folder: Path) -> None:
    (folder / "gpu.csv").write_bytes(ROW + bytes(SIZE))


def endless(folder: Path) -> None:
    with (folder / "gpu.csv").open("wb") as log:
        log.write(ROW)
        log.writelines(b"7, " * (MIB // 3) for _ in range(SIZE // MIB))


def gzipped(folder: Path) -> None:
    with gzip.open(folder / "gpu.csv.gz", "wb", 1) as log:
        log.write(ROW)
        for _ in range(SIZE // MIB):
            log.write(b"7, " * (MIB // 3))


def taped(folder: Path) -> None:
    with tarfile.open(folder / "job.tgz", "w:gz") as tar:
        info = tarfile.TarInfo("gpu.csv")
        info.size = len(ROW) + SIZE
        tar.addfile(info, io.BytesIO(ROW + bytes(SIZE)))


def zipped(folder: Path) -> None:
    with zipfile.ZipFile(folder / "job.zip", "w", zipfile.ZIP_DEFLATED) as zip_:
        zip_.writestr("gpu.csv", ROW + b"7, " * (SIZE // 3))


def long_texts(folder: Path, before: str, form: str) -> None:
    """Texts of nearly a million characters, each another one."""
    with (folder / "gpu.log").open("w", encoding="ascii") as log:
        log.write(before)
        for i in range(SIZE // MIB):
            log.write(form.format("x" * (MIB - 99) + str(i)))


def lines(folder: Path) -> None:
    long_texts(folder, ROW.decode(), "{}\n")


def cells(folder: Path) -> None:
    long_texts(folder, ROW.decode(), "2026/01/03 15:00:01.000, 0, {}\n")


def names(folder: Path) -> None:
    before = ROW.decode().replace("index", "uuid").replace(" 0,", " GPU-0,")
    long_texts(folder, before, "2026/01/03 15:00:01.000, {}, [N/A]\n")


def keys(folder: Path) -> None:
    moments = "".join(
        f"==============NVSMI LOG==============\nTimestamp : Sun Feb 16 08:10:{second} 2025\n"
        "GPU 00000000:07:00.0\n    Utilization\n        Gpu : 50 %\n"
        for second in (45, 46)
    )
    long_texts(folder, moments, "    {}\n")


@pytest.mark.parametrize(
    "make",
    slow_but(
        {gzipped, cells}, [sparse, nothing_else, endless, gzipped, taped, zipped, lines, cells, names, keys]
    ),
)
def test_what_becomes_large_costs_no_memory(make: object, tmp_path: Path) -> None:
    make(tmp_path)  # type: ignore[operator]
    packed = [path for path in tmp_path.iterdir() if path.suffix in (".tgz", ".zip")]

    tracemalloc.start()
    try:
        with archive.unpacked(packed[0] if packed else tmp_path) as job:
            found, _ = read_job(job.directory, strict=True)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    (panel,) = found.panels_of(Metric.GPU_UTILIZATION)
    assert {*panel.values.ravel().tolist()} == {50.0}
    assert peak < PEAK


def test_a_hole_in_a_file_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb") as file:
        file.write(ROW)
        file.seek(1 << 40)
        file.write(b"\n" + ROW)

    text = b"".join(text_files.chunks(path))

    assert len(text) < MIB
    assert text.replace(b"\0", b"") == ROW + b"\n" + ROW
