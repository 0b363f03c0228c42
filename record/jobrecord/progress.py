"""One line on the terminal while a job runs: its step, step time, wait for data, and GPUs."""

from __future__ import annotations

import json
import os
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from jobrecord.hooks.loading import FETCH_LANE
from jobrecord.traces import STEP_LANE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from jobrecord.settings import Settings

EVERY_S = 10.0
#: Read at once: of ten seconds there is far less.
_MAX_BYTES = 4 << 20
_CLEAR = "\r\x1b[K"


class Progress:
    """The line on a terminal, renewed until `stop`; nothing where standard error is none, or unless asked for."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        if settings.progress and sys.stderr is not None and sys.stderr.isatty():
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Clear the line."""
        if self._thread is not None:
            self._ended.set()
            self._thread.join()
            _print("")

    def _run(self) -> None:
        trace = Tail(self._settings.out / "framework", f"*-{self._settings.node}_pythontimeline.tmp")
        samples = Tail(self._settings.out / "system" / "incremental", f"*/*.{self._settings.node}.json")
        while not self._ended.wait(EVERY_S):
            with suppress(Exception):
                _print(line(list(trace.rows()), list(samples.rows())))


class Tail:
    """What was added to the newest file of a kind since the last look: the first rank's, of several."""

    def __init__(self, folder: Path, pattern: str) -> None:
        self._folder, self._pattern = folder, pattern
        self._file, self._at = "", 0
        self._lanes: dict[Any, str] = {}

    def rows(self) -> Iterator[dict[str, Any]]:
        """Each row of JSON; those of a trace with the name of their lane as `lane`."""
        found = sorted(self._folder.glob(self._pattern))
        if not found:
            return
        path = found[-1] if self._pattern.endswith(".json") else found[0]
        with path.open("rb") as file:
            key = f"{path}:{os.fstat(file.fileno()).st_ino}"
            self._file, self._at = key, self._at if key == self._file else 0
            file.seek(self._at)
            data = file.read(_MAX_BYTES)
        whole = data.rfind(b"\n") + 1
        self._at += whole
        for text in data[:whole].splitlines():
            with suppress(ValueError):
                row = json.loads(text.rstrip(b","))
                if isinstance(row, dict) and row.get("ph") == "M":
                    self._lanes[row["pid"]] = row["args"].get("name", "")
                elif isinstance(row, dict):
                    yield row | {"lane": self._lanes.get(row.get("pid"), "")}


def line(trace: list[dict[str, Any]], samples: list[dict[str, Any]]) -> str:
    """``step 1200 · 64 ms a step · 12% waiting for data · GPU 71%``, of what was added; empty if that was nothing."""
    steps = [row for row in trace if row["lane"] == f"{STEP_LANE}TRAIN"]
    fetches = sum(row["dur"] for row in trace if row["lane"] == FETCH_LANE)
    parts = []
    if steps:
        length = sum(row["dur"] for row in steps)
        parts += [f"step {steps[-1]['args']['step_num']}", f"{length / len(steps) / 1000:.4g} ms a step"]
        if fetches and length:
            parts.append(f"{min(100, 100 * fetches / length):.0f}% waiting for data")
    gpus = [row["Value"] for row in samples if row.get("Dimension") == "GPUUtilization"]
    if gpus:
        parts.append(f"GPU {sum(gpus) / len(gpus):.0f}%")
    return " · ".join(parts)


def _print(text: str) -> None:
    with suppress(OSError):
        os.write(2, f"{_CLEAR}{text}".encode())
