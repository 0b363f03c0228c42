"""What ended this process: the exception that nobody caught, as Python keeps it while the process exits.

``sys.last_exc`` is set before ``atexit`` runs, whatever ``sys.excepthook`` is. An exit by ``sys.exit`` leaves nothing.
"""

from __future__ import annotations

import os
import re
import sys
import time
from contextlib import suppress
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

from jobrecord import facts
from jobrecord.command_line import without_secrets
from jobrecord.folder import Folder
from jobrecord.hooks.auto_steps import LIBRARIES
from jobrecord.hooks.places import OWN, PYTHON, place

if TYPE_CHECKING:
    from pathlib import Path

    from jobrecord.traces import Trace

#: Characters of a message, of a type, and of a place that are kept, and of a message that are looked at.
MAX_MESSAGE, _MAX_NAME, _MAX_LOOKED_AT = 200, 200, 20_000
#: Files of a node that processes have left, from which on no more are: a job may start and fail without end.
_MAX_FILES = 1000
_GPU_FULL = re.compile(
    r"(?:CUDA|HIP|XPU|MPS \w+) out of memory|CUDA error: out of memory|RESOURCE_EXHAUSTED: Out of memory"
)
_HOST_FULL = re.compile(r"DefaultCPUAllocator|[Cc](?:annot|an't) allocate memory")
#: A number has an end: a message may be one long number.
_SIZE = r"([0-9]{1,15}(?:\.[0-9]{1,15})?) ?(bytes|[KMGT]iB)"
_SIZES = {
    "asked_bytes": re.compile(rf"(?:allocate|allocating) {_SIZE}"),
    "total_bytes": re.compile(rf"total capacity of {_SIZE}|{_SIZE} total capacity"),
    "free_bytes": re.compile(rf"of which {_SIZE} is free|{_SIZE} free"),
}
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
#: The traceback of another process in a message, such as of a loader process.
_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r'^[ \t]*File "(.+)", line ([0-9]+), in (.+)$', re.MULTILINE)
_LAST_LINE = re.compile(r"([A-Za-z_][\w.]*)(?:: (.*))?")

#: Whether a note was left, and whether a step was recorded.
_is_left = _has_trained = False


def note_end_of(trace: Trace, step: int) -> None:
    """Leave a note on the end of a recorded process, in the `step` of this number."""
    global _is_left, _has_trained  # noqa: PLW0603 - one end of a process
    _has_trained = _has_trained or trace.steps > 0
    with suppress(Exception):
        _is_left = _leave(trace.out, trace.node, cause(step if trace.steps else None))


def note_end() -> None:
    """Leave a note on the end of this process, if its recording did not."""
    with suppress(Exception):
        if not _is_left:
            from jobrecord import settings  # noqa: PLC0415 - a recorded process has its own

            chosen = settings.read(os.environ)
            _leave(chosen.out, chosen.node, cause())


def last_error() -> BaseException | None:
    """The exception that nobody caught; None where a user types on after it."""
    if hasattr(sys, "ps1"):
        return None
    return getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)


def cause(step: int | None = None) -> dict[str, Any] | None:
    """The exception that ends this process, or that passes through the caller; None without one."""
    last = last_error()
    error = last or sys.exc_info()[1]
    if error is None or isinstance(error, SystemExit | GeneratorExit):
        return None
    found: dict[str, Any] = {"type": _name(type(error)), "message": "", "place": None, "memory": ""}
    found |= {"rank": os.environ.get("RANK", ""), "step": step, "at_us": time.time_ns() // 1000}
    # The script may still catch it.
    found |= {"passing": last is None}
    # Whatever its text and its traceback do, its type is known.
    with suppress(Exception):
        found |= _of_launcher(error)
    with suppress(Exception):
        message = str(error)[:_MAX_LOOKED_AT]
        if "launcher" in found and _TRACEBACK not in message:
            return found
        frames = [
            (one.f_code.co_filename, line, one.f_code.co_name) for one, line in walk_tb(error.__traceback__)
        ]
        if _TRACEBACK in message:
            frames = [(file, int(line), name) for file, line, name in _FRAME.findall(message)]
            if ended := _LAST_LINE.fullmatch(message.rstrip().rpartition("\n")[2]):
                found["type"], message = ended[1][:_MAX_NAME], ended[2] or ""
        found["place"] = _innermost(frames)
        found |= _memory(error, message)
        found["message"] = _shown(message)
    return found


def _leave(out: Path, node: str, found: dict[str, Any] | None) -> bool:
    """Write what the end of this process has to say: what ended it, or with what it may have trained."""
    libraries = [] if _has_trained or _is_helper() else [name for name in LIBRARIES if name in sys.modules]
    if not (found or libraries):
        return False
    # One file for all processes of a kind that ended well.
    stem = f"{os.getpid()}.end" if found else f"{'-'.join(libraries)}.end"
    with Folder(out, facts.hooks_folder(node), make=True) as folder:
        if len(folder.names()) < _MAX_FILES:
            what = {"pid": os.getpid(), "exception": found, "libraries": libraries}
            facts.write(folder, stem, what, is_last=True, is_synced=False)
    return True


def _is_helper() -> bool:
    """Whether another process of Python's made this one, as loader processes are."""
    processes = sys.modules.get("multiprocessing.process")
    return processes is not None and processes.parent_process() is not None


def _name(kind: type) -> str:
    is_plain = kind.__module__ in {"builtins", "__main__"}
    return (kind.__qualname__ if is_plain else f"{kind.__module__}.{kind.__qualname__}")[:_MAX_NAME]


def _innermost(frames: list[tuple[str, int, str]]) -> dict[str, Any] | None:
    """The innermost frame of the user's own code; of a library where there is none."""
    places = [(*place(file), line, name) for file, line, name in frames]
    known = [one for one in places if one[0] == OWN] or [one for one in places if one[0] != PYTHON]
    if not known:
        return None
    _, path, line, name = known[-1]
    return {"file": path[-_MAX_NAME:], "line": line, "function": name[:_MAX_NAME]}


def _memory(error: BaseException, message: str) -> dict[str, Any]:
    """Which memory ran out, and what was asked, in use, and there, as far as the message says."""
    if _GPU_FULL.search(message) or type(error).__name__ == "OutOfMemoryError":
        found: dict[str, Any] = {"memory": "gpu"}
    elif isinstance(error, MemoryError) or _HOST_FULL.search(message):
        found = {"memory": "host"}
    else:
        return {}
    for name, form in _SIZES.items():
        if match := form.search(message):
            number, unit = filter(None, match.groups())
            found[name] = round(float(number) * 1024 ** _UNITS.index(unit))
    return found


def _of_launcher(error: BaseException) -> dict[str, Any]:
    """What a launcher knows of the process that failed first: its rank, and the signal that killed it."""
    kind = type(error).__name__
    if kind == "ChildFailedError":
        rank, failure = error.get_first_failure()  # type: ignore[attr-defined]
        return {"launcher": True, "rank": str(rank), "exit_code": int(failure.exitcode)}
    if kind in {"ProcessExitedException", "ProcessRaisedException"}:
        code = int(getattr(error, "exit_code", 1))
        return {"launcher": True, "rank": str(error.error_index), "exit_code": code}  # type: ignore[attr-defined]
    if kind == "SignalException":
        return {"launcher": True, "exit_code": -int(error.sigval)}  # type: ignore[attr-defined]
    return {}


def _shown(message: str) -> str:
    """The message on one line, without what looks secret."""
    (kept,) = without_secrets([" ".join(message.split())])
    return kept if len(kept) <= MAX_MESSAGE else f"{kept[: MAX_MESSAGE - 1]}…"
