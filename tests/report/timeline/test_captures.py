"""Captures of PyTorch's profiler in a trace: their clocks, processes, and lanes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobreport import open_job
from jobreport.readers.base import SourceFile
from jobreport.readers.kineto.table import read_trace
from jobreport.readers.tally import Tally
from jobreport.timeline.trace import TraceSummary, write_trace
from jobrules.captures.trace import Trace
from jobrules.model import Job, JobInMemory
from jobrules.model.captures import Capture
from tests.copies import replace
from tests.jobs import START_US, joined_steps, make_events, make_job, make_steps
from tests.kineto import Recording, read_text
from tests.paths import SAMPLES
from tests.record.recordings import PYTHON, record
from tests.report.timeline.test_trace import Row, checked, lasting

#: A program that records a phase, and says when a kernel ran within it by the clock of the machine.
PHASES = """
import json, os, time, jobrecord

jobrecord.start()
base, kernels = time.time_ns() - 7_000_000_123, []
for number in range(20):
    with jobrecord.phase("Exchange"):
        start = time.time_ns()
        time.sleep(0.01)
        kernels.append((start, time.time_ns()))
    jobrecord.step()
events = [
    {"ph": "X", "cat": "kernel", "name": f"kernel {number}", "pid": 0, "tid": 7, "ts": (start - base) / 1000,
     "dur": (end - start) / 1000, "args": {"device": 0, "stream": 7, "correlation": number + 1}}
    for number, (start, end) in enumerate(kernels)
]
top = {"schemaVersion": 1, "baseTimeNanoseconds": base, "distributedInfo": {"rank": 0, "world_size": 1}}
with open(os.path.join(os.environ["OUT"], "rank0.pt.trace.json"), "w") as file:
    json.dump(top | {"traceEvents": events}, file)
"""


def capture_of(
    folder: Path, name: str, *, start_us: int = 0, host: str = "", rank: int | None = 0
) -> Recording:
    """Operators around a launch, and a kernel from 40 to 60 µs after the start, which is since the epoch."""
    trace = Recording(rank)
    trace.top |= {"baseTimeNanoseconds": start_us * 1000} if start_us else {}
    trace.top |= {"host_name": host} if host else {}
    trace.operator("aten::mm", 0, 50)
    trace.operator("aten::add", 10, 20)
    trace.kernel("gemm", 40, 60, launch=(12, 15))
    (folder / f"{name}.pt.trace.json").write_bytes(trace.text())
    return trace


def with_captures(
    job: Job, folder: Path, *traces: Recording
) -> tuple[JobInMemory, Callable[[Capture], Trace]]:
    """The job with these captures, and what reads them again."""
    found = read_text(folder, **{f"trace{i}": one.text() for i, one in enumerate(traces)})

    def read(capture: Capture) -> Trace:
        file = SourceFile(name=capture.file, place=str(folder / capture.file))
        return read_trace(file, Tally())[0]

    assert isinstance(job, JobInMemory)
    return replace(job, captures=found.captures), read


def written(
    job: Job, read: Callable[[Capture], Trace], folder: Path, **options: Any
) -> tuple[dict[str, Row], Any, TraceSummary]:
    """The rows of a trace by name, all of the file, and its summary."""
    summary = write_trace(job, folder / "trace.json", read=read, **options)
    data = (folder / "trace.json").read_bytes()
    return {row["name"]: row for row in checked(data)}, json.loads(data), summary


def test_samples_rows_of_the_recorder_and_a_capture_are_on_one_clock(tmp_path: Path) -> None:
    out = tmp_path / "job"
    (tmp_path / "train.py").write_text(PHASES)
    assert (
        record(out, "--interval", "100ms", command=(PYTHON, "train.py"), RANK="0", OUT=str(out)).returncode
        == 0
    )

    with open_job(out) as job:
        summary = job.trace(tmp_path / "trace.json")
    data = (tmp_path / "trace.json").read_bytes()
    rows = checked(data)

    assert summary.left_out == ()
    phases = [row for row in lasting(rows) if row["name"] == "Exchange"]
    kernels = [row for row in lasting(rows) if row["name"].startswith("kernel")]
    assert len(phases) == len(kernels) == 20
    for phase, kernel in zip(phases, kernels, strict=True):
        # The recorder's clock, which never goes back, may be off by so much of that of the machine.
        assert phase["ts"] - 1000 <= kernel["ts"]
        assert kernel["ts"] + kernel["dur"] <= phase["ts"] + phase["dur"] + 1000
        assert phase["pid"] == kernel["pid"] == 1000
    counters = [row["ts"] for row in rows if row["ph"] == "C"]
    assert counters
    assert min(counters) - 2_000_000 < kernels[0]["ts"] < max(counters) + 2_000_000


def test_a_capture_is_set_right_as_its_node_is(tmp_path: Path) -> None:
    """The second node is 100 s ahead, give or take 0.1 s a step."""
    spans = [(float(i), i + 0.9) for i in range(40)]
    jitter = np.random.default_rng(1).uniform(-0.1, 0.1, 40)
    ahead = [(start + 100 + off, end + 100 + off) for (start, end), off in zip(spans, jitter, strict=True)]
    nodes = [make_job(gpu=[50] * 80, steps=make_steps(spans, rank="0"))]
    nodes.append(
        make_job(
            gpu=[50] * 80,
            node="algo-2",
            start_us=START_US + 100_000_000,
            steps=make_steps(ahead, node="algo-2", rank="1"),
        )
    )
    whole = JobInMemory(
        name="job",
        panels=tuple(panel for one in nodes for panel in one.panels),
        steps=joined_steps(*(one.steps for one in nodes)),
    )
    # By the clock of its machine, 10 s after the start of the job.
    trace = capture_of(tmp_path, "own", start_us=START_US + 110_000_000, host="algo-2", rank=1)
    job, read = with_captures(whole, tmp_path, trace)

    rows, found, _ = written(job, read, tmp_path)

    offset = found["otherData"]["offset_us"]["algo-2"]
    assert 0 < offset["spread"] < 200_000
    assert found["otherData"]["captures"] == {"trace0.pt.trace.json": "algo-2"}
    assert abs(rows["gemm"]["ts"] - (10_000_000 + 40)) <= offset["spread"]
    assert rows["gemm"]["pid"] == 2000


def test_threads_and_streams_have_lanes(tmp_path: Path) -> None:
    steps = make_steps([(0, 10)], rank="0")
    job, read = with_captures(
        make_job(gpu=[50] * 20, steps=steps), tmp_path, capture_of(tmp_path, "own", start_us=START_US + 10**6)
    )

    rows, found, summary = written(job, read, tmp_path)

    assert {name: (row["pid"], row["tid"], row["ts"] - 10**6, row["dur"]) for name, row in rows.items() if row["ts"] >= 10**6 and row["ph"] == "X"} == {
        "aten::mm": (1000, 100, 0, 50),
        "aten::add": (1000, 100, 10, 10),
        "cudaLaunchKernel": (1000, 100, 12, 3),
        "gemm": (1000, 200, 40, 20),
    }  # fmt: skip
    titles = [row["args"]["name"] for row in found["traceEvents"] if row["name"] == "thread_name"]
    assert titles == ["steps", "thread 1", "GPU 0 stream 7"]
    assert summary.events == 5
    again, _, _ = written(job, read, tmp_path, start_us=START_US + 10**6 + 55)
    assert {"gemm", "TRAIN 0"} <= {*again}
    assert "aten::mm" not in again
    with pytest.raises(Exception, match="more than 3"):
        write_trace(job, tmp_path / "more.json", read=read, metrics=(), limit=3)


def test_times_are_rounded_down_to_microseconds(tmp_path: Path) -> None:
    trace = Recording(0)
    trace.top |= {"baseTimeNanoseconds": START_US * 1000}
    for name, start, end in (("a", 0.2, 1.4), ("b", 1.4, 2.0), ("c", 2.1, 2.6)):
        trace.operator(name, start, end)
    job, read = with_captures(make_job(gpu=[50] * 20), tmp_path, trace)

    rows, _, summary = written(job, read, tmp_path)

    assert {name: (rows[name]["ts"], rows[name]["dur"]) for name in "abc"} == {
        "a": (0, 1), "b": (1, 1), "c": (2, 0),
    }  # fmt: skip
    assert summary.split == 0


def test_times_that_count_from_the_epoch_have_no_base(tmp_path: Path) -> None:
    trace = Recording(0, clock=START_US)
    trace.top["baseTimeNanoseconds"] = START_US * 1000
    trace.kernel("gemm", 40, 60, launch=(12, 15))
    job, read = with_captures(make_job(gpu=[50] * 20), tmp_path, trace)

    rows, _, summary = written(job, read, tmp_path)

    assert (rows["gemm"]["ts"], rows["gemm"]["dur"], summary.left_out) == (40, 20, ())


def test_a_second_capture_of_a_rank_has_a_process_of_its_own(tmp_path: Path) -> None:
    events = make_events([("cpu_functions", "op", 0, 1)], rank="1")
    traces = [capture_of(tmp_path, "own", start_us=START_US, rank=rank) for rank in (0, 0, 1, None)]
    job, read = with_captures(make_job(gpu=[50] * 20, events=events), tmp_path, *traces)

    _, found, _ = written(job, read, tmp_path)

    names = {row["pid"]: row["args"]["name"] for row in found["traceEvents"] if row["name"] == "process_name"}
    assert names == {
        1000: "algo-1 rank 1",
        **{1001 + i: f"algo-1 rank {rank} (trace{i}.pt.trace.json)" for i, rank in enumerate((0, 0, 1, "?"))},
        2_000_000: "algo-1",
    }


def test_what_is_left_out_says_why(tmp_path: Path) -> None:
    job, read = with_captures(
        make_job(gpu=[50] * 20),
        tmp_path,
        capture_of(tmp_path, "own"),
        capture_of(tmp_path, "own", start_us=START_US - 10**10),
        capture_of(tmp_path, "own", start_us=START_US),
    )

    _, found, summary = written(job, lambda _: None, tmp_path)  # type: ignore[arg-type, return-value]

    assert summary.left_out == (
        "1\N{NO-BREAK SPACE}PyTorch trace whose clock does not count from the epoch",
        "1\N{NO-BREAK SPACE}PyTorch trace recorded at another time",
        "1\N{NO-BREAK SPACE}PyTorch trace moved or changed after the job was opened",
    )
    assert found["otherData"]["left_out"] == [*summary.left_out]
    assert "gemm" not in written(job, read, tmp_path, start_us=START_US + 10**6)[0]
    assert write_trace(job, tmp_path / "trace.json").left_out == ()


def test_an_archive_of_captures_alone_is_read_again(tmp_path: Path) -> None:
    (sample,) = (one for one in SAMPLES if one.name == "late-rank-4gpu")
    with tarfile.open(tmp_path / "job.tar.gz", "w:gz") as archive:
        archive.add(sample, "job")

    with open_job(tmp_path / "job.tar.gz") as job:
        summaries = [job.trace(tmp_path / f"{name}.json.gz") for name in "ab"]
        steps = job.captures("steps")
        events = job.captures()["window_ns"]
        assert job.trace(tmp_path / "none.json", captures=False).events == 0

    assert summaries[0] == summaries[1]
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()
    assert summaries[0].events > 10_000 > len(steps)
    assert len(events) == 4


def test_a_job_that_was_moved_is_written_without_its_captures(tmp_path: Path) -> None:
    (sample,) = (one for one in SAMPLES if one.name == "late-rank-4gpu")
    shutil.copytree(sample, tmp_path / "job")
    job = open_job(tmp_path / "job")
    (tmp_path / "job").rename(tmp_path / "moved")

    summary = job.trace(tmp_path / "trace.json")

    assert summary.left_out == (
        "4\N{NO-BREAK SPACE}PyTorch traces moved or changed after the job was opened",
    )


def test_captures_that_changed_are_left_out(tmp_path: Path) -> None:
    (sample,) = (one for one in SAMPLES if one.name == "late-rank-4gpu")
    shutil.copytree(sample, tmp_path / "job")
    job = open_job(tmp_path / "job")
    cut, other, empty, _ = sorted((tmp_path / "job").rglob("*.pt.trace.json.gz"))
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    other.write_bytes(b"no trace")
    empty.write_bytes(b"")

    summary = job.trace(tmp_path / "trace.json")

    assert summary.left_out == (
        "3\N{NO-BREAK SPACE}PyTorch traces moved or changed after the job was opened",
    )
    assert summary.events > 3000


#: Prints the most memory that opening a job and writing its trace took, in KiB.
MEASURED = """
import re, sys
from jobreport import open_job

job = open_job(sys.argv[1])
assert job.trace(sys.argv[2]).events == int(sys.argv[3])
with open("/proc/self/status") as file:
    print(re.search(r"VmHWM:\\s+(\\d+)", file.read())[1])
"""


@pytest.mark.slow
def test_memory_does_not_grow_by_more_than_the_rows(tmp_path: Path) -> None:
    launch = (
        '{{"ph":"X","cat":"cuda_runtime","name":"launch","pid":9,"tid":1,"ts":{0},"dur":2,"args":{{"correlation":{1}}}}},\n'
        '{{"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":{0},"dur":25,"args":{{"device":0,"stream":7,"correlation":{1}}}}}'
    )
    count = 500_000
    (tmp_path / "job").mkdir()
    with (tmp_path / "job" / "rank0.pt.trace.json").open("w") as file:
        file.write('{"schemaVersion":1,"baseTimeNanoseconds":1741511000000000000,"traceEvents":[\n')
        file.write(",\n".join(launch.format(30 * i, i) for i in range(1, count + 1)) + "]}")
    places = (str(tmp_path / "job"), str(tmp_path / "trace.json.gz"))

    command = [sys.executable, "-c", MEASURED, *places, str(2 * count)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    # 716 MiB for 5 million, that is 120 MiB for each million beyond this one, with operators.
    assert int(done.stdout) < 300 << 10
