"""The trace files are laid out as real ones are, and tell what the plan of the training loop says."""

from __future__ import annotations

import gzip
import itertools
import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import generate
import numpy as np
import pytest
from generator.events import trace_files
from generator.job import JobSpec
from generator.scenarios import SCENARIOS
from generator.steps import Steps

# The generator is seldom changed, and the golden reports are made of what it wrote.
pytestmark = pytest.mark.slow

SAMPLE = Path(__file__).resolve().parents[2] / "sample_data" / "cpu-bottleneck-2gpu"
TRACED = [name for name, one in SCENARIOS.items() if one.steps]
TRAIN, EVAL = "Step:ModeKeys.TRAIN", "Step:ModeKeys.EVAL"


def spec_of(*options: str) -> JobSpec:
    parser = generate.build_parser()
    return generate.spec_from(parser, parser.parse_args(options))


def plan_of(name: str) -> Steps:
    plan = SCENARIOS[name].steps
    assert plan
    return plan


@cache
def traces(name: str, seed: int = 1) -> dict[str, str]:
    """The trace files of a scenario."""
    return dict(trace_files(spec_of(f"--scenario={name}", f"--seed={seed}")))


@dataclass(frozen=True)
class Event:
    """A complete event, absolute times in µs."""

    node: str
    rank: int
    lane: str
    name: str
    start: int
    end: int
    args: dict[str, Any]


def rows_of(text: str) -> list[dict[str, Any]]:
    rows = json.loads(text)
    assert isinstance(rows, list)
    return rows


def events_of(files: dict[str, str]) -> list[Event]:
    """Read complete events of Python timelines as the format is described, row after row."""
    events = []
    for path, text in files.items():
        if "_pythontimeline" not in path:
            continue
        _, worker, _ = Path(path).name.split("_")
        rank, node = worker.split("-", 1)
        base, lanes = 0, {}
        for row in rows_of(text):
            if row["ph"] == "M" and row["name"] == "process_name":
                if "start_time_since_epoch_in_micros" in row["args"]:
                    base = row["args"]["start_time_since_epoch_in_micros"]
                else:
                    lanes[row["pid"]] = row["args"]["name"]
            elif row["ph"] == "X":
                start = base + row["ts"]
                lane = lanes[row["pid"]]
                events.append(
                    Event(node, int(rank), lane, row["name"], start, start + row["dur"], row["args"])
                )
    return events


def by_process(events: list[Event], *lanes: str) -> dict[tuple[str, int], list[Event]]:
    """The events of some lanes in the order of their starts, for each process."""
    found: dict[tuple[str, int], list[Event]] = defaultdict(list)
    for event in sorted(events, key=lambda event: event.start):
        if event.lane in lanes:
            found[event.node, event.rank].append(event)
    return dict(found)


# --- Layout ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TRACED)
def test_a_file_is_named_by_its_last_event_and_process_and_holds_the_events_of_a_minute(name: str) -> None:
    scenario = SCENARIOS[name]
    last: dict[str, int] = {}
    for path, text in traces(name).items():
        match = re.fullmatch(
            r"(\d{10})/(\d{16})_(\d+)-algo-(\d+)_(pythontimeline|horovod_timeline)\.json", path
        )
        assert match, path
        rows = rows_of(text)
        base = rows[0]["args"]["start_time_since_epoch_in_micros"]
        ends = [base + row["ts"] + row.get("dur", 0) for row in rows if row["ph"] != "M"]
        assert int(match[2]) == max(ends)
        assert match[1] == datetime.fromtimestamp(max(ends) / 1e6, UTC).strftime("%Y%m%d%H")
        assert (int(match[4]) - 1) * scenario.gpus <= int(match[3]) < int(match[4]) * scenario.gpus
        # An event that is under way when the minute ends still belongs to it.
        longest = max(row.get("dur", 0) for row in rows if row["ph"] != "M")
        assert max(ends) - min(ends) < 60_000_000 + longest
        assert ends == sorted(ends) or match[5] == "horovod_timeline"
        writer = path.split("_", 1)[1]
        assert last.get(writer, 0) < min(ends) or match[5] == "horovod_timeline"
        last[writer] = max(ends)
    assert sum("pythontimeline" in writer for writer in last) == scenario.nodes * scenario.gpus


# --- Steps -----------------------------------------------------------------------------------------


def planned(plan: Steps, duration_s: float) -> list[tuple[str, float, float]]:
    """Walk through the job: lane, start and length of each step in seconds."""
    steps = []
    at, epoch_ends, in_epoch = plan.start_s, plan.start_s + plan.epoch_s, 0
    while at < duration_s:
        slow = in_epoch % plan.slow_every == plan.slow_every - 1
        slots = plan.slow_slots if slow else 1
        took = slots * (plan.step_s + plan.gap_s)
        if at + took <= epoch_ends + 1e-6:
            steps.append((TRAIN, at, took - plan.gap_s))
            at += took
            in_epoch += 1
            continue
        at = epoch_ends + plan.checkpoint_s
        while at + plan.eval_step_s + 0.05 <= epoch_ends + plan.checkpoint_s + plan.eval_s + 1e-6:
            steps.append((EVAL, at, plan.eval_step_s))
            at += plan.eval_step_s + 0.05
        at, in_epoch = epoch_ends + plan.checkpoint_s + plan.eval_s, 0
        epoch_ends += plan.epoch_s
    last = duration_s - plan.closing_s
    return [step for step in steps if step[1] + step[2] + plan.gap_s <= last + 1e-6]


@pytest.mark.parametrize("name", TRACED)
def test_every_process_takes_the_steps_of_the_plan(name: str) -> None:
    plan, scenario = plan_of(name), SCENARIOS[name]
    expected = planned(plan, scenario.duration_s)
    assert len(expected) > 200

    processes = by_process(events_of(traces(name)), TRAIN, EVAL)

    assert len(processes) == scenario.nodes * scenario.gpus
    begin = generate.start_us(generate.DEFAULT_START)
    for (node, _), steps in processes.items():
        clock = begin if node == "algo-1" else begin + scenario.clock_ahead_s * 1e6
        assert [step.lane for step in steps] == [lane for lane, _, _ in expected]
        numbers: Counter[str] = Counter()
        for i, (step, (lane, start_s, length_s)) in enumerate(zip(steps, expected, strict=True)):
            assert step.name == lane
            assert step.args["step_num"] == str(numbers[lane])
            numbers[lane] += 1
            late = (step.start - clock) / 1e6 - start_s
            longer = (step.end - step.start) / 1e6 - length_s
            if i == 0:
                late, longer = late + plan.warm_up_s, longer - plan.warm_up_s
            assert -plan.wander_s <= late <= 0.015 + plan.wander_s
            assert abs(longer) <= (plan.spread_s if lane == TRAIN else 0.02) + 1e-5
        for step, following in itertools.pairwise(steps):
            assert step.end <= following.start


def test_steps_that_could_overlap_are_refused() -> None:
    with pytest.raises(ValueError, match="may overlap"):
        Steps(gap_s=0.03, spread_s=0.02)


def test_a_job_that_ends_before_its_first_step_has_no_trace_files() -> None:
    assert dict(trace_files(spec_of("--duration=70"))) == {}
    assert len(dict(trace_files(spec_of("--duration=90", "--gpus=1")))) == 1


# --- Operators -------------------------------------------------------------------------------------


# --- Data loading ----------------------------------------------------------------------------------


# --- Horovod ---------------------------------------------------------------------------------------


# --- Samples and steps agree -----------------------------------------------------------------------


# --- The committed sample --------------------------------------------------------------------------


def test_the_committed_sample_is_as_the_readme_says() -> None:
    text = " ".join((SAMPLE.parent / "README.md").read_text(encoding="utf-8").split())
    files = {
        path.name.removesuffix(".gz"): gzip.decompress(path.read_bytes()).decode("ascii")
        for path in sorted(SAMPLE.rglob("*timeline.json.gz"))
    }
    rows = [
        json.loads(line)
        for path in sorted((SAMPLE / "system").rglob("*.gz"))
        for line in gzip.decompress(path.read_bytes()).splitlines()
    ]
    gpu, core = (
        np.array([row["Value"] for row in rows if row["Dimension"] == dimension]).reshape(-1, devices)
        for dimension, devices in (("GPUUtilization", 2), ("CPUUtilization", 8))
    )
    events = events_of(files)
    train, evaluation = (by_process(events, lane)["algo-1", 0] for lane in (TRAIN, EVAL))
    begin = min(row["Timestamp"] for row in rows)
    share = ((gpu[1:] < 10).any(axis=1) & (core > 90).any(axis=1)).sum() / len(gpu)
    fetches = [e.end - e.start for e in by_process(events, "DataLoaderIter")["algo-1", 0]]

    assert f"begins {train[0].start / 1e6 - begin:.0f} s after the start" in text
    assert f"in {share:.0%} of all snapshots".replace("%", " %") in text
    assert f"{len(train)} training steps" in text
    assert f"{len(evaluation)} validation steps" in text
    assert f"the first, which takes {(train[0].end - train[0].start) / 1e6:.1f} s" in text
    assert f"(about {np.mean(fetches) / 1e6:.1f} s)" in text
    assert {e.args["step_num"] for e in events if e.lane == "cpu_functions"} == {5}
    assert (SAMPLE / "framework" / "training_job_end.ts").read_bytes() == b""
    assert sum(path.stat().st_size for path in SAMPLE.rglob("*.*") if path.is_file()) < 700_000
