"""What is noted of the machine and the repository, without running anything of the user's."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from jobrecord import what_ran


def git(folder: Path, *arguments: str) -> str:
    names = ["-c", "user.name=a", "-c", "user.email=a@b"]
    command = ["git", "-C", str(folder), *names, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def script(file: Path, text: str) -> Path:
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return file


def repository(folder: Path) -> str:
    git(folder, "init", "-q")
    (folder / "train.py").write_text("1")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return git(folder, "rev-parse", "HEAD")


@pytest.mark.parametrize(
    ("change", "dirty"),
    [
        (lambda _: None, False),
        (lambda folder: (folder / "train.py").write_text("2"), True),
        # Such as the recording itself.
        (lambda folder: (folder / "new.txt").write_text("2"), False),
    ],
    ids=["clean", "changed", "a new file"],
)
def test_the_commit_and_whether_files_of_it_were_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], object], dirty: bool
) -> None:
    name = repository(tmp_path)
    change(tmp_path)
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path / "folder")
    assert what_ran.commit() == {"commit": name, "dirty": dirty}


def test_nothing_of_the_repository_is_run_or_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository(tmp_path)
    hook = script(tmp_path / "hook.sh", f"touch {tmp_path}/ran")
    git(tmp_path, "config", "core.fsmonitor", str(hook))
    (tmp_path / "train.py").touch()
    index = (tmp_path / ".git/index").read_bytes()
    monkeypatch.chdir(tmp_path)

    assert what_ran.commit()
    assert not (tmp_path / "ran").exists()
    assert (tmp_path / ".git/index").read_bytes() == index


def test_without_git_or_a_repository_there_is_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert what_ran.commit() is None
    repository(tmp_path)
    assert what_ran.commit()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert what_ran.commit() is None


def test_a_slow_git_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository(tmp_path)
    monkeypatch.setattr(what_ran, "GIT_S", 0.2)
    (tmp_path / "bin").mkdir()
    script(tmp_path / "bin/git", "exec sleep 30")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    began = time.monotonic()
    assert what_ran.commit() is None
    assert time.monotonic() - began < 10


def test_the_machine_has_a_system_and_a_processor() -> None:
    found = what_ran.host()
    assert all(found.values())
    assert max(map(len, found.values())) <= what_ran.MAX_TEXT
