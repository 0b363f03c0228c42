"""From a job and its rules to a report, and the files of the rules."""

from __future__ import annotations

import heapq
import shlex
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from jobreport import __version__, document
from jobreport.cost.one_job import job_cost
from jobreport.cost.prices import Pricing
from jobreport.cost.share_of_peak import share_of_peak
from jobreport.document import JobFacts, NodeFacts, Parameter, Report, RuleCard
from jobreport.ended import ended, with_ending
from jobreport.errors import UsageError
from jobreport.lost_samples import with_lost_samples
from jobreport.output import publish
from jobreport.progress import advance, stage
from jobreport.remarks import Remark
from jobrules.analyses.balance import balance
from jobrules.analyses.blocks import step_blocks, time_blocks
from jobrules.analyses.bottlenecks import bottlenecks
from jobrules.analyses.close_ups import close_ups
from jobrules.analyses.code_lines import code_lines
from jobrules.analyses.data_loading import data_loading
from jobrules.analyses.demand import demand
from jobrules.analyses.devices import devices
from jobrules.analyses.framework import framework
from jobrules.analyses.goodput import goodput
from jobrules.analyses.gpu_memory import gpu_memory
from jobrules.analyses.gpu_utilization import gpu_utilization
from jobrules.analyses.host import host
from jobrules.analyses.learning.plots import learning_plots
from jobrules.analyses.nodes import node_comparison
from jobrules.analyses.power import power
from jobrules.analyses.rank_waits import rank_waits
from jobrules.analyses.steps import steps
from jobrules.analyses.throughput import throughput
from jobrules.analyses.time_lines import columns, time_lines
from jobrules.analyses.typical_step import typical_step
from jobrules.analyses.utilization import utilization
from jobrules.model import SECOND_US, Metric, Status, span_of
from jobrules.rule import parameter_fields, run_rules, written
from jobrules.rules.cpu_bottleneck import CPUBottleneck
from jobrules.rules.dataloader import Dataloader
from jobrules.rules.gpu_memory_increase import GPUMemoryIncrease
from jobrules.rules.io_bottleneck import IOBottleneck
from jobrules.rules.learning.loss_spike import LossSpike
from jobrules.rules.load_balancing import LoadBalancing
from jobrules.rules.overall_framework_metrics import OverallFrameworkMetrics
from jobrules.rules.step_outlier import StepOutlier
from jobrules.text import count, escape_name
from jobrules.verdict.findings import judge
from jobrules.verdict.in_work import results_in_work
from jobrules.verdict.phases import job_phases
from jobrules.verdict.starting import start_up

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jobreport.debugger_report.beside import Beside
    from jobreport.readers.registry import Reading
    from jobreport.remarks import Quality
    from jobreport.settings import Settings
    from jobrules.analyses.bottlenecks import Bottlenecks
    from jobrules.analyses.framework import FrameworkTime
    from jobrules.analyses.learning.plots import LearningPlots
    from jobrules.analyses.time_lines import Columns
    from jobrules.model import Job, PartFacts, Profile, RuleResult
    from jobrules.rule import Rule


_R = TypeVar("_R", bound="Rule")
#: Profiles of Python code on the page.
MAX_PROFILES = 12


def report_of(
    reading: Reading, chosen: Settings, job_dir: str, *, strict: bool
) -> tuple[Report, dict[str, bytes]]:
    """The report of what was read, and the files of the rules by their paths; ``job_dir`` stands in its command."""
    job, debugger, quality = reading.job, reading.debugger_results, reading.quality
    options, what = chosen.options, f"Running {count(len(chosen.rules), 'rule')}"
    if reading.has_results_alone:
        what = "No samples: using the rule results of SageMaker Debugger"
        # Thresholds have no effect on results.
        options = tuple(option for option in chosen.options if not option.startswith("--set "))
        if unused := len(chosen.options) - len(options):
            remark = Remark(code="debugger.thresholds", count=unused)
            quality = replace(quality, remarks=(*quality.remarks, remark))
    stage(what, len(chosen.rules) + len(_ANALYSES))
    results, contents, for_readers = [], {}, set()
    intervals_us = {panel.metric: panel.interval_us for part in job.facts for panel in part.panels}
    for rule in chosen.rules:
        found = result_of(rule, reading, strict=strict)
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
    in_work = _in_work(job, chosen.rules, results, strict=strict)
    added = None
    if debugger:
        from jobreport.debugger_report.beside import beside  # noqa: PLC0415 - as the readers

        added = beside(debugger, job, chosen.rules, in_work, strict=strict)
        contents |= added.documents()
        for_readers |= {name for name, one in added.answers.items() if one.result.was_evaluated}
    report = build_report(
        job,
        quality,
        chosen.rules,
        results,
        _command(job_dir, options),
        in_work=in_work,
        added=added,
        strict=strict,
    )
    files = {publish.rule_file(n, for_readers=n in for_readers): content for n, content in contents.items()}
    return report, files


def result_of(rule: Rule, reading: Reading, *, strict: bool) -> RuleResult:
    """The result of a rule; where there is nothing but results of SageMaker Debugger, that it lacks samples."""
    if rule.of_learning or not (reading.debugger_results and reading.has_results_alone):
        return run_rules([rule], reading.job, strict=strict)[0]
    from jobreport.debugger_report.beside import without_samples  # noqa: PLC0415 - as the readers

    return without_samples(rule, reading.debugger_results)


def _command(job_dir: str, options: Sequence[str]) -> str:
    """The command that makes the report again."""
    words = [word for option in options for word in option.split(" ", 1)]
    return shlex.join(["make-report", "--job-dir", job_dir, *words])


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
    answered = {*added.answers} if added else set()
    grid = columns(job)
    compared = node_comparison(job, grid, in_time)
    start_us, end_us = job.span_us
    end = ended(quality, job)
    verdict = judge(
        job,
        rules,
        in_work,
        in_time,
        added.account if added else None,
        added.findings if added else (),
        strict=strict,
    )
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
        verdict=with_ending(with_lost_samples(verdict, quality, job), end),
        ended=end,
        phases=in_time,
        utilization=utilization(job),
        columns=grid,
        time_lines=time_lines(job, grid, compared.drawn),
        boxes=gpu_utilization(job),
        rules=tuple(
            card(rule, during, None if rule.name in answered else whole)
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
    report = _with_analyses(report, evaluated, strict=strict)
    return _with_analysis(report, "share_of_peak", lambda: share_of_peak(report) or UNSET, strict=strict)


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

    def learning(self) -> LearningPlots | UnsetType:
        """The training itself, with the spikes of the loss that the rule found."""
        result = self.result(LossSpike)
        spikes = (result.details.get("steps", ()), result.violations) if result else ((), 0)
        return learning_plots(self.job.learning, *spikes) or UNSET

    def bottlenecks(self) -> tuple[Bottlenecks, ...]:
        """CPU and I/O bottlenecks, as far as they were recorded; not where a mean stands for the cores that results list."""
        rules = (self.rule(CPUBottleneck), self.rule(IOBottleneck))
        shown = (rule for rule in rules if rule.stalls(self.job) is None)
        return tuple(found for rule in shown if (found := bottlenecks(self.job, rule, self.columns)))


#: Fields of the report that are made last; one that fails costs its section. They count as steps of the progress.
_ANALYSES: dict[str, Callable[[_Evaluated], Any]] = {
    "framework": _Evaluated.framework,
    "steps": lambda of: steps(of.job, of.rule(StepOutlier)),
    "rank_waits": lambda of: rank_waits(of.job) or UNSET,
    "startup_parts": lambda of: start_up(of.job) or UNSET,
    "learning": _Evaluated.learning,
    "code_lines": lambda of: code_lines(of.job) or UNSET,
    "typical_step": lambda of: typical_step(of.job) or UNSET,
    "throughput": lambda of: throughput(of.job) or UNSET,
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


def priced(report: Report, pricing: Pricing | None, *, strict: bool) -> Report:
    """The report with the cost of the job, and the command that gives it."""
    pricing = pricing or Pricing()
    command = " ".join(filter(None, [report.command, shlex.join(pricing.options)]))
    report = _with_analysis(report, "cost", partial(job_cost, report, pricing), strict=strict)
    return replace(report, command=command)


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
