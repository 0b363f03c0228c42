"""Facts about a recording: ``jobrecord/<node>.json``, one small file per node, rewritten as a whole.

`claim` makes the file before anything is sampled, in the process that owns the recording (``record-job``, or the
training process); from then on the sampler rewrites it.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobrecord import __version__, names, what_ran
from jobrecord.command_line import without_secrets
from jobrecord.folder import Folder, check
from jobrecord.settings import SettingError, Settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SCHEMA = 1
FOLDER = "jobrecord"
_END_MARKED, _END_MARKER = ("system", "framework"), "training_job_end.ts"
END_MARKERS = tuple(f"{name}/{_END_MARKER}" for name in _END_MARKED)
#: What is kept of a recording that a restarted job continues, and of how many: a job may fail at each start.
_KEPT = (
    "run",
    "started_us",
    "ended_us",
    "exit_status",
    "ended_by",
    "stopped_by",
    "sampler_ended_by",
    "dropped",
)
MAX_EARLIER = 1000
#: Of a file system; facts grow by less between two writes.
_BLOCK = 4096
#: A recorder on another machine rewrites its facts each minute.
FRESH_S = 180.0


def path(out: Path, node: str) -> Path:
    """File of a node's facts."""
    return out / FOLDER / f"{node}.json"


def hooks_folder(node: str) -> str:
    """Folder of the facts that training processes of a node leave, in that of the recording."""
    return f"{FOLDER}/hooks/{node}"


def write(
    folder: Folder, stem: str, facts: Mapping[str, Any], *, is_last: bool = False, is_synced: bool = True
) -> None:
    """Replace the file ``<stem>.json`` by `facts`. Raises OSError.

    Room is kept for the next write: a job that ends because of a full disk must not look as if it had been killed.
    Without `is_synced`, the file may be empty after the machine has crashed, and no write waits for the disk.
    """
    part = _part(stem, facts)
    # Bytes of a label that are no text would be no JSON.
    data = json.dumps(facts, indent=1, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
    with os.fdopen(_kept_room(folder, part), "wb") as stream:
        stream.write(data)
        stream.truncate()
        stream.flush()
        if is_synced:
            os.fsync(stream.fileno())
    folder.move(part, folder, f"{stem}.json")
    if not is_last:
        with contextlib.suppress(OSError), os.fdopen(folder.create(part), "wb") as stream:
            stream.write(bytes(len(data) + _BLOCK))


def _command(node: str) -> str:
    """File of the command line."""
    return f"{node}.command.json"


def _part(stem: str, facts: Mapping[str, Any]) -> str:
    """Where the next facts are written: a file of the recording's own, in case another one writes the same facts."""
    return f"{stem}.{facts.get('pid')}.json.tmp"


def _kept_room(folder: Folder, part: str) -> int:
    """Open the file that keeps room for facts, or a new one."""
    try:
        return folder.reopen(part)
    except OSError:
        folder.remove(part)
        return folder.create(part)


def read(folder: Folder, name: str) -> dict[str, Any]:
    """Facts in a file; empty if there are none."""
    try:
        facts = json.loads(folder.read(name))
    except (OSError, ValueError, RecursionError):
        return {}
    # Facts are written again; no other file is to be.
    return facts if isinstance(facts, dict) and "pid" in facts else {}


def of_node(out: Path, node: str) -> dict[str, Any]:
    """Facts of a node; empty if there are none."""
    try:
        with Folder(out, FOLDER) as folder:
            return read(folder, f"{node}.json")
    except OSError:
        return {}


def claim(
    settings: Settings,
    environment: Mapping[str, str],
    command: Sequence[str] = (),
    no_steps: str = "",
    commit: Mapping[str, Any] | None = None,
) -> Settings:
    """Make the node's file of facts, so that no second recorder writes into the same files.

    `no_steps` says why ``--steps auto`` records none, `commit` is that of the script. Returns the settings with the node's name, which changes if
    another machine of this name records into the folder. Raises SettingError.
    """
    try:
        check(settings.out, settings.node)
        with Folder(settings.out, FOLDER, make=True) as folder:
            settings, last = _taken_name(folder, settings, environment)
            facts, node = first_facts(settings, environment), settings.node
            facts["earlier"] = _earlier(settings, last)
            if not _alive(last):
                folder.remove(_part(node, last))
            # Those of training processes that the job had before a restart; their sums are in the facts above.
            with contextlib.suppress(OSError), Folder(settings.out, hooks_folder(node)) as hooks:
                for name in hooks.names():
                    with contextlib.suppress(OSError):
                        hooks.remove(name)
            if no_steps:
                facts["auto_steps"] = no_steps
            facts["git"] = commit
            folder.remove(_command(node))
            if settings.record_command:
                # For its owner only.
                with os.fdopen(
                    folder.create(_command(node), 0o600), "w", encoding="utf-8", errors="replace"
                ) as file:
                    json.dump(without_secrets(command), file, ensure_ascii=False)
            write(folder, node, facts)
        for name in _END_MARKED:
            with contextlib.suppress(FileNotFoundError), Folder(settings.out, name) as folder:
                folder.remove(_END_MARKER)
    except OSError as error:
        raise SettingError(f"Cannot write to {settings.out}: {error.strerror or error}.") from error
    return settings


def withdraw(settings: Settings, exit_status: int) -> None:
    """Leave the folder as it was before `claim`, since the job could not be started; earlier runs of it are kept."""
    facts = of_node(settings.out, settings.node)
    if facts.get("earlier"):
        end(settings, "exit", exit_status)
        return
    with contextlib.suppress(OSError):
        with Folder(settings.out, FOLDER) as folder:
            folder.remove(_part(settings.node, facts))
            folder.remove(_command(settings.node))
            folder.remove(f"{settings.node}.json")
        (settings.out / FOLDER).rmdir()
        settings.out.rmdir()


def end(
    settings: Settings,
    ended_by: str,
    exit_status: int | None,
    sampler_ended_by: str | None = None,
    stopped_by: str | None = None,
) -> dict[str, Any]:
    """Add how the job ended, and write the end markers, once the sampler has ended. Returns the facts.

    `ended_by`: ``exit``, ``signal:<number>``, or ``detached`` if the job may go on. `sampler_ended_by`: the same of a
    sampler that ended before the job. `stopped_by`: the rule for which it was asked to end. Never raises for a full disk.
    """
    facts = of_node(settings.out, settings.node) | {
        "ended_us": time.time_ns() // 1000,
        "exit_status": exit_status,
        "ended_by": ended_by,
        "stopped_by": stopped_by,
        "sampler_ended_by": sampler_ended_by,
    }
    with contextlib.suppress(OSError):
        with Folder(settings.out, FOLDER) as folder:
            write(folder, settings.node, facts, is_last=True)
        # Of several nodes the first one marks the end.
        if ended_by != "detached" and not facts.get("node_rank"):
            for name in _END_MARKED:
                with contextlib.suppress(FileExistsError), Folder(settings.out, name, make=True) as folder:
                    os.close(folder.create(_END_MARKER))
    return facts


def _taken_name(
    folder: Folder, settings: Settings, environment: Mapping[str, str]
) -> tuple[Settings, dict[str, Any]]:
    """The settings with a name that no other machine records under, and what is there of an earlier recording of it."""
    name, number = settings.node, 1
    while True:
        if _create(folder, f"{settings.node}.json", first_facts(settings, environment)):
            return settings, {}
        last = read(folder, f"{settings.node}.json")
        if last.get("boot_id", boot_id()) == boot_id() or not _fresh(path(settings.out, settings.node), last):
            _check_earlier(settings, last)
            return settings, last
        number += 1
        settings = replace(settings, node=f"{name}-{number}")


def _create(folder: Folder, name: str, facts: Mapping[str, Any]) -> bool:
    """Make the file unless it is there: of processes that start at the same time one does. Raises OSError."""
    try:
        file = folder.create(name)
    except FileExistsError:
        return False
    try:
        with os.fdopen(file, "w", encoding="utf-8") as stream:
            json.dump(facts, stream)
    except OSError:
        folder.remove(name)
        raise
    return True


def _check_earlier(settings: Settings, earlier: Mapping[str, Any]) -> None:
    if settings.force:
        return
    if earlier.get("boot_id") == boot_id() and earlier.get("ended_us") is None and _alive(earlier):
        raise SettingError(
            f"{settings.node} is already recorded into {settings.out} by process {earlier['pid']}. "
            "For several processes put one record-job before what starts them, such as: "
            "record-job -- torchrun --nproc-per-node 2 train.py. For another job choose another folder."
        )
    if earlier.get("run") != settings.run:
        raise SettingError(
            f"{settings.out} already contains a recording of {settings.node}. "
            "Use --force (in a script: force=True) to continue it, or choose another folder."
        )


def _earlier(settings: Settings, last: dict[str, Any]) -> list[dict[str, Any]]:
    """Recordings of the node that the new one continues, oldest first; the `last` one knows those before."""
    if not last:
        return []
    before = last.get("earlier")
    if last.get("ended_us") is None:
        # Everything was killed: the last sample says when.
        samples = settings.out.glob(f"system/incremental/*/*.{settings.node}.json*")
        last["ended_us"] = max((one.stat().st_mtime_ns // 1000 for one in samples), default=None)
    earlier = [*before, last] if isinstance(before, list) else [last]
    return [{key: one.get(key) for key in _KEPT} for one in earlier[-MAX_EARLIER:] if isinstance(one, dict)]


def _fresh(file: Path, earlier: Mapping[str, Any]) -> bool:
    return earlier.get("ended_us") is None and time.time() - file.stat().st_mtime < FRESH_S


def _alive(earlier: Mapping[str, Any]) -> bool:
    """True if the process that made the facts still runs; a later one of the same number does not count."""
    import psutil  # noqa: PLC0415 - only where a recording was there before

    try:
        started_s = psutil.Process(earlier["pid"]).create_time()
        return bool(started_s <= earlier["started_us"] / 1e6 + 1)
    except (psutil.Error, KeyError, TypeError, ValueError):
        return False


def first_facts(settings: Settings, environment: Mapping[str, str]) -> dict[str, Any]:
    """What is known before the first sample."""
    return {
        "schema": SCHEMA,
        "recorder": f"jobrecord {__version__}",
        "run": settings.run,
        "node": settings.node,
        "boot_id": boot_id(),
        #: Of the process that owns the recording.
        "pid": os.getpid(),
        "started_us": time.time_ns() // 1000,
        "ended_us": None,
        "exit_status": None,
        "ended_by": None,
        #: The rule of ``--stop-on``.
        "stopped_by": None,
        #: None if it ended with the job.
        "sampler_ended_by": None,
        "interval_ms": round(settings.interval_s * 1000),
        "nodes": names.node_count(environment),
        "node_rank": names.node_rank(environment),
        "labels": dict(settings.labels),
        "scheduler": _scheduler(environment),
        "host": what_ran.host(),
    }


def boot_id() -> str:
    """A name of this start of this machine; of the machine, where the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return names.node_name()


def _scheduler(environment: Mapping[str, str]) -> dict[str, str] | None:
    for kind, variable in (("slurm", "SLURM_JOB_ID"), ("lsf", "LSB_JOBID"), ("pbs", "PBS_JOBID")):
        if environment.get(variable):
            return {"kind": kind, "job_id": environment[variable][:100]}
    return None
