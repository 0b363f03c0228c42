"""A page never lies next to another report's data, whatever happens while files are written."""

from __future__ import annotations

import json
import multiprocessing
import random
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from jobreport.errors import JobReportError, UsageError
from jobreport.output.publish import check, publish

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


def test_a_report_appears_and_is_replaced(tmp_path: Path) -> None:
    out = tmp_path / "a" / "out"
    publish(out, report("1"), force=False)
    assert found(out) == report("1")

    for names in (NAMES, NAMES - {"rules/more/B.json", "report.html"}, {"report.json"}):
        publish(out, report("2", names), force=True)
        assert found(out) == report("2", names)
    assert (out / "rules").exists() is False


def test_files_of_others_stay(tmp_path: Path) -> None:
    publish(tmp_path, report("1"), force=False)
    others = {"mine.txt": b"mine", "rules/mine.json": b"mine"}
    for name, content in others.items():
        (tmp_path / name).write_bytes(content)

    publish(tmp_path, report("2", NAMES - {"rules/BatchSize.json"}), force=True)

    assert found(tmp_path) == report("2", NAMES - {"rules/BatchSize.json"}) | others


def test_an_existing_report_is_replaced_with_force_only(tmp_path: Path) -> None:
    publish(tmp_path, report("1"), force=False)

    with pytest.raises(UsageError, match="already contains a report"):
        check(tmp_path, NAMES, force=False)
    with pytest.raises(UsageError, match="already contains a report"):
        publish(tmp_path, report("2"), force=False)  # this run was the slower one
    assert found(tmp_path) == report("1")


def test_what_make_report_did_not_write_is_never_replaced(tmp_path: Path) -> None:
    for name in ("report.html", "report.json", "rules/BatchSize.json"):
        mine, made = tmp_path / "mine" / Path(name).name, tmp_path / "made" / Path(name).name
        (mine / name).parent.mkdir(parents=True)
        (mine / name).write_text("{}")
        # A folder where the report of an earlier run had a file.
        publish(made, report("1"), force=False)
        (made / name).unlink()
        (made / name).mkdir()
        for folder in (mine, made):
            for force in (True, False):
                with pytest.raises(UsageError, match="which make-report did not write"):
                    publish(folder, report("2"), force=force)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")

    for folder in (tmp_path / "out", tmp_path / "out" / "below"):
        with pytest.raises(UsageError, match=r"out is a file\. Choose another --out"):
            check(folder, NAMES, force=True)


def test_a_folder_without_permission_is_refused_before_the_job_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: path != tmp_path)

    with pytest.raises(UsageError, match="permission denied"):
        check(tmp_path / "a" / "b", NAMES, force=False)


@pytest.mark.parametrize("older", [True, False])
def test_a_full_disk_leaves_the_older_report_and_nothing_else(
    older: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    if older:
        publish(out, report("1"), force=False)
    opened = Path.open

    def full(path: Path, *args: Any, **kwargs: Any) -> Any:
        if path.name.startswith("report.json.") and path.suffix == ".part":
            raise OSError(28, "No space left on device")
        return opened(path, *args, **kwargs)

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(JobReportError, match="out: no space left on device") as error:
        publish(out, report("2"), force=True)

    assert ("The earlier report is unchanged." in str(error.value)) == older
    assert found(out) == (report("1") if older else {})
    assert out.exists() == older


def _again_and_again(out: Path) -> None:
    for number in range(1, 1_000_000):
        publish(out, report(str(number), NAMES if number % 2 else NAMES - {"rules/more/B.json"}), force=True)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs fork")
@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_a_whole_report_or_no_page(tmp_path: Path) -> None:
    at_random = random.Random(1)
    fork = multiprocessing.get_context("fork")
    publish(tmp_path, report("0"), force=False)
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
        files = {name: one for name, one in found(tmp_path).items() if not name.endswith(".part")}
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
    publish(tmp_path, report("last"), force=True)
    assert found(tmp_path) == report("last")


def test_a_part_that_someone_else_put_there_is_neither_followed_nor_replaced(tmp_path: Path) -> None:
    out, victim = tmp_path / "out", tmp_path / "victim"
    victim.write_text("mine")
    out.mkdir()
    (out / "report.json.part").symlink_to(victim)

    publish(out, report("1"), force=False)

    assert victim.read_text() == "mine"
    assert not (out / "report.json").is_symlink()
