"""The trace file of one process: rows are kept in memory and written once a second.

The file is readable at any time: ``[``, then a row a line. A closed file is renamed, with ``]`` at its end.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import deque
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from jobrecord import __version__
from jobrecord.clocks import read_both
from jobrecord.facts import hooks_folder
from jobrecord.facts import of_node as facts_of_node
from jobrecord.facts import write as write_facts
from jobrecord.folder import Folder
from jobrecord.names import shown
from jobrecord.open_files import identity, is_open

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

SECOND_NS = 1_000_000_000
MAX_FILE_BYTES = 10 << 20
MAX_FILE_NS = 600 * SECOND_NS
MAX_LANES = 10_000
MAX_NAME = 200
OTHER_LANE, RECORDER_LANE, STEP_LANE = "other", "Recorder", "Step:ModeKeys."
#: After a failed write, and between two writes of the facts.
RETRY_NS = 60 * SECOND_NS
#: Time between writes: what a killed process loses.
FLUSH_NS = SECOND_NS
#: Used if writing takes too much time.
SLOW_FLUSH_NS = 10 * SECOND_NS
#: A write that takes longer is a row of its own.
SLOW_WRITE_NS = SECOND_NS // 100
#: Share of the time that the recorder may take over the last steps, these and this long at least.
MAX_SHARE = 0.01
SHARE_STEPS, SHARE_NS = 100, 10 * SECOND_NS
CLOCK_STEP_NS = SECOND_NS // 20
#: What is written, from everything to nothing, as writing takes too much time.
LEVELS = ("everything", "everything, every 10 s", "steps only", "nothing")
#: Of these changes the facts keep the last ones.
MAX_CHANGES = 100

_FRAMEWORK, _TIMELINE = "framework", "pythontimeline"

now = time.perf_counter_ns
#: `json.dumps` would make an encoder for each call.
_encode = json.JSONEncoder(default=str).encode


def worker_name() -> str:
    """Rank of this process, if it has one by now; else its process id."""
    if (rank := os.environ.get("RANK", "")).isascii() and rank.isdigit():
        return rank
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return str(distributed.get_rank())
    return str(os.getpid())


class Trace:
    """Rows of one process, added by any thread. Times are ``perf_counter_ns``. No method raises for trouble with the disk."""

    def __init__(self, out: Path, node: str) -> None:
        self.out, self.node = out, node
        self.worker = ""
        self.steps = 0
        #: What is recorded of the script without a change of it: why it is off, or nothing.
        self.parts: Mapping[str, str] = {}
        #: What a thread of the recorder took of a core.
        self.thread_ns: Callable[[], int] = int
        #: The trainer that says where its loop is; empty without one.
        self.framework = ""
        #: Further facts of this process, as of when they are written.
        self.more_facts: Callable[[], Mapping[str, Any]] = dict
        #: Steps of optimizers in threads that do not train.
        self.other_threads = 0
        self._rows: deque[tuple[str, str, int, int, int | None, Mapping[str, Any] | None]] = deque()
        #: Taken by who writes: another thread, or a handler of a signal within the write, then goes on without.
        self._turn = [True]
        self._open = True
        #: Asked for once: the child of a fork abandons this.
        self._pid = os.getpid()
        self._file = -1
        #: Device and inode of the file.
        self._identity = 0, 0
        self._name = ""
        self._size = self._end_us = self._opened_ns = 0
        self._lanes: dict[str, int] = {}
        self._announced: set[int] = set()
        self._perf_ns, self._wall_ns = read_both(now, time.time_ns)
        self._flush_ns, self._due_ns = FLUSH_NS, self._perf_ns + FLUSH_NS
        self._retry_ns = self._facts_due_ns = 0
        self._level = 0
        #: Time and steps at the last look at the share, and what the recorder took since.
        self._share_from = self._perf_ns, 0
        self._share_ns = 0
        self._hook_ns = self._clock_steps = self._dropped = self._other_lane_events = 0
        self._failure: dict[str, Any] = {"reason": None, "since_us": None}
        self._changes: deque[dict[str, Any]] = deque(maxlen=MAX_CHANGES)

    def add(
        self,
        lane: str,
        name: str,
        start_ns: int,
        end_ns: int,
        step: int | None = None,
        args: Mapping[str, Any] | None = None,
    ) -> None:
        """Add an event, and write all of them if it is time to."""
        if not self._open:
            return
        self._rows.append((lane, name, start_ns, end_ns, step, args))
        if end_ns > self._due_ns:
            self.flush()

    def perf_ns(self, wall_us: int) -> int:
        """A time since the epoch as ``perf_counter_ns``."""
        return wall_us * 1000 - self._wall_ns + self._perf_ns

    def wall_us(self, perf_ns: int) -> int:
        """A ``perf_counter_ns`` as time since the epoch."""
        return (perf_ns - self._perf_ns + self._wall_ns) // 1000

    def written_as(self) -> str:
        """Name of this process and its node in names of files; nothing as long as nothing was written."""
        return f"{self.worker}-{self.node}" if self._name else ""

    def worker_or_name(self) -> str:
        """Name of this process in names of files, the same from the first call on."""
        self.worker = self.worker or worker_name()
        return self.worker

    def restart_share(self) -> None:
        """Let what was done until now not count as the recorder's share of the time."""
        self._share_from, self._share_ns = (now(), self.steps), 0

    def write_facts_soon(self) -> None:
        """Write the facts with the next rows."""
        self._facts_due_ns = 0

    def flush(self) -> None:
        """Write what is in memory."""
        if not self._open:
            return
        try:
            self._turn.pop()
        except IndexError:
            return
        began = now()
        try:
            self._write(began)
        except OSError as error:
            self._fail(error, began)
        finally:
            self._turn.append(True)
        ended = now()
        self._due_ns = ended + self._flush_ns
        if ended - began > SLOW_WRITE_NS:
            self._rows.append((RECORDER_LANE, "write", began, ended, None, None))
        self._hook_ns += ended - began
        self._share_ns += ended - began
        self._look_at_share(ended)
        if ended > self._facts_due_ns:
            self._write_facts(ended)

    def close(self) -> None:
        """Write what is left, and close the file."""
        self._retry_ns = 0
        self.flush()
        with suppress(OSError):
            self._close_file()
        self._write_facts(now(), is_last=True)
        self._open = False

    def abandon(self) -> None:
        """Forget everything: this is the child of a fork, and rows and file are its parent's."""
        self._open = False
        self._rows.clear()
        if self._has_file():
            with suppress(OSError):
                os.close(self._file)
        self._file = -1

    def _write(self, began: int) -> None:
        rows, count = self._rows, len(self._rows)
        if began < self._retry_ns or self._level == len(LEVELS) - 1:
            self._drop(count)
            return
        if not count:
            return
        if not self._has_file():
            self._open_file(began)
        # Other threads add to them meanwhile.
        taken = [rows.popleft() for _ in range(count)]
        kept = [row for row in taken if self._level < 2 or row[0].startswith(STEP_LANE)]
        self._dropped += _event_count(taken)
        self._size += write_all(self._file, "".join(self._row(*row) for row in kept).encode())
        self._dropped -= _event_count(kept)
        if self._size > MAX_FILE_BYTES or began - self._opened_ns > MAX_FILE_NS:
            self._close_file()

    def _drop(self, count: int) -> None:
        self._dropped += _event_count([self._rows.popleft() for _ in range(count)])

    def _fail(self, error: OSError, at_ns: int) -> None:
        """Note why events are dropped, and cut off what was written of a row."""
        if self._has_file():
            with suppress(OSError):
                os.ftruncate(self._file, self._size)
        if self._failure["reason"] is None:
            self._failure = {"reason": error.strerror or str(error), "since_us": self.wall_us(at_ns)}
            warn(f"steps and events are not written: {self._failure['reason']}")
        self._retry_ns = at_ns + RETRY_NS
        # Lanes of the rows that were not written are announced again.
        self._announced.clear()
        self._drop(len(self._rows))

    def _open_file(self, began: int) -> None:
        self.worker_or_name()
        self._opened_ns, self._end_us = began, 0
        self._announced.clear()
        perf, wall = read_both(now, time.time_ns)
        self._clock_steps += abs((wall - perf) - (self._wall_ns - self._perf_ns)) > CLOCK_STEP_NS
        self._wall_ns, self._perf_ns = wall, perf
        base = {
            "start_time_since_epoch_in_micros": wall // 1000,
            "writer": f"jobrecord {__version__}",
            "pid": self._pid,
            "command": _command(),
            "recording": facts_of_node(self.out, self.node).get("started_us"),
        }
        head = f"[\n{json.dumps({'name': 'process_name', 'ph': 'M', 'pid': 0, 'args': base})},\n".encode()
        with Folder(self.out, _FRAMEWORK, make=True) as folder:
            if not _is_free(self.out, folder, self._file_name()):
                # Another process of this rank is writing, such as the parent of a fork.
                self.worker = str(os.getpid())
                _is_free(self.out, folder, self._file_name())
            self._name = self._file_name()
            file = folder.create(self._name)
            try:
                self._identity = identity(file)
                self._size = write_all(file, head)
            except OSError:
                os.close(file)
                folder.remove(self._name)
                raise
        self._file = file

    def _file_name(self) -> str:
        return f"{self.worker}-{self.node}_{_TIMELINE}.tmp"

    def _has_file(self) -> bool:
        """Whether the file is open. The script may have closed it, and its number be that of a file of the script."""
        return self._file >= 0 and is_open(self._file, self._identity)

    def _close_file(self) -> None:
        if not self._has_file():
            return
        file, self._file = self._file, -1
        try:
            os.ftruncate(file, self._size - len(",\n"))
            write_all(file, b"\n]\n")
            os.fsync(file)
        finally:
            os.close(file)
        # Somebody may have moved the file away.
        with suppress(FileNotFoundError):
            _rename(self.out, self._name, self._end_us or self.wall_us(now()))

    def _row(
        self,
        lane: str,
        name: str,
        start_ns: int,
        end_ns: int,
        step: int | None,
        args: Mapping[str, Any] | None,
    ) -> str:
        """One line; the first row of a lane comes with the lane's name."""
        lane_id = self._lanes.get(lane) or self._lane(lane)
        announced = "" if lane_id in self._announced else self._announce(lane_id, lane)
        start, end = (start_ns - self._perf_ns) // 1000, (end_ns - self._perf_ns) // 1000
        self._end_us = max(self._end_us, end + self._wall_ns // 1000)
        number = "" if step is None else f', "step_num": "{step}"'
        more = "" if not args else f", {_encode(args)[1:-1]}"
        return (
            f'{announced}{{"name": {quoted(name)}, "ph": "X", "pid": {lane_id}, "ts": {start}, "dur": {end - start}, '
            f'"args": {{"pid": {self._pid}{number}{more}}}}},\n'
        )

    def _lane(self, lane: str) -> int:
        if len(self._lanes) >= MAX_LANES and lane != OTHER_LANE:
            self._other_lane_events += 1
            return self._lanes.get(OTHER_LANE) or self._lane(OTHER_LANE)
        return self._lanes.setdefault(lane, len(self._lanes) + 1)

    def _announce(self, lane_id: int, lane: str) -> str:
        self._announced.add(lane_id)
        name = quoted(lane if self._lanes.get(lane) == lane_id else OTHER_LANE)
        return f'{{"name": "process_name", "ph": "M", "pid": {lane_id}, "args": {{"name": {name}}}}},\n'

    def _look_at_share(self, at_ns: int) -> None:
        """Write less if writing took too much of the time of the last steps, and more after a minute of fast writes."""
        since_ns, steps = self._share_from
        passed_ns = at_ns - since_ns
        if self.steps - steps < SHARE_STEPS or passed_ns < SHARE_NS:
            return
        limit_ns, level = MAX_SHARE * passed_ns, self._level
        if self._share_ns > limit_ns:
            self._level = min(level + 1, len(LEVELS) - 1)
        elif level and self._share_ns * SLOW_FLUSH_NS <= limit_ns * FLUSH_NS:
            if passed_ns < RETRY_NS:
                return
            self._level = level - 1
        if self._level != level:
            self._flush_ns = SLOW_FLUSH_NS if self._level else FLUSH_NS
            self._changes.append({"at_us": self.wall_us(at_ns), "written": LEVELS[self._level]})
        self._share_from, self._share_ns = (at_ns, self.steps), 0

    def _write_facts(self, at_ns: int, *, is_last: bool = False) -> None:
        """What the sampler takes into the facts of the node."""
        self._facts_due_ns = at_ns + RETRY_NS
        if not self.worker:
            return
        facts = {
            "pid": self._pid,
            "worker": self.worker,
            "steps": self.steps,
            "hook_s": round((self._hook_ns + self.thread_ns()) / SECOND_NS, 6),
            "clock_steps": self._clock_steps,
            "dropped": {"events": self._dropped, **self._failure},
            "other_threads": self.other_threads,
            "other_lane_events": self._other_lane_events,
            "written": list(self._changes),
            "parts": dict(self.parts),
            "framework": self.framework,
        }
        with suppress(Exception):
            facts |= self.more_facts()
        with suppress(OSError), Folder(self.out, hooks_folder(self.node), make=True) as folder:
            # The sampler adds them to facts of its own.
            write_facts(folder, self.worker, facts, is_last=is_last, is_synced=False)


@lru_cache(maxsize=4096)
def quoted(name: str) -> str:
    """A name as JSON, at most ``MAX_NAME`` characters of it."""
    printable = name.encode("utf-8", "backslashreplace").decode()[:MAX_NAME]
    return json.dumps(printable or "unnamed")


def warn(text: str) -> None:
    """One line for the user. A warning of Python's could be an error in the training script."""
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"jobrecord: {shown(text)}\n")


def _command() -> str:
    """A short mark of the command line, by which commands of one script are told apart; nothing leads back from it."""
    import hashlib  # noqa: PLC0415 - once a file

    # Python starts the processes of multiprocessing by command lines of its own.
    words = sys.argv if "--multiprocessing-fork" in sys.orig_argv else sys.orig_argv
    return hashlib.blake2s("\0".join(words).encode("utf-8", "surrogateescape"), digest_size=4).hexdigest()


def _event_count(rows: Sequence[tuple[Any, ...]]) -> int:
    """Number of rows that are not the recorder's own."""
    return len(rows) - [row[0] for row in rows].count(RECORDER_LANE)


def write_all(file: int, data: bytes) -> int:
    """Write all of it. Returns the number of bytes."""
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]
    return len(data)


def _is_free(out: Path, folder: Folder, name: str) -> bool:
    """Whether a new trace may have the name; that of a process that is gone is closed. Raises OSError."""
    if not folder.has(name):
        return True
    try:
        opened = folder.reopen(name)
    except OSError:  # no file of a recorder
        return False
    with os.fdopen(opened, "rb+") as file:
        head = file.read(1000)
        if _is_alive(head):
            return False
        data = head + file.read()
        whole = data.rfind(b",\n")
        file.truncate(max(whole, 0))
        file.seek(0, os.SEEK_END)
        file.write(b"\n]\n" if whole > 0 else b"[]\n")
        file.flush()
        _rename(out, name, os.fstat(opened).st_mtime_ns // 1000)
    return True


def _is_alive(head: bytes) -> bool:
    """Whether the process that a trace begins with is alive."""
    try:
        pid = json.loads(head.split(b"\n")[1].rstrip(b","))["args"]["pid"]
        os.kill(int(pid), 0)
    except PermissionError:
        return True
    except (OSError, LookupError, TypeError, ValueError):
        return False
    return int(pid) != os.getpid()


def _rename(out: Path, name: str, end_us: int) -> None:
    """Move a closed file to where closed files are, named for its last event."""
    who = name.removesuffix(".tmp")
    hour = time.strftime("%Y%m%d%H", time.gmtime(end_us / 1e6))
    with Folder(out, _FRAMEWORK) as folder, Folder(out, f"{_FRAMEWORK}/pevents/{hour}", make=True) as closed:
        while closed.has(f"{end_us}_{who}.json"):
            end_us += 1
        folder.move(name, closed, f"{end_us}_{who}.json")
