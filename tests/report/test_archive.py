from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from jobreport import archive, pipeline
from jobreport.errors import NothingReadableError
from tests.paths import SAMPLES

LINE = b'{"Type":"cpu","Name":"cpu0","Dimension":"CPUUtilization","Value":5,"NodeId":"algo-1","Timestamp":1700000041}\n'


def test_an_archive_gives_the_report_of_its_directory(tmp_path: Path) -> None:
    sample = SAMPLES[0]
    plain = pipeline.make_report(sample, tmp_path / "plain", formats=["json"]).report
    for suffix, mode in ((".tar.gz", "w:gz"), (".tar", "w")):
        packed = tmp_path / (sample.name + suffix)
        with tarfile.open(packed, mode) as tar:  # type: ignore[call-overload]
            tar.add(sample, arcname=sample.name)
        assert pipeline.make_report(packed, tmp_path / f"out{suffix}", formats=["json"]).report == plain
    zipped = tmp_path / f"{sample.name}.zip"
    with zipfile.ZipFile(zipped, "w") as zip_:
        for path in sample.rglob("*.json*"):
            zip_.write(path, path.relative_to(sample.parent))
    assert pipeline.make_report(zipped, tmp_path / "outzip", formats=["json"]).report.usage == plain.usage


def test_nothing_is_written_outside_and_links_are_not_followed(tmp_path: Path) -> None:
    packed = tmp_path / "job.tar"
    with tarfile.open(packed, "w") as tar:
        for name in ("../escaped.json", "/absolute.json", "a/../../b.json", "good/1700000040.algo-1.json"):
            info = tarfile.TarInfo(name)
            info.size = len(LINE)
            tar.addfile(info, io.BytesIO(LINE))
        link = tarfile.TarInfo("link.json")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)

    with archive.unpacked(packed) as (folder, job_name):
        files = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())

    assert (files, job_name) == (["good/1700000040.algo-1.json"], "job")
    assert not (tmp_path / "escaped.json").exists()


def test_an_archive_that_is_none_is_answered_with_a_sentence(tmp_path: Path) -> None:
    for name in ("job.zip", "job.tar.gz"):
        (tmp_path / name).write_bytes(b"no archive")
        with pytest.raises(NothingReadableError, match="Cannot unpack"), archive.unpacked(tmp_path / name):
            pass


def test_an_archive_cut_short_gives_what_came_before(tmp_path: Path) -> None:
    packed = tmp_path / "job.tar"
    with tarfile.open(packed, "w") as tar:
        for name in ("1700000040.algo-1.json", "1700000100.algo-1.json"):
            info = tarfile.TarInfo(name)
            info.size = 5000
            tar.addfile(info, io.BytesIO(b" " * 5000))
    packed.write_bytes(packed.read_bytes()[:7000])

    with archive.unpacked(packed) as (folder, _):
        assert (folder / "1700000040.algo-1.json").stat().st_size == 5000


def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MOST_BYTES", 1000)
    packed = tmp_path / "job.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as zip_:
        zip_.writestr("big", b"0" * 100_000)

    with archive.unpacked(packed) as (folder, _):
        assert sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()) <= 1000
