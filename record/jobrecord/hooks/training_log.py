"""Numbers that the script logs, such as its loss: ``jobrecord/training-<rank>.jsonl``, a JSON object a line."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from contextlib import suppress
from numbers import Real
from typing import TYPE_CHECKING, Any

from jobrecord import __version__
from jobrecord.facts import FOLDER
from jobrecord.folder import Folder
from jobrecord.hooks.endings import last_error
from jobrecord.hooks.process_facts import world_size
from jobrecord.traces import warn, worker_name

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

#: Values of a line, characters of a name, and bytes of a file: some hundred thousand lines.
MAX_VALUES, MAX_NAME, MAX_BYTES = 100, 200, 64 << 20
#: What is not known; a later version records it.
_UNKNOWN = (
    *("every", "sample", "parameters", "trainable", "optimizer", "groups", "sharding", "amp"),
    *("accumulation", "classes", "resumed_from"),
)


class TrainingLog:
    """The file of this process, made with the first line. No method raises for trouble with the disk."""

    def __init__(self, out: Path, node: str) -> None:
        self._out, self._node = out, node
        self._file = -1
        self._size = 0
        self._is_open = True

    def scalars(self, step: int, mode: str, values: Mapping[str, float]) -> None:
        """Write numbers of a step. Raises TypeError for anything else: to read a tensor would wait for its device."""
        for name, value in values.items():
            if not isinstance(value, Real):
                raise TypeError(f"log() needs numbers, not {type(value).__name__}: {name}")
        known = {name[:MAX_NAME]: _number(value) for name, value in list(values.items())[:MAX_VALUES]}
        self._write(
            {"kind": "scalar", "step": step, "mode": mode[:MAX_NAME], "time_us": _now_us(), "values": known}
        )

    def close(self, step: int) -> None:
        """Write how the process ended."""
        if self._file >= 0:
            error = last_error()
            reason = f"exception:{type(error).__name__}" if error else "finished"
            self._write({"kind": "end", "step": step, "time_us": _now_us(), "reason": reason})
        self.abandon()

    def abandon(self) -> None:
        """Write nothing more."""
        self._is_open = False
        if self._file >= 0:
            with suppress(OSError):
                os.close(self._file)
            self._file = -1

    def _write(self, line: Mapping[str, Any]) -> None:
        if not self._is_open:
            return
        try:
            if self._file < 0:
                self._open()
            self._append(line)
        except OSError as error:
            warn(f"log: nothing more is written: {error.strerror or error}")
            self.abandon()
        if self._size > MAX_BYTES:
            warn("log: nothing more is written: the file is full")
            self.abandon()

    def _open(self) -> None:
        name = worker_name()
        # A process without a rank has its number for a name.
        rank = 0 if name == str(os.getpid()) else int(name)
        with Folder(self._out, FOLDER, make=True) as folder:
            # A job may be started again.
            _, self._file = folder.create_next(f"training-{rank:05}")
        local = os.environ.get("LOCAL_RANK", "")
        self._append(
            {
                "jobrecord": 1,
                "kind": "head",
                "time_us": _now_us(),
                "node": self._node,
                "rank": rank,
                "world": world_size() or 1,
                "local_rank": int(local) if local.isdecimal() else None,
                "pid": os.getpid(),
                "framework": next(
                    (one for one in ("torch", "jax", "tensorflow") if one in sys.modules), None
                ),
                "recorder": f"jobrecord {__version__}",
                **dict.fromkeys(_UNKNOWN),
            }
        )

    def _append(self, line: Mapping[str, Any]) -> None:
        """One write, so that a process that is killed leaves whole lines."""
        data = json.dumps(line, separators=(",", ":")).encode("utf-8", "backslashreplace") + b"\n"
        self._size += os.write(self._file, data)


def _number(value: Any) -> float | int | str:
    """JSON has no numbers that are not finite."""
    if isinstance(value, int):
        return int(value)
    number = float(value)
    return (
        number if math.isfinite(number) else "nan" if math.isnan(number) else "inf" if number > 0 else "-inf"
    )


def _now_us() -> int:
    return time.time_ns() // 1000
