from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from jobrecord import facts
from jobrecord.folder import Folder
from jobrecord.settings import SettingError, Settings


def settings(out: Path, **options: Any) -> Settings:
    return Settings(out=out, node="n", run=options.pop("run", "r"), **options)


def earlier(out: Path, **changed: Any) -> Path:
    """Facts of an earlier recording of the node."""
    file = facts.path(out, "n")
    with Folder(out, facts.FOLDER, make=True) as folder:
        facts.write(folder, "n", facts.first_facts(settings(out, run="earlier"), {}) | changed)
    return file


def test_first_facts(tmp_path: Path) -> None:
    environment = {"SLURM_JOB_ID": "17", "SLURM_NNODES": "4", "SLURM_NODEID": "3", "SECRET_TOKEN": "hush"}

    facts.claim(settings(tmp_path, labels={"a": "b"}), environment, ["train.py", "--token", "hush"])

    text = facts.path(tmp_path, "n").read_text()
    found = json.loads(text)
    assert (found["nodes"], found["node_rank"], found["scheduler"]) == (
        4,
        3,
        {"kind": "slurm", "job_id": "17"},
    )
    assert (found["labels"], found["interval_ms"], found["ended_us"]) == ({"a": "b"}, 500, None)
    assert "hush" not in text


@pytest.mark.parametrize(
    ("changed", "options", "message"),
    [
        (
            {},
            {},
            r"already recorded into .* by process \d+\. For several processes put one record-job before",
        ),
        (
            {"ended_us": 5},
            {},
            r"contains a recording of n. Use --force \(in a script: force=True\) to continue",
        ),
        ({"pid": 2**22 + 1}, {}, "already contains a recording"),
        # The number of the process is another's now.
        ({"started_us": 1000}, {}, "already contains a recording"),
        ({}, {"force": True}, None),
        ({"ended_us": 5}, {"run": "earlier"}, None),
        ({"ended_us": 5, "boot_id": "other"}, {}, "already contains a recording"),
        ({"pid": "x"}, {}, "already contains a recording"),
    ],
)
def test_a_second_recorder(
    changed: dict[str, Any], options: dict[str, Any], message: str | None, tmp_path: Path
) -> None:
    earlier(tmp_path, **changed)

    if message:
        with pytest.raises(SettingError, match=message):
            facts.claim(settings(tmp_path, **options), {})
    else:
        assert facts.claim(settings(tmp_path, **options), {}).node == "n"


def test_of_processes_that_start_at_the_same_time_one_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one starts while the first has not yet written more than that it is there."""
    monkeypatch.setattr(facts, "write", lambda *_: None)
    facts.claim(settings(tmp_path), {})

    with pytest.raises(SettingError, match="already recorded"):
        facts.claim(settings(tmp_path, run="other"), {})


def test_another_machine_of_the_same_name(tmp_path: Path) -> None:
    file = earlier(tmp_path, boot_id="other")

    second = facts.claim(settings(tmp_path), {})
    # Not rewritten for long: the machine went away, and its job goes on here.
    os.utime(file, (time.time() - 600, time.time() - 600))
    after_restart = facts.claim(settings(tmp_path, force=True), {})

    assert (second.node, after_restart.node) == ("n-2", "n")


def test_a_restarted_job_keeps_what_became_of_the_earlier_ones(tmp_path: Path) -> None:
    for number in range(3):
        facts.claim(settings(tmp_path, run=f"{number}", force=True), {})
        assert not (tmp_path / "system/training_job_end.ts").exists()
        hooks = tmp_path / facts.hooks_folder("n")
        hooks.mkdir(parents=True, exist_ok=True)
        (hooks / "0.json").touch()
        facts.end(settings(tmp_path), f"signal:{number}", None, "signal:9" if number else None)

    facts.claim(settings(tmp_path, force=True), {})

    found = facts.of_node(tmp_path, "n")
    assert [(one["run"], one["ended_by"], one["sampler_ended_by"]) for one in found["earlier"]] == [
        ("0", "signal:0", None),
        ("1", "signal:1", "signal:9"),
        ("2", "signal:2", "signal:9"),
    ]
    # Nothing of the training processes that the job had then.
    assert list(hooks.iterdir()) == []


def test_a_job_that_could_not_be_started_leaves_what_was_there(tmp_path: Path) -> None:
    out = tmp_path / "job"
    facts.claim(settings(out, record_command=True), {}, ["no-such-command"])
    facts.withdraw(settings(out), 127)
    assert not out.exists()

    facts.claim(settings(out), {})
    facts.end(settings(out), "exit", 1)
    facts.claim(settings(out, force=True), {})
    facts.withdraw(settings(out), 127)
    found = facts.of_node(out, "n")
    assert (found["exit_status"], [one["exit_status"] for one in found["earlier"]]) == (127, [1])


def test_a_job_that_restarts_forever_keeps_the_last_recordings(tmp_path: Path) -> None:
    earlier(tmp_path, run="last", earlier=[{"run": str(number)} for number in range(facts.MAX_EARLIER)])

    facts.claim(settings(tmp_path, force=True), {})

    kept = [one["run"] for one in facts.of_node(tmp_path, "n")["earlier"]]
    assert kept == [*map(str, range(1, facts.MAX_EARLIER)), "last"]


@pytest.mark.parametrize("before", [5, "x", [1], {"run": "a"}])
def test_damaged_facts_of_earlier_recordings(before: object, tmp_path: Path) -> None:
    earlier(tmp_path, run="last", earlier=before)

    facts.claim(settings(tmp_path, force=True), {})

    assert [one["run"] for one in facts.of_node(tmp_path, "n")["earlier"]] == ["last"]


@pytest.mark.parametrize("text", ["", "[1]", "{", "null"])
def test_damaged_facts_are_a_recording(text: str, tmp_path: Path) -> None:
    file = earlier(tmp_path)
    file.write_text(text)

    with pytest.raises(SettingError, match="already contains a recording"):
        facts.claim(settings(tmp_path), {})


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(SettingError, match=r"Cannot write to .*Not a directory"):
        facts.claim(settings(tmp_path / "file"), {})


@pytest.mark.parametrize(
    ("rank", "ended_by", "marked"),
    [(None, "exit", True), (0, "signal:9", True), (1, "exit", False), (0, "detached", False)],
)
def test_the_first_node_marks_the_end(rank: int | None, ended_by: str, marked: bool, tmp_path: Path) -> None:
    earlier(tmp_path, node_rank=rank)

    found = facts.end(settings(tmp_path), ended_by, 3)

    assert (found["ended_by"], found["exit_status"]) == (ended_by, 3)
    assert list((tmp_path / "jobrecord").iterdir()) == [facts.path(tmp_path, "n")]
    assert (tmp_path / "system/training_job_end.ts").exists() == marked
    assert (tmp_path / "framework/training_job_end.ts").exists() == marked


def test_the_command_line_is_for_its_owner_and_the_facts_are_for_all(tmp_path: Path) -> None:
    command = tmp_path / "jobrecord/n.command.json"
    before = os.umask(0o022)
    try:
        facts.claim(settings(tmp_path, record_command=True), {}, ["python", os.fsdecode(b"\xff \xc3\xa9.py")])
        modes = {path.name: path.stat().st_mode & 0o777 for path in command.parent.iterdir()}
        facts.end(settings(tmp_path), "exit", 0)
    finally:
        os.umask(before)

    assert modes.pop(command.name) == 0o600
    assert len(modes) == 2
    assert {*modes.values(), facts.path(tmp_path, "n").stat().st_mode & 0o777} == {0o644}
    assert "python" not in facts.path(tmp_path, "n").read_text()
    assert json.loads(command.read_bytes()) == ["python", "? é.py"]

    facts.claim(settings(tmp_path, record_command=True, force=True), {}, ["python", "again.py"])
    assert json.loads(command.read_bytes()) == ["python", "again.py"]
    assert command.stat().st_mode & 0o777 == 0o600

    facts.claim(settings(tmp_path, force=True), {}, ["python", "unasked.py"])
    assert not command.exists()


def test_one_thing_that_cannot_be_removed_keeps_no_other(tmp_path: Path) -> None:
    hooks = tmp_path / facts.hooks_folder("n")
    for number in range(20):
        (hooks / f"{number}").mkdir(parents=True)
        (hooks / f"{number}.json").touch()

    facts.claim(settings(tmp_path), {})

    assert [path.name for path in hooks.iterdir() if path.is_file()] == []


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="Windows has no numbers of users")
def test_room_for_facts_is_used_where_files_belong_to_another_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with root squashed by NFS, and with a mount that maps users."""
    with Folder(tmp_path) as folder:
        facts.write(folder, "n", {"pid": 1})
        with (tmp_path / "n.1.json.tmp").open() as room:
            monkeypatch.setattr(os, "geteuid", lambda: 4711)
            facts.write(folder, "n", {"pid": 1})
            assert os.path.samestat(os.fstat(room.fileno()), (tmp_path / "n.json").stat())


def test_of_a_file_as_large_as_a_disk_a_part_is_read(tmp_path: Path) -> None:
    with (tmp_path / "n.json").open("wb") as file:
        file.truncate(64 << 20)

    with Folder(tmp_path) as folder:
        assert len(folder.read("n.json")) < 16 << 20
        assert facts.read(folder, "n.json") == {}


def test_facts_are_on_the_disk_before_they_are_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    monkeypatch.setattr(os, "fsync", lambda _: calls.append("fsync"))
    monkeypatch.setattr(os, "replace", lambda *_, **__: calls.append("replace"))

    with Folder(tmp_path) as folder:
        facts.write(folder, "n", {"pid": 1}, is_last=True)

    assert calls == ["fsync", "replace"]


def test_recorders_of_one_node_do_not_share_the_file_that_they_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one writes while the first is about to put its facts in place."""
    replace = os.replace

    def replace_after_another(part: str, to: str, **folders: int) -> None:
        monkeypatch.setattr(os, "replace", replace)
        facts.write(folder, "n", {"pid": 2}, is_last=True)
        replace(part, to, **folders)

    monkeypatch.setattr(os, "replace", replace_after_another)
    with Folder(tmp_path) as folder:
        facts.write(folder, "n", {"pid": 1}, is_last=True)

        assert facts.read(folder, "n.json") == {"pid": 1}
        assert folder.names() == ["n.json"]


def test_what_a_killed_recorder_left_is_removed(tmp_path: Path) -> None:
    earlier(tmp_path, pid=2**22 + 1)

    facts.claim(settings(tmp_path, force=True), {})
    facts.end(settings(tmp_path), "exit", 0)

    assert list((tmp_path / "jobrecord").iterdir()) == [facts.path(tmp_path, "n")]


def test_bytes_of_a_label_that_are_no_text_leave_facts_that_are_json(tmp_path: Path) -> None:
    facts.claim(settings(tmp_path, labels={"a": os.fsdecode(b"x\xff \xc3\xa9")}), {})

    assert json.loads(facts.path(tmp_path, "n").read_bytes())["labels"] == {"a": "x? é"}


def test_a_recording_that_was_killed_ended_with_its_last_sample(tmp_path: Path) -> None:
    earlier(tmp_path)
    for number, (node, at_s) in enumerate([("n", 3), ("n", 4), ("other", 9)]):
        file = tmp_path / "system" / "incremental" / "2023111422" / f"{number}.{node}.json.gz"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        os.utime(file, (at_s, at_s))

    facts.claim(settings(tmp_path, force=True), {})

    (found,) = facts.of_node(tmp_path, "n")["earlier"]
    assert (found["ended_us"], found["ended_by"]) == (4_000_000, None)
