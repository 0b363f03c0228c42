from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobrecord.files import Row, SampleFiles
from tests.record.recordings import rows

MINUTE = 1_700_000_040
ROW = Row("gpu", "gpu0", "GPUUtilization", 97)


def names(out: Path) -> list[str]:
    return sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())


def test_an_open_minute_is_readable_after_each_tick(tmp_path: Path) -> None:
    files = SampleFiles(tmp_path, "node-1", 1 << 30)

    files.write(MINUTE + 7.252, [ROW, Row("memory", "MemoryUsedPercent", "", 12.345)])

    assert names(tmp_path) == ["system/incremental/2023111422/1700000040.node-1.json"]
    assert (tmp_path / names(tmp_path)[0]).read_text() == (
        '{"Type":"gpu","Name":"gpu0","Dimension":"GPUUtilization","Value":97.00,"NodeId":"node-1",'
        '"Timestamp":1700000047.252000}\n'
        '{"Type":"memory","Name":"MemoryUsedPercent","Dimension":"","Value":12.35,"NodeId":"node-1",'
        '"Timestamp":1700000047.252000}\n'
    )
    files.close()


def test_a_closed_minute_is_gzipped(tmp_path: Path) -> None:
    files = SampleFiles(tmp_path, "n", 1 << 30)

    for second in range(0, 130, 10):
        files.write(MINUTE + second, [ROW] * 50)
    files.close()

    folder = "system/incremental/2023111422"
    assert names(tmp_path) == [f"{folder}/{MINUTE + n}.n.json.gz" for n in (0, 60, 120)]
    assert [row["Timestamp"] for row in rows(tmp_path)[::50]] == [MINUTE + s for s in range(0, 130, 10)]
    assert files.bytes_kept == sum(path.stat().st_size for path in tmp_path.rglob("*.gz"))


def test_recorders_of_one_node_have_files_of_their_own(tmp_path: Path) -> None:
    files = [SampleFiles(tmp_path, "n", 1 << 30) for _ in range(2)]
    for second in range(6):
        files[second % 2].write(MINUTE + second, [ROW])
    assert [Path(name).name for name in names(tmp_path)] == [f"{MINUTE + n}.n.json" for n in (0, 1)]

    for one in files:
        one.close()
    files[0].write(MINUTE + 6, [ROW])

    assert sorted(row["Timestamp"] - MINUTE for row in rows(tmp_path)) == [*range(7)]
    files[0].close()
    assert [Path(name).name for name in names(tmp_path)] == [f"{MINUTE + n}.n.json.gz" for n in (0, 1, 2)]


def test_recorders_that_close_a_minute_at_the_same_time_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (SampleFiles(tmp_path, "n", 1 << 30) for _ in range(2))
    first.write(MINUTE, [ROW])
    second.write(MINUTE + 1, [ROW])
    first.write(MINUTE + 2, [ROW])
    replace = os.replace

    def late(path: str, target: str, **folders: int) -> None:
        monkeypatch.undo()
        second.close()
        replace(path, target, **folders)

    monkeypatch.setattr(os, "replace", late)
    first.close()

    assert {row["Timestamp"] - MINUTE for row in rows(tmp_path)} == {0, 1, 2}


def test_a_recording_that_goes_on_keeps_what_is_there(tmp_path: Path) -> None:
    killed, second = (SampleFiles(tmp_path, "n", 1 << 30) for _ in range(2))
    killed.write(MINUTE + 1, [ROW])
    (open_file,) = tmp_path.rglob("*.json")
    with open_file.open("a") as file:
        file.write('{"Type":"gpu","Na')
    before = open_file.read_bytes()

    second.write(MINUTE + 2, [ROW])
    second.close()

    assert open_file.read_bytes() == before
    assert sorted(row["Timestamp"] - MINUTE for row in rows(tmp_path)) == [1, 2]


def test_names_become_text(tmp_path: Path) -> None:
    files = SampleFiles(tmp_path, "n", 1 << 30)
    hostile = '/mnt/"}\n{"Type":"cpu","\u202e</script>\x00'

    files.write(MINUTE, [Row("disk", hostile, "FreeBytes", 1)])

    (row,) = rows(tmp_path)
    assert row["Name"] == hostile
    files.close()


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file may grow beyond 10 kB."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("small_files")
def test_a_file_that_cannot_grow_ends_with_a_whole_line(tmp_path: Path) -> None:
    files = SampleFiles(tmp_path, "n", 1 << 30)
    for second in range(3):
        files.write(MINUTE + second, [ROW] * 40)
    files.write(MINUTE + 60, [ROW])
    files.close()

    found = rows(tmp_path)

    # The first two ticks have 40 rows of 112 bytes, which fit; the third does not; the next minute starts anew.
    assert [row["Timestamp"] - MINUTE for row in found] == [*[0] * 40, *[1] * 40, 60]
    assert (files.dropped_rows, files.reason) == (40, "File too large")
    assert files.since_us is not None


def test_a_full_disk_costs_rows_until_it_has_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = SampleFiles(tmp_path, "n", 1 << 30)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    files.write(MINUTE, [ROW])
    monkeypatch.undo()

    files.write(MINUTE + 1, [ROW])
    files.write(MINUTE + 60, [ROW])
    files.close()

    assert [row["Timestamp"] for row in rows(tmp_path)] == [MINUTE + 60]
    assert (files.dropped_rows, files.reason) == (2, "No space left on device")


def test_a_folder_that_is_gone_costs_rows(tmp_path: Path) -> None:
    (tmp_path / "system").write_text("a file")
    files = SampleFiles(tmp_path, "n", 1 << 30)

    files.write(MINUTE, [ROW, ROW])

    assert (files.dropped_rows, files.reason) == (2, "system is not a folder")


def test_max_bytes(tmp_path: Path) -> None:
    files = SampleFiles(tmp_path, "n", 50_000)

    for second in range(0, 600, 5):
        files.write(
            MINUTE + second, [Row("cpu", f"cpu{n}", "CPUUtilization", n * second) for n in range(100)]
        )
        assert sum(path.stat().st_size for path in tmp_path.rglob("*.json*")) <= 50_000
    files.close()

    assert len(rows(tmp_path)) > 1000
    assert files.dropped_rows == 120 * 100 - len(rows(tmp_path))
    assert files.reason == "--max-bytes 50000 reached"
