"""The sampler: reads all sensors at each tick and appends their rows, until the owner of the recording ends it."""

from __future__ import annotations

import math
import os
import select
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

from jobrecord import facts, settings
from jobrecord.clocks import read_both
from jobrecord.files import MINUTE_S, SampleFiles
from jobrecord.folder import Folder
from jobrecord.hooks import totals
from jobrecord.sampler_process import END
from jobrecord.sensors import Machine, all_sensors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrecord.files import Row
    from jobrecord.sensors import Sensor

_NICENESS = 5
#: Difference of wall clock and monotonic clock between two ticks that is a step of the wall clock.
_CLOCK_STEP_S = 0.05
#: The end of the job does not wait for a sensor that took as long before, unless it is due.
_SLOW_S = 0.5
#: Samples that are closer than this are one snapshot to those who read them; a late tick, or the end, may be as close to
#: the tick before it.
_SNAPSHOT_S = 0.021


def main() -> None:
    """Sample until standard input ends. The only argument is the process to record."""
    try:
        owner = Owner()
        options = settings.read(os.environ)
        machine = Machine(pid=int(sys.argv[1]), run=options.run)
        sampler = Sampler(options, machine, all_sensors(options, machine, os.environ))
        # Not before: the first sample is to come soon after the job's start.
        if hasattr(os, "nice"):
            os.nice(_NICENESS)
        sampler.run(owner)
    except Exception as error:  # noqa: BLE001 - the job goes on without samples
        print(f"record-job: sampling stopped: {type(error).__name__}: {error}", file=sys.stderr)


class Owner:
    """The process that owns the recording: ends it by a word on standard input, or by being gone."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        #: True if the owner was killed.
        self.gone = False
        self._pid = os.getppid()
        if os.name == "nt":
            # There is no select for pipes there.
            threading.Thread(target=self._read, daemon=True).start()

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds`; True if the recording ends."""
        if os.name == "nt":
            return self.ended.wait(max(0.0, seconds))
        if select.select([0], [], [], max(0.0, seconds))[0]:
            self._read()
        elif os.getppid() != self._pid:
            # Another process holds the pipe open.
            self.gone = True
            self.ended.set()
        return self.ended.is_set()

    def _read(self) -> None:
        self.gone = os.read(0, len(END)) != END
        self.ended.set()


class Sampler:
    """Ticks by the monotonic clock, stamps by the wall clock; measures itself."""

    def __init__(self, options: settings.Settings, machine: Machine, sensors: Sequence[Sensor]) -> None:
        self.files = SampleFiles(options.out, options.node, options.max_bytes)
        self._options = options
        self._machine = machine
        self._sensors = sensors
        #: Time of the next reading of each sensor, by the monotonic clock.
        self._due_s = [0.0] * len(sensors)
        #: Duration of the shortest reading of each sensor.
        self._reading_s = [math.inf] * len(sensors)
        self._facts = facts.of_node(options.out, options.node) or facts.first_facts(options, os.environ)
        #: Ticks by their duration in tenths of milliseconds.
        self._durations: Counter[int] = Counter()
        self._late_ticks = 0
        self._clock_steps = 0
        steady_s, now_s = read_both(time.monotonic, time.time)
        self._clock_offset_s = now_s - steady_s

    def run(self, owner: Owner) -> None:
        """Tick until the owner ends the recording, then once more; closes files and facts.

        A tick that was missed is not made up for: the next one is at the next multiple of the interval.
        """
        interval_s = self._options.interval_s
        start_s = time.monotonic()
        number, next_facts_s = 0, start_s
        ticked_s = start_s - _SNAPSHOT_S
        while True:
            time.sleep(max(0.0, ticked_s + _SNAPSHOT_S - time.monotonic()))
            ticked_s = time.monotonic()
            is_last = owner.ended.is_set()
            self.tick(start_s + number * interval_s, is_last=is_last)
            if is_last:
                break
            now_s = time.monotonic()
            if now_s >= next_facts_s:
                next_facts_s = now_s + MINUTE_S
                self._write_facts()
            following = int((time.monotonic() - start_s) / interval_s) + 1
            self._late_ticks += following - number - 1
            number = following
            due_s = start_s + number * interval_s
            if not owner.wait(due_s - time.monotonic()):
                self._late_ticks += time.monotonic() - due_s > interval_s / 2
        self.files.close()
        if owner.gone:
            self._facts |= {"ended_us": time.time_ns() // 1000, "ended_by": "parent gone"}
        self._write_facts()

    def tick(self, due_s: float, *, is_last: bool = False) -> None:
        """Read the sensors that are due at `due_s` and write their rows, all with one time stamp."""
        began_s, now_s = read_both(time.monotonic, time.time)
        if abs(now_s - began_s - self._clock_offset_s) > _CLOCK_STEP_S:
            self._clock_steps += 1
        self._clock_offset_s = now_s - began_s
        rows: list[Row] = []
        for number, sensor in enumerate(self._sensors):
            is_due = due_s >= self._due_s[number] - self._options.interval_s / 2
            # The last tick reads all but the slow ones: such as energy, and the kill that ended the job.
            if is_due or (is_last and self._reading_s[number] < _SLOW_S):
                reading_s = time.monotonic()
                try:
                    rows.extend(sensor.rows())
                except Exception as error:  # noqa: BLE001 - the other sensors go on
                    reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
                    self._machine.left_out.add(type(sensor).__name__, reason)
                # A sensor that was slow once, such as at its start, is no slow one.
                took_s = time.monotonic() - reading_s
                self._reading_s[number] = min(self._reading_s[number], took_s)
                # A sensor that is slow takes longer pauses.
                self._due_s[number] = due_s + sensor.every_s
        self.files.write(now_s, rows)
        self._durations[int((time.monotonic() - began_s) * 10_000)] += 1

    def _write_facts(self) -> None:
        files = self.files
        self._facts |= self._machine.facts
        self._facts |= {
            "left_out": self._machine.left_out.facts(),
            "late_ticks": self._late_ticks,
            "tick_ms": {"p50": self._duration_ms(0.5), "p99": self._duration_ms(0.99)},
            "dropped": {
                "samples": files.dropped_rows,
                "bytes": files.dropped_bytes,
                "reason": files.reason,
                "since_us": files.since_us,
                "until_us": files.until_us,
            },
            "overhead": {"sampler_cpu_s": round(time.process_time(), 3)},
            "clock_steps": self._clock_steps,
        }
        totals.add(self._facts, self._options.out)
        try:
            with Folder(self._options.out, facts.FOLDER) as folder:
                facts.write(folder, self._options.node, self._facts)
        except OSError as error:
            # A full disk: the next minute tries again.
            files.note(error.strerror or str(error))

    def _duration_ms(self, share: float) -> float:
        """Duration that this share of the ticks did not exceed."""
        left = share * self._durations.total()
        for tenths in sorted(self._durations):
            left -= self._durations[tenths]
            if left <= 0:
                return (tenths + 1) / 10
        return 0.0
