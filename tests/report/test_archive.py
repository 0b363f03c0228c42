from __future__ import annotations

import errno
import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from jobreport import archive, pipeline
from jobreport.errors import JobReportError, NothingReadableError
from tests.copies import replace
from tests.paths import SAMPLES

LINE = b'{"Type":"cpu","Name":"cpu0","Dimension":"CPUUtilization","Value":5,"NodeId":"algo-1","Timestamp":1700000041}\n'


def test_an_archive_gives_the_report_of_its_directory(tmp_path: Path) -> None:
    sample = SAMPLES[0]
    plain = pipeline.make_report(sample, tmp_path / "plain", formats=["json"]).report
    for suffix, mode in ((".tar.gz", "w:gz"), (".tar", "w")):
        packed = tmp_path / (sample.name + suffix)
        with tarfile.open(packed, mode) as tar:  # type: ignore[call-overload]
            tar.add(sample, arcname=sample.name)
        found = pipeline.make_report(packed, tmp_path / f"out{suffix}", formats=["json"]).report
        assert replace(found, command=plain.command) == plain
        assert found.command == f"make-report --job-dir {packed.name}"
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

    with archive.unpacked(packed) as found:
        files = sorted(
            p.relative_to(found.directory).as_posix() for p in found.directory.rglob("*") if p.is_file()
        )

    assert (files, found.name) == (["good/1700000040.algo-1.json"], "job")
    assert [(r.count, r.reason) for r in found.remarks] == [
        (3, "the path leaves the archive"),
        (1, "link or device in the archive"),
    ]
    assert not (tmp_path / "escaped.json").exists()


def test_an_archive_that_is_none_is_answered_with_a_sentence(tmp_path: Path) -> None:
    for name in ("job.zip", "job.tar.gz"):
        (tmp_path / name).write_bytes(b"no archive")
        with pytest.raises(NothingReadableError, match="Cannot unpack"), archive.unpacked(tmp_path / name):
            pass


def test_an_archive_cut_short_gives_what_came_before_and_says_so(tmp_path: Path) -> None:
    packed = tmp_path / "job.tar"
    with tarfile.open(packed, "w") as tar:
        for name in ("1700000040.algo-1.json", "1700000100.algo-1.json"):
            info = tarfile.TarInfo(name)
            info.size = 5000
            tar.addfile(info, io.BytesIO(b" " * 5000))
    packed.write_bytes(packed.read_bytes()[:7000])

    with archive.unpacked(packed) as found:
        assert (found.directory / "1700000040.algo-1.json").stat().st_size == 5000
    assert found.remarks


def test_a_damaged_member_costs_itself_and_a_remark_that_the_report_shows(tmp_path: Path) -> None:
    packed = tmp_path / "job.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as zip_:
        zip_.writestr("1700000040.algo-1.json", LINE)
        zip_.writestr("1700000100.algo-1.json", LINE.replace(b"0041", b"0101") + bytes(range(256)) * 40)
    data = bytearray(packed.read_bytes())
    start = data.rindex(b"1700000100.algo-1.json", 0, len(data) - 400) + 60
    data[start : start + 100] = b"\xff" * 100
    packed.write_bytes(data)

    report = pipeline.make_report(packed, tmp_path / "out", formats=["json"]).report

    assert report.job.start_us == 1_700_000_041_000_000
    assert "damaged in the archive" in report.quality.remarks[-1].reason
    assert report.command == "make-report --job-dir job.zip"


def test_unpacking_stops_at_the_limit_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MOST_BYTES", 1000)
    packed = tmp_path / "job.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as zip_:
        zip_.writestr("big", b"0" * 100_000)

    with archive.unpacked(packed) as found:
        assert sum(p.stat().st_size for p in found.directory.rglob("*") if p.is_file()) <= 1000
    assert "past the limit" in found.remarks[0].reason


def test_an_archive_without_a_name_is_a_job_all_the_same(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / ".zip", "w") as zip_:
        zip_.writestr("1700000040.algo-1.json", LINE)

    assert (
        pipeline.make_report(tmp_path / ".zip", tmp_path / "out", formats=["json"]).report.job.name == "job"
    )


def test_a_member_that_cannot_be_opened_costs_itself(tmp_path: Path) -> None:
    packed = tmp_path / "job.zip"
    with zipfile.ZipFile(packed, "w") as zip_:
        zip_.writestr("notes.txt", "hello")
        zip_.writestr("1700000040.algo-1.json", LINE)
    data = bytearray(packed.read_bytes())
    data[0:4] = b"\0\0\0\0"
    packed.write_bytes(data)

    with archive.unpacked(packed) as found:
        assert (found.directory / "1700000040.algo-1.json").read_bytes() == LINE
    assert found.remarks[0].example == "notes.txt"


def test_a_full_disk_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(archive._Extraction, "_write", full)
    with zipfile.ZipFile(tmp_path / "job.zip", "w") as zip_:
        zip_.writestr("1700000040.algo-1.json", LINE)

    with pytest.raises(JobReportError, match="no room"), archive.unpacked(tmp_path / "job.zip"):
        pass
