"""A report's files appear all at once or not at all, whatever happens on the way."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobreport import scratch
from jobreport.errors import UsageError
from jobreport.output import publish

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES = ("report.html", "report.ipynb", "summary.md", "rules/A.json", "rules/B.json")
posix = pytest.mark.skipif(sys.platform == "win32", reason="folders are replaced file by file there")
linux = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="only Linux swaps two folders in one step"
)


def write(folder: Path, text: str, rules: tuple[str, ...] = ("A", "B")) -> None:
    """The files of a report, all with the same text in them."""
    (folder / "rules").mkdir()
    told = {"schema_version": 1, "rules": [{"name": name} for name in rules], "text": text}
    (folder / "report.json").write_text(json.dumps(told))
    for name in NAMES:
        if not name.startswith("rules/") or Path(name).stem in rules:
            (folder / name).write_text(text)


def put(folder: Path, text: str, *, force: bool = True, rules: tuple[str, ...] = ("A", "B")) -> None:
    """A report in its place."""
    with publish.place(folder, force=force) as place:
        write(place.staging, text, rules)
        made = place.publish()
    assert {str(path) for path in made} >= {"report.html", "report.json"}


def found(folder: Path) -> dict[str, str]:
    """Every file's text."""
    texts = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
    return {
        name: json.loads(text)["text"] if name.endswith("report.json") else text
        for name, text in texts.items()
    }


def whole(text: str) -> dict[str, str]:
    """What ``found`` finds of a report that is complete."""
    return dict.fromkeys((*NAMES, "report.json"), text)


@pytest.fixture(params=["swapped", "file by file"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to replace a report."""
    if request.param == "file by file":
        monkeypatch.setattr(os.path, "ismount", os.path.exists)
    return str(request.param)


@pytest.mark.usefixtures("kind")
def test_a_report_appears_and_is_replaced(tmp_path: Path) -> None:
    out = tmp_path / "a" / "out"
    put(out, "1", force=False)
    assert found(out) == whole("1")
    put(out, "2", rules=("A",))
    assert found(out) == {name: text for name, text in whole("2").items() if name != "rules/B.json"}
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["out"]


@pytest.mark.usefixtures("kind")
def test_what_fails_leaves_the_older_report_and_nothing_else(tmp_path: Path) -> None:
    def failing(folder: Path) -> None:
        with publish.place(folder, force=True) as place:
            write(place.staging, "2")
            raise ZeroDivisionError

    out = tmp_path / "a" / "b" / "out"
    with pytest.raises(ZeroDivisionError):
        failing(out)
    assert list(tmp_path.iterdir()) == []
    put(out, "1")
    with pytest.raises(ZeroDivisionError):
        failing(out)
    assert found(tmp_path) == {f"a/b/out/{name}": "1" for name in whole("1")}


def test_files_of_others_stay(tmp_path: Path) -> None:
    put(tmp_path / "out", "1")
    (tmp_path / "out" / "mine.txt").write_text("mine")
    (tmp_path / "out" / "rules" / "mine.json").write_text("mine")
    put(tmp_path / "out", "2", rules=("B",))
    expected = whole("2") | {"mine.txt": "mine", "rules/mine.json": "mine"}
    del expected["rules/A.json"]
    assert found(tmp_path / "out") == expected


@posix
def test_a_shell_in_the_folder_stays_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "out", "1")
    monkeypatch.chdir(tmp_path / "out")
    put(Path(), "2")
    assert found(Path()) == whole("2")
    assert Path.cwd().samefile(tmp_path / "out")


def test_a_folder_that_is_called_like_a_file_stays(tmp_path: Path) -> None:
    put(tmp_path / "out", "1")
    (tmp_path / "out" / "summary.md").unlink()
    (tmp_path / "out" / "summary.md").mkdir()
    (tmp_path / "out" / "summary.md" / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"summary\.md is a folder"):
        put(tmp_path / "out", "2")
    kept = {name: text for name, text in whole("1").items() if name != "summary.md"}
    assert found(tmp_path / "out") == kept | {"summary.md/mine.txt": "mine"}


@posix
def test_a_link_to_the_folder_stays_one(tmp_path: Path) -> None:
    put(tmp_path / "out", "1")
    (tmp_path / "link").symlink_to("out")
    put(tmp_path / "link", "2")
    assert (tmp_path / "link").is_symlink()
    assert found(tmp_path / "out") == whole("2")


@linux
def test_the_folder_keeps_its_rights(tmp_path: Path) -> None:
    put(tmp_path / "out", "1")
    (tmp_path / "out").chmod(0o2750)
    inode = (tmp_path / "out").stat().st_ino
    put(tmp_path / "out", "2")
    assert (tmp_path / "out").stat().st_mode & 0o7777 == 0o2750
    assert (tmp_path / "out").stat().st_ino != inode, "it was not replaced in one step"


@pytest.mark.usefixtures("kind")
def test_the_slower_of_two_runs_does_not_replace_the_other_report(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with publish.place(out, force=False) as slower:
        write(slower.staging, "slower")
        put(out, "faster", force=False)
        with pytest.raises(UsageError, match="already holds a report"):
            slower.publish()
    assert found(out) == whole("faster")


@pytest.mark.usefixtures("kind")
def test_two_runs_that_may_replace_do_not_mix(tmp_path: Path) -> None:
    out = tmp_path / "out"
    put(out, "0")
    with publish.place(out, force=True) as one, publish.place(out, force=True) as other:
        write(one.staging, "one", ("A",))
        write(other.staging, "other", ("B",))
        other.publish()
        one.publish()
    assert found(out) == {name: text for name, text in whole("one").items() if name != "rules/B.json"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def _writing(out: Path, name: str, by_file: bool, until: float) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.EINVAL, "no")

    if by_file:
        publish._exchange = refused  # type: ignore[assignment]
    while time.monotonic() < until:
        put(out, name, rules=(name,))


@linux
def test_runs_that_swap_and_runs_that_go_file_by_file_do_not_mix(tmp_path: Path) -> None:
    out = tmp_path / "out"
    put(out, "A", rules=("A",))
    fork = multiprocessing.get_context("fork")
    until = time.monotonic() + 1
    runs = [
        fork.Process(target=_writing, args=(out, name, by_file, until))
        for name, by_file in (("A", False), ("B", True), ("A", True), ("B", False))
    ]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
        assert run.exitcode == 0
    texts = found(out)
    (name,) = set(texts.values())
    assert set(texts) == {
        "report.html",
        "report.ipynb",
        "summary.md",
        "report.json",
        f"rules/{name}.json",
    }


@linux
def test_a_file_that_comes_in_the_last_moment_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exchange = publish._exchange

    def late(one: Path, other: Path) -> None:
        (tmp_path / "out" / "mine.txt").write_text("mine")
        exchange(one, other)

    put(tmp_path / "out", "1")
    monkeypatch.setattr(publish, "_exchange", late)
    put(tmp_path / "out", "2")
    assert found(tmp_path / "out") == whole("2") | {"mine.txt": "mine"}


@pytest.mark.parametrize("error", [errno.EINVAL, errno.ENOSYS])
def test_where_folders_cannot_be_swapped_files_are_replaced(
    error: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(error, "no")

    put(tmp_path / "out", "1")
    monkeypatch.setattr(publish, "_exchange", refused)
    put(tmp_path / "out", "2")
    assert found(tmp_path) == {f"out/{name}": "2" for name in whole("2")}


def test_a_folder_beside_which_nothing_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Path.mkdir

    def mkdir(path: Path, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        if path.parent == tmp_path:
            raise PermissionError(errno.EACCES, "Permission denied")
        made(path, mode, parents, exist_ok)

    (tmp_path / "out").mkdir()
    monkeypatch.setattr(Path, "mkdir", mkdir)
    put(tmp_path / "out", "1")
    assert found(tmp_path) == {f"out/{name}": "1" for name in whole("1")}
    with pytest.raises(UsageError, match=r"Cannot write into .*: Permission denied"):
        put(tmp_path / "other", "1")


@posix
@pytest.mark.usefixtures("kind")
def test_ctrl_c_waits_until_all_files_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "out", "1")

    def interrupting(function: Callable[..., object]) -> Callable[..., object]:
        def called(*given: object) -> object:
            os.kill(os.getpid(), signal.SIGINT)
            return function(*given)

        return called

    monkeypatch.setattr(publish, "_exchange", interrupting(publish._exchange))
    monkeypatch.setattr(Path, "replace", interrupting(Path.replace))
    with pytest.raises(KeyboardInterrupt):
        put(tmp_path / "out", "2")
    assert found(tmp_path) == {f"out/{name}": "2" for name in whole("2")}


def _again_and_again(out: Path) -> None:
    for number in range(1, 1_000_000):
        put(out, str(number))


@linux
def test_a_kill_at_any_moment_leaves_a_whole_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_random = random.Random(1)
    fork = multiprocessing.get_context("fork")
    out = tmp_path / "out"
    put(out, "0")
    left = 0
    seen = set()
    for _ in range(100):
        child = fork.Process(target=_again_and_again, args=(out,))
        child.start()
        time.sleep(at_random.uniform(0.002, 0.03))
        child.kill()
        child.join()
        texts = set(found(out).values())
        assert len(texts) == 1
        assert found(out) == whole(*texts)
        seen |= texts
        left += len(list(tmp_path.iterdir())) > 1
    assert len(seen) > 3, "hardly a report was replaced"
    assert left > 3, "hardly a run was killed on its way"
    # What the dead have left goes with a run to come.
    monkeypatch.setattr(scratch, "_MADE_JUST_NOW_S", -1.0)
    scratch.sweep.cache_clear()
    put(out, "last")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@posix
def test_what_a_living_run_needs_is_not_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "_MADE_JUST_NOW_S", -1.0)
    # Folders of nearly that name are a user's own.
    own = [
        tmp_path / name for name in (".jobreport-notes", "jobreport-20241121", "jobreport-temporary-files")
    ]
    for folder in own:
        folder.mkdir()
    with publish.place(tmp_path / "one", force=False) as one:
        write(one.staging, "1")
        scratch.sweep.cache_clear()
        put(tmp_path / "other", "2")
        one.publish()
    assert found(tmp_path / "one") == whole("1")
    assert all(folder.is_dir() for folder in own)


@posix
def test_temporary_folders_of_the_dead_go_and_those_of_the_living_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(scratch, "_MADE_JUST_NOW_S", -1.0)
    dead, link = tmp_path / "jobreport-temporary-abcd_123", tmp_path / "jobreport-temporary-linklink"
    dead.mkdir()
    (dead / "table").write_text("")
    link.symlink_to(tmp_path)
    with scratch.Scratch() as living:
        scratch.sweep.cache_clear()
        with scratch.Scratch() as other:
            assert sorted(tmp_path.iterdir()) == sorted([Path(living), Path(other), link])
    assert list(tmp_path.iterdir()) == [link]
