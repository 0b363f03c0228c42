"""Every rule says the same of a job however its records lie in files."""

from __future__ import annotations

import gzip
import json
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import generate
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobreport import document
from jobreport.readers.registry import read_job
from jobrules.model import Status
from jobrules.rule import run_rules
from tests.rules.test_elsewhere import rules_of

RULES = rules_of(eager=True)
#: Lines of samples; and lane and row of the events of each process, with times since the epoch.
Records = tuple[list[str], dict[str, list[tuple[str, dict[str, Any]]]]]


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Records:
    """Three minutes of two nodes, without some of the samples."""
    folder = tmp_path_factory.mktemp("made") / "job"
    options = ("--nodes=2", "--gpus=2", "--cores=3", "--duration=3m")
    assert generate.main(["--scenario=cpu-bottleneck", *options, f"--out={folder}"]) == 0
    chance = random.Random(1)
    files = sorted(folder.rglob("incremental/*/*"))
    lines = [line for path in files for line in path.read_text().splitlines() if chance.random() > 0.02]
    events: dict[str, list[tuple[str, dict[str, Any]]]] = defaultdict(list)
    for path in sorted(folder.rglob("*_pythontimeline.json")):
        first, *rows = json.loads(path.read_text())
        base_us = first["args"]["start_time_since_epoch_in_micros"]
        named = [row for row in rows if row["ph"] == "M" and "name" in row["args"]]
        lanes = {row["pid"]: row["args"]["name"] for row in named}
        events[path.name.split("_")[1]] += [
            (lanes[row["pid"]], row | {"ts": base_us + row["ts"]}) for row in rows if row["ph"] != "M"
        ]
    return lines, events


def write(root: Path, rng: random.Random, records: Records) -> Path:
    """Write the records in files of any number, in any order, plain or compressed."""
    lines, traces = records
    first_s = int(min(json.loads(line)["Timestamp"] for line in lines))
    for i, part in enumerate(parts(rng, lines)):
        put(root / "system" / f"{first_s + i}.algo-1.json", "".join(f"{line}\n" for line in part), rng)
    for worker, rows in traces.items():
        for i, part in enumerate(parts(rng, rows)):
            lanes = {lane: pid for pid, lane in enumerate(dict.fromkeys(lane for lane, _ in part), start=1)}
            base_us = 1_000_000 * (first_s + 60 * i)
            known = {0: {"start_time_since_epoch_in_micros": base_us}}
            known |= {pid: {"name": lane} for lane, pid in lanes.items()}
            head = [
                {"name": "process_name", "ph": "M", "pid": pid, "args": args} for pid, args in known.items()
            ]
            events = [row | {"pid": lanes[lane], "ts": row["ts"] - base_us} for lane, row in part]
            name = f"{base_us}_{worker}_pythontimeline.json"
            put(root / "framework" / "pevents" / name, json.dumps([*head, *events]), rng)
    return root


def parts(rng: random.Random, rows: list[Any]) -> list[list[Any]]:
    """All rows, in any order, in one to four parts."""
    rows = rng.sample(rows, len(rows))
    cuts = sorted(rng.randrange(len(rows)) for _ in range(rng.randrange(4)))
    return [rows[a:b] for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True) if b > a]


def put(path: Path, text: str, rng: random.Random) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if rng.random() < 0.3:
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)


def told(root: Path) -> dict[str, bytes]:
    job, quality = read_job(root, strict=True)
    assert quality.remarks == ()
    results = run_rules(RULES, job, strict=True)
    assert sum(one.status is Status.TRIGGERED for one in results) >= 6
    return {
        rule.name: document.rule_json(rule, result, {}) for rule, result in zip(RULES, results, strict=True)
    }


@settings(max_examples=12)
@given(st.integers(0, 10**6))
@pytest.mark.slow
def test_layout_makes_no_number_different(
    records: Records, tmp_path_factory: pytest.TempPathFactory, layout: int
) -> None:
    one, other = (
        told(write(tmp_path_factory.mktemp("layout"), random.Random(layout + i), records)) for i in (0, 1)
    )

    assert one == other
