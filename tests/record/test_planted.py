"""What another user puts into the folder of a recording leads the recorder to no file outside of it."""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from jobrecord import facts
from jobrecord.command import main
from jobrecord.files import Row
from jobrecord.folder import Folder
from jobrecord.hooks.loading import NotedWorker
from jobrecord.hooks.recording import Recording
from jobrecord.sampler import Sampler
from jobrecord.sensors import Machine
from jobrecord.settings import SettingError, Settings
from tests.once import slow_but
from tests.record.recordings import rows

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="links are planted by another process")

NOBODY = 65534
MINUTE = 1_700_000_040
TEXT = "root's own\n"
REFUSED, NOT_PLANTED, RAISED = 10, 11, 12


@pytest.fixture(autouse=True, scope="module")
def quick() -> Iterator[None]:
    """Hundreds of recordings, none of which has to outlast the machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


class Victim:
    """A file and a folder of the user who records."""

    def __init__(self, place: Path) -> None:
        self.file, self.folder = place / "file.json", place / "folder"
        self.folder.mkdir()
        self.file.write_text(TEXT)
        self.file.chmod(0o644)

    def is_unchanged(self) -> bool:
        found = self.file.stat()
        return (self.file.read_text(), stat.S_IMODE(found.st_mode), [*self.folder.iterdir()]) == (
            TEXT,
            0o644,
            [],
        )

    def plant(self, kind: str, path: Path) -> None:
        """Put something that leads to it at a path of the recording."""
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "FIFO":
            os.mkfifo(path)
        elif kind == "hard link":
            path.hardlink_to(self.file)
        else:
            target = {"link": self.file, "link to a folder": self.folder, "dangling": self.folder / "new"}
            path.symlink_to(target[kind])


KINDS = ("link", "link to a folder", "dangling", "FIFO", "hard link")


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder in which every user may write; those of pytest are closed to others."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


@pytest.fixture
def victim(tmp_path: Path) -> Victim:
    return Victim(tmp_path)


class Loader:
    """Loads in a process of its own, as its ``worker_init_fn`` sees it."""

    num_workers, worker_init_fn = 1, None

    def __iter__(self) -> Iterator[int]:
        if self.worker_init_fn is not None:
            self.worker_init_fn(0)
        return iter(range(2))


def work(out: Path, *, force: bool = False) -> None:
    """Everything that a recording writes: facts, samples of two minutes, steps, a profile, notes of loaders, markers."""
    chosen = Settings(out=out, node="n", run="r", profile_steps=(0, 1), record_command=True, force=force)
    chosen = facts.claim(chosen, {}, ["python", "train.py"])
    sampler = Sampler(chosen, Machine(pid=os.getpid(), run="r"), [])
    for number in range(5):
        sampler.files.write(MINUTE + 25 * number, [Row("cpu", "cpu0", "CPUUtilization", number)])
    sampler._write_facts()
    recording = Recording(chosen)
    for _ in recording.data(Loader()):
        recording.step()
    recording.trace.flush()
    # The end of a process that could not close its file.
    recording.abandon()
    again = Recording(chosen)
    again.step()
    again.stop()
    sampler._write_facts()
    sampler.files.close()
    facts.end(chosen, "exit", 0)


def in_a_child(user: int, function: Callable[..., Any], *arguments: Any, **options: Any) -> int:
    """Exit status of a process of a user that calls the function: REFUSED, RAISED, or 0."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    status = RAISED
    try:
        if user and os.geteuid() == 0:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
        status = function(*arguments, **options) or 0
    except SettingError:
        status = REFUSED
    except BaseException:  # noqa: BLE001 - the child must not go on as pytest
        traceback.print_exc()
    finally:
        os._exit(status)


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Files and folders of a real recording at any moment, and what is written next to files that are replaced."""
    out, seen = tmp_path_factory.mktemp("recorded") / "job", set[str]()

    def look() -> None:
        seen.update(str(path.relative_to(out)) for path in out.rglob("*"))

    def looked(function: Callable[..., Any]) -> Callable[..., Any]:
        def looked_first(*arguments: Any, **options: Any) -> Any:
            look()
            return function(*arguments, **options)

        return looked_first

    with pytest.MonkeyPatch.context() as patch:
        for name in ("close", "replace", "unlink"):
            patch.setattr(os, name, looked(getattr(os, name)))
        work(out)
    look()
    assert len(seen) > 20
    return sorted(seen | {f"{name}.tmp" for name in seen if "/" in name})


@pytest.mark.parametrize(
    ("kind", "every"),
    slow_but(("link", 5), [("link", 5), *((kind, 1) for kind in KINDS[:-1])]),
)
def test_what_another_user_planted_is_refused_by_name(
    kind: str,
    every: int,
    names: list[str],
    place: Path,
    victim: Victim,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for number, name in enumerate(names[::every]):
        out = place / f"job-{number}"
        assert in_a_child(NOBODY, victim.plant, kind, out / name) == 0

        status = main(["--quiet", "--node", "n", "--out", str(out), "--", "true"])

        printed = capfd.readouterr().err
        assert (status, printed.count("\n")) == (2, 1), name
        assert printed.startswith(f"record-job: Cannot write to {out}: {name} is "), name
        assert victim.is_unchanged(), name


@pytest.mark.parametrize("every", slow_but(8, [8, 1]))
def test_hard_links_are_not_written_to(every: int, names: list[str], place: Path, victim: Victim) -> None:
    for number, name in enumerate(names[::every]):
        out = place / f"job-{number}"
        victim.plant("hard link", out / name)

        assert in_a_child(0, work, out, force=True) in {0, REFUSED}, name

        assert victim.is_unchanged(), name
        copies = [path for path in out.rglob("*") if path.is_file() and not path.samefile(victim.file)]
        assert not any(TEXT.encode() in path.read_bytes() for path in copies), name


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="/proc says which folders are open")
@pytest.mark.parametrize(
    ("kind", "every"),
    slow_but(("link", 9), [("link", 9), ("link", 1), ("link to a folder", 1), ("hard link", 1)]),
)
def test_what_is_planted_just_before_a_file_is_made_is_not_followed(
    kind: str, every: int, place: Path, victim: Victim
) -> None:
    """Somebody who watches the recorder puts it where the recorder is about to make a file or folder, once a recording."""
    for chosen in count(step=every):
        out = place / f"job-{chosen}"
        if (status := in_a_child(0, _attacked, victim, kind, out, chosen)) == NOT_PLANTED:
            break

        assert status in {0, REFUSED}, chosen
        assert victim.is_unchanged(), chosen
    assert chosen > 20


def _attacked(victim: Victim, kind: str, out: Path, chosen: int) -> int:
    """Record while something is planted at the place of that number."""
    places, is_planting = list[Path](), False

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal is_planting
        if is_planting or len(places) > chosen:
            return
        is_planting = True
        for path in _made(event, arguments, out):
            if len(places) <= chosen and not os.path.lexists(path) and path.parent.is_dir():
                places.append(path)
                if len(places) > chosen:
                    victim.plant(kind, path)
        is_planting = False

    sys.addaudithook(watch)
    work(out)
    return 0 if len(places) > chosen else NOT_PLANTED


def _made(event: str, arguments: tuple[Any, ...], out: Path) -> list[Path]:
    """Paths in the recording that a call may be about to make."""
    if event not in {"open", "os.mkdir", "os.rename"} or (event == "open" and not arguments[2] & os.O_CREAT):
        return []
    name = arguments[1] if event == "os.rename" else arguments[0]
    if not isinstance(name, str | Path):
        return []
    # A name alone is one in a folder that is open.
    open_files = [file for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]
    places = {file.readlink() / name for file in open_files}
    return sorted(place for place in places if out in place.parents)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize(("owner", "user"), [(NOBODY, 0), (0, NOBODY), (NOBODY, NOBODY)])
def test_a_folder_of_another_user_that_has_no_links_is_recorded_into(
    owner: int, user: int, place: Path
) -> None:
    """Root in a container with a folder of the user; a user in a folder of root, or of the group."""
    (out := place / "job").mkdir()
    for name in ("", "system", "framework", "jobrecord"):
        (out / name).mkdir(exist_ok=True)
        (out / name).chmod(0o777)
        os.chown(out / name, owner, owner)

    assert in_a_child(user, work, out) == 0

    assert len(rows(out)) == 5
    assert (facts.path(out, "n").stat().st_uid, len([*out.rglob("pevents/*/*.json")])) == (user, 2)


def test_a_folder_that_is_a_link_is_followed_if_it_is_ones_own(place: Path, victim: Victim) -> None:
    (place / "real").mkdir()
    (place / "own").symlink_to(place / "real")

    assert in_a_child(0, work, place / "own") == 0
    assert len(rows(place / "real")) == 5

    if os.geteuid() == 0:
        in_a_child(NOBODY, (place / "planted").symlink_to, victim.folder)
        assert in_a_child(0, work, place / "planted") == REFUSED
        assert victim.is_unchanged()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="root hides files from others")
def test_what_may_not_be_listed_is_recorded_into(place: Path) -> None:
    """A folder that takes what others bring, with a folder inside that is closed to them."""
    (out := place / "job").mkdir()
    for name in ("framework", "framework/private"):
        (out / name).mkdir(exist_ok=True)
    (out / "framework/private").chmod(0o700)
    (out / "framework").chmod(0o777)
    out.chmod(0o733)

    assert in_a_child(NOBODY, work, out) == 0

    assert len(rows(out)) == 5


def test_files_of_other_nodes_are_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They come and go, and there may be many: a day of 32 nodes."""
    hour = tmp_path / "system/incremental/2023111422"
    hour.mkdir(parents=True)
    names = {f"{MINUTE + 60 * minute}.{node}.json.gz" for node in ("w-1", "w-22") for minute in range(60)}
    for name in names:
        (hour / name).touch()
    looked_at, stat_ = set[str](), os.stat

    def gone(path: Any, *arguments: Any, **options: Any) -> os.stat_result:
        looked_at.add(Path(os.fsdecode(path)).name if not isinstance(path, int) else "")
        if str(path).endswith(".w-1.json.gz"):
            raise FileNotFoundError
        return stat_(path, *arguments, **options)

    monkeypatch.setattr(os, "stat", gone)
    monkeypatch.setattr(os, "lstat", lambda path, **_: gone(path, follow_symlinks=False))
    chosen = facts.claim(Settings(out=tmp_path, node="w-1", run="r"), {})

    assert chosen.node == "w-1"
    assert hour.name in looked_at
    assert looked_at & names == {name for name in names if ".w-1." in name}


def test_a_socket_of_the_script_leads_nowhere(place: Path) -> None:
    (place / "job/framework").mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(place / "job/framework/agent"))

        assert in_a_child(0, work, place / "job") == 0


@pytest.mark.parametrize("number", [errno.ELOOP, errno.EMLINK])
def test_a_link_is_one_by_the_words_of_other_systems(
    number: int, place: Path, victim: Victim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """macOS and FreeBSD say so of a link that is opened as a folder."""
    (place / "real").mkdir()
    (place / "own").symlink_to(place / "real")
    open_ = os.open

    def opened(*arguments: Any, **options: Any) -> int:
        try:
            return open_(*arguments, **options)
        except NotADirectoryError as error:
            raise OSError(number, "unlike Linux") from error

    monkeypatch.setattr(os, "open", opened)

    with Folder(place / "own", "jobrecord", make=True) as folder:
        assert folder.names() == []
    (place / "real/system").symlink_to(victim.folder)
    with pytest.raises(OSError, match="system is a link"):
        Folder(place / "own", "system")


def test_a_note_of_a_loader_process_that_was_killed_is_written_anew(tmp_path: Path) -> None:
    """After a restart of a container, processes have the same numbers."""
    note = tmp_path / f"jobrecord/workers/n-7-0-{os.getpid()}.json"
    note.parent.mkdir(parents=True)
    note.write_text('{"worker_id": 3, "pid": 1, "start_us": 5}')

    NotedWorker(tmp_path, "n-7-0", None)(2)

    found = json.loads(note.read_text())
    assert (found["worker_id"], found["pid"]) == (2, os.getpid())
    assert found["start_us"] > MINUTE * 1_000_000
