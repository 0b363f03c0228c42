"""The events of a recording as they were written, read without the code that wrote them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Event:
    """One row of a trace, in microseconds since the epoch."""

    lane: str
    name: str
    start_us: int
    end_us: int
    args: dict[str, Any]

    @property
    def step(self) -> int:
        return int(self.args["step_num"])


def trace_files(out: Path) -> list[Path]:
    return sorted(out.glob("framework/pevents/*/*.json")) + sorted(out.glob("framework/*.tmp"))


def events_of(file: Path) -> list[Event]:
    """All events of one file; of a file that is still open, those of its whole lines."""
    text = file.read_text()
    rows = json.loads(text if text.endswith("]\n") else text[: text.rindex(",\n")] + "]")
    base = 0
    lanes: dict[int, str] = {}
    events: list[Event] = []
    for row in rows:
        args = row["args"]
        if row["ph"] == "X":
            start = base + row["ts"]
            events.append(
                Event(
                    lane=lanes[row["pid"]],
                    name=row["name"],
                    start_us=start,
                    end_us=start + row["dur"],
                    args=args,
                )
            )
        elif "start_time_since_epoch_in_micros" in args:
            base = args["start_time_since_epoch_in_micros"]
        else:
            lanes[row["pid"]] = args["name"]
    return events


def events(out: Path, lane: str = "") -> list[Event]:
    """The events of one lane, or all but the recorder's own, by their start."""
    found = [event for file in trace_files(out) for event in events_of(file)]
    wanted = (event for event in found if event.lane == lane or (not lane and event.lane != "Recorder"))
    return sorted(wanted, key=lambda event: event.start_us)


def steps(out: Path, mode: str = "TRAIN") -> list[Event]:
    return events(out, f"Step:ModeKeys.{mode}")


def hook_facts(out: Path) -> dict[str, Any]:
    (file,) = out.glob("jobrecord/hooks/*/*.json")
    facts: dict[str, Any] = json.loads(file.read_text())
    return facts
