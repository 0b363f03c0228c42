"""The reference scenario D1: twenty minutes of one node, written as files, every number known."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import numpy as np

from jobrules.model import SECOND_US, Steps

BASE_S = 1_700_000_040
TICKS = 2446


def write_samples(root: Path) -> None:
    """Minute files under ``root/system`` and the end marker."""
    minutes: dict[int, list[str]] = defaultdict(list)
    for i in range(TICKS):
        r = 7.25 + 0.5 * i
        m = int(r // 60)
        gpu0 = 0.0 if r < 300 or int(r // 10) % 2 else 100.0
        rows = [
            ("cpu", "cpu0", "CPUUtilization", 20.0 if m % 2 else 95.0, 0.0),
            ("cpu", "cpu1", "CPUUtilization", 30.0, 0.0),
            ("cpu", "cpu0", "I/OWaitPercentage", 60.0 if 3 <= m < 6 else 0.0, 0.0),
            ("cpu", "cpu1", "I/OWaitPercentage", 0.0, 0.0),
            ("gpu", "gpu0", "GPUUtilization", gpu0, 0.002),
            ("gpu", "gpu1", "GPUUtilization", 0.0 if r < 300 else 50.0, 0.002),
            ("gpu", "gpu0", "GPUMemoryUtilization", 20.0 if r < 900 else 60.0, 0.002),
            ("gpu", "gpu1", "GPUMemoryUtilization", 30.0, 0.002),
            ("memory", "MemoryUsedPercent", "", 10.0, 0.003),
            ("network", "ReceiveBytesPerSecond", "Algorithm", 100.0, 0.004),
            ("network", "TransmitBytesPerSecond", "Algorithm", 50.0, 0.004),
        ]
        for kind, name, dimension, value, delay in rows:
            time = BASE_S + r + delay
            line = {
                "Type": kind,
                "Name": name,
                "Dimension": dimension,
                "Value": value,
                "NodeId": "algo-1",
                "Timestamp": round(time, 6),
            }
            minutes[int(time // 60) * 60].append(json.dumps(line))
    folder = root / "system" / "incremental" / "2023111422"
    folder.mkdir(parents=True)
    for minute, lines in minutes.items():
        (folder / f"{minute}.algo-1.json").write_text("\n".join(lines) + "\n")
    (root / "system" / "training_job_end.ts").touch()


def write_events(root: Path) -> None:
    """The steps as trace files of one process, one a minute of the step's end."""
    table = steps()
    base = {
        "name": "process_name",
        "ph": "M",
        "pid": 0,
        "args": {"start_time_since_epoch_in_micros": BASE_S * SECOND_US},
    }
    lanes = {"TRAIN": 1, "EVAL": 2}
    announced = [
        {"name": "process_name", "ph": "M", "pid": pid, "args": {"name": f"Step:ModeKeys.{phase}"}}
        for phase, pid in lanes.items()
    ]
    minutes: dict[int, list[int]] = defaultdict(list)
    for i, end_us in enumerate(table.end_us.tolist()):
        minutes[end_us // (60 * SECOND_US)].append(i)
    folder = root / "framework" / "pevents" / "2023111422"
    folder.mkdir(parents=True)
    for rows in minutes.values():
        events = [
            {
                "name": f"Step:ModeKeys.{table.mode[i]}",
                "pid": lanes[str(table.mode[i])],
                "ph": "X",
                "ts": int(table.start_us[i]) - BASE_S * SECOND_US,
                "dur": int(table.end_us[i] - table.start_us[i]),
                "args": {"pid": 33, "step_num": str(table.number[i])},
            }
            for i in rows
        ]
        latest = max(int(table.end_us[i]) for i in rows)
        text = ",\n".join(json.dumps(row) for row in (base, *announced, *events))
        (folder / f"{latest}_33-algo-1_pythontimeline.json").write_text(f"[\n{text}\n]\n")


def steps() -> Steps:
    """1,500 training and 150 evaluation steps of one rank."""
    train = [(300.1 + 0.5 * i, 0.45 if i % 100 == 50 else 0.3) for i in range(1500)]
    evaluation = [(1060.1 + 0.4 * i, 0.2) for i in range(150)]
    starts = np.array([start for start, _ in train + evaluation])
    ends = starts + np.array([length for _, length in train + evaluation])
    return Steps.of(
        [("algo-1", "33", "TRAIN"), ("algo-1", "33", "EVAL")],
        np.repeat(np.arange(2), (1500, 150)),
        number=np.array([*range(1500), *range(150)], dtype=np.int64),
        start_us=BASE_S * SECOND_US + np.round(starts * SECOND_US).astype(np.int64),
        end_us=BASE_S * SECOND_US + np.round(ends * SECOND_US).astype(np.int64),
    )
