"""Every rule says the same of a job however its records lie in files."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobreport import document
from jobreport.readers.registry import read_job
from jobreport.settings import load
from jobrules.rule import Rule, run_rules

BASE_S = 1_700_000_040
#: Small enough that a job of a few minutes is judged.
SMALL = [
    f"{rule}.{parameter}={value}"
    for rule, parameters in {
        "CPUBottleneck": {"patience": 8, "threshold": 10},
        "IOBottleneck": {"patience": 8, "threshold": 10},
        "LowGPUUtilization": {"patience": 8, "window": 5},
        "GPUMemoryIncrease": {"patience": 8, "window": 3},
        "BatchSize": {"patience": 8, "window": 5},
        "LoadBalancing": {"patience": 8},
        "StepOutlier": {"n_outliers": 1},
        "MaxInitializationTime": {"threshold": 1},
        "UnusedGPU": {"patience": 1},
        "IdleGaps": {"patience": 1},
        "LowMeanUtilization": {"patience": 1},
    }.items()
    for parameter, value in parameters.items()
]
RULES: tuple[Rule, ...] = load(assignments=SMALL).rules


def samples(rng: np.random.Generator) -> list[dict[str, Any]]:
    """Two nodes with gaps, late sensors, equal times and families read some milliseconds apart."""
    rows = []
    for node in ("algo-1", "algo-2"):
        pause = int(rng.integers(10, 50))
        for tick in range(70):
            if pause <= tick < pause + 3 or rng.random() < 0.03:
                continue
            time = BASE_S + 5.0 * tick + (2.5 if node == "algo-2" else 0.0)
            sensors = [
                *(("gpu", f"gpu{i}", "GPUUtilization", (0, 5, 50, 98, 100), 0.002) for i in range(2)),
                *(("gpu", f"gpu{i}", "GPUMemoryUtilization", (20, 20, 20, 60), 0.002) for i in range(2)),
                *(("cpu", f"cpu{i}", "CPUUtilization", (5, 60, 95, 100), 0.0) for i in range(3)),
                *(("cpu", f"cpu{i}", "I/OWaitPercentage", (0, 0, 40, 70), 0.0) for i in range(3)),
                ("memory", "MemoryUsedPercent", "", (10, 12), 0.003),
                ("network", "ReceiveBytesPerSecond", "Algorithm", (0, 1000), 0.004),
            ]
            for kind, name, dimension, values, delay in sensors:
                if (name == "gpu1" and tick < 20) or rng.random() < 0.02:
                    continue
                row = {"Type": kind, "Name": name, "Dimension": dimension, "NodeId": node}
                rows.append(row | {"Value": float(rng.choice(values)), "Timestamp": time + delay})
    return rows


def events(rng: np.random.Generator) -> dict[str, list[tuple[str, dict[str, Any]]]]:
    """(lane, row) of every worker: steps, operators one inside the other, and data loading."""
    found: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for rank, node in ((0, "algo-1"), (1, "algo-1"), (2, "algo-2")):
        rows: list[tuple[str, dict[str, Any]]] = []

        def add(
            lane: str, name: str, start_s: float, length_s: float, rows: list[Any] = rows, **args: Any
        ) -> None:
            row = {
                "name": name,
                "ph": "X",
                "ts": round(start_s * 1e6),
                "dur": round(length_s * 1e6),
                "args": args,
            }
            rows.append((lane, row))

        add(
            "DataLoaderIterInitialize",
            "_MultiProcessingDataLoaderIter.__init__",
            60,
            0.1,
            pid=9,
            num_workers=2,
            pin_memory=True,
        )
        for worker in range(2):
            add("DataLoaderWorker", "DataLoaderWorker", 60 + worker, 40, pid=100 + rank * 10 + worker)
        for i in range(130):
            mode = "EVAL" if i >= 115 else "TRAIN"
            start, length = 80 + 2 * i, 1.0 + (0.9 if rng.random() < 0.05 else 0.0)
            add(f"Step:ModeKeys.{mode}", f"Step:ModeKeys.{mode}", start, length, pid=9, step_num=str(i))
            add("Forward", "Net", start + 0.1, 0.3, pid=9, step_num=str(i))
            if i < 20:
                name = "_MultiProcessingDataLoaderIter.DataLoaderIter::GetNext"
                add("DataLoaderIter", name, start - 0.2, float(rng.choice([0.05, 0.1])), pid=9)
        for i in range(5):
            add("cpu_functions", "aten::conv2d", 90 + i, 0.5, tid=1, step_num=5)
            add("cpu_functions", "aten::convolution", 90.1 + i, 0.3, tid=1, step_num=5)
            add("gpu_functions-dev:0", "conv_kernel", 90.2 + i, 0.4, tid=0, step_num=5)
        found[f"{rank}-{node}"] = rows
    return found


def write(root: Path, rng: random.Random, lines: list[dict[str, Any]], traces: dict[str, list[Any]]) -> Path:
    """Write the records in files of any number, in any order, plain or compressed."""
    rng.shuffle(lines)
    for i, part in enumerate(parts(rng, lines)):
        put(
            root / "system" / f"{BASE_S + i}.algo-1.json",
            "".join(json.dumps(row) + "\n" for row in part),
            rng,
        )
    for worker, rows in traces.items():
        rng.shuffle(rows)
        for i, part in enumerate(parts(rng, rows)):
            lanes = {lane: pid for pid, lane in enumerate(dict.fromkeys(lane for lane, _ in part), start=1)}
            base = {"start_time_since_epoch_in_micros": BASE_S * 1_000_000}
            head = [{"name": "process_name", "ph": "M", "pid": 0, "args": base}]
            head += [
                {"name": "process_name", "ph": "M", "pid": pid, "args": {"name": lane}}
                for lane, pid in lanes.items()
            ]
            text = ",\n".join(
                json.dumps(row) for row in [*head, *({"pid": lanes[lane]} | row for lane, row in part)]
            )
            name = f"{(BASE_S + 60 * i) * 1_000_000}_{worker}_pythontimeline.json"
            put(root / "framework" / "pevents" / name, f"[\n{text}\n]\n", rng)
    return root


def parts(rng: random.Random, rows: list[Any]) -> list[list[Any]]:
    cuts = sorted(rng.randrange(len(rows)) for _ in range(rng.randrange(4)))
    return [rows[a:b] for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True) if b > a]


def put(path: Path, text: str, rng: random.Random) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if rng.random() < 0.3:
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)


def told(root: Path) -> dict[str, bytes]:
    job, _ = read_job(root, strict=True)
    results = run_rules(RULES, job, strict=True)
    return {
        rule.name: document.rule_json(rule, result, {}) for rule, result in zip(RULES, results, strict=True)
    }


@settings(max_examples=12)
@given(st.integers(0, 10**6), st.integers(0, 10**6))
@pytest.mark.slow
def test_layout_makes_no_number_different(
    tmp_path_factory: pytest.TempPathFactory, seed: int, layout: int
) -> None:
    lines, traces = samples(np.random.default_rng(seed)), events(np.random.default_rng(seed))
    one = write(tmp_path_factory.mktemp("one"), random.Random(layout), lines, traces)
    other = write(tmp_path_factory.mktemp("other"), random.Random(layout + 1), lines, traces)

    assert told(one) == told(other)


def test_the_jobs_give_the_rules_something_to_say(tmp_path: Path) -> None:
    lines, traces = samples(np.random.default_rng(1)), events(np.random.default_rng(1))

    answers = {
        name: json.loads(text)
        for name, text in told(write(tmp_path, random.Random(1), lines, traces)).items()
    }

    assert sum(answer["RuleTriggered"] > 0 for answer in answers.values()) >= 6
