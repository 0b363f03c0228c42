"""Facts about a recording: ``jobrecord/<node>.json``, one small file per node, rewritten as a whole.

`claim` makes the file before anything is sampled, in the process that owns the recording (``record-job``, or the
training process); from then on the sampler rewrites it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobrecord import __version__, names
from jobrecord.settings import SettingError, Settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SCHEMA = 1
FOLDER = "jobrecord"
_END_MARKERS = ("system/training_job_end.ts", "framework/training_job_end.ts")
#: What is kept of a recording that a restarted job continues, and of how many: a job may fail at each start.
_KEPT = ("run", "started_us", "ended_us", "exit_status", "ended_by", "sampler_ended_by", "dropped")
MAX_EARLIER = 1000
#: Of a file system; facts grow by less between two writes.
_BLOCK = 4096
#: A recorder on another machine rewrites its facts each minute.
FRESH_S = 180.0
_SECRET = re.compile(r"key|token|secret|password|passwd|credential", re.IGNORECASE)


def path(out: Path, node: str) -> Path:
    """File of a node's facts."""
    return out / FOLDER / f"{node}.json"


def hooks_folder(out: Path, node: str) -> Path:
    """Folder of the facts that training processes of a node leave."""
    return out / FOLDER / "hooks" / node


def write(file: Path, facts: Mapping[str, Any], *, is_last: bool = False, is_synced: bool = True) -> None:
    """Replace `file` by `facts`. Raises OSError.

    Room is kept for the next write: a job that ends because of a full disk must not look as if it had been killed.
    Without `is_synced`, the file may be empty after the machine has crashed, and no write waits for the disk.
    """
    part = _part(file, facts)
    # Bytes of the command line that are no text would be no JSON.
    data = json.dumps(facts, indent=1, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT, 0o644), "wb") as stream:
        stream.write(data)
        stream.truncate()
        stream.flush()
        if is_synced:
            os.fsync(stream.fileno())
    part.replace(file)
    if not is_last:
        with contextlib.suppress(OSError):
            part.write_bytes(bytes(file.stat().st_size + _BLOCK))


def _part(file: Path, facts: Mapping[str, Any]) -> Path:
    """Where the next facts are written: a file of the recording's own, in case another one writes the same facts."""
    return file.with_name(f"{file.stem}.{facts.get('pid')}.json.tmp")


def read(file: Path) -> dict[str, Any]:
    """Facts in `file`; empty if there are none."""
    try:
        facts = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


def claim(
    settings: Settings, environment: Mapping[str, str], command: Sequence[str] = (), no_steps: str = ""
) -> Settings:
    """Make the node's file of facts, so that no second recorder writes into the same files.

    `no_steps` says why ``--steps auto`` records none. Returns the settings with the node's name, which changes if
    another machine of this name records into the folder. Raises SettingError.
    """
    try:
        (settings.out / FOLDER).mkdir(parents=True, exist_ok=True)
        settings, last = _taken_name(settings, environment)
        facts, file = first_facts(settings, environment), path(settings.out, settings.node)
        facts["earlier"] = _earlier(file, last)
        if not _alive(last):
            _part(file, last).unlink(missing_ok=True)
        # Those of training processes that the job had before a restart; their sums are in the facts above.
        for hooks in hooks_folder(settings.out, settings.node).glob("*"):
            with contextlib.suppress(OSError):
                hooks.unlink()
        if no_steps:
            facts["auto_steps"] = no_steps
        if settings.record_command:
            facts["command"] = without_secrets(command)
        write(file, facts)
        for name in _END_MARKERS:
            (settings.out / name).unlink(missing_ok=True)
    except OSError as error:
        raise SettingError(f"Cannot write to {settings.out}: {error.strerror or error}.") from error
    return settings


def withdraw(settings: Settings, exit_status: int) -> None:
    """Leave the folder as it was before `claim`, since the job could not be started; earlier runs of it are kept."""
    file = path(settings.out, settings.node)
    facts = read(file)
    if facts.get("earlier"):
        end(settings, "exit", exit_status)
        return
    with contextlib.suppress(OSError):
        _part(file, facts).unlink(missing_ok=True)
        file.unlink()
        file.parent.rmdir()
        settings.out.rmdir()


def end(
    settings: Settings, ended_by: str, exit_status: int | None, sampler_ended_by: str | None = None
) -> dict[str, Any]:
    """Add how the job ended, and write the end markers, once the sampler has ended. Returns the facts.

    `ended_by`: ``exit``, ``signal:<number>``, or ``detached`` if the job may go on. `sampler_ended_by`: the same of a
    sampler that ended before the job. Never raises for a full disk.
    """
    facts = read(path(settings.out, settings.node)) | {
        "ended_us": time.time_ns() // 1000,
        "exit_status": exit_status,
        "ended_by": ended_by,
        "sampler_ended_by": sampler_ended_by,
    }
    with contextlib.suppress(OSError):
        write(path(settings.out, settings.node), facts, is_last=True)
        # Of several nodes the first one marks the end.
        if ended_by != "detached" and not facts.get("node_rank"):
            for name in _END_MARKERS:
                marker = settings.out / name
                marker.parent.mkdir(parents=True, exist_ok=True)
                marker.touch()
    return facts


def _taken_name(settings: Settings, environment: Mapping[str, str]) -> tuple[Settings, dict[str, Any]]:
    """The settings with a name that no other machine records under, and what is there of an earlier recording of it."""
    name, number = settings.node, 1
    while True:
        file = path(settings.out, settings.node)
        if _create(file, first_facts(settings, environment)):
            return settings, {}
        last = read(file)
        if last.get("boot_id", boot_id()) == boot_id() or not _fresh(file, last):
            _check_earlier(settings, last)
            return settings, last
        number += 1
        settings = replace(settings, node=f"{name}-{number}")


def _create(file: Path, facts: Mapping[str, Any]) -> bool:
    """Make the file unless it is there: of processes that start at the same time one does. Raises OSError."""
    try:
        stream = file.open("x", encoding="utf-8")
    except FileExistsError:
        return False
    try:
        with stream:
            json.dump(facts, stream)
    except OSError:
        file.unlink()
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


def _earlier(file: Path, last: dict[str, Any]) -> list[dict[str, Any]]:
    """Recordings of the node that the new one continues, oldest first; the `last` one knows those before."""
    if not last:
        return []
    before = last.get("earlier")
    if last.get("ended_us") is None:
        # Everything was killed: the last sample says when.
        samples = file.parent.parent.glob(f"system/incremental/*/*.{file.stem}.json*")
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
        #: None if it ended with the job.
        "sampler_ended_by": None,
        "interval_ms": round(settings.interval_s * 1000),
        "nodes": names.node_count(environment),
        "node_rank": names.node_rank(environment),
        "labels": dict(settings.labels),
        "scheduler": _scheduler(environment),
    }


def without_secrets(command: Sequence[str]) -> list[str]:
    """The command line with ``***`` for values of options whose names look secret."""
    shown, hide = [], False
    for text in command:
        name, equals, _ = text.partition("=")
        secret = _SECRET.search(name) is not None
        if hide and not text.startswith("-"):
            shown.append("***")
        else:
            shown.append(f"{name}=***" if secret and equals else text)
        hide = secret and not equals and text.startswith("-")
    return shown


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
