"""The path from a job directory to the files of a report."""

from __future__ import annotations

import contextlib
import errno
import heapq
import importlib
import os
import shlex
import threading
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import UNSET, Struct
from msgspec.structs import replace

from jobreport import __version__, document
from jobreport.document import JobFacts, NodeFacts, Parameter, Report, RuleCard
from jobreport.errors import JobReportError
from jobreport.output import publish, summary
from jobreport.output.files import FILES
from jobreport.progress import Progress, advance, telling
from jobreport.readers import archive
from jobreport.remarks import Remark
from jobreport.settings import load
from jobreport.tables.engine import Here
from jobrules.analyses.balance import balance
from jobrules.analyses.bottlenecks import bottlenecks
from jobrules.analyses.close_ups import close_ups
from jobrules.analyses.data_loading import data_loading
from jobrules.analyses.devices import devices
from jobrules.analyses.framework import framework
from jobrules.analyses.gpu_memory import gpu_memory
from jobrules.analyses.gpu_utilization import gpu_utilization
from jobrules.analyses.nodes import node_comparison
from jobrules.analyses.power import power
from jobrules.analyses.steps import steps
from jobrules.analyses.time_lines import columns, time_lines
from jobrules.analyses.utilization import utilization
from jobrules.cpu_bottleneck import CPUBottleneck
from jobrules.dataloader import Dataloader
from jobrules.gpu_memory_increase import GPUMemoryIncrease
from jobrules.io_bottleneck import IOBottleneck
from jobrules.load_balancing import LoadBalancing
from jobrules.model import SECOND_US, Metric, Reason, ReasonKind, Status, span_of
from jobrules.overall_framework_metrics import OverallFrameworkMetrics
from jobrules.rule import parameter_fields, run_rules, written
from jobrules.step_outlier import StepOutlier
from jobrules.text import count, escape_name, join_names
from jobrules.verdict.findings import judge
from jobrules.verdict.phases import job_phases

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from jobreport.output.kernel import Kernel
    from jobreport.readers.debugger_results.rule_results import RuleResults
    from jobreport.remarks import Quality
    from jobreport.settings import Settings
    from jobreport.tables.engine import Engine
    from jobrules.analyses.framework import FrameworkTime
    from jobrules.model import Job, PartFacts, Profile, RuleResult
    from jobrules.rule import Rule


_R = TypeVar("_R", bound="Rule")
FRAMEWORK = OverallFrameworkMetrics.__name__
#: Seconds for the imports beside the notebook to end, where its run was stopped.
_JOIN_S = 5.0
#: Analyses besides the rules.
ANALYSES = 9
#: What is half written then does not take the place of an older report.
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}
#: Profiles of Python code that the page has room for.
MOST_PROFILES = 12


class Outcome(Struct, frozen=True, kw_only=True):
    """What ``make_report`` wrote."""

    report: Report
    folder: Path
    #: Paths of the files, relative to the folder.
    made: frozenset[Path]
    #: What could not be made, or which rule or reader failed; the other files are there.
    failure: JobReportError | None = None

    @property
    def main_file(self) -> Path:
        """The page, or what comes nearest to it among the files that were asked for and made."""
        names = (Path(FILES[f]) for f in ("html", "ipynb", "md", "json"))
        return self.folder / next(name for name in names if name in self.made)


def make_report(
    job_dir: Path,
    out: Path | None = None,
    *,
    settings: Settings | None = None,
    formats: Collection[str] = tuple(FILES),
    static: bool = False,
    force: bool = False,
    strict: bool = False,
    redact: bool = False,
    zone: str | None = None,
    engine: Engine | None = None,
    progress: Progress | None = None,
    kernel: Kernel | None = None,
) -> Outcome:
    """Read a job directory (or an archive of one) and write its report into a folder.

    ``out`` defaults to ``<name of the job>-report`` in the working directory. ``report.json``
    is always written. ``static`` leaves the scripts out of the page. ``redact`` puts stand-ins in the place of
    names (``jobreport.redaction.pseudonyms``). ``zone`` is the time zone of times that name none, as ``Europe/Berlin`` or
    ``+02:00``. ``engine`` reads and judges; without
    one that is done in this process. ``progress`` hears how far it has come. ``kernel`` runs the notebook, as one of
    ``jobreport.output.kernel.started()``; without one it is started when needed.

    Raises ``NothingReadableError`` where the directory holds nothing to report, ``UsageError`` where
    the folder already holds a report and ``force`` is not set, or the zone is none.
    """
    # The readers are not needed for --help.
    from jobreport.readers.nvidia_smi.times import zone_of  # noqa: PLC0415 - as the readers
    from jobreport.readers.registry import job_name, read_directory  # noqa: PLC0415
    from jobreport.redaction.pseudonyms import JOB, redacted  # noqa: PLC0415 - as the readers

    chosen, progress = settings or load(), progress or Progress()
    if zone is not None:
        chosen = replace(chosen, options=(*chosen.options, f"--timezone {zone}"))
    with contextlib.ExitStack() as stack:
        stack.enter_context(telling(progress))
        engine = engine or stack.enter_context(Here())
        source = stack.enter_context(archive.unpacked(job_dir))
        name = JOB if redact else source.name or job_name(source.directory)
        folder = Path(os.path.abspath(out or f"{name}-report"))  # noqa: PTH100 - Path.absolute keeps ".."
        with publish.place(folder, force=force) as place:
            reading = read_directory(
                source.directory,
                name=name,
                strict=strict,
                engine=engine,
                progress=progress,
                leave=place.own,
                zone=None if zone is None else zone_of(zone),
            )
            quality = reading.quality
            unusable = [
                Remark.worded(action="failed", count=1, unit="rules", reason=told) for told in chosen.failed
            ]
            quality = replace(quality, remarks=(*quality.remarks, *source.remarks, *unusable))
            given = archive.printable(job_dir.name) if source.name and not redact else name
            if redact:
                reading, quality, chosen = redacted(reading, quality, chosen)
            if reading.debugger_results:
                progress.stage("no samples: taking the vendor's rule results")
                report, rules = _of_vendor(
                    name, reading.debugger_results, quality, chosen, given, strict=strict
                )
            else:
                job, many = reading.job, len(chosen.rules)
                progress.stage(f"judging by {count(many, 'rule')}", many + ANALYSES)
                results, rules = _judged(chosen.rules, job, strict=strict)
                command = _command(given, chosen.options)
                report = build_report(job, quality, chosen.rules, results, command, strict=strict)
            try:
                failure = _write(
                    place.staging,
                    report,
                    rules,
                    formats,
                    kernel,
                    static=static,
                    strict=strict,
                    progress=progress,
                )
            except OSError as error:
                told = f"Cannot write into {escape_name(str(folder), 200)}: {error.strerror}. What was there is unchanged."
                raise JobReportError(told) from error
            made = place.publish()
    return Outcome(report=report, folder=folder, made=made, failure=failure or _stopped(report))


def _command(job_dir: str, options: Sequence[str]) -> str:
    """What makes the report again."""
    words = [word for option in options for word in option.split(" ", 1)]
    return shlex.join(["make-report", "--job-dir", job_dir, *words])


def _of_vendor(
    name: str, found: RuleResults, quality: Quality, chosen: Settings, job_dir: str, *, strict: bool
) -> tuple[Report, dict[str, bytes]]:
    """The report of the vendor's results, and the rules' files. Thresholds of ours change nothing in it."""
    from jobreport.debugger_report import report as debugger_report  # noqa: PLC0415 - as the readers
    from jobreport.readers.debugger_results.rule_results import NAMES  # noqa: PLC0415

    options = [option for option in chosen.options if not option.startswith("--set ")]
    if unused := len(chosen.options) - len(options):
        reason = "without effect: the vendor's results stand as its service wrote them"
        remark = Remark.worded(action="skipped", count=unused, unit="thresholds", reason=reason)
        quality = replace(quality, remarks=(*quality.remarks, remark))
    no_samples = Reason(kind=ReasonKind.NOT_RECORDED, what="samples", verb="were")
    own = {rule: rule.not_evaluated(no_samples) for rule in chosen.rules if rule.name not in NAMES}
    others = [card(rule, result) for rule, result in own.items()]
    command = _command(job_dir, options)
    report = debugger_report.build(name, found, quality, chosen.rules, command, others=others, strict=strict)
    files = {rule.name: document.rule_json(rule, result) for rule, result in own.items()}
    return report, debugger_report.documents(report, found) | files


def _judged(
    rules: Sequence[Rule], job: Job, *, strict: bool
) -> tuple[tuple[RuleResult, ...], dict[str, bytes]]:
    """Every rule's result, and its file; a result that cannot be written is an error of its rule."""
    results, files = [], {}
    for rule in rules:
        (given,) = run_rules([rule], job, strict=strict)
        advance(1)
        try:
            result = document.checked(given)
            files[rule.name] = document.rule_json(rule, result)
        except Exception as error:
            if strict:
                raise
            result = rule.failed(error)
            files[rule.name] = document.rule_json(rule, result)
        results.append(result)
    return tuple(results), files


def _stopped(report: Report) -> JobReportError | None:
    """Rules and readers that failed, as one error for the exit status."""
    broken = [card.name for card in report.rules if card.status is Status.ERROR]
    broken += [remark.reason for remark in report.quality.remarks if remark.action == "failed"]
    if not broken:
        return None
    return JobReportError(
        f"The report was written without {join_names(broken)}, which failed; --strict shows where."
    )


def build_report(
    job: Job,
    quality: Quality,
    rules: Sequence[Rule],
    results: Sequence[RuleResult],
    command: str,
    *,
    strict: bool = False,
) -> Report:
    """Everything the page shows, from the job and its rule results."""
    in_time = job_phases(job)
    grid = columns(job)
    beside = node_comparison(job, grid, in_time)
    start_us, end_us = job.span_us
    report = Report(
        schema_version=document.SCHEMA_VERSION,
        version=__version__,
        command=command,
        job=JobFacts(
            name=job.name,
            start_us=start_us,
            end_us=end_us,
            nodes=tuple(map(_node_facts, job.facts)),
            sources=tuple(source.source for source in quality.sources),
            steps=job.step_count,
            finished=job.finished,
            recorded=job.recorded,
        ),
        verdict=judge(job, rules, results, in_time),
        phases=in_time,
        utilization=utilization(job),
        columns=grid,
        time_lines=time_lines(job, grid, beside.drawn),
        boxes=gpu_utilization(job),
        rules=tuple(card(rule, result) for rule, result in zip(rules, results, strict=True)),
        quality=quality,
        profiles=_longest(job.profiles),
        profiles_left=max(0, len(job.profiles) - MOST_PROFILES),
        nodes=beside,
    )
    return _with_analyses(report, job, rules, results, strict=strict)


def _with_analyses(
    report: Report, job: Job, rules: Sequence[Rule], results: Sequence[RuleResult], *, strict: bool
) -> Report:
    """The report with all analyses; one that fails costs its section and is remarked."""
    grid = report.columns
    cpu, io = _rule(rules, CPUBottleneck), _rule(rules, IOBottleneck)
    loaders = next((result for result in results if result.rule == Dataloader.__name__), None)
    analyses: dict[str, Callable[[], Any]] = {
        "framework": lambda: next((_framework(r, job) for r in results if r.rule == FRAMEWORK), None),
        "steps": lambda: steps(job, _rule(rules, StepOutlier)),
        "balance": lambda: balance(job, _rule(rules, LoadBalancing)),
        "data_loading": lambda: data_loading(job, _rule(rules, Dataloader), loaders),
        "bottlenecks": lambda: tuple(found for rule in (cpu, io) if (found := bottlenecks(job, rule, grid))),
        "gpu_memory": lambda: gpu_memory(job, _rule(rules, GPUMemoryIncrease), grid),
        "devices": lambda: devices(job, grid, _rule(rules, CPUBottleneck).cpu_threshold),
        "close_ups": lambda: close_ups(job, cpu, io),
        "power": lambda: power(job) or UNSET,
    }
    found, remarks = {}, []
    for name, analyze in analyses.items():
        advance(1)
        try:
            found[name] = analyze()
        except Exception as error:
            if strict:
                raise
            reason = escape_name(f"the analysis of {name} stopped: {type(error).__name__}: {error}", 200)
            remarks.append(Remark.worded(action="failed", count=1, unit="sections", reason=reason))
    quality = replace(report.quality, remarks=(*report.quality.remarks, *remarks))
    return replace(report, quality=quality, **found)


def _longest(profiles: Sequence[Profile]) -> tuple[Profile, ...]:
    """The profiles that are shown, in the order of the job: those with most self time."""
    kept = heapq.nlargest(MOST_PROFILES, range(len(profiles)), key=lambda i: profiles[i].self_s)
    return tuple(profiles[i] for i in sorted(kept))


def _rule(rules: Sequence[Rule], kind: type[_R]) -> _R:
    """The rule with the thresholds in force; with its defaults where it was not selected."""
    return next((rule for rule in rules if isinstance(rule, kind)), kind())


def _framework(result: RuleResult, job: Job) -> FrameworkTime | None:
    return framework(result.details, job) if result.status is Status.PASSED else None


def _node_facts(part: PartFacts) -> NodeFacts:
    known = {panel.metric: panel for panel in part.panels}
    gpu, cpu = known.get(Metric.GPU_UTILIZATION), known.get(Metric.CPU_UTILIZATION)
    interval_us = next((p.interval_us for p in (cpu, gpu, *part.panels) if p and p.interval_us), 0)
    first_us, last_us = span_of((part.samples_us, part.steps_us, part.events_us)) or (0, 0)
    return NodeFacts(
        name=part.node,
        gpus=len(part.gpus),
        cores=len(cpu.devices) if cpu else 0,
        interval_s=round(interval_us / SECOND_US, 3) if interval_us else None,
        first_us=first_us,
        last_us=last_us,
    )


def card(rule: Rule, result: RuleResult) -> RuleCard:
    """A rule's documentation and result side by side."""
    told = rule.documentation()
    return RuleCard(
        name=rule.name,
        title=rule.title,
        checks=told.checks,
        why=told.why,
        advice=told.advice,
        parameters=tuple(
            Parameter(
                name=name,
                value=written(value),
                unit="" if isinstance(value, timedelta) else metadata["unit"],
                help=metadata["help"],
                default=written(default),
            )
            for name, default, metadata in parameter_fields(rule)
            for value in (getattr(rule, name),)
        ),
        can_trigger=rule.can_trigger,
        status=result.status,
        reason=result.reason,
        headline=result.headline,
        measure=result.measure,
        triggered=result.triggered,
        violations=result.violations,
        datapoints=result.datapoints,
        evaluated=result.evaluated,
        violating=result.violating,
        counted=result.counted,
        severity=result.severity,
        first_us=result.first_us,
        last_us=result.last_us,
        section=rule.section,
        devices=result.devices,
        kinds={kind: n for kind in ("low", "fluctuating") if isinstance(n := result.details.get(kind), int)},
    )


def _write(
    folder: Path,
    report: Report,
    rules: Mapping[str, bytes],
    formats: Collection[str],
    kernel: Kernel | None,
    *,
    static: bool,
    strict: bool,
    progress: Progress,
) -> JobReportError | None:
    """Write what was asked for; a notebook or page that fails is returned, the rest stands."""
    (folder / "report.json").write_bytes(document.to_json(report))
    (folder / "rules").mkdir()
    for name, text in rules.items():
        (folder / "rules" / f"{name}.json").write_bytes(text)
    if "md" in formats:
        (folder / "summary.md").write_text(summary.markdown(report), "utf-8")
    if not {"html", "ipynb"} & set(formats):
        return None
    try:
        failed = _write_page(folder, formats, kernel, static=static, progress=progress)
        if failed:
            raise JobReportError(
                f"The page was written without {join_names(failed)}, which could not be drawn."
            )
    except Exception as error:
        if strict or (isinstance(error, OSError) and error.errno in _NO_ROOM):
            raise
        if isinstance(error, JobReportError):
            return error
        return JobReportError(
            f"The page could not be made: {type(error).__name__}: {error}. The rest is written."
        )
    return None


def _write_page(
    folder: Path, formats: Collection[str], kernel: Kernel | None, *, static: bool, progress: Progress
) -> Sequence[str]:
    """Write the notebook and the page; answers the sections that could not be drawn, in words."""
    # Papermill and nbconvert are slow to import and only needed here.
    from jobreport.output import notebook  # noqa: PLC0415

    # Beside the cells, for which this process only waits.
    names = ("jobreport.output.export",) if "html" in formats else ()
    beside = threading.Thread(target=_imported, args=names, daemon=True)
    beside.start()
    progress.stage("running the notebook")
    try:
        executed = notebook.run_notebook(folder / "report.json", kernel)
    finally:
        # Cut short by the end of the process it would complain aloud. But Ctrl-C within an import of this
        # thread can leave a lock that it waits for in vain.
        beside.join(_JOIN_S)
    if "ipynb" in formats:
        (folder / "report.ipynb").write_text(notebook.to_text(executed), "utf-8")
    if "html" in formats:
        from jobreport.output import export  # noqa: PLC0415

        progress.stage("writing the page")
        (folder / "report.html").write_text(export.render_html(executed, static=static), "utf-8")
    return list(executed.metadata.get("failed", ()))


def _imported(*names: str) -> None:
    """What goes wrong here is told where the module is used."""
    for name in names:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
