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
from generator.record import minutes_us, record
from generator.scenarios import SCENARIOS
from generator.steps import Steps

from tests.copies import replace

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


@pytest.mark.parametrize("name", ["healthy", "horovod", "two-clocks"])
def test_a_file_is_an_array_with_a_row_a_line_written_as_json_dumps_writes_it(name: str) -> None:
    for path, text in traces(name).items():
        rows = rows_of(text)
        assert text == "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n", path


def test_rows_have_the_keys_of_real_files_in_their_order() -> None:
    keys = {
        "M": [["name", "ph", "pid", "args"]],
        "X": [["name", "pid", "ph", "ts", "dur", "args"], ["name", "pid", "ph", "ts", "dur"]],
        "B": [["name", "pid", "ph", "ts"]],
        "E": [["name", "pid", "ph", "ts"]],
        "i": [["name", "pid", "ph", "ts", "s"]],
    }

    seen = Counter[str]()
    for text in traces("horovod").values():
        for row in rows_of(text):
            assert list(row) in keys[row["ph"]]
            assert row.get("ts", 0) >= 0
            assert row.get("dur", 0) >= 0
            seen[row["ph"]] += 1

    assert set(seen) == set(keys)


@pytest.mark.parametrize("name", TRACED)
def test_a_file_begins_with_its_base_and_announces_each_lane_once_before_its_first_event(name: str) -> None:
    numbers: dict[tuple[str, str], int] = {}
    for path, text in traces(name).items():
        base, order, *rows = rows_of(text)
        assert list(base["args"]) == ["start_time_since_epoch_in_micros"]
        assert (base["name"], base["ph"], base["pid"]) == ("process_name", "M", 0)
        assert order == {"name": "process_sort_index", "ph": "M", "pid": 0, "args": {"sort_index": 0}}
        lanes: dict[int, str] = {}
        for row, following in zip(rows, [*rows[1:], None], strict=True):
            if row["name"] == "process_name":
                assert row["pid"] not in lanes
                lanes[row["pid"]] = row["args"]["name"]
                # The lane table is one for all files of a process.
                writer = path.split("_", 1)[1]
                assert numbers.setdefault((writer, row["args"]["name"]), row["pid"]) == row["pid"]
                index = {"sort_index": row["pid"]}
                assert following == {
                    "name": "process_sort_index",
                    "ph": "M",
                    "pid": row["pid"],
                    "args": index,
                }
            elif row["ph"] in "XBE":
                assert row["pid"] in lanes
        assert set(lanes) == {row["pid"] for row in rows if row["ph"] in "XBE"}


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


def test_a_file_is_the_same_in_a_longer_job_and_another_seed_moves_every_step() -> None:
    short = dict(trace_files(spec_of("--duration=8m", "--gpus=2")))
    long = dict(trace_files(spec_of("--duration=20m", "--gpus=2")))
    other = dict(trace_files(spec_of("--duration=8m", "--gpus=2", "--seed=2")))

    # The last file of each process holds the end of the job.
    settled = sorted(short)[:-2]

    assert len(settled) == 12
    assert [path for path in settled if short[path] != long[path]] == []
    starts, others = ({e.start for e in events_of(files) if e.lane == TRAIN} for files in (short, other))
    assert len(starts & others) < len(starts) / 20


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


def test_processes_step_together_and_have_a_pid_each() -> None:
    processes = by_process(events_of(traces("healthy")), TRAIN)

    assert len({step.args["pid"] for steps in processes.values() for step in steps}) == 8
    for together in zip(*processes.values(), strict=True):
        starts = [step.start for step in together]
        assert 0 < max(starts) - min(starts) < 5_000
        lengths = {step.end - step.start for step in together}
        assert max(lengths) - min(lengths) <= 1


def test_steps_last_unequally_but_none_is_an_outlier_unless_meant() -> None:
    for name in TRACED:
        for steps in by_process(events_of(traces(name)), TRAIN).values():
            lasted = np.array([step.end - step.start for step in steps])
            outliers = np.flatnonzero(lasted > lasted.mean() + 3 * lasted.std())
            assert len(set(lasted.tolist())) > len(lasted) / 3
            if name == "step-outliers":
                assert len(outliers) > 30
            else:
                assert outliers.tolist() == [0]


def test_forward_and_backward_pass_share_their_step() -> None:
    events = events_of(traces("healthy"))
    steps, forward, backward = (
        by_process(events, lane)["algo-1", 3] for lane in (TRAIN, "Forward", "Backward(post-forward)")
    )

    for step, first, second in zip(steps, forward, backward, strict=True):
        assert step.start == first.start < first.end == second.start < second.end < step.end
        assert step.args == first.args == second.args
        assert first.name == second.name == "ResNet"


def test_the_second_nodes_clock_is_90_s_ahead_in_steps_and_samples() -> None:
    processes = by_process(events_of(traces("two-clocks")), TRAIN)
    ahead = [b.start - a.start for a, b in zip(processes["algo-1", 0], processes["algo-2", 2], strict=True)]
    assert all(abs(one - 90_000_000) < 5_000 for one in ahead)

    first = {node: samples_of("two-clocks", node)[0][[0, -1]] for node in (1, 2)}

    # Nodes are not in step with each other: up to an interval is not the clock's.
    assert ((first[2] - first[1] >= 90_000_000 - 12_000) & (first[2] - first[1] < 90_512_000)).all()


def test_steps_that_could_overlap_are_refused() -> None:
    with pytest.raises(ValueError, match="may overlap"):
        Steps(gap_s=0.03, spread_s=0.02)


def test_a_job_that_ends_before_its_first_step_has_no_trace_files() -> None:
    assert dict(trace_files(spec_of("--duration=70"))) == {}
    assert len(dict(trace_files(spec_of("--duration=90", "--gpus=1")))) == 1


# --- Operators -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def operators() -> tuple[Event, list[Event], list[Event]]:
    """Step 5 of one process with its operators on CPU and GPU, outer before inner."""
    events = [event for event in events_of(traces("cpu-bottleneck")) if event.rank == 1]
    [step] = [event for event in events if event.lane == TRAIN and event.args["step_num"] == "5"]
    cpu = sorted(
        (event for event in events if event.lane == "cpu_functions"), key=lambda e: (e.start, -e.end)
    )
    gpu = sorted((event for event in events if event.lane == "gpu_functions-dev:1"), key=lambda e: e.start)
    assert not [event for event in events if event.lane == "gpu_functions-dev:0"]
    return step, cpu, gpu


def test_operators_lie_in_their_step(operators: tuple[Event, list[Event], list[Event]]) -> None:
    step, cpu, gpu = operators

    assert len(cpu) > 200
    assert len(gpu) > 100
    for event in (*cpu, *gpu):
        assert event.args["step_num"] == 5
        assert step.start <= event.start < event.end <= step.end


def test_operators_of_a_thread_are_nested_as_they_call_each_other(
    operators: tuple[Event, list[Event], list[Event]],
) -> None:
    _, cpu, _ = operators
    callers = {
        "aten::convolution": "aten::conv2d",
        "aten::_convolution": "aten::convolution",
        "aten::cudnn_convolution": "aten::_convolution",
        "aten::cudnn_convolution_backward_weight": "aten::cudnn_convolution_backward",
        "aten::cudnn_convolution_backward": "CudnnConvolutionBackward",
    }

    seen: Counter[str] = Counter()
    for thread in (1, 2):
        stack: list[Event] = []
        for event in (event for event in cpu if event.args["tid"] == thread):
            while stack and stack[-1].end <= event.start:
                stack.pop()
            assert event.args["device"] == "cpu"
            assert not stack or (stack[-1].start < event.start and event.end < stack[-1].end)
            if event.name in callers:
                assert stack[-1].name == callers[event.name]
                seen[event.name] += 1
            stack.append(event)
        assert stack
    assert seen == dict.fromkeys(callers, 16)


def test_kernels_run_one_at_a_time_after_the_operator_that_started_them(
    operators: tuple[Event, list[Event], list[Event]],
) -> None:
    _, cpu, gpu = operators
    starts = {(event.name, event.args["tid"], event.start) for event in cpu}

    for event in gpu:
        args = event.args
        assert set(args) == {
            "tid",
            "step_num",
            "event_name",
            "device",
            "start_cpu_thread",
            "cpu_thread_start_time",
        }
        assert args["tid"] == args["device"] == 1
        assert (args["event_name"], args["start_cpu_thread"], args["cpu_thread_start_time"]) in starts
        assert event.start > args["cpu_thread_start_time"]
    for event, following in itertools.pairwise(gpu):
        assert event.end <= following.start


def test_more_steps_can_be_recorded_with_their_operators() -> None:
    spec = spec_of("--scenario=cpu-bottleneck", "--gpus=1", "--duration=150")
    assert spec.steps
    spec = replace(spec, steps=replace(spec.steps, operators_of=range(3, 1000)))

    events = events_of(dict(trace_files(spec)))

    steps = {int(event.args["step_num"]) for event in events if event.lane == TRAIN}
    recorded = Counter(event.args["step_num"] for event in events if event.lane == "cpu_functions")
    assert len(steps) > 20
    assert set(recorded) == {step for step in steps if step >= 3}
    assert len(set(recorded.values())) == 1


# --- Data loading ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "low", "high"), [("healthy", 0.7, 2.0), ("few-loaders", 0.0, 0.69), ("many-loaders", 2.01, 9.0)]
)
def test_loading_processes_are_as_many_as_the_scenario_says(name: str, low: float, high: float) -> None:
    scenario = SCENARIOS[name]
    events = events_of(traces(name))
    set_up = [event for event in events if event.lane == "DataLoaderIterInitialize"]
    lives = [event for event in events if event.lane == "DataLoaderWorker"]

    assert len(set_up) == scenario.gpus
    for event in set_up:
        assert event.name == "_MultiProcessingDataLoaderIter.__init__"
        assert event.args["pin_memory"] is True
        own = [life for life in lives if life.rank == event.rank]
        assert [life.args["worker_id"] for life in own] == list(range(event.args["num_workers"]))
        assert min(life.start for life in own) >= event.start
    pids = {event.args["pid"] for event in (*set_up, *lives)}
    assert len(pids) == len(set_up) + len(lives)
    assert low * scenario.cores <= len(lives) <= high * scenario.cores
    # They live for the first epoch, far longer than the ten seconds that a rule waits for.
    validation = min(event.start for event in events if event.lane == EVAL)
    for life in lives:
        epoch = [e for e in events if e.lane == TRAIN and e.rank == life.rank and e.start < validation]
        assert life.start < epoch[0].start
        assert epoch[-1].end < life.end < validation
    assert min(life.end for life in lives) - max(life.start for life in lives) > 200e6


def test_a_batch_is_fetched_in_the_pause_before_each_step_of_the_first_90_s() -> None:
    events = events_of(traces("cpu-bottleneck"))
    steps = by_process(events, TRAIN)["algo-1", 0]
    fetches = by_process(events, "DataLoaderIter")["algo-1", 0]

    assert len(fetches) == sum(step.start < steps[0].start + 90e6 for step in steps)
    for i, (fetch, step) in enumerate(zip(fetches, steps, strict=False)):
        assert "DataLoaderIter::GetNext" in fetch.name
        assert fetch.args == {"pid": step.args["pid"], "worker_id": i % 4}
        assert (steps[i - 1].end if i else 0) < fetch.start < fetch.end < step.start
        assert not i or fetch.end - fetch.start > 0.9 * (step.start - steps[i - 1].end)


# --- Horovod ---------------------------------------------------------------------------------------


def test_horovod_rows_open_and_close_in_each_file_and_lane() -> None:
    files = {path: text for path, text in traces("horovod").items() if "horovod" in path}
    steps = {
        int(event.args["step_num"]): event
        for event in events_of(traces("horovod"))
        if event.lane == "Backward(post-forward)" and event.rank == 0
    }
    assert len(files) == 2
    passes = [steps[number] for number in range(13, 163)]

    rings, ready, cycles = Counter[str](), Counter[str](), 0
    for path, text in files.items():
        assert "_0-algo-1_" in path
        lanes: dict[int, str] = {}
        stacks: dict[int, list[tuple[str, int]]] = defaultdict(list)
        base = 0
        for row in rows_of(text):
            pid = row["pid"]
            if row["ph"] == "M":
                base = row["args"].get("start_time_since_epoch_in_micros", base)
                if "name" in row["args"]:
                    lanes[pid] = row["args"]["name"]
                continue
            at = base + row["ts"]
            assert any(one.start <= at <= one.end for one in passes)
            if row["ph"] == "i":
                assert (row["name"], row["s"]) == ("CYCLE_START", "g")
                assert pid not in lanes
                cycles += 1
            elif row["ph"] == "B":
                stacks[pid].append((row["name"], row["ts"]))
            elif row["ph"] == "E":
                assert row["name"] == ""
                name, begin = stacks[pid].pop()
                assert begin <= row["ts"]
                assert not stacks[pid] or stacks[pid][-1][0] == "ALLREDUCE"
                rings[name] += 1
            else:
                assert row["dur"] == 0
                assert stacks[pid][-1][0] == "NEGOTIATE_ALLREDUCE"
                ready[row["name"]] += 1
        assert len(lanes) == 8
        assert not any(stacks.values())

    activities = ("NEGOTIATE_ALLREDUCE", "ALLREDUCE", "WAIT_FOR_DATA", "NCCL_ALLREDUCE")
    assert {rings[name] for name in activities} == {1200}
    assert ready == dict.fromkeys("0123", 1200)
    assert cycles == 300
    assert not [path for name in TRACED if name != "horovod" for path in traces(name) if "horovod" in path]


# --- Samples and steps agree -----------------------------------------------------------------------


@cache
def samples_of(name: str, node: int = 1) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The times of a node's GPU samples, and the values of each kind: a row a tick, a column a device."""
    spec = spec_of(f"--scenario={name}")
    times, found = [], defaultdict(list)
    for minute in minutes_us(spec):
        for family in record(spec, minute, node):
            kinds = [dimension or kind for kind, _, dimension in family.family.sensors]
            for kind in set(kinds):
                columns = [i for i, one in enumerate(kinds) if one == kind]
                found[kind].append(family.values[family.present][:, columns])
            if "GPUUtilization" in kinds:
                times.append(family.timestamp_us[family.present])
    return np.concatenate(times), {kind: np.concatenate(values) for kind, values in found.items()}


@pytest.mark.parametrize("name", ["cpu-bottleneck", "io-bottleneck"])
def test_the_gpus_work_during_steps_and_idle_between_them(name: str) -> None:
    times, values = samples_of(name)
    steps = by_process(events_of(traces(name)), TRAIN)["algo-1", 0][1:]
    gpu = values["GPUUtilization"]

    # A step ends up to 0.12 s off the plan, and a sample is taken up to 12 ms late.
    for step, following in itertools.pairwise(steps):
        if following.start - step.end > 2.5e6:
            continue
        within = (times > step.start + 30_000) & (times < step.end - 150_000)
        after = (times > step.end + 150_000) & (times < following.start - 30_000)
        assert (gpu[within] > 60).all()
        assert (gpu[after] < 10).all()


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
