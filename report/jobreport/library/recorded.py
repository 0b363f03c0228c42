"""What was recorded of a job, as frames: samples, steps, and events, and sums of these."""

from __future__ import annotations

import re
import weakref
from bisect import bisect_right
from functools import cached_property
from typing import TYPE_CHECKING, Any

from jobreport import __version__
from jobreport.build import report_of
from jobreport.errors import UsageError
from jobreport.library import machine_time, results
from jobreport.library.asked import chosen, length_us, moment, numbered
from jobreport.library.frames import Clock, frame, of_rows, timedelta
from jobreport.library.tables import (
    ALWAYS,
    EVENTS,
    MEANS,
    SAMPLES,
    STEPS,
    Names,
    Wanted,
    common,
    event_columns,
    sample_columns,
    series,
    step_columns,
    steps_of,
)
from jobreport.readers.bounds import EARLIEST_US
from jobreport.settings import load
from jobrules.measures.clock_offsets import Clocks
from jobrules.model import Metric, Steps, natural_sorted
from jobrules.rules.step_outlier import StepOutlier
from jobrules.text import count, duration
from jobrules.verdict.phases import job_phases

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from datetime import timedelta as Timedelta  # noqa: N812 - next to a function of this name
    from typing import Self

    import pandas as pd

    from jobreport.document import Report
    from jobreport.library.asked import Moment, StepNumbers
    from jobreport.library.asked import Names as Asked
    from jobreport.library.frames import Columns
    from jobreport.library.job import JobFrames
    from jobreport.library.tables import Window
    from jobreport.readers.archive import Unpacked
    from jobreport.readers.registry import Reading
    from jobreport.settings import Settings
    from jobreport.tables.parts import JobInParts
    from jobrules.model import Profile

#: What ``attrs`` list of what a call asks for: other options choose no rows.
_FILTERS = {
    *(
        "metric",
        "source",
        "phase",
        "timer",
        "name",
        "mode",
        "collection",
        "node",
        "device",
        "worker",
        "rank",
        "thread",
    ),
    *("start", "end", "step"),
}
#: Why frames of the job's tables are empty.
_FROM_REPORT = "a report holds no samples, steps, or events; open the job itself"
_NO_SAMPLES, _NO_STEPS, _NO_EVENTS = "no samples were found", "no steps were found", "no traces were found"
_NO_PROFILES = "no profiles of Python code were found"


class RecordedJob:
    """A job with its tables as frames of pandas."""

    def __init__(
        self,
        *,
        reload: Callable[[], JobFrames],
        reading: Reading | None = None,
        settings: Settings | None = None,
        shown: str = "",
        report: Report | None = None,
        close: Callable[[], object] = lambda: None,
        source: Callable[[], AbstractContextManager[Unpacked]] | None = None,
    ) -> None:
        """Of what was read, or of a ``report`` alone; ``source`` gives the files once more."""
        self._reload, self._reading, self._shown, self._only_report = reload, reading, shown, report
        self._settings, self._source = settings or load(), source
        self._close = weakref.finalize(self, close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        size = f"{count(len(self.nodes), 'node')}, {count(self.gpu_count, 'GPU')}"
        return f"<job {self.name!r}: {size}, {duration(self.span_us[1] - self.span_us[0])}>"

    def close(self) -> None:
        """Remove temporary files. Frames that were made stay as they are; asking for more raises ``UsageError``."""
        self._close()

    def reload(self) -> JobFrames:
        """The same place as it is now, for a job that runs; this one stays as it was read."""
        return self._reload()

    # What the job is

    @property
    def name(self) -> str:
        """The name of the job."""
        return self._job.name if self._job else self._report.job.name

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes, in natural order."""
        return self._job.nodes if self._job else tuple(one.name for one in self._report.job.nodes)

    @property
    def span_us(self) -> tuple[int, int]:
        """The first and the last record, in microseconds."""
        return self._job.span_us if self._job else (self._report.job.start_us, self._report.job.end_us)

    @property
    def start(self) -> pd.Timestamp | None:
        """The first record; None for a job without a date."""
        return self._clock.moments(self.span_us)[0] if self._clock.has_date else None

    @property
    def end(self) -> pd.Timestamp | None:
        """The last record; None for a job without a date."""
        return self._clock.moments(self.span_us)[1] if self._clock.has_date else None

    @property
    def duration(self) -> pd.Timedelta:
        """From the first to the last record."""
        return timedelta(self.span_us[1] - self.span_us[0])

    @property
    def gpu_count(self) -> int:
        """GPUs with samples of their utilization."""
        if self._job:
            return self._job.gpu_count
        use = self._report.verdict.use
        return use.count if use and use.device == "GPU" else 0

    @property
    def interval(self) -> pd.Timedelta:
        """The sampling interval of most samples, of a report the shortest of its nodes; 0 without samples."""
        if self._job:
            return timedelta(self._job.interval_us)
        known = [one.interval_s for one in self._report.job.nodes if one.interval_s]
        return timedelta(1e6 * min(known, default=0))

    @property
    def sources(self) -> pd.DataFrame:
        """The kinds of files that were read."""
        return self._table(results.SOURCES, self._quality.sources)

    @property
    def quality(self) -> pd.DataFrame:
        """What was skipped, dropped, and corrected, with the count and the first place."""
        return self._table(results.QUALITY, results.remarks(self._quality))

    @property
    def metrics(self) -> pd.DataFrame:
        """The metrics that were sampled: what ``samples`` can be asked for."""
        panels = [panel for part in (self._job.facts if self._job else ()) for panel in part.panels]
        reason = "" if panels else self._none(_NO_SAMPLES)
        return self._table(results.METRICS, results.by_metric(panels), reason=reason)

    # Tables

    def samples(
        self,
        metric: Asked = None,
        *,
        node: Asked = None,
        device: Asked = None,
        start: Moment = None,
        end: Moment = None,
        step: StepNumbers = None,
        phase_of_step: str = "TRAIN",
        every: Timedelta | str | None = None,
        wide: bool = False,
    ) -> pd.DataFrame:
        """Samples, a row each: what one sensor of one device gave at one time.

        Devices that are read one after the other have one time; ``snapshot`` numbers the moments of a node, of all metrics
        alike. ``every="10s"`` gives a row for each 10 s from the start
        of the job on: the mean over time, as the page counts it (a sample holds until the next one; pauses are not
        measured), and the share of the time that was ``covered``; NaN where nothing was. ``step`` are the samples from
        the start to the end of these steps on their node. ``wide`` has a column ``node/device/metric`` each, which
        must have one unit, and the times as index.
        """
        attrs = self._attrs(locals())
        metrics, columns = chosen(metric, map(str, Metric)), MEANS if every else SAMPLES
        every_us = length_us(every) if every is not None else 0
        attrs["reason"] = self._not_sampled(metrics)
        found: dict[str, Any] = {}
        if self._job and self._job.samples_us:
            devices = self._devices(device)
            windows = dict.fromkeys(chosen(node, self.nodes), self._window(start, end))
            if step is not None:
                steps = self._step_windows(step, phase_of_step)
                windows = {one: common(windows[one], steps[one, ""]) for one in windows if (one, "") in steps}
            found = sample_columns([*series(self._job, metrics, devices, windows, every_us)], self.nodes)
        made = frame(columns, self._timed(found, "time"), **attrs)
        if not wide:
            return made
        index = "time" if self._clock.has_date else "since_start"
        return results.widened(made, index, ["node", "device", "metric"], "value", "unit")

    def steps(
        self,
        phase: Asked = None,
        *,
        node: Asked = None,
        worker: Asked = None,
        start: Moment = None,
        end: Moment = None,
    ) -> pd.DataFrame:
        """Steps that begin in the window, by start.

        ``worker`` is the rank, or the process id where no rank is known; ``phase`` is ``TRAIN``, ``EVAL``, ``PREDICT``, or
        ``GLOBAL``; ``step`` is -1 where it has no number. ``gap_us`` is the time from the end of the step before of the
        same worker, NaN for its first, negative where steps overlap. ``first`` marks the first step of a worker and phase,
        ``outlier`` what the rule StepOutlier calls one.
        """
        attrs = self._attrs(locals())
        if self._job is None or not self._job.step_count:
            return frame(STEPS, **attrs | {"reason": self._none(_NO_STEPS)})
        known = self._names
        wanted = {
            "node": chosen(node, known.nodes),
            "worker": chosen(worker, known.workers),
            "phase": chosen(phase, known.step_phases),
        }
        found = step_columns(self._job, wanted["node"], known, self._outlier)
        first_us, stop_us = self._window(start, end)
        if found:
            rows = (found["start_us"] >= first_us) & (found["start_us"] < stop_us)
            for name, names in wanted.items():
                rows &= found[name].isin([*names])
            found = self._timed({name: column[rows] for name, column in found.items()})
        return frame(STEPS, found, **attrs)

    def events(
        self,
        *,
        source: Asked = None,
        phase: Asked = None,
        name: Asked = None,
        node: Asked = None,
        worker: Asked = None,
        thread: int | None = None,
        start: Moment = None,
        end: Moment = None,
        step: StepNumbers = None,
        phase_of_step: str = "TRAIN",
        overlap: bool = True,
        clip: bool = False,
        limit: int | None = None,
    ) -> pd.DataFrame:
        """Events of traces: what processes did from when to when, by start.

        With ``overlap``, events that touch the window, otherwise those that begin in it; ``clip`` cuts them to it.
        ``step=7`` and ``step=slice(3, 8)``, whose end is not part of it, are the time of these steps of each worker;
        ``phase`` is the event type, such as ``Forward``. ``self_us`` is the time of an event without those within it, of
        the same type and thread; ``step`` the number of the step of the same worker in which it begins.

        Raises ``ValueError`` if there are more than ``limit`` rows; none are left out.
        """
        attrs = self._attrs(locals())
        if self._job is None or self._no_events:
            return frame(EVENTS, **attrs | {"reason": self._no_events})
        known = self._names
        wanted = Wanted(
            workers=chosen(worker, known.workers),
            phases=chosen(phase, known.phases),
            sources=chosen(source, known.sources),
            names=None if name is None else chosen(name, known.names),
            thread=thread,
            windows=None if step is None else self._step_windows(step, phase_of_step),
            window=self._window(start, end),
            overlap=overlap,
            clip=clip,
            of_steps=phase_of_step,
        )
        parts = self._job.one_by_one(chosen(node, known.nodes))
        found = event_columns(parts, wanted, known)
        if limit is not None and found and len(found["start_us"]) > limit:
            raise ValueError(f"{count(len(found['start_us']), 'event')}, more than the limit of {limit:,}")
        return frame(EVENTS, self._timed(found), **attrs)

    def iter_events(self, rows: int = 1_000_000, **filters: Any) -> Iterator[pd.DataFrame]:
        """The frames of ``events``, of at most so many rows, node after node: for more events than fit into memory."""
        for node in self.nodes if self._job else ():
            if "node" in filters and node not in chosen(filters["node"], self.nodes):
                continue
            found = self.events(**filters | {"node": node})
            for first in range(0, len(found), rows):
                yield found.iloc[first : first + rows].reset_index(drop=True)

    # Time of machines and of the framework

    def percentiles(
        self,
        metric: Asked = None,
        *,
        q: Sequence[float] = (0.05, 0.5, 0.95),
        by: Sequence[str] = ("node", "device"),
        phase: str | None = None,
        node: Asked = None,
        device: Asked = None,
        start: Moment = None,
        end: Moment = None,
    ) -> pd.DataFrame:
        """The distribution of samples over the time that was measured: mean, range, and a column ``p95`` for each of ``q``.

        A value counts for the time that its sample stands for, as with ``every`` of ``samples``. A quantile is the smallest
        value that holds, together with all below it, for at least this share of the time. ``by`` are ``node``, ``device``, and
        ``phase`` (one of ``phases``), which are empty where they are not told apart; ``phase="TRAIN"`` takes only the time
        within such steps of the node.
        """
        attrs, q = self._attrs(locals()), [*dict.fromkeys(q)]
        columns = machine_time.PERCENTILES | machine_time.columns_of(q)
        metrics, by = chosen(metric, map(str, Metric)), [*chosen(by, ("node", "device", "phase"))]
        attrs["reason"] = self._not_sampled(metrics)
        if self._job is None or not self._job.samples_us:
            return frame(columns, **attrs)
        of_phase = next(iter(chosen(phase, self._names.step_phases))) if phase is not None else None
        window, nodes = self._window(start, end), chosen(node, self.nodes)
        found = machine_time.percentiles(
            self._job, metrics, self._devices(device), nodes, window, of_phase, by, q
        )
        return of_rows(columns, found, **attrs)

    def framework_time(self, by: str = "phase") -> pd.DataFrame:
        """Sums of all events of each node: by event type (``"phase"``), or of operators by name (``"operator"``).

        ``share`` is that of its ``kind``, such as ``cpu`` or ``gpu``; of operators that of the time without what they call.
        """
        (way,) = chosen(by, ("phase", "operator"))
        return self._of_events(machine_time.FRAMEWORK_TIME, lambda job: machine_time.framework_time(job, way))

    def loaders(self) -> pd.DataFrame:
        """The data loaders that were set up: the class of the iterator, its settings, and how many batches were fetched."""
        return self._of_events(machine_time.LOADERS, machine_time.loaders)

    def fetches(self) -> pd.DataFrame:
        """The batches that training processes waited for; an outlier took more than twice the median."""
        found = machine_time.fetches(self._job) if self._job else {}
        return frame(machine_time.FETCHES, found, **self._attrs() | {"reason": self._no_events})

    def profiles(self) -> pd.DataFrame:
        """The profiles of Python code, of cProfile and Pyinstrument: from when to when, and the sum of all functions."""
        reason = "" if self._profiles else self._none(_NO_PROFILES)
        return self._table(results.PROFILES, self._profiles, reason)

    def functions(
        self, top: int | None = 10, *, phase: Asked = None, timer: Asked = None, node: Asked = None
    ) -> pd.DataFrame:
        """The functions of each profile with most time of their own, ``top`` of them, 25 at most.

        ``calls`` is NA of a profiler that samples. ``phase`` takes the profiles that begin in one of ``phases``, ``timer``
        those of one profiler, such as ``cProfile``. Profiles of several profilers measure in different ways: each has rows of
        its own, and no two are added up.
        """
        attrs = self._attrs(locals())
        if self._job is None or not self._profiles:
            return frame(
                {name: kind for name, (kind, _) in results.FUNCTIONS.items()},
                **attrs | {"reason": self._none(_NO_PROFILES)},
            )
        timers = chosen(timer, (one.profiler for one in self._profiles))
        nodes = chosen(node, natural_sorted({*self.nodes, *(one.node for one in self._profiles)}))
        stretches = job_phases(self._job).phases
        phases = chosen(phase, (one.label for one in stretches))
        begins_us, late_us = [one.start_us for one in stretches[1:]], Clocks.of(self._job).late_us
        rows = [
            (one, function)
            for one in self._profiles
            if one.profiler in timers and one.node in nodes
            if phase is None
            or stretches[bisect_right(begins_us, one.start_us - late_us(one.node))].label in phases
            for function in one.functions[:top]
        ]
        return results.table(results.FUNCTIONS, rows, self._clock, attrs)

    # What stands behind it

    @property
    def _job(self) -> JobInParts | None:
        """None where there are no records of the job itself."""
        return self._reading.job if self._reading and not self._reading.has_results_alone else None

    @property
    def _profiles(self) -> Sequence[Profile]:
        return self._job.profiles if self._job else ()

    @property
    def _whole(self) -> Reading:
        self._check_open()
        if self._reading is None:
            raise UsageError("A report has the results of rules, not what they need. Open the job itself.")
        return self._reading

    @cached_property
    def _reported(self) -> tuple[Report, dict[str, bytes]]:
        if self._only_report:
            return self._only_report, {}
        return report_of(self._whole, self._settings, self._shown, strict=False)

    @property
    def _report(self) -> Report:
        return self._reported[0]

    @property
    def _quality(self) -> Any:
        return self._reading.quality if self._reading else self._report.quality

    @cached_property
    def _names(self) -> Names:
        return Names.of(self._whole.job)

    @cached_property
    def _steps(self) -> Steps:
        """Those of all nodes, without their other tables."""
        return Steps.joined(self._whole.job.each(steps_of))

    @cached_property
    def _clock(self) -> Clock:
        return Clock(self.span_us[0], has_date=self.span_us[0] >= EARLIEST_US)

    @property
    def _outlier(self) -> StepOutlier:
        return next((one for one in self._settings.rules if isinstance(one, StepOutlier)), StepOutlier())

    def _check_open(self) -> None:
        if not self._close.alive:
            raise UsageError("The job was closed. Ask before that, or open it again.")

    def _attrs(self, asked: Mapping[str, Any] | None = None) -> dict[str, Any]:
        self._check_open()
        filters = {
            name: one.pattern if isinstance(one, re.Pattern) else str(one)
            for name, one in (asked or {}).items()
            if one is not None and name in _FILTERS
        }
        return {
            "job": self.name,
            "version": __version__,
            "clock": self._clock.name,
            "filters": filters,
            "reason": "",
        }

    @property
    def _no_events(self) -> str:
        return "" if self._job and self._job.event_count else self._none(_NO_EVENTS)

    def _of_events(
        self, columns: Columns, rows: Callable[[JobInParts], Iterable[tuple[Any, ...]]]
    ) -> pd.DataFrame:
        found = rows(self._job) if self._job else ()
        return of_rows(columns, found, **self._attrs() | {"reason": self._no_events})

    def _not_sampled(self, metrics: Collection[str]) -> str:
        """Why there are no samples of any of these metrics; empty if there are some."""
        if self._job is None or not self._job.samples_us:
            return self._none(_NO_SAMPLES)
        recorded = any(self._job.has(one) for one in Metric if one in metrics)
        return "" if recorded or not metrics else f"{', '.join(sorted(metrics))}: not recorded"

    def _devices(self, device: Asked) -> frozenset[str]:
        panels = (panel for part in self._whole.job.facts for panel in part.panels)
        return chosen(device, natural_sorted({one for panel in panels for one in panel.devices}))

    def _table(self, columns: results.Table, rows: Iterable[Any], reason: str = "") -> pd.DataFrame:
        return results.table(columns, rows, self._clock, self._attrs() | {"reason": reason})

    def _none(self, what: str) -> str:
        """Why there is nothing."""
        return what if self._reading else _FROM_REPORT

    def _timed(self, found: dict[str, Any], name: str = "start") -> dict[str, Any]:
        """The columns with times of the one of this name."""
        if not found:
            return found
        us = found[f"{name}_us"]
        return found | {name: self._clock.times(us), "since_start": self._clock.since_start(us)}

    def _window(self, start: Moment, end: Moment) -> Window:
        first_us, stop_us = (moment(one, self.span_us[0]) for one in (start, end))
        return ALWAYS[0] if first_us is None else first_us, ALWAYS[1] if stop_us is None else stop_us

    def _step_windows(self, step: StepNumbers, phase: str) -> dict[tuple[str, str], Window]:
        """From the start of the first to the end of the last of the steps that are asked for, of each node and worker."""
        (phase,) = chosen(phase, self._names.step_phases)
        of_phase = self._steps.where(self._steps.mode == phase)
        first, stop = numbered(step, of_phase.number, phase)
        inside = of_phase.where((of_phase.number >= first) & (of_phase.number < stop))
        found: dict[tuple[str, str], Window] = {}
        columns = (getattr(inside, name).tolist() for name in ("node", "rank", "start_us", "end_us"))
        for node, worker, start_us, end_us in zip(*columns, strict=True):
            for key in ((node, worker), (node, "")):
                low, high = found.get(key, (start_us, end_us))
                found[key] = min(low, start_us), max(high, end_us)
        return found
