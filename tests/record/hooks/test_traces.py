"""The trace writer: rows come back, whatever happens to the disk."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from jobrecord import traces
from jobrecord.traces import MAX_LANES, SECOND_NS, Trace, now
from tests.record.hooks.written import events, events_of, hook_facts, trace_files


def make_trace(out: Path) -> Trace:
    return Trace(out, "node-1")


class Clocks:
    """Both clocks of a trace, which move by the test only."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ns, self.wall_ns = now(), time.time_ns()
        monkeypatch.setattr(traces, "now", lambda: self.ns)
        monkeypatch.setattr(time, "time_ns", lambda: self.wall_ns)

    def advance(self, ns: int) -> None:
        self.ns += ns
        self.wall_ns += ns


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)


def test_rows_come_back_with_their_times(tmp_path: Path, clocks: Clocks) -> None:
    trace = make_trace(tmp_path)
    clocks.advance(SECOND_NS // 10)
    start, wall_us = clocks.ns, clocks.wall_ns // 1000
    clocks.advance(SECOND_NS // 10)
    trace.add("Forward", "Net", start, start + 2_500_000, 7, {"samples": 64})
    trace.close()

    (event,) = events(tmp_path)
    assert (event.lane, event.name, event.end_us - event.start_us) == ("Forward", "Net", 2500)
    assert abs(event.start_us - wall_us) <= 1
    assert event.args == {"pid": os.getpid(), "step_num": "7", "samples": 64}


def test_closed_files_are_named_for_their_last_event_worker_and_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "3")
    trace = make_trace(tmp_path)
    trace.add("Forward", "Net", now(), now())
    trace.close()

    (file,) = trace_files(tmp_path)
    (event,) = events_of(file)
    assert file.name == f"{event.end_us}_3-node-1_pythontimeline.json"


def test_a_file_that_was_moved_away_costs_no_later_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = make_trace(tmp_path)
    trace.add("Forward", "before", now(), now())
    trace.flush()
    (file,) = trace_files(tmp_path)
    file.rename(tmp_path / "moved")

    with monkeypatch.context() as limits:
        limits.setattr(traces, "MAX_FILE_BYTES", 1)
        trace.add("Forward", "full", now(), now())
        trace.flush()
    trace.add("Forward", "after", now(), now())
    trace.flush()
    trace.close()

    assert [event.name for event in events_of(tmp_path / "moved")] == ["before", "full"]
    assert [event.name for event in events(tmp_path)] == ["after"]
    assert hook_facts(tmp_path)["dropped"]["events"] == 0


def test_a_script_that_closes_all_files_keeps_its_own_as_they_are(tmp_path: Path) -> None:
    trace = make_trace(tmp_path)
    trace.add("Forward", "before", now(), now())
    trace.flush()
    (file,) = trace_files(tmp_path)
    (number,) = (int(one.name) for one in Path("/proc/self/fd").iterdir() if one.resolve() == file)
    own = os.open(tmp_path / "own", os.O_WRONLY | os.O_CREAT)
    os.dup2(own, number)
    os.close(own)

    trace.add("Forward", "after", now(), now())
    trace.flush()
    trace.close()

    assert [event.name for event in events(tmp_path)] == ["before", "after"]
    assert (tmp_path / "own").stat().st_size == 0
    assert Path(f"/proc/self/fd/{number}").resolve() == tmp_path / "own"
    os.close(number)


def test_open_file_is_readable_after_a_second(tmp_path: Path, clocks: Clocks) -> None:
    trace = make_trace(tmp_path)
    trace.add("Forward", "early", clocks.ns, clocks.ns)
    assert trace_files(tmp_path) == []
    trace.add("Forward", "late", clocks.ns, clocks.ns + 2 * SECOND_NS)

    assert [event.name for event in events(tmp_path)] == ["early", "late"]
    assert [file.suffix for file in trace_files(tmp_path)] == [".tmp"]


@pytest.mark.parametrize("limit", ["MAX_FILE_BYTES", "MAX_FILE_NS"])
def test_files_are_closed_at_a_size_or_an_age_and_announce_their_lanes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(traces, limit, 1)
    trace = make_trace(tmp_path)
    for i in range(3):
        trace.add("Forward", str(i), now(), now())
        trace.flush()
        # The limit of age is looked at in the write after.
        trace.flush()
    trace.close()

    assert sorted(event.name for event in events(tmp_path, "Forward")) == ["0", "1", "2"]
    assert len(trace_files(tmp_path)) >= 2
    assert all(json.loads(file.read_text()) for file in trace_files(tmp_path))


@pytest.mark.parametrize(
    "name", ['a"b', "</script>", "line\nbreak", "\x00\x1b[31m", "\ud800", "x" * 5000, "", "Straße", "\u2028"]
)
def test_any_name_is_text(tmp_path: Path, name: str) -> None:
    trace = make_trace(tmp_path)
    trace.add(name, name, now(), now())
    trace.close()

    (event,) = events(tmp_path)
    assert len(event.name) <= 200
    assert event.name == event.lane
    if name.isprintable() and 0 < len(name) <= 200:
        assert event.name == name


def test_lanes_over_the_limit_share_one(tmp_path: Path) -> None:
    trace = make_trace(tmp_path)
    for i in range(MAX_LANES + 5):
        trace.add(f"lane {i}", str(i), now(), now())
    trace.close()

    found = events(tmp_path)
    assert len(found) == MAX_LANES + 5
    assert sum(event.lane == "other" for event in found) == 5
    assert hook_facts(tmp_path)["other_lane_events"] == 5


@pytest.mark.parametrize("before", [["before"], []])
def test_full_disk_drops_events_and_the_next_minute_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: list[str]
) -> None:
    # A row of the recorder itself comes with each write, and is none that the job misses.
    monkeypatch.setattr(traces, "SLOW_WRITE_NS", 0)
    trace = make_trace(tmp_path)
    for name in before:
        trace.add("Forward", name, now(), now())
        trace.flush()
    write = os.write

    def half(file: int, data: bytes) -> int:
        if before:
            write(file, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as disk:
        disk.setattr(os, "write", half)
        for _ in range(2):
            trace.add("Backward", "lost", now(), now())
            trace.flush()
    monkeypatch.setattr(traces, "now", lambda: now() + 61 * SECOND_NS)
    trace.add("Backward", "after", now(), now())
    trace.close()

    assert [event.name for event in events(tmp_path)] == [*before, "after"]
    dropped = hook_facts(tmp_path)["dropped"]
    assert (dropped["events"], dropped["reason"]) == (2, "No space left on device")


def test_slow_disk_writes_a_row_then_less_and_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [now()]
    monkeypatch.setattr(traces, "now", lambda: clock[0])
    trace = make_trace(tmp_path)
    write = os.write

    def slow(file: int, data: bytes) -> int:
        clock[0] += SECOND_NS
        return write(file, data)

    monkeypatch.setattr(os, "write", slow)
    for _ in range(500):
        clock[0] += SECOND_NS
        trace.steps += 1
        trace.add("Forward", "Net", clock[0], clock[0])
        trace.add("Step:ModeKeys.TRAIN", "Step:ModeKeys.TRAIN", clock[0], clock[0], trace.steps)
    trace.close()

    assert events(tmp_path, "Recorder")
    changes = [change["written"] for change in hook_facts(tmp_path)["written"]]
    # A minute later it is tried again.
    assert changes == ["everything, every 10 s", "steps only", "nothing", "steps only"]
    assert 0 < len(events(tmp_path, "Forward")) < len(events(tmp_path, "Step:ModeKeys.TRAIN")) < 500


def test_one_slow_write_costs_nothing_after_some_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [now()]
    monkeypatch.setattr(traces, "now", lambda: clock[0])
    trace = make_trace(tmp_path)

    def train(seconds: int) -> None:
        for _ in range(seconds):
            clock[0] += SECOND_NS
            trace.steps += 2
            trace.add("Forward", "Net", clock[0], clock[0])

    train(60)
    write = os.write
    with monkeypatch.context() as slow:
        slow.setattr(
            os, "write", lambda *given: (clock.__setitem__(0, clock[0] + 5 * SECOND_NS), write(*given))[1]
        )
        train(2)
    train(300)
    before = len(events(tmp_path, "Forward"))
    train(2)

    # Not closed: what a kill would leave.
    assert len(events(tmp_path, "Forward")) == before + 2
    trace.close()
    changes = [change["written"] for change in hook_facts(tmp_path)["written"]]
    assert changes == ["everything, every 10 s", "everything"]


def test_file_of_a_killed_process_is_closed_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    killed = subprocess.run(
        [
            sys.executable,
            "-c",
            "import os, pathlib, sys; from jobrecord.traces import Trace, now\n"
            "trace = Trace(pathlib.Path(sys.argv[1]), 'node-1')\n"
            "trace.add('Forward', 'first', now(), now()); trace.flush()\n"
            "trace.add('Forward', 'second', now(), now()); trace.flush()\n"
            'os.write(trace._file, b\'{"name": "half\'); os.kill(os.getpid(), 9)',
            str(tmp_path),
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert killed.returncode == -9
    trace = make_trace(tmp_path)
    trace.add("Forward", "third", now(), now())
    trace.close()

    assert [event.name for event in events(tmp_path)] == ["first", "second", "third"]
    assert all(json.loads(file.read_text()) for file in trace_files(tmp_path))
    assert all("_0-node-1_" in file.name for file in trace_files(tmp_path))


def test_second_process_of_a_rank_has_a_file_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    (tmp_path / "framework").mkdir()
    taken = tmp_path / "framework" / "0-node-1_pythontimeline.tmp"
    base = {"name": "process_name", "ph": "M", "pid": 0, "args": {"pid": os.getppid()}}
    taken.write_text(f"[\n{json.dumps(base)},\n")
    trace = make_trace(tmp_path)
    trace.add("Forward", "Net", now(), now())
    trace.close()

    assert taken.exists()
    assert next(iter(tmp_path.glob("framework/pevents/*/*"))).name.endswith(
        f"_{os.getpid()}-node-1_pythontimeline.json"
    )


def test_clock_step_is_counted_and_later_files_have_the_new_time(tmp_path: Path, clocks: Clocks) -> None:
    trace = make_trace(tmp_path)
    trace.add("Forward", "before", clocks.ns, clocks.ns)
    trace.flush()
    trace._close_file()
    clocks.advance(SECOND_NS)
    clocks.wall_ns += 3600 * SECOND_NS
    trace.add("Forward", "after", clocks.ns, clocks.ns)
    trace.close()

    before, after = events(tmp_path)
    assert abs(after.start_us - before.start_us - 3_601_000_000) <= 1
    assert hook_facts(tmp_path)["clock_steps"] == 1


def test_rows_of_other_threads_are_kept(tmp_path: Path) -> None:
    trace = make_trace(tmp_path)
    trace.add("Forward", "first", now(), now() + 2 * SECOND_NS)

    def add() -> None:
        for _ in range(1000):
            trace.add("Forward", "thread", now(), now() + 4 * SECOND_NS)

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    trace.close()

    assert len(events(tmp_path, "Forward")) == 4001
