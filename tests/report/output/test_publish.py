"""A page never lies next to another report's data, whatever happens while files are written."""

from __future__ import annotations

import ast
import fcntl
import json
import multiprocessing
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobreport.errors import JobReportError, UsageError
from jobreport.files import COMPARISON, REPORT, Product
from jobreport.output.publish import LOCK, publish, reserved
from tests.once import slow_but
from tests.paths import ROOT

NAMES = {
    "report.html",
    "report.ipynb",
    "report.json",
    "summary.md",
    "rules/BatchSize.json",
    "rules/more/B.json",
}


def report(text: str, names: set[str] = NAMES) -> dict[str, bytes]:
    """The files of a report, all with the same text in them."""
    rules = [{"name": Path(name).stem} for name in names if name.startswith("rules/")]
    found = dict.fromkeys(names, text.encode())
    return found | {"report.json": json.dumps({"schema_version": 1, "rules": rules, "text": text}).encode()}


def found(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refuse(*_: Any) -> None:
    raise OSError(38, "Function not implemented")


def write(folder: Path, files: dict[str, bytes], *, force: bool) -> None:
    with reserved(folder, files, force=force):
        publish(folder, files, force=force)


def test_a_report_appears_and_is_replaced(tmp_path: Path) -> None:
    out = tmp_path / "a" / "out"
    write(out, report("1"), force=False)
    assert found(out) == report("1")

    for names in (NAMES, NAMES - {"rules/more/B.json", "report.html"}, {"report.json"}):
        write(out, report("2", names), force=True)
        assert found(out) == report("2", names)
    assert (out / "rules").exists() is False


def test_files_of_others_stay(tmp_path: Path) -> None:
    write(tmp_path, report("1"), force=False)
    others = {"mine.txt": b"mine", "rules/mine.json": b"mine"}
    for name, content in others.items():
        (tmp_path / name).write_bytes(content)

    write(tmp_path, report("2", NAMES - {"rules/BatchSize.json"}), force=True)

    assert found(tmp_path) == report("2", NAMES - {"rules/BatchSize.json"}) | others


def test_an_existing_report_is_replaced_with_force_only(tmp_path: Path) -> None:
    write(tmp_path, report("1"), force=False)

    with pytest.raises(UsageError, match="already contains a report"):
        write(tmp_path, report("1"), force=False)
    with pytest.raises(UsageError, match="already contains a report"):
        publish(tmp_path, report("2"), force=False)  # without locks, if this run was the slower one
    assert found(tmp_path) == report("1")


def test_what_make_report_did_not_write_is_never_replaced(tmp_path: Path) -> None:
    for name in ("report.html", "report.json", "rules/BatchSize.json"):
        mine, made = tmp_path / "mine" / Path(name).name, tmp_path / "made" / Path(name).name
        (mine / name).parent.mkdir(parents=True)
        (mine / name).write_text("{}")
        # A folder where the report of an earlier run had a file.
        write(made, report("1"), force=False)
        (made / name).unlink()
        (made / name).mkdir()
        for folder in (mine, made):
            for force in (True, False):
                with pytest.raises(UsageError, match="which make-report did not write"):
                    write(folder, report("2"), force=force)


@pytest.mark.parametrize("product", [REPORT, COMPARISON])
@pytest.mark.parametrize("planted", ["FIFO", "device"])
def test_a_pipe_in_the_place_of_an_older_report_is_not_waited_for(
    product: Product, planted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "read_bytes", lambda _: pytest.fail("it would be read for ever"))
    name = product.files["json"]
    if planted == "FIFO":
        os.mkfifo(tmp_path / name)
    else:
        (tmp_path / name).symlink_to("/dev/full")

    with (
        pytest.raises(UsageError, match=f"contains {name}, which {product.maker} did not write"),
        reserved(tmp_path, {name}, force=True, product=product),
    ):
        pass


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")

    for folder in (tmp_path / "out", tmp_path / "out" / "below"):
        with pytest.raises(UsageError, match=r"out is a file\. Choose another --out"):
            write(folder, report("1"), force=True)


def test_a_folder_without_permission_is_refused_before_the_job_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: path != tmp_path)

    with pytest.raises(UsageError, match="permission denied"):
        write(tmp_path / "a" / "b", report("1"), force=False)


@pytest.mark.parametrize("older", [True, False])
def test_a_full_disk_leaves_the_older_report_and_nothing_else(
    older: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    if older:
        write(out, report("1"), force=False)
    opened = Path.open

    def full(path: Path, *args: Any, **kwargs: Any) -> Any:
        if path.name.startswith("report.json.") and path.suffix == ".part":
            raise OSError(28, "No space left on device")
        return opened(path, *args, **kwargs)

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(JobReportError, match="out: no space left on device") as error:
        write(out, report("2"), force=True)

    assert ("The earlier report is unchanged." in str(error.value)) == older
    assert found(out) == (report("1") if older else {})
    assert out.exists() == older


def _again_and_again(out: Path) -> None:
    for number in range(1, 1_000_000):
        write(out, report(str(number), NAMES if number % 2 else NAMES - {"rules/more/B.json"}), force=True)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs fork")
@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_a_whole_report_or_no_page(tmp_path: Path) -> None:
    at_random = random.Random(1)
    fork = multiprocessing.get_context("fork")
    write(tmp_path, report("0"), force=False)
    interrupted, seen = 0, set[str]()
    for number in range(2000):
        # On a busy machine most of the runs are killed before they do anything: the later ones live longer.
        if number >= 100 and len(seen) > 3 and interrupted > 3:
            break
        child = fork.Process(target=_again_and_again, args=(tmp_path,))
        child.start()
        time.sleep(at_random.uniform(0.002, 0.03) * max(1, number / 100))
        child.kill()
        child.join()
        files = {name: one for name, one in found(tmp_path).items() if not name.endswith((".part", LOCK))}
        text = json.loads(files["report.json"])["text"]
        interrupted += "report.html" not in files
        seen.add(text)
        # A folder without a page may hold less than a report, but never files of two.
        expected = report(text, NAMES if int(text) % 2 or text == "0" else NAMES - {"rules/more/B.json"})
        assert files == {name: expected[name] for name in files}
        assert "report.html" not in files or files == expected
    assert len(seen) > 3, "hardly a report was replaced"
    assert interrupted > 3, "hardly a run was killed on its way"
    # Files that the killed runs left go with the next report.
    write(tmp_path, report("last"), force=True)
    assert found(tmp_path) == report("last")


def test_a_part_that_someone_else_put_there_is_neither_followed_nor_replaced(tmp_path: Path) -> None:
    out, victim = tmp_path / "out", tmp_path / "victim"
    victim.write_text("mine")
    out.mkdir()
    (out / "report.json.part").symlink_to(victim)

    write(out, report("1"), force=False)

    assert victim.read_text() == "mine"
    assert not (out / "report.json").is_symlink()


def test_a_second_run_into_one_folder_is_refused_until_the_first_one_ends(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for product, files in ((REPORT, report("1")), (COMPARISON, {"comparison.json": b"{}"})):
        with reserved(out, NAMES, force=True):
            second = reserved(out, files, force=True, product=product)
            with pytest.raises(UsageError, match=r"Another run writes to .*out\. Wait for its end"), second:
                pass
            publish(out, report("0"), force=True)
    write(out, report("2"), force=True)
    assert found(out) == report("2")


def test_a_run_removes_its_own_parts_and_those_of_killed_runs_only(tmp_path: Path) -> None:
    names = {f"{name}.0123abcd.part" for name in ("report.html", "rules/BatchSize.json")}
    (tmp_path / "rules").mkdir()
    for name in (*names, "mine.part", "report.html.mine.part"):
        (tmp_path / name).write_text("x")

    with reserved(tmp_path, NAMES, force=False):
        assert set(found(tmp_path)) == {"mine.part", "report.html.mine.part", LOCK}
        # As of another run, on a file system without locks.
        (tmp_path / "report.html.89abcdef.part").write_text("y")
        publish(tmp_path, report("1"), force=False)

    assert {"report.html.89abcdef.part", "mine.part"} < set(found(tmp_path))


@pytest.mark.parametrize("failing", ["open", "flock"])
def test_a_file_system_without_locks_gets_its_report(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr({"open": "os.open", "flock": "fcntl.flock"}[failing], refuse)
    write(tmp_path / "out", report("1"), force=False)
    assert found(tmp_path / "out") == report("1")


def test_files_of_a_run_that_another_machine_does_not_see_are_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fcntl.flock

    def on_this_machine(descriptor: int, how: int) -> None:
        # As on NFS, which passes on locks on files that are open for writing; a second machine has none of folders.
        if not os.path.isdir(f"/proc/self/fd/{descriptor}"):  # noqa: PTH112
            real(descriptor, how)

    monkeypatch.setattr("fcntl.flock", on_this_machine)
    with reserved(tmp_path, NAMES, force=True):
        part = tmp_path / "report.html.0123abcd.part"
        part.write_text("of the first run")
        with pytest.raises(UsageError, match="Another run writes to"), reserved(tmp_path, NAMES, force=True):
            pass
        assert part.exists()


def test_files_that_vanish_while_they_appear_end_the_run_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, report("1"), force=False)
    unlink = Path.unlink

    def with_the_parts(path: Path, **kwargs: Any) -> None:
        for one in (path, *tmp_path.glob("*.part")):
            unlink(one, **kwargs)

    monkeypatch.setattr(Path, "unlink", with_the_parts)
    with pytest.raises(JobReportError, match=r": no such file or directory\.$"):
        write(tmp_path, report("2"), force=True)


@pytest.mark.parametrize("locks", [True, False])
def test_a_run_without_a_report_leaves_folders_as_they_were(
    locks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not locks:
        monkeypatch.setattr("fcntl.flock", refuse)
    (tmp_path / "empty").mkdir()
    for name in ("empty", "missing", "empty/a/b", "missing/a/b"):
        with pytest.raises(JobReportError), reserved(tmp_path / name, NAMES, force=False):
            raise JobReportError

    assert [path.name for path in tmp_path.rglob("*")] == ["empty"]


def test_the_rules_are_not_written_through_a_link(tmp_path: Path) -> None:
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    write(out, report("1"), force=False)
    (out / "rules").rename(elsewhere)
    (out / "rules").symlink_to(elsewhere)

    for names in (NAMES, NAMES - {"rules/BatchSize.json"}):
        with pytest.raises(UsageError, match=r"contains rules.*, a link"):
            write(out, report("2", names), force=True)
    assert (elsewhere / "BatchSize.json").read_text() == "1"


def test_a_read_only_file_system_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    monkeypatch.setattr("os.statvfs", lambda _: SimpleNamespace(f_flag=os.ST_RDONLY))

    with pytest.raises(UsageError, match="the file system is read-only"):
        write(tmp_path, report("1"), force=False)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs fork")
@pytest.mark.parametrize("pairs", slow_but(10, [10, 40, 1000]))
def test_two_writers_never_mix(pairs: int) -> None:
    # A process of its own: forks of this one, which is large by now, take too long to write at once.
    command = [sys.executable, "-m", "fuzz.writers", "--pairs", str(pairs)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    counts = ast.literal_eval(done.stdout.partition(": ")[2])

    assert counts["mixture"] == counts["no page"] == counts["failed"] == 0, counts
    # A busy machine may run the few of make test one after the other.
    assert counts["refused"] or pairs < 40, counts
