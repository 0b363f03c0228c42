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
#: A recorder on another machine rewrites its facts each minute.
FRESH_S = 180.0
_SECRET = re.compile(r"key|token|secret|password|passwd|credential", re.IGNORECASE)


def path(out: Path, node: str) -> Path:
    """File of a node's facts."""
    return out / FOLDER / f"{node}.json"


def write(file: Path, facts: Mapping[str, Any]) -> None:
    """Replace `file` by `facts`. Raises OSError."""
    part = file.with_name(file.name + ".tmp")
    part.write_text(json.dumps(facts, indent=1) + "\n", "utf-8")
    part.replace(file)


def read(file: Path) -> dict[str, Any]:
    """Facts in `file`; empty if there are none."""
    try:
        facts = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


def claim(settings: Settings, environment: Mapping[str, str], command: Sequence[str] = ()) -> Settings:
    """Make the node's file of facts, so that no second recorder writes into the same files.

    Returns the settings with the node's name, which changes if another machine of this name records into the
    folder. Raises SettingError.
    """
    try:
        (settings.out / FOLDER).mkdir(parents=True, exist_ok=True)
        settings = _free_name(settings)
        facts = first_facts(settings, environment)
        if settings.record_command:
            facts["command"] = without_secrets(command)
        write(path(settings.out, settings.node), facts)
    except OSError as error:
        raise SettingError(f"Cannot write to {settings.out}: {error.strerror or error}.") from error
    return settings


def end(settings: Settings, ended_by: str, exit_status: int | None) -> dict[str, Any]:
    """Add how the job ended, and write the end markers, once the sampler has ended. Returns the facts.

    `ended_by`: ``exit``, ``signal:<number>``, or ``detached`` if the job may go on. Never raises for a full disk.
    """
    facts = read(path(settings.out, settings.node)) | {
        "ended_us": time.time_ns() // 1000,
        "exit_status": exit_status,
        "ended_by": ended_by,
    }
    with contextlib.suppress(OSError):
        write(path(settings.out, settings.node), facts)
        # Of several nodes the first one marks the end.
        if ended_by != "detached" and not facts.get("node_rank"):
            for name in _END_MARKERS:
                marker = settings.out / name
                marker.parent.mkdir(parents=True, exist_ok=True)
                marker.touch()
    return facts


def _free_name(settings: Settings) -> Settings:
    name = settings.node
    for number in range(2, 10_000):
        file = path(settings.out, settings.node)
        earlier = read(file)
        if earlier.get("boot_id", boot_id()) == boot_id() or not _fresh(file, earlier):
            _check_earlier(settings, earlier, file)
            break
        settings = replace(settings, node=f"{name}-{number}")
    return settings


def _check_earlier(settings: Settings, earlier: Mapping[str, Any], file: Path) -> None:
    if settings.force or not file.exists():
        return
    if earlier.get("boot_id") == boot_id() and earlier.get("ended_us") is None and _alive(earlier):
        raise SettingError(
            f"{settings.node} is already recorded into {settings.out} by process {earlier['pid']}. "
            "Use --force to record it twice, or choose another --out."
        )
    if earlier.get("run") != settings.run:
        raise SettingError(
            f"{settings.out} already contains a recording of {settings.node}. "
            "Use --force to continue it, or choose another --out."
        )


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
