from __future__ import annotations

import errno
import gzip
import io
import tarfile
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from jobreport import pipeline
from jobreport.errors import JobReportError, NothingReadableError
from jobreport.options import Options
from jobreport.readers import archive
from tests.copies import replace
from tests.paths import SAMPLES

LINE = b'{"Type":"cpu","Name":"cpu0","Dimension":"CPUUtilization","Value":5,"NodeId":"algo-1","Timestamp":1700000041}\n'


def test_an_archive_gives_the_report_of_its_directory(tmp_path: Path) -> None:
    (sample,) = (path for path in SAMPLES if path.name == "cpu-only")
    plain = pipeline.make_report(sample, tmp_path / "plain", Options(formats=["json"])).report
    for suffix, mode in ((".tar.gz", "w:gz"), (".tar", "w")):
        packed = tmp_path / (sample.name + suffix)
        with tarfile.open(packed, mode) as tar:  # type: ignore[call-overload]
            tar.add(sample, arcname=sample.name)
        found = pipeline.make_report(packed, tmp_path / f"out{suffix}", Options(formats=["json"])).report
        assert replace(found, command=plain.command) == plain
        assert found.command == f"make-report --job-dir {packed.name}"
    zipped = tmp_path / f"{sample.name}.zip"
    with zipfile.ZipFile(zipped, "w") as zip_:
        for path in sample.rglob("*.json*"):
            zip_.write(path, path.relative_to(sample.parent))
    assert (
        pipeline.make_report(zipped, tmp_path / "outzip", Options(formats=["json"])).report.utilization
        == plain.utilization
    )


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

    report = pipeline.make_report(packed, tmp_path / "out", Options(formats=["json"])).report

    assert report.job.start_us == 1_700_000_041_000_000
    assert report.quality.remarks[-1].code == "archive.damaged"
    assert report.command == "make-report --job-dir job.zip"


def test_a_full_disk_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(archive._Extraction, "_write", full)
    with zipfile.ZipFile(tmp_path / "job.zip", "w") as zip_:
        zip_.writestr("1700000040.algo-1.json", LINE)

    with pytest.raises(JobReportError, match="No space left"), archive.unpacked(tmp_path / "job.zip"):
        pass


def taped(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz", format=tarfile.GNU_FORMAT) as tar:
        for info, content in members:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def files_of(found: archive.Unpacked) -> dict[str, bytes]:
    inside = found.directory
    return {p.relative_to(inside).as_posix(): p.read_bytes() for p in inside.rglob("*") if p.is_file()}


def remarks_of(found: archive.Unpacked) -> dict[str, int]:
    return {remark.code: remark.count for remark in found.remarks}


def test_links_and_devices_of_any_kind_are_left_behind(tmp_path: Path) -> None:
    kinds = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE)
    odd = [tarfile.TarInfo(f"odd{i}") for i in range(len(kinds))]
    for info, kind in zip(odd, kinds, strict=True):
        info.type, info.linkname = kind, "../secret"
    with zipfile.ZipFile(tmp_path / "job.zip", "w") as zip_:
        link = zipfile.ZipInfo("link.json")
        link.external_attr = 0o120777 << 16
        zip_.writestr(link, "../secret")
        zip_.writestr("a.json", LINE)
    (tmp_path / "secret").write_text("secret")

    for packed, links in (
        (taped(tmp_path / "job.tgz", (tarfile.TarInfo("a.json"), LINE), *((info, b"") for info in odd)), 5),
        (tmp_path / "job.zip", 1),
    ):
        with archive.unpacked(packed) as found:
            assert remarks_of(found) == {"archive.link": links}
            assert set(files_of(found)) == {"a.json"}


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_what_a_tar_file_says_of_a_file_does_not_fill_the_memory(tmp_path: Path, kind: bytes) -> None:
    # A megabyte of zeros is a kilobyte when packed, and tarfile reads as much at once as the file says.
    head = tarfile.TarInfo("x")
    head.type, head.size = kind, 64 << 20
    data = head.tobuf(tarfile.USTAR_FORMAT) + b"\0" * head.size
    (tmp_path / "job.tar.gz").write_bytes(gzip.compress(data, 1))

    tracemalloc.start()
    with pytest.raises(NothingReadableError, match="too long"), archive.unpacked(tmp_path / "job.tar.gz"):
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 8 << 20


def test_folders_that_only_paths_name_count_as_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MAX_MEMBERS", 10)
    files = [(tarfile.TarInfo(f"{i}/a/b/c"), b"x") for i in range(9)]
    packed = taped(tmp_path / "job.tar.gz", *files)

    with archive.unpacked(packed) as found:
        assert sorted(files_of(found)) == ["0/a/b/c", "1/a/b/c"]
        assert remarks_of(found) == {"archive.limit": 1}


def test_folders_in_one_another_without_end_cost_their_file(tmp_path: Path) -> None:
    deep = "d/" * 950 + "f"
    packed = taped(tmp_path / "job.tar.gz", (tarfile.TarInfo(deep), LINE), (tarfile.TarInfo("a.json"), LINE))

    with archive.unpacked(packed) as found:
        assert files_of(found) == {"a.json": LINE}
        assert remarks_of(found) == {"archive.deep": 1}


def test_odd_names_stay_inside_and_become_text(tmp_path: Path) -> None:
    names = (
        "\x1b[31m/\u202ea.json",
        "..\\..\\b.json",
        "n" * 300,
        "a/./b.json",
        "a//c.json",
        "~/d.json",
        "C:\\e.json",
        "a/../f",
    )
    packed = taped(tmp_path / "job.tar.gz", *((tarfile.TarInfo(name), name.encode()) for name in names))

    with archive.unpacked(packed) as found:
        assert set(files_of(found)) == {
            "\x1b[31m/\u202ea.json",
            "a/b.json",
            "a/c.json",
            "~/d.json",
            "C:/e.json",
        }
        assert remarks_of(found) == {"archive.outside": 2, "archive.damaged": 1}


def test_of_files_with_one_name_the_last_is_read_and_the_others_are_counted(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "job.zip", "w") as zip_:
        zip_.writestr("a.json", "one")
        for text in ("two", "three"):
            with pytest.warns(UserWarning, match="Duplicate"):
                zip_.writestr("a.json", text)
    tape = taped(
        tmp_path / "job.tgz", *((tarfile.TarInfo("a.json"), text) for text in (b"one", b"two", b"three"))
    )

    for packed in (tmp_path / "job.zip", tape):
        with archive.unpacked(packed) as found:
            assert files_of(found) == {"a.json": b"three"}
            assert remarks_of(found) == {"archive.replaced": 2}


def test_an_encrypted_file_is_left_behind_and_counted(tmp_path: Path) -> None:
    packed = tmp_path / "job.zip"
    with zipfile.ZipFile(packed, "w") as zip_:
        zip_.writestr("secret.json", LINE)
        zip_.writestr("a.json", LINE)
    data = bytearray(packed.read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= 1
    data[6] |= 1
    packed.write_bytes(data)

    with archive.unpacked(packed) as found:
        assert files_of(found) == {"a.json": LINE}
        assert remarks_of(found) == {"archive.encrypted": 1}


def test_a_sparse_file_counts_with_what_it_becomes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_BYTES", 1 << 20)
    info = tarfile.TarInfo("sparse")
    info.pax_headers = {"GNU.sparse.map": "0,1", "GNU.sparse.size": str(1 << 40), "GNU.sparse.name": "sparse"}
    info.size = 1
    (tmp_path / "job.tar").write_bytes(info.tobuf(tarfile.PAX_FORMAT) + b"x" + b"\0" * 2047)

    with archive.unpacked(tmp_path / "job.tar") as found:
        assert sum(map(len, files_of(found).values())) <= 1 << 20
        assert remarks_of(found) == {"archive.limit": 1}


@pytest.mark.parametrize("name", ["../skipped", "taken"])
def test_few_bytes_do_not_take_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(archive, "_BYTES", 1 << 20)
    monkeypatch.setattr(archive, "_BYTES_PER_BYTE", 1)
    packed = taped(
        tmp_path / "job.tgz",
        (tarfile.TarInfo("before"), LINE),
        (tarfile.TarInfo(name), bytes(8 << 20)),
        (tarfile.TarInfo("after"), LINE),
    )

    with archive.unpacked(packed) as found:
        assert "after" not in files_of(found)
        assert "archive.limit" in remarks_of(found)


def test_an_archive_of_which_nothing_is_left_says_why(tmp_path: Path) -> None:
    packed = taped(tmp_path / "job.tgz", (tarfile.TarInfo("../a.json"), LINE))

    with (
        pytest.raises(NothingReadableError, match=r"leaves the archive \(\.\./a\.json\)"),
        archive.unpacked(packed),
    ):
        pass


def test_a_message_names_the_archive(tmp_path: Path) -> None:
    inner = taped(tmp_path / "logs.tgz", (tarfile.TarInfo("gpu.csv"), b"?")).read_bytes()
    packed = taped(tmp_path / "job.tgz", (tarfile.TarInfo("logs.tgz"), inner))

    with pytest.raises(NothingReadableError, match=r"in \S+job\.tgz: 1.file found \(logs\.tgz\)"):
        pipeline.make_report(packed, tmp_path / "out", Options(formats=["json"]))


def test_what_stands_before_the_damage_of_a_member_is_read(tmp_path: Path) -> None:
    lines = b"".join(LINE.replace(b"0041", b"%04d" % i) for i in range(41, 9041))
    packed = tmp_path / "job.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as zip_:
        zip_.writestr("1700000040.algo-1.json", lines)
    data = bytearray(packed.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 8] = b"\xff" * 8
    packed.write_bytes(data)

    with archive.unpacked(packed) as found:
        (kept,) = files_of(found).values()
    assert kept.count(b"\n") > 2_000
    assert kept.startswith(LINE)
