"""What the script logs, such as its loss, and what it learns: ``jobrecord/training-<rank>.jsonl``, a JSON object a line."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from contextlib import suppress
from numbers import Real
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

from jobrecord import __version__
from jobrecord.facts import FOLDER
from jobrecord.folder import Folder
from jobrecord.hooks.endings import last_error
from jobrecord.hooks.process_facts import world_size
from jobrecord.traces import warn, worker_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from jobrecord.learning.classes import Classes

#: Values of a line, characters of a name and of a text, and bytes of a file: some hundred thousand lines.
MAX_VALUES, MAX_NAME, MAX_TEXT, MAX_BYTES = 100, 200, 200, 64 << 20
#: Bytes of a file with statistics of tensors, which come less and less often from the half on.
MAX_LEARNING_BYTES = 8 << 30
#: Values that may wait on a device.
MAX_WAITING = 1000
#: Seconds that the end waits for a disk.
_PATIENCE_S = 10
#: What is known once the script calls ``learn``.
_UNKNOWN = (
    *("every", "sample", "parameters", "trainable", "optimizer", "groups", "sharding", "amp"),
    *("accumulation", "classes", "resumed_from", "compiled", "not_recorded"),
)


class TrainingLog:
    """The file of this process, made with the first line. No method raises for trouble with the disk."""

    def __init__(self, out: Path, node: str) -> None:
        self._out, self._node = out, node
        self._file = -1
        self.size = 0
        self._is_open = True
        self._facts: dict[str, Any] = dict.fromkeys(_UNKNOWN)
        self._head: dict[str, Any] = {}
        #: Lines with values that are still on a device, and how many these are.
        self._waiting: list[dict[str, Any]] = []
        self._count = 0
        #: Names that the script logs.
        self._names: set[str] = set()
        self._lock, self._thread = Lock(), Thread()

    def scalars(self, step: int, mode: str, values: Mapping[str, Any]) -> None:
        """Write numbers of a step. Those on a device wait for the next record. Raises TypeError for anything else."""
        known = {name[:MAX_NAME]: _value(name, value) for name, value in values.items()}
        line = _scalars(step, mode[:MAX_NAME], dict(list(known.items())[:MAX_VALUES]))
        self._names |= known.keys()
        if count := sum(map(_is_tensor, line["values"].values())):
            self._waiting.append(line)
            self._count += count
            if self._count >= MAX_WAITING:
                # A device that fails says so to the script.
                with suppress(Exception):
                    self.write_waiting()
        else:
            self.write(line)

    def rates(self, step: int, values: Mapping[str, float]) -> None:
        """Write numbers that a step was made with, but for those that the script logs."""
        if own := {name: _number(one) for name, one in values.items() if name not in self._names}:
            self.write(_scalars(step, "TRAIN", own))

    def write_waiting(self) -> None:
        """Copy the values that wait from their devices, each device once, and write them."""
        lines, self._waiting, self._count = self._waiting, [], 0
        if not lines:
            return
        from jobrecord.learning.statistics import fetched  # noqa: PLC0415 - needs PyTorch

        held = [
            (line["values"], name)
            for line in lines
            for name, one in line["values"].items()
            if _is_tensor(one)
        ]
        for (values, name), (number,) in zip(
            held, fetched([values[name] for values, name in held]), strict=True
        ):
            values[name] = _number(number)
        for line in lines:
            self.write(line)

    def counts(self, step: int, mode: str, classes: Classes) -> None:
        """Write counts of classes."""
        self.write({"kind": "classes", "step": step, "mode": mode, "time_us": now_us(), **classes.line()})

    def event(self, step: int, name: str, text: str = "") -> None:
        """Write that something happened, to what is written anyway."""
        if self._file >= 0 or self._facts["every"]:
            self.write(
                {"kind": "event", "step": step, "time_us": now_us(), "name": name, "text": text[:MAX_TEXT]}
            )

    def know(self, **facts: Any) -> None:
        """Note facts of the head, which is written again if it was without them."""
        self._facts |= facts
        if self._head and self._head != self._head | self._facts:
            self._head |= self._facts
            self.write(self._head)

    def write(self, line: Mapping[str, Any]) -> None:
        """Write a line, from any thread."""
        with self._lock:
            if not self._is_open:
                return
            try:
                if self._file < 0:
                    self._open()
                self._append(line)
            except OSError as error:
                warn(f"log: nothing more is written: {error.strerror or error}")
                self.abandon()
            if self.size > (MAX_LEARNING_BYTES if self._facts["every"] else MAX_BYTES):
                warn("log: nothing more is written: the file is full")
                self.abandon()

    def write_later(self, lines: Callable[[], list[dict[str, Any]]]) -> None:
        """Make and write lines in a thread, after those before."""
        self.wait()

        def run() -> None:
            with suppress(Exception):
                for line in lines():
                    self.write(line)

        self._thread = Thread(target=run, name="jobrecord", daemon=True)
        self._thread.start()

    def wait(self, seconds: float | None = None) -> None:
        """Wait for the lines that are written later."""
        if self._thread.ident:
            self._thread.join(seconds)

    def close(self, step: int) -> None:
        """Write what waits, and how the process ended."""
        self.wait(_PATIENCE_S)
        # The device may be what ended it.
        with suppress(Exception):
            self.write_waiting()
        if self._file >= 0:
            error = last_error()
            reason = f"exception:{type(error).__name__}" if error else "finished"
            self.write({"kind": "end", "step": step, "time_us": now_us(), "reason": reason})
        with self._lock:
            self.abandon()

    def abandon(self) -> None:
        """Write nothing more."""
        self._is_open = False
        if self._file >= 0:
            with suppress(OSError):
                os.close(self._file)
            self._file = -1

    def _open(self) -> None:
        name = worker_name()
        # A process without a rank has its number for a name.
        rank = 0 if name == str(os.getpid()) else int(name)
        with Folder(self._out, FOLDER, make=True) as folder:
            # A job may be started again.
            _, self._file = folder.create_next(f"training-{rank:05}")
        local = os.environ.get("LOCAL_RANK", "")
        self._head = {
            "jobrecord": 1,
            "kind": "head",
            "time_us": now_us(),
            "node": self._node,
            "rank": rank,
            "world": world_size() or 1,
            "local_rank": int(local) if local.isdecimal() else None,
            "pid": os.getpid(),
            "framework": next((one for one in ("torch", "jax", "tensorflow") if one in sys.modules), None),
            "recorder": f"jobrecord {__version__}",
            **self._facts,
        }
        self._append(self._head)

    def _append(self, line: Mapping[str, Any]) -> None:
        """One write, so that a process that is killed leaves whole lines."""
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        self.size += os.write(self._file, data)


def _scalars(step: int, mode: str, values: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "scalar", "step": step, "mode": mode, "time_us": now_us(), "values": values}


def _is_tensor(value: Any) -> bool:
    kind = getattr(sys.modules.get("torch"), "Tensor", None)
    return isinstance(kind, type) and isinstance(value, kind)


def _value(name: str, value: Any) -> Any:
    """A number; a tensor of one stays on its device, apart from what the script does to it later."""
    if not is_number(value):
        raise TypeError(f"log() needs numbers, not {type(value).__name__}: {name}")
    if isinstance(value, Real):
        return _number(value)
    held = value.detach()
    held = held.to_local() if hasattr(held, "to_local") else held
    return _number(held.item()) if _is_at_hand(held) else held.clone().reshape(1)


def is_number(value: Any) -> bool:
    """Whether it can be logged: a number, or a tensor of one."""
    is_tensor = _is_tensor(value) and value.numel() == 1 and not value.is_complex()
    return is_tensor or isinstance(value, Real)


def _is_at_hand(held: Any) -> bool:
    """Whether nothing has to be waited for."""
    return bool(held.device.type == "cpu")


def _number(value: Any) -> float | int | str:
    """JSON has no numbers that are not finite."""
    if isinstance(value, int):
        return int(value)
    number = float(value)
    return (
        number if math.isfinite(number) else "nan" if math.isnan(number) else "inf" if number > 0 else "-inf"
    )


def now_us() -> int:
    """Microseconds since the epoch."""
    return time.time_ns() // 1000
