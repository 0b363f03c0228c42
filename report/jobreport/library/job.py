"""A job as frames: what it is judged to be, and its reports."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from jobreport.build import report_of, result_of
from jobreport.comparison.build import compare
from jobreport.comparison.comparing import Settings as ComparisonSettings
from jobreport.comparison.runs import run_of
from jobreport.document import checked, to_json
from jobreport.errors import NothingReadableError, UsageError
from jobreport.files import DEFAULT, FILES
from jobreport.library import captures, results
from jobreport.library.asked import chosen, length_us, moment, numbered
from jobreport.library.frames import of_rows
from jobreport.library.learning import LEARNING, LearnedJob, differences
from jobreport.library.tables import means
from jobreport.options import Options
from jobreport.output import places, publish
from jobreport.pipeline import written
from jobreport.readers.listing import listing
from jobreport.readers.saved_tensors.arrays import array, by_step
from jobreport.readers.tally import Tally
from jobreport.settings import find_rule, load
from jobreport.timeline import LIMIT, METRICS
from jobreport.timeline.trace import write_trace
from jobrules.measures.rows import TRAIN
from jobrules.model import Metric
from jobrules.rule import parameter_fields
from jobrules.rule import written as written_value

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from datetime import timedelta as Timedelta  # noqa: N812 - as in ``recorded``

    import pandas as pd

    from jobreport.document import Report
    from jobreport.library.asked import Moment, StepNumbers
    from jobreport.library.asked import Names as Asked
    from jobreport.page.kit.fragment import Fragment
    from jobreport.readers.archive import Unpacked
    from jobreport.readers.base import SourceFile
    from jobreport.settings import Settings
    from jobreport.storage.urls import Url
    from jobreport.timeline.trace import TraceSummary
    from jobrules.captures.trace import Trace
    from jobrules.model import RuleResult
    from jobrules.model.captures import Capture
    from jobrules.rule import Rule
    from jobrules.verdict.findings import Verdict


class MadeReport(Struct, frozen=True, kw_only=True):
    """The report of a job, in memory or written."""

    report: Report
    #: The page, or the next best of the files; None if nothing was written.
    path: Path | Url | None = None

    @property
    def json(self) -> bytes:
        """The content of ``report.json``."""
        return to_json(self.report)

    def figure(self, anchor: str) -> Fragment:
        """A section of the page by its anchor, such as ``cpu-bottlenecks``: a notebook shows it, ``.html`` is its HTML.

        Raises ``KeyError`` for an unknown anchor.
        """
        from jobreport.page import sections  # noqa: PLC0415 - the figures' libraries take a second

        page = sections.page(self.report)
        (name,) = chosen(anchor, page)
        pieces = (sections.style(), page[name], sections.live_figures())
        return sections.Fragment(name=name, html="".join(one.html for one in pieces))


class Compared(Struct, frozen=True, kw_only=True):
    """Another job against this one, as ``compare-reports`` compares them."""

    #: The verdict in a sentence.
    answer: str
    #: Each number of both, the change from this job to the other, its 95% interval (of the change in percent, or in points
    #: for percentages), and whether it is real.
    measures: pd.DataFrame
    #: What differs between the jobs, or is not known of both: machines, versions, settings.
    differences: pd.DataFrame
    #: What both recorded of the training itself: the first step where it differs, and the largest difference, each as a part of
    #: this job's value; scalars of rank 0, and ``rms`` and ``ratio`` of tensors.
    learning: pd.DataFrame


class JobFrames(LearnedJob):
    """A job that was opened: its tables and judgements as frames of pandas.

    Every frame has the same columns whatever was recorded, and an index from 0. Times are microseconds since the epoch
    (``…_us``) and, where the job has a date, times in UTC; ``attrs`` has the job, the version, the filters, the clock
    (``utc``, or ``elapsed`` for a job without a date), and a ``reason`` if nothing was recorded.

    Filters narrow, and all of them hold. ``node``, ``device``, and all other names take one name, a list of them, or a
    compiled pattern, which is searched; an unknown name raises ``KeyError`` with a near one. ``start`` and ``end`` take a
    time, ISO text (UTC if it has no zone), a time since the start of the job (also as text: ``"90s"``), or microseconds;
    the start belongs to the window, the end does not. All of them are on the clock of the node that recorded a row, which
    may differ from that of another node; ``trace`` sets clocks right.

    Text columns are ``str``, before pandas 3 ``object``.
    """

    # Judgements

    def verdict(self) -> Verdict:
        """The verdict of the page, as ``report.json`` has it."""
        return self._report.verdict

    def findings(self) -> pd.DataFrame:
        """The findings, worst first."""
        return self._table(results.FINDINGS, self._report.verdict.findings)

    def time_use(self) -> pd.DataFrame:
        """How the time of all GPUs was spent, or of all cores without GPUs: the bar of the verdict, which adds up to 1.

        ``finding`` is the key of the finding that explains a part, ``attrs["device"]`` is ``GPU`` or ``CPU``.
        """
        use = self._report.verdict.use
        reason = "" if use else "no utilization was sampled"
        made = self._table(results.TIME_USE, use.parts if use else (), reason)
        made.attrs["device"] = use.device if use else ""
        return made

    def phases(self) -> pd.DataFrame:
        """The phases of the job: start-up, training loop, wind-down."""
        return self._table(results.PHASES, self._report.phases.phases)

    def rules(
        self, *names: str, settings: Mapping[str, Mapping[str, Any]] | None = None, **thresholds: Any
    ) -> pd.DataFrame:
        """The results of the rules, of all or of these.

        Thresholds are given as ``LowGPUUtilization__threshold_p95=60``, or as
        ``settings={"LowGPUUtilization": {"threshold_p95": 60}}``; the rules are run again with them.
        """
        asked = [(rule, one, value) for rule, own in (settings or {}).items() for one, value in own.items()]
        for given, value in thresholds.items():
            rule, _, parameter = given.partition("__")
            asked.append((rule, parameter, value))
        wanted = chosen(names or None, self._rules)
        report = self._report
        if asked:
            rules = self._with_thresholds(asked, wanted)
            report = report_of(self._whole, rules, self._shown, strict=False)[0]
        return self._table(results.RULES, (card for card in report.rules if card.name in wanted))

    def rule(self, name: str, **parameters: Any) -> RuleResult:
        """The result of one rule over the whole job, with its findings, details, and devices."""
        asked = [(name, one, value) for one, value in parameters.items()]
        return self.judge(self._with_thresholds(asked, chosen(name, self._rules)).rules[0])

    def judge(self, rule: Rule) -> RuleResult:
        """The result of a rule, such as one of your own; what it raises is raised here."""
        return checked(result_of(rule, self._whole, strict=True))

    def report(
        self,
        out: str | Path | None = None,
        *,
        formats: Collection[str] = DEFAULT,
        static: bool = False,
        force: bool = False,
    ) -> MadeReport:
        """The report of the job, in memory; with ``out``, its files are written there, as by ``make-report``.

        Names are not redacted: for that, use ``make-report --redact``.
        """
        if out is None:
            return MadeReport(report=self._report)
        options = Options(formats=formats, static=static, force=force)
        report, files = self._reported
        names = {FILES[one] for one in ("json", *chosen(formats, FILES))}
        names |= publish.rule_files(rule.name for rule in self._settings.rules)
        with places.reserved(Path(out), names, options) as place:
            outcome = written(report, files, place, options)
        if outcome.failure:
            raise outcome.failure
        return MadeReport(report=outcome.report, path=outcome.main_file)

    def code_lines(self) -> pd.DataFrame:
        """The lines of code at which processes were sampled, those with most idle time first.

        ``attrs["waiting"]`` says what ``idle`` means: ``gpu``, the GPU was idle; ``fetch``, training waited for a batch.
        """
        lines = self._report.code_lines
        reason = "" if lines else "no stacks of Python code were sampled"
        made = self._table(results.CODE_LINES, lines.lines if lines else (), reason)
        made.attrs["waiting"] = lines.waiting if lines else "none"
        return made

    def rank_waits(self) -> pd.DataFrame:
        """The phases of the steps of each rank, where ranks train in step: those first that the others wait for."""
        waits = self._report.rank_waits
        reason = "" if waits else "no steps of several ranks end together"
        return self._table(results.RANK_WAITS, results.of_ranks(waits) if waits else (), reason)

    def captures(self, table: str = "devices") -> pd.DataFrame:
        """What PyTorch's profiler recorded, as the page has it.

        ``table`` is ``devices`` (their time in parts), ``idle`` (idle time by cause), ``steps`` (the first 200 of a device in
        parts), ``kernels`` and ``operators`` (at most 25 names with most time of each device, and 50 of each capture), or of all
        ranks together ``collectives`` and ``waiting`` (which rank the others wait for).
        """
        (name,) = chosen(table, captures.TABLES)
        reason = "" if self._report.captures else "no traces of PyTorch's profiler were found"
        return self._table(captures.TABLES[name], captures.rows(self._report, name), reason)

    def vendor_tensor(self, name: str, step: int) -> Any:
        """An array that SageMaker Debugger saved at a step, of the first worker that saved it, under the name in its files.

        At most 1 GiB. The files are read again, and fetched again from object storage without a ``cache``. Raises ``KeyError``
        for a step or a name that is not there, ``ValueError`` for what cannot be read, and ``UsageError`` with the reason where
        no arrays were saved.
        """
        self._check_open()
        if self._reading is None:
            raise UsageError("A report holds no arrays. Open the job itself.")
        with ExitStack() as stack:
            files = _files(stack.enter_context(self._source())) if self._source else {}
            steps = by_step(files.values())
            if not steps:
                raise UsageError("No tensors saved by SageMaker Debugger were found.")
            numbered(index(step), np.array([*steps]), "saved")
            found, names = array(steps[step], name)
        if found is None:
            chosen(name, names)
        return found

    def window(self, start: Moment = None, end: Moment = None) -> JobWindow:
        """The job from one moment to another."""
        return JobWindow(self, start, end)

    def compare(self, other: JobFrames, tolerance: float = 1e-6) -> Compared:
        """Another job against this one, which comes before: both are one run, so differences between runs are assumed.

        ``compare-reports`` also takes repeats, prices, and facts of the runs. Of the training itself, differences up to
        ``tolerance`` of a value do not count.
        """
        runs = [run_of(label, job.name, job._report, {}) for label, job in (("this", self), ("other", other))]
        found = compare(runs, ComparisonSettings(), "")
        return Compared(
            answer=found.answer,
            measures=self._table(results.MEASURES, found.measures),
            differences=self._table(results.DIFFERENCES, found.differences),
            learning=of_rows(LEARNING, differences(self, other, tolerance), **self._attrs()),
        )

    def export(
        self,
        folder: str | Path,
        format: str = "parquet",
        tables: Sequence[str] = ("samples", "steps", "events"),
    ) -> list[Path]:
        """Write a file for each table, which is named like the function that gives it: ``parquet``, ``csv``, or ``jsonl``.

        Parquet needs ``pyarrow``. Times are in UTC, lengths of time in microseconds.
        """
        (ending,) = chosen(format, ("parquet", "csv", "jsonl"))
        known = ("samples", "steps", "events", "sources", "quality", "metrics", "findings", "time_use", "phases", "rules",
                 "percentiles", "framework_time", "loaders", "fetches", "profiles", "functions", "code_lines", "rank_waits", "captures",
                 "scalars", "tensors", "classes")  # fmt: skip
        if ending == "parquet" and not find_spec("pyarrow"):
            raise UsageError("Parquet needs pyarrow: pip install pyarrow, or use format='csv'.")
        names = [name for name in known if name in chosen(tables, known)]
        Path(folder).mkdir(parents=True, exist_ok=True)
        return [results.exported(getattr(self, name), Path(folder) / f"{name}.{ending}") for name in names]

    def trace(
        self,
        path: str | Path,
        *,
        start: Moment = None,
        end: Moment = None,
        step: StepNumbers = None,
        sources: Asked = None,
        metrics: Asked = METRICS,
        findings: bool = True,
        captures: bool = True,
        learning: bool = True,
        every: Timedelta | str | None = None,
        absolute: bool = False,
        limit: int = LIMIT,
    ) -> TraceSummary:
        """Write a trace for viewers such as Perfetto: steps, events, samples, and findings on one clock.

        ``path`` is compressed if it ends in ``.gz``; the same job gives the same bytes. ``step`` chooses training steps, of
        each worker its own. Times are microseconds since the first record, or with ``absolute`` since the epoch. Events
        that overlap others of their lane without lying in them have a lane beside it, as viewers need. ``sources`` are those
        of ``events``; steps are written in any case. ``every="10s"`` writes a mean for each 10 s instead of the samples, as
        ``samples`` has it.

        With ``captures``, the operators and kernels of PyTorch's profiler are in it; their files are read again, one at a time,
        and fetched again from object storage without a ``cache``.
        Those without a time base that counts from the epoch are left out: ``left_out`` of the summary says so. With ``learning``,
        the loss and other scalars of rank 0 are counters, and marks where one is NaN or infinite.

        Raises ``UsageError`` if there are more than ``limit`` rows: ``start``, ``sources``, and ``every`` make them fewer; or if
        the folder of ``path`` does not exist.
        """
        first_us, stop_us = (moment(one, self.span_us[0]) for one in (start, end))
        numbers = self._steps.where(self._steps.mode == TRAIN).number if step is not None else None
        with ExitStack() as stack:
            read = None
            if captures and self._source and self._whole.job.captures:
                read = _reader(stack.enter_context(self._source()))
            return write_trace(
                self._whole.job,
                Path(path),
                self._report.verdict.findings if findings else (),
                start_us=first_us,
                end_us=stop_us,
                steps=None if numbers is None else numbered(step, numbers, TRAIN),
                metrics=chosen(metrics, map(str, Metric)),
                sources=None if sources is None else chosen(sources, self._names.sources),
                means=None if every is None else partial(means, self._whole.job, length_us(every)),
                read=read,
                learning=learning,
                absolute=absolute,
                limit=limit,
            )

    @property
    def _rules(self) -> list[str]:
        return [rule.name for rule in self._settings.rules]

    def _with_thresholds(self, asked: Iterable[tuple[str, str, Any]], names: Iterable[str]) -> Settings:
        """Settings with these rules and parameters."""
        assignments = []
        for name, parameter, value in asked:
            (known,) = chosen(name, self._rules)
            rule = find_rule(known)
            chosen(parameter, [*(one for one, _, _ in parameter_fields(rule)), *rule.aliases])
            assignments.append(f"{known}.{parameter}={written_value(value)}")
        return load(assignments=assignments, select=[*names])


def _files(source: Unpacked) -> dict[str, SourceFile]:
    """The files of a job that is read again, by name."""
    try:
        return {one.name: one for one in source.files or listing(source.directory, Tally())}
    except NothingReadableError:
        # The job has been moved since it was opened.
        return {}


def _reader(source: Unpacked) -> Callable[[Capture], Trace | None]:
    """Reads the file of a capture again."""
    from jobreport.readers.kineto.table import read_trace  # noqa: PLC0415 - most jobs have no such file

    files = _files(source)

    def read(capture: Capture) -> Trace | None:
        file = files.get(capture.file)
        return read_trace(file, Tally())[0] if file else None

    return read


class JobWindow:
    """A job from one moment to another."""

    def __init__(self, job: JobFrames, start: Moment, end: Moment) -> None:
        """The functions are those of the job; events are cut to the window."""
        self.samples = partial(job.samples, start=start, end=end)
        self.steps = partial(job.steps, start=start, end=end)
        self.events = partial(job.events, clip=True, start=start, end=end)
        self.scalars = partial(job.scalars, start=start, end=end)
        self._metrics = partial(job.percentiles, by=("node",), q=(), start=start, end=end)

    def summary(self) -> pd.DataFrame:
        """Each metric of each node, over time; then each event type, with the sum of its events in the window."""
        return results.summary(self._metrics(), self.events())
