"""The path from a job directory to the files of a report."""

from __future__ import annotations

import contextlib
import errno
import heapq
import importlib
import os
import shlex
import tempfile
import threading
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import UNSET, Struct
from msgspec.structs import replace

from jobreport import __version__, document
from jobreport.cost.one_job import job_cost
from jobreport.cost.prices import Pricing
from jobreport.document import JobFacts, NodeFacts, Parameter, Report, RuleCard
from jobreport.errors import JobReportError, NothingReadableError, UsageError
from jobreport.lost_samples import with_lost_samples
from jobreport.output import publish, summary
from jobreport.output.files import FILES, REPORT, Product
from jobreport.progress import Progress, advance, showing
from jobreport.readers import archive
from jobreport.remarks import Remark
from jobreport.settings import load
from jobreport.tables.engine import LocalEngine
from jobrules.analyses.balance import balance
from jobrules.analyses.blocks import step_blocks, time_blocks
from jobrules.analyses.bottlenecks import bottlenecks
from jobrules.analyses.close_ups import close_ups
from jobrules.analyses.data_loading import data_loading
from jobrules.analyses.demand import demand
from jobrules.analyses.devices import devices
from jobrules.analyses.framework import framework
from jobrules.analyses.goodput import goodput
from jobrules.analyses.gpu_memory import gpu_memory
from jobrules.analyses.gpu_utilization import gpu_utilization
from jobrules.analyses.host import host
from jobrules.analyses.nodes import node_comparison
from jobrules.analyses.power import power
from jobrules.analyses.steps import steps
from jobrules.analyses.time_lines import columns, time_lines
from jobrules.analyses.utilization import utilization
from jobrules.model import SECOND_US, Metric, Reason, ReasonKind, Status, span_of
from jobrules.rule import NO_GPU, needs_gpus, parameter_fields, run_rules, written
from jobrules.rules.cpu_bottleneck import CPUBottleneck
from jobrules.rules.dataloader import Dataloader
from jobrules.rules.gpu_memory_increase import GPUMemoryIncrease
from jobrules.rules.io_bottleneck import IOBottleneck
from jobrules.rules.load_balancing import LoadBalancing
from jobrules.rules.overall_framework_metrics import OverallFrameworkMetrics
from jobrules.rules.step_outlier import StepOutlier
from jobrules.rules.traces.shares import NO_CAPTURES, CaptureRule
from jobrules.text import capitalized, count, escape_name, join_names
from jobrules.verdict.findings import judge
from jobrules.verdict.in_work import results_in_work
from jobrules.verdict.phases import job_phases

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from jobreport.debugger_report.beside import Beside
    from jobreport.output.kernel import Kernel
    from jobreport.readers.debugger_results.rule_results import RuleResults
    from jobreport.readers.runs import Choice
    from jobreport.remarks import Quality
    from jobreport.settings import Settings
    from jobreport.tables.engine import Engine
    from jobrules.analyses.bottlenecks import Bottlenecks
    from jobrules.analyses.framework import FrameworkTime
    from jobrules.analyses.time_lines import Columns
    from jobrules.model import Job, PartFacts, Profile, RuleResult
    from jobrules.rule import Rule


_R = TypeVar("_R", bound="Rule")
#: Seconds to wait for an import to end if the run is stopped.
_JOIN_S = 5.0
#: Profiles of Python code on the page.
MAX_PROFILES = 12


class Outcome(Struct, frozen=True, kw_only=True):
    """The report that ``make_report`` wrote."""

    report: Report
    folder: Path
    #: Paths of the files, relative to the folder.
    files: frozenset[str]
    #: What is missing in the report because it failed; None if nothing is.
    failure: JobReportError | None = None

    @property
    def main_file(self) -> Path:
        """The page, or the next best of the files that were written."""
        return self.folder / next(FILES[f] for f in ("html", "ipynb", "md", "json") if FILES[f] in self.files)


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
    columns: str | None = None,
    date_order: str | None = None,
    run: Choice = None,
    pricing: Pricing | None = None,
    engine: Engine | None = None,
    progress: Progress | None = None,
    kernel: Kernel | None = None,
) -> Outcome:
    """Read a job directory (or an archive of one) and write its report into a folder.

    ``out`` defaults to ``<name of the job>-report`` in the working directory. ``report.json`` is always written.
    ``static`` leaves the scripts out of the page. ``redact`` replaces names by placeholders
    (``jobreport.redaction.pseudonyms``). ``zone`` is the time zone of timestamps that have none, such as
    ``Europe/Berlin`` or ``+02:00``. ``columns`` names the columns of a log without a header line. ``date_order``
    (``day-first`` or ``month-first``) is that of dates such as 03/04/2026 in a log that does not show it. ``run`` is the
    run of a log with several: its number, or ``all``; None for the newest. ``pricing`` is what the user said of the
    price of the job. ``engine`` reads the files and runs the rules; without one, this process does. ``kernel``, of
    ``jobreport.output.kernel.started()``, runs the notebook; without it, one is started when needed.

    Raises ``NothingReadableError`` if the directory has no readable input, and ``UsageError`` if the folder already
    contains a report and ``force`` is not set, or other files of these names, if the zone is unknown, ``columns``
    is empty, there is no such run, or the machine of the job has several prices.
    """
    # The readers are not needed for --help.
    from jobreport.readers.nvidia_smi.headed import column_names  # noqa: PLC0415 - as the readers
    from jobreport.readers.nvidia_smi.times import zone_of  # noqa: PLC0415 - as the readers
    from jobreport.readers.registry import job_name, read_directory  # noqa: PLC0415
    from jobreport.redaction.pseudonyms import JOB, redacted  # noqa: PLC0415 - as the readers

    chosen, progress = settings or load(), progress or Progress()
    given = {"--timezone": zone, "--columns": columns, "--date-order": date_order, "--run": run}
    options = (f"{option} {value}" for option, value in given.items() if value is not None)
    chosen = replace(chosen, options=(*chosen.options, *options))
    with contextlib.ExitStack() as stack:
        stack.enter_context(showing(progress))
        engine = engine or stack.enter_context(LocalEngine(1))
        source = stack.enter_context(archive.unpacked(job_dir))
        name = JOB if redact else source.name or job_name(source.directory)
        folder = Path(os.path.abspath(out or f"{name}-report"))  # noqa: PTH100 - Path.absolute keeps ".."
        names = {FILES[one] for one in ("json", *formats)}
        names |= publish.rule_files(rule.name for rule in chosen.rules)
        stack.enter_context(publish.reserved(folder, names, force=force))
        real = Path(os.path.realpath(folder))
        try:
            reading = read_directory(
                source.directory,
                name=name,
                strict=strict,
                engine=engine,
                progress=progress,
                leave=frozenset(str(real / file) for file in (*publish.own_files(real), publish.LOCK)),
                zone=zone_of(zone or "UTC"),
                columns=column_names(columns) if columns is not None else (),
                date_order=date_order or "",
                shown=job_dir,
                run=run,
            )
        except NothingReadableError as error:
            if redact:
                raise NothingReadableError(
                    "No readable input. Run without --redact to see the files."
                ) from error
            raise
        remarks = (*reading.quality.remarks, *source.remarks, *chosen.failed)
        quality = replace(reading.quality, remarks=remarks)
        directory = archive.printable(job_dir.name) if source.name and not redact else name
        if redact:
            reading, quality, chosen = redacted(reading, quality, chosen)
        results = reading.debugger_results
        if results and reading.has_results_alone:
            progress.stage("No samples: using the rule results of SageMaker Debugger")
            report, files = _from_debugger_results(name, results, quality, chosen, directory, strict=strict)
        else:
            progress.stage(f"Running {count(len(chosen.rules), 'rule')}", len(chosen.rules) + len(_ANALYSES))
            report, files = _from_job(reading.job, results, quality, chosen, directory, strict=strict)
        report = _priced(report, pricing or Pricing(), strict=strict)
        files[FILES["json"]] = document.to_json(report)
        if "md" in formats:
            files[FILES["md"]] = summary.markdown(report).encode()
        failure = _failed_parts(report)
        if {"html", "ipynb"} & set(formats):
            progress.stage("Writing the page")
            made, no_page = pages(files[FILES["json"]], formats, kernel, static=static, strict=strict)
            files |= made
            failure = no_page or failure
        publish.publish(real, files, force=force)
    return Outcome(report=report, folder=folder, files=frozenset(files), failure=failure)


def _command(job_dir: str, options: Sequence[str]) -> str:
    """The command that makes the report again."""
    words = [word for option in options for word in option.split(" ", 1)]
    return shlex.join(["make-report", "--job-dir", job_dir, *words])


def _from_debugger_results(
    name: str, found: RuleResults, quality: Quality, chosen: Settings, job_dir: str, *, strict: bool
) -> tuple[Report, dict[str, bytes]]:
    """The report of SageMaker Debugger's results, and the files of the rules. Thresholds have no effect on it."""
    from jobreport.debugger_report import report as debugger_report  # noqa: PLC0415 - as the readers
    from jobreport.debugger_report.findings import has_only_cpus  # noqa: PLC0415
    from jobreport.readers.debugger_results.rule_results import NAMES  # noqa: PLC0415

    options = [option for option in chosen.options if not option.startswith("--set ")]
    if unused := len(chosen.options) - len(options):
        remark = Remark(code="debugger.thresholds", count=unused)
        quality = replace(quality, remarks=(*quality.remarks, remark))
    no_samples = Reason(kind=ReasonKind.NOT_RECORDED, what="samples", verb="were")
    of_gpus = NO_GPU if has_only_cpus(found) else no_samples

    def reason(rule: Rule) -> Reason:
        if isinstance(rule, CaptureRule):
            return NO_CAPTURES
        return of_gpus if needs_gpus(rule) else no_samples

    own = {rule: rule.not_evaluated(reason(rule)) for rule in chosen.rules if rule.name not in NAMES}
    others = [card(rule, result) for rule, result in own.items()]
    command = _command(job_dir, options)
    report = debugger_report.build(name, found, quality, chosen.rules, command, others=others, strict=strict)
    contents = debugger_report.documents(report.rules, found)
    contents |= {rule.name: document.rule_json(rule, result, {}) for rule, result in own.items()}
    return report, _rule_files(contents, _evaluated(report.rules))


def _from_job(
    job: Job,
    debugger: RuleResults | None,
    quality: Quality,
    chosen: Settings,
    job_dir: str,
    *,
    strict: bool,
) -> tuple[Report, dict[str, bytes]]:
    """The report of a job, and the files of the rules; a result that cannot be written is an error of its rule."""
    results, contents, for_readers = [], {}, set()
    intervals_us = {panel.metric: panel.interval_us for part in job.facts for panel in part.panels}
    for rule in chosen.rules:
        (found,) = run_rules([rule], job, strict=strict)
        advance(1)
        try:
            result = document.checked(found)
            content = document.rule_json(rule, result, intervals_us)
        except Exception as error:
            if strict:
                raise
            result = rule.failed(error)
            content = document.rule_json(rule, result, intervals_us)
        contents[rule.name] = content
        results.append(result)
        if document.has_schema(result):
            for_readers.add(rule.name)
    command = _command(job_dir, chosen.options)
    in_work = _in_work(job, chosen.rules, results, strict=strict)
    if debugger is None:
        report = build_report(job, quality, chosen.rules, results, command, in_work=in_work, strict=strict)
        return report, _rule_files(contents, for_readers)
    from jobreport.debugger_report.beside import beside  # noqa: PLC0415 - as the readers
    from jobreport.debugger_report.report import documents  # noqa: PLC0415

    added = beside(debugger, job, chosen.rules, in_work, strict=strict)
    report = build_report(
        job, quality, chosen.rules, results, command, in_work=in_work, added=added, strict=strict
    )
    cards = [answer.card for answer in added.answers.values()]
    contents |= documents(cards, debugger)
    return report, _rule_files(contents, for_readers | _evaluated(cards))


def _evaluated(cards: Sequence[RuleCard]) -> set[str]:
    return {card.name for card in cards if card.was_evaluated}


def _rule_files(contents: Mapping[str, bytes], for_readers: Collection[str]) -> dict[str, bytes]:
    """The files of the rules by their paths."""
    return {publish.rule_file(n, for_readers=n in for_readers): content for n, content in contents.items()}


def _failed_parts(report: Report) -> JobReportError | None:
    """Rules and readers that failed, as one error for the exit status."""
    failed = [card.name for card in report.rules if card.status is Status.ERROR]
    failed += [one.rule for one in report.verdict.not_evaluated if one.status is Status.ERROR]
    failed = list(dict.fromkeys(failed))
    failed += [remark.reason for remark in report.quality.remarks if remark.action == "failed"]
    return _written_without(failed) if failed else None


def _written_without(failed: Sequence[str], product: Product = REPORT) -> JobReportError:
    return JobReportError(
        f"{capitalized(product.noun)} written without {join_names(failed)}, which failed. Run with --strict to see why."
    )


def build_report(
    job: Job,
    quality: Quality,
    rules: Sequence[Rule],
    results: Sequence[RuleResult],
    command: str,
    *,
    in_work: Sequence[RuleResult] | None = None,
    added: Beside | None = None,
    strict: bool = False,
) -> Report:
    """The report of a job and the results of its rules, of all of it and ``in_work``, by default those that it gives;
    ``added`` is what SageMaker Debugger's results add.
    """
    in_time = job_phases(job)
    if in_work is None:
        in_work = _in_work(job, rules, results, strict=strict)
    if added:
        in_work = list(map(added.result, in_work))
    answers = added.answers if added else {}
    grid = columns(job)
    compared = node_comparison(job, grid, in_time)
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
        verdict=with_lost_samples(
            judge(
                job,
                rules,
                in_work,
                in_time,
                added.account if added else None,
                added.findings if added else (),
                strict=strict,
            ),
            quality,
            job,
        ),
        phases=in_time,
        utilization=utilization(job),
        columns=grid,
        time_lines=time_lines(job, grid, compared.drawn),
        boxes=gpu_utilization(job),
        rules=tuple(
            answers[rule.name].card if rule.name in answers else card(rule, during, whole)
            for rule, during, whole in zip(rules, in_work, results, strict=True)
        ),
        quality=quality,
        profiles=_longest(job.profiles),
        profiles_left=max(0, len(job.profiles) - MAX_PROFILES),
        nodes=compared,
        captures=job.captures or UNSET,
        across_ranks=job.across_ranks or UNSET,
    )
    report = added.added(report) if added else report
    evaluated = _Evaluated(job=job, rules=rules, results=results, columns=grid)
    return _with_analyses(report, evaluated, strict=strict)


class _Evaluated(Struct, frozen=True, kw_only=True):
    """What the analyses see: the job, and the rules with their results."""

    job: Job
    rules: Sequence[Rule]
    results: Sequence[RuleResult]
    columns: Columns

    def rule(self, kind: type[_R]) -> _R:
        """The rule with its thresholds; with its defaults if it was not selected."""
        return next((rule for rule in self.rules if isinstance(rule, kind)), kind())

    def result(self, kind: type[Rule]) -> RuleResult | None:
        """The result of a rule; None if it was not selected."""
        return next((result for result in self.results if result.rule == kind.__name__), None)

    def framework(self) -> FrameworkTime | None:
        """Framework time from the details of its rule."""
        result = self.result(OverallFrameworkMetrics)
        if result is None or result.status is not Status.PASSED:
            return None
        return framework(result.details, self.job)

    def bottlenecks(self) -> tuple[Bottlenecks, ...]:
        """CPU and I/O bottlenecks, as far as they were recorded; not where a mean stands for the cores that results list."""
        rules = (self.rule(CPUBottleneck), self.rule(IOBottleneck))
        shown = (rule for rule in rules if rule.stalls(self.job) is None)
        return tuple(found for rule in shown if (found := bottlenecks(self.job, rule, self.columns)))


#: Fields of the report that are made last; one that fails costs its section. They count as steps of the progress.
_ANALYSES: dict[str, Callable[[_Evaluated], Any]] = {
    "framework": _Evaluated.framework,
    "steps": lambda of: steps(of.job, of.rule(StepOutlier)),
    "balance": lambda of: balance(of.job, of.rule(LoadBalancing)),
    "data_loading": lambda of: data_loading(of.job, of.rule(Dataloader), of.result(Dataloader)),
    "bottlenecks": _Evaluated.bottlenecks,
    "gpu_memory": lambda of: gpu_memory(of.job, of.rule(GPUMemoryIncrease), of.columns),
    "devices": lambda of: devices(of.job, of.columns, of.rule(CPUBottleneck).cpu_threshold),
    "close_ups": lambda of: close_ups(of.job, of.rule(CPUBottleneck), of.rule(IOBottleneck)),
    "power": lambda of: power(of.job) or UNSET,
    "host": lambda of: host(of.job) or UNSET,
    "blocks": lambda of: step_blocks(of.job),
    "time_blocks": lambda of: time_blocks(of.job),
    "goodput": lambda of: goodput(of.job),
    "demand": lambda of: demand(of.job),
}


def _with_analyses(report: Report, evaluated: _Evaluated, *, strict: bool) -> Report:
    """The report with all analyses of the job."""
    for name, analyze in _ANALYSES.items():
        advance(1)
        report = _with_analysis(report, name, partial(analyze, evaluated), strict=strict)
    return report


def _with_analysis(report: Report, name: str, analyze: Callable[[], Any], *, strict: bool) -> Report:
    """The report with one more analysis; one that fails adds a remark."""
    try:
        return replace(report, **{name: analyze()})
    except Exception as error:
        if strict or isinstance(error, UsageError):
            raise
        known = {"kind": type(error).__name__, "error": escape_name(str(error), 200)}
        remark = Remark(code="analysis.failed", count=1, fields={"analysis": name, **known})
        return replace(report, quality=replace(report.quality, remarks=(*report.quality.remarks, remark)))


def _priced(report: Report, pricing: Pricing, *, strict: bool) -> Report:
    """The report with the cost of the job, and the command that gives it."""
    command = " ".join(filter(None, [report.command, shlex.join(pricing.options)]))
    priced = _with_analysis(report, "cost", partial(job_cost, report, pricing), strict=strict)
    return replace(priced, command=command)


def _longest(profiles: Sequence[Profile]) -> tuple[Profile, ...]:
    """The profiles with most self time, in the order of the job."""
    kept = heapq.nlargest(MAX_PROFILES, range(len(profiles)), key=lambda i: profiles[i].self_s)
    return tuple(profiles[i] for i in sorted(kept))


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


def _in_work(
    job: Job, rules: Sequence[Rule], results: Sequence[RuleResult], *, strict: bool
) -> list[RuleResult]:
    """The results during the work of the job; a rule that leaves what cannot be written keeps that of the whole job."""
    found = []
    for during, whole in zip(results_in_work(rules, results, job, strict=strict), results, strict=True):
        try:
            found.append(document.checked(during))
        except Exception:
            if strict:
                raise
            found.append(whole)
    return found


def card(rule: Rule, result: RuleResult, whole: RuleResult | None = None) -> RuleCard:
    """Documentation and result of a rule during the work, with the counters and any other answer of the ``whole`` job."""
    text = rule.documentation()
    whole = whole or result
    differs = whole.status is not result.status or (
        Status.TRIGGERED in (whole.status, result.status) and whole.headline != result.headline
    )
    notes = (f"Over the whole job: {whole.headline}.",) if differs else ()
    return RuleCard(
        name=rule.name,
        title=rule.title,
        checks=text.checks,
        why=text.why,
        advice=text.advice,
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
        triggered=whole.triggered,
        violations=whole.violations,
        datapoints=whole.datapoints,
        evaluated=result.evaluated,
        violating=result.violating,
        counted=result.counted,
        severity=result.severity,
        first_us=result.first_us,
        last_us=result.last_us,
        section=rule.section,
        notes=notes,
        devices=result.devices,
        kinds={kind: n for kind in ("low", "fluctuating") if isinstance(n := result.more.get(kind), int)},
    )


def pages(
    data: bytes,
    formats: Collection[str],
    kernel: Kernel | None,
    *,
    static: bool,
    strict: bool,
    product: Product = REPORT,
) -> tuple[dict[str, bytes], JobReportError | None]:
    """The notebook and the page of a data file, and what failed in making them; without ``strict``, a failure costs no other file."""
    # Papermill and nbconvert are slow to import and only needed here.
    from jobreport.output import notebook  # noqa: PLC0415

    files = {}
    try:
        with _importing("jobreport.output.export"):
            executed = notebook.run_notebook(data, kernel, product)
        if "ipynb" in formats:
            files[product.files["ipynb"]] = notebook.to_text(executed).encode()
        if "html" in formats:
            from jobreport.output import export  # noqa: PLC0415

            html = export.render_html(executed, static=static, product=product)
            files[product.files["html"]] = html.encode()
        if failed := executed.metadata.get("failed"):
            raise _written_without(failed, product)
    except Exception as error:
        if strict:
            raise
        if isinstance(error, JobReportError):
            return files, error
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            place = escape_name(tempfile.gettempdir(), 200)
            return files, JobReportError(
                f"{capitalized(product.noun)} written without the page: no space left in {place}. "
                "Set TMPDIR to another directory."
            )
        return files, _written_without([f"the page ({type(error).__name__}: {error})"], product)
    return files, None


@contextlib.contextmanager
def _importing(module: str) -> Iterator[None]:
    """Import a module in a thread while this one waits for the notebook."""

    def load_module() -> None:
        with contextlib.suppress(Exception):  # raised again where the module is used
            importlib.import_module(module)

    thread = threading.Thread(target=load_module, daemon=True)
    thread.start()
    try:
        yield
    finally:
        # At the end of the process, an import would fail with a traceback. But Ctrl-C within an import can leave
        # a lock that is never released.
        thread.join(_JOIN_S)
