"""Samples of stacks: against the stopwatch of the script, and that the script runs as it would without them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import jobrecord
from jobrecord.hooks import frames, stacks
from jobrecord.hooks.stacks import MAIN, Plan, Stacks
from tests.record.recordings import PYTHON, environment, record, wait_for

#: Python's own versions that lie beside that of the tests.
OTHER_PYTHONS = sorted(Path(sys.base_prefix).parent.glob("3.1*/bin/python3"))


class Read(NamedTuple):
    """A file of stacks, read without the code that wrote it: each sample is its frames, the outermost one first."""

    head: dict[str, Any]
    samples: list[tuple[int, list[list[Any]], int]]
    gaps: list[str]

    def shares(self) -> dict[str, float]:
        """Of all samples, by the function of the innermost frame of the script."""
        found: Counter[str] = Counter()
        for _, stack, _ in self.samples:
            own = [frame[3] for frame in stack if frame[0] == "own"]
            found[own[-1].rpartition(".")[2] if own else ""] += 1
        return {name: count / len(self.samples) for name, count in found.items()}


def read(file: Path) -> Read:
    head: dict[str, Any] = {}
    known: dict[int, list[Any]] = {}
    nodes: dict[int, list[list[Any]]] = {-1: []}
    found = Read(head, [], [])
    for line in file.read_text().splitlines():
        row = json.loads(line)
        if row[0] == "stacks":
            assert (row[1], head) == (1, {})
            head |= row[2]
        elif row[0] == "frame":
            known[row[1]] = row[2:]
        elif row[0] == "stack":
            nodes[row[1]] = [*nodes[row[2]], known[row[3]]]
        elif row[0] == "gap":
            found.gaps.append(row[2])
        else:
            found.samples.append((row[0], nodes[row[1]], row[2]))
    return found


def files(out: Path, kind: str = "main") -> list[Read]:
    found = [read(path) for path in sorted(out.glob("framework/pythonstacks/*/*.jsonl"))]
    return [one for one in found if one.head["kind"] == kind]


def run(out: Path, script: str, *arguments: str, rate: str = "50", python: str = PYTHON) -> tuple[str, str]:
    """Run a script as ``record-job`` does. Returns what it wrote on stdout and stderr."""
    path = out.with_name("train.py")
    path.write_text(script)
    variables = {
        "JOBRECORD_DIR": str(out),
        "JOBRECORD_NODE": "n",
        "JOBRECORD_RUN": "r",
        "JOBRECORD_STACKS": rate,
    }
    done = subprocess.run(
        [python, "train.py", *arguments],
        cwd=out.parent,
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


SCHEDULE = """
import hashlib, json, os, random, sys, threading, time, zlib
from time import perf_counter as clock
import jobrecord

def python_a(s):
    end = clock() + s
    while clock() < end:
        pass
def python_b(s):
    end = clock() + s
    while clock() < end:
        pass
def held(s):
    sum(range(int(per_s * s)))
def hashed(s):
    end = clock() + s
    while clock() < end:
        hashlib.sha256(data).digest()
def compressed(s):
    end = clock() + s
    while clock() < end:
        zlib.crc32(data)
def slept(s):
    time.sleep(s)
def locked(s):
    lock.acquire(timeout=s)
def piped(s):
    threading.Timer(s, os.write, (to, b"x")).start()
    os.read(from_, 1)
def threaded(s):
    thread = threading.Thread(target=slept, args=(s,))
    thread.start()
    thread.join()

data, lock, (from_, to) = os.urandom(1 << 20), threading.Lock(), os.pipe()
lock.acquire()
begin = clock(); sum(range(2_000_000)); per_s = 2_000_000 / (clock() - begin)
_, seconds, low, high, *names = sys.argv
draw, spent = random.Random(1), dict.fromkeys(names, 0.0)
jobrecord.start()
begin = clock()
while clock() - begin < float(seconds):
    for name in names:
        start = clock()
        globals()[name](draw.uniform(float(low), float(high)) / 1000)
        spent[name] += clock() - start
    jobrecord.step()
total = clock() - begin
jobrecord.stop()
print(json.dumps({name: s / total for name, s in spent.items()}))
"""
ALL = ("python_a", "slept", "held", "hashed", "python_b", "compressed", "locked", "piped", "threaded")


def off(out: Path, *arguments: str, python: str = PYTHON) -> dict[str, float]:
    """By how much the share of each line is off."""
    written, _ = run(out, SCHEDULE, *arguments, python=python)
    spent = json.loads(written)
    shares = files(out)[-1].shares()
    return {name: shares.get(name, 0.0) - share for name, share in spent.items()}


def at_most(limit: float, out: Path, *arguments: str, python: str = PYTHON) -> bool:
    """Whether all shares are right within a limit; once in three runs, for others use the cores as well."""
    return any(
        max(map(abs, off(out.with_name(f"job-{again}"), *arguments, python=python).values())) < limit
        for again in range(3)
    )


@pytest.mark.slow
@pytest.mark.alone
def test_python_before_a_wait_is_not_taken_for_the_wait(out: Path) -> None:
    # One look at the due time would be off by 5 of 24 ms.
    assert at_most(0.15, out, "6", "12", "12", "python_a", "slept")


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize(
    ("low", "high", "names"),
    [
        ("20", "20", ("python_a", "slept")),
        ("20", "20", ("python_a", "slept", "python_b", "hashed")),
        ("10", "200", ALL),
        ("20", "60", ALL),
    ],
)
def test_shares_of_lines(out: Path, low: str, high: str, names: tuple[str, ...]) -> None:
    assert at_most(0.05, out, "30", low, high, *names)


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("python", OTHER_PYTHONS, ids=lambda path: path.parts[-3])
def test_shares_of_lines_in_another_python(out: Path, python: Path) -> None:
    assert at_most(0.05, out, "20", "20", "60", *ALL, python=str(python))


def test_what_is_written(out: Path) -> None:
    script = """
import json, time, jobrecord
def wait():
    json.loads("1"); time.sleep(0.01)
jobrecord.start()
for _ in jobrecord.data([1] * 150):
    wait()
jobrecord.step()
"""
    begin_us = time.time_ns() // 1000
    run(out, script)
    (path,) = out.glob("framework/pythonstacks/*/*.jsonl")
    (found,) = files(out)
    assert (path.parent.name, path.stem) == (f"{found.head['pid']}-n", f"{found.head['pid']}")
    assert found.head["interval_us"] == 20_000
    assert begin_us < found.head["started_us"] < time.time_ns() // 1000
    # Frames of the recorder, such as that of `data`, are none of the script.
    assert ["own", "train.py", 7, "<module>"] in [stack[0] for _, stack, _ in found.samples]
    assert {frame[0] for _, stack, _ in found.samples for frame in stack} <= {"own", "python"}
    due = [taken - late for taken, _, late in found.samples]
    between = [after - before for before, after in pairwise(due)]
    assert 0.5 < len(due) / 75 < 1.3
    assert min(between) >= 10_000
    assert len(set(between)) > 20


@pytest.mark.parametrize(
    ("arguments", "script"),
    [((), "import jobrecord, time; jobrecord.start(); time.sleep(0.5)"), (("--stacks", "0"), "")],
)
def test_nothing_is_written_by_a_process_that_does_nothing_else_that_is_recorded(
    tmp_path: Path, arguments: tuple[str, ...], script: str
) -> None:
    script = script or "import jobrecord, time; jobrecord.start(); jobrecord.step(); time.sleep(0.5)"
    record(tmp_path / "job", *arguments, command=[PYTHON, "-c", script])
    assert not (tmp_path / "job" / "framework" / "pythonstacks").exists()


def test_the_script_runs_as_it_would_without(out: Path) -> None:
    """Its random numbers, threads, signals that it waits for, and the lives of its objects are its own."""
    script = """
import gc, os, random, signal, sys, threading, time, weakref, jobrecord
class Big: pass
def use(kept=[]):
    big = Big()
    gone.append(weakref.ref(big))
    end = time.perf_counter() + 0.003
    while time.perf_counter() < end: pass
gone = []
random.seed(1)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
jobrecord.start()
gc.disable()
for _ in range(300):
    use()
    jobrecord.step()
os.kill(os.getpid(), signal.SIGUSR1)
print(signal.sigwait({signal.SIGUSR1}).name, threading.active_count(), sys.getswitchinterval(), random.random())
jobrecord.stop()
print(sum(one() is not None for one in gone))
"""
    assert run(out, script) == ("SIGUSR1 1 0.005 0.13436424411240122\n0\n", "")
    assert len(files(out)[0].samples) > 10


@pytest.mark.parametrize(
    "end",
    [
        "threading.Thread(target=spin, daemon=True).start(); time.sleep(0.3)",
        "threading.Thread(target=time.sleep, args=(0.6,)).start()",
        "time.sleep(0.3); sys.exit()",
    ],
)
def test_a_process_ends_without_a_word(out: Path, end: str) -> None:
    script = f"""
import sys, threading, time, jobrecord
def spin():
    while True: pass
jobrecord.start()
jobrecord.step()
{end}
"""
    assert run(out, script) == ("", "")
    assert len(files(out)[0].samples) > 5


def test_a_deep_recursion_is_cut_in_its_middle(out: Path) -> None:
    script = """
import time, jobrecord
def down(depth):
    if depth: down(depth - 1)
    else: time.sleep(0.5)
jobrecord.start()
jobrecord.step()
down(900)
"""
    run(out, script)
    stack = max((stack for _, stack, _ in files(out)[0].samples), key=len)
    assert len(stack) == 100
    assert [frame[2:] for frame in stack[:2] + stack[-1:]] == [
        [8, "<module>"],
        [4, "down"],
        [5, "down"],
    ]


def test_coroutines_and_the_thread_that_trains(out: Path) -> None:
    script = """
import asyncio, threading, time, jobrecord
async def wait():
    time.sleep(0.2); await asyncio.sleep(0.01)
def train():
    jobrecord.step()
    asyncio.run(wait())
    jobrecord.step()
jobrecord.start()
thread = threading.Thread(target=train)
thread.start(); thread.join()
"""
    run(out, script)
    assert files(out)[0].shares()["wait"] > 0.6


def test_children_of_forks_write_nothing_and_loader_processes_write_their_own(out: Path) -> None:
    script = """
import multiprocessing, os, sys, time, jobrecord
from jobrecord.hooks.loading import note_workers, recorded
class Loader:
    num_workers, worker_init_fn = 3, None
    def __iter__(self):
        start = multiprocessing.get_context(sys.argv[1])
        processes = [start.Process(target=work, args=(self.worker_init_fn, n)) for n in range(3)]
        for process in processes: process.start()
        for process in processes: process.join(); yield process.exitcode
def work(begin, number):
    begin(number)
    decode()
def decode():
    time.sleep(2)
if __name__ == "__main__":
    jobrecord.start()
    for code in jobrecord.data(Loader()):
        assert code == 0
    jobrecord.step()
    if (child := os.fork()) == 0:
        time.sleep(0.5); os._exit(0)
    os.waitpid(child, 0)
"""
    for number, way in enumerate(("fork", "spawn")):
        run(out, script, way)
        assert len(files(out)) == number + 1
        loaders = files(out, "loader")[2 * number :]
        assert len(loaders) == 2
        assert all(one.shares()["decode"] > 0.5 and one.head["interval_us"] == 100_000 for one in loaders)
        assert len({one.head["pid"] for one in files(out) + loaders}) == number + 3


def test_files_of_the_script_are_not_written_to(out: Path) -> None:
    """A script may close all files, ours as well, and get our number for one of its own."""
    script = """
import os, time, jobrecord
jobrecord.start()
jobrecord.step()
time.sleep(1.3); jobrecord.step(); time.sleep(1.3)
os.closerange(3, 256)
own = [open(f"own-{n}", "w") for n in range(20)]
time.sleep(1.5)
jobrecord.step()
"""
    assert run(out, script)[1] == ""
    assert {path.read_text() for path in out.parent.glob("own-*")} == {""}
    assert files(out)[0].samples[-1][0] > 3_500_000


def test_a_full_disk_ends_them_with_a_line(out: Path) -> None:
    script = """
import resource, time, jobrecord
jobrecord.start()
jobrecord.step()
time.sleep(1.2); jobrecord.step(); time.sleep(1.2)
resource.setrlimit(resource.RLIMIT_FSIZE, (800, 800))
time.sleep(2)
print("on")
"""
    written, said = run(out, script)
    assert written == "on\n"
    assert said.count("stacks are not written: File too large") == 1
    assert files(out)[0].samples


def sampled(out: Path, worker: str = "0-n") -> Stacks:
    main = threading.main_thread().ident or 0
    return Stacks(Plan(out, 50), MAIN, lambda: worker, lambda: main)


def test_a_fault_is_said_and_ends_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stacks, "stack_of", lambda _frame: 1 / 0)
    found = sampled(tmp_path)
    time.sleep(0.2)
    found.stop()
    assert capsys.readouterr() == (
        "",
        "jobrecord: stacks are not written: ZeroDivisionError: division by zero\n",
    )


def test_room_is_given_by_the_hour_and_to_processes_that_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks, "HOUR_BYTES", 1000)
    found = sampled(tmp_path)
    wait_for(lambda: (path := next(iter(files(tmp_path)), None)) and path.gaps)
    found.stop()
    (file,) = files(tmp_path)
    assert file.gaps == ["size limit"]
    assert next(tmp_path.glob("*/*/*/*")).stat().st_size < 30_000


def test_samples_before_anything_else_is_recorded_are_kept_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks, "MAX_IDLE_NS", 300_000_000)
    monkeypatch.setattr(stacks, "IDLE_NS", 100_000_000)
    found = sampled(tmp_path, "")
    time.sleep(1.5)
    assert not list(tmp_path.iterdir())
    found._worker = lambda: "0-n"
    wait_for(lambda: next(iter(files(tmp_path)), None))
    time.sleep(0.3)
    found.stop()
    (file,) = files(tmp_path)
    assert file.gaps == ["nothing else was recorded"]
    times = [taken for taken, _, _ in file.samples]
    assert times[0] < 200_000
    assert max(after - before for before, after in pairwise(times)) > 1_000_000


def test_tables_are_written_anew_when_they_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MAX_NODES", 2)
    tree = frames.Tree()
    first, again = [("/job/a.py", "f", line) for line in range(4)], [("/job/a.py", "f", 0)]
    assert tree.add(first)[0] == 3
    assert tree.add(again) == (4, '["frame",4,"own","/job/a.py",0,"f"]\n["stack",4,-1,4]\n')
    assert tree.add(again) == (4, "")


@pytest.mark.parametrize(("argument", "outermost"), [("-c", "own"), ("train.py", "python")])
def test_code_of_exec_is_its_callers(monkeypatch: pytest.MonkeyPatch, argument: str, outermost: str) -> None:
    monkeypatch.setattr(sys, "argv", [argument])
    text = "<string>", "<module>", 1
    stack = [text, ("/lib/site-packages/a.py", "f", 1), text, ("/job/a.py", "g", 2), text]
    rows = [json.loads(line) for line in frames.Tree().add(stack)[1].splitlines()]
    whose = {row[1]: row[2] for row in rows if row[0] == "frame"}
    found = [whose[row[3]] for row in rows if row[0] == "stack"]
    assert found == [outermost, "library", "library", "own", "own"]


def test_short_visits_count_for_the_caller_of_what_was_seen_before_and_after() -> None:
    before: frames.Places = []
    found: list[str] = []

    def look() -> None:
        nonlocal before
        frame = sys._getframe(1)
        found.append(frames.stack_of(frames.caller_of_both(before, frame))[-1][1].rpartition(".")[2])
        before = frames.places_of(frame)

    def one() -> None:
        look()

    def other() -> None:
        look()
        look()

    def caller() -> None:
        one()
        other()

    caller()
    # Nothing was seen before the first; the last two are of the same function.
    assert found == ["one", "caller", "other"]


def test_a_second_recording_has_a_file_of_its_own(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBRECORD_STACKS", "50")
    for _ in range(2):
        jobrecord.start()
        jobrecord.step()
        time.sleep(0.3)
        jobrecord.stop()
    names = {path.name for path in out.glob("framework/pythonstacks/*/*")}
    assert names == {f"{os.getpid()}.jsonl", f"{os.getpid()}-2.jsonl"}
