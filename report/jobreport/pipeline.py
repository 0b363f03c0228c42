"""The path from a job directory to the files of a report."""

from __future__ import annotations

import shlex
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from jobreport import __version__, archive, document, summary
from jobreport.document import JobFacts, NodeFacts, Parameter, Report, RuleCard
from jobreport.errors import JobReportError, UsageError
from jobreport.settings import load
from jobrules.boxplot import boxes
from jobrules.coverage import ticks
from jobrules.job import SECOND_US, Metric
from jobrules.phases import course
from jobrules.rule import parameter_fields, run_rules
from jobrules.timelines import columns, time_lines
from jobrules.usage import time_use, usage_rows
from jobrules.verdict import judge

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from jobreport.quality import Quality
    from jobreport.settings import Settings
    from jobrules.job import Job
    from jobrules.result import RuleResult
    from jobrules.rule import Rule

FORMATS = ("html", "ipynb", "json", "md")
_FILES = {"html": "report.html", "ipynb": "report.ipynb", "json": "report.json", "md": "summary.md"}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What ``make_report`` wrote."""

    report: Report
    folder: Path
    #: What kept the notebook or the page from being made; the other files are there.
    failure: JobReportError | None = None

    @property
    def main_file(self) -> Path:
        """The page, or what comes nearest to it among the files that were asked for and made."""
        names = (_FILES[f] for f in ("html", "ipynb", "md", "json"))
        return next(path for path in (self.folder / name for name in names) if path.exists())


def make_report(
    job_dir: Path,
    out: Path | None = None,
    *,
    settings: Settings | None = None,
    formats: Collection[str] = FORMATS,
    force: bool = False,
    strict: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Read a job directory (or an archive of one) and write its report into a folder.

    ``out`` defaults to ``<name of the job>-report`` in the working directory. ``report.json``
    is always written. ``tell`` receives a line for each stage.

    Raises ``NothingReadableError`` where the directory holds nothing to report, ``UsageError`` where
    the folder already holds a report and ``force`` is not set.
    """
    chosen = settings or load()
    with archive.unpacked(job_dir) as (directory, packed_name):
        # DuckDB is not needed for --help.
        from jobreport.readers import job_name, read_job  # noqa: PLC0415

        name = packed_name or job_name(directory)
        folder = (out or Path(f"{name}-report")).absolute()
        _check_free(folder, force=force)
        tell(f"reading {name}")
        job, quality = read_job(directory)
    job = replace(job, name=name)
    tell(f"judging by {len(chosen.rules)} rules")
    results = run_rules(chosen.rules, job, strict=strict)
    command = shlex.join(
        ["make-report", "--job-dir", name, *(w for o in chosen.options for w in o.split(" "))]
    )
    report = build_report(job, quality, chosen.rules, results, command)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as staging:
        failure = _write(Path(staging), report, results, formats, strict=strict, tell=tell)
        _publish(Path(staging), folder)
    return Outcome(report=report, folder=folder, failure=failure)


def build_report(
    job: Job, quality: Quality, rules: Sequence[Rule], results: Sequence[RuleResult], command: str
) -> Report:
    """Everything the page shows, from the job and its rule results."""
    in_time = course(job)
    use = time_use(job)
    grid = columns(job)
    start_us, end_us = job.span_us
    return Report(
        schema_version=document.SCHEMA_VERSION,
        version=__version__,
        command=command,
        job=JobFacts(
            name=job.name,
            start_us=start_us,
            end_us=end_us,
            nodes=tuple(_node_facts(job, node) for node in job.nodes),
            sources=tuple(source.source for source in quality.sources),
            steps=len(job.steps),
            finished=job.finished,
        ),
        verdict=judge(job, rules, results, in_time, use),
        course=in_time,
        usage=usage_rows(job),
        columns=grid,
        timelines=time_lines(job, grid),
        boxes=boxes(job, Metric.GPU_USE),
        rules=tuple(card(rule, result) for rule, result in zip(rules, results, strict=True)),
        quality=quality,
    )


def _node_facts(job: Job, node: str) -> NodeFacts:
    gpu, cpu = job.panel(node, Metric.GPU_USE), job.panel(node, Metric.CPU_USE)
    panels = [p for p in job.panels if p.node == node]
    interval_us = next((p.interval_us for p in (cpu, gpu, *panels) if p and p.interval_us), 0)
    times = ticks(job, node)
    of_node = job.steps.node == node
    first = [*times[:1].tolist(), *job.steps.start_us[of_node].tolist()]
    last = [*(p.last_us for p in panels), *job.steps.end_us[of_node].tolist()]
    return NodeFacts(
        name=node,
        gpus=len(gpu.devices) if gpu else 0,
        cores=len(cpu.devices) if cpu else 0,
        interval_s=round(interval_us / SECOND_US, 3) if interval_us else None,
        first_us=min(first),
        last_us=max(last),
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
                value=getattr(rule, name),
                unit=metadata.get("unit", ""),
                help=metadata.get("help", ""),
                default=default,
            )
            for name, default, metadata in parameter_fields(rule)
        ),
        judges=rule.judges,
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
    )


def _write(
    folder: Path,
    report: Report,
    results: Sequence[RuleResult],
    formats: Collection[str],
    *,
    strict: bool,
    tell: Callable[[str], None],
) -> JobReportError | None:
    """Write what was asked for; a notebook or page that fails is returned, the rest stands."""
    (folder / "report.json").write_bytes(document.to_json(report))
    (folder / "rules").mkdir()
    for shown, result in zip(report.rules, results, strict=True):
        (folder / "rules" / f"{shown.name}.json").write_bytes(document.vendor_json(shown, result))
    if "md" in formats:
        (folder / "summary.md").write_text(summary.markdown(report), "utf-8")
    if not {"html", "ipynb"} & set(formats):
        return None
    try:
        _write_page(folder, formats, tell)
    except JobReportError as error:
        if strict:
            raise
        return error
    return None


def _write_page(folder: Path, formats: Collection[str], tell: Callable[[str], None]) -> None:
    # Papermill and nbconvert are slow to import and only needed here.
    from jobreport import export, notebook  # noqa: PLC0415

    tell("running the notebook")
    executed = notebook.run_notebook(folder / "report.json")
    if "ipynb" in formats:
        (folder / "report.ipynb").write_text(notebook.to_text(executed), "utf-8")
    if "html" in formats:
        tell("writing the page")
        (folder / "report.html").write_text(export.render_html(executed), "utf-8")


def _check_free(folder: Path, *, force: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; name a folder with --out.")
    if not force and any((folder / name).exists() for name in (*_FILES.values(), "rules")):
        raise UsageError(f"{folder} already holds a report. Use --force to replace it, or another --out.")


def _publish(staging: Path, folder: Path) -> None:
    """Move finished files to where they are wanted, each whole; stale files of an older report go."""
    folder.mkdir(exist_ok=True)
    (folder / "rules").mkdir(exist_ok=True)
    names = {path.relative_to(staging) for path in staging.rglob("*") if path.is_file()}
    ours = {Path(name) for name in _FILES.values()}
    ours |= {path.relative_to(folder) for path in (folder / "rules").glob("*.json")}
    for stale in ours - names:
        (folder / stale).unlink(missing_ok=True)
    for name in sorted(names):
        (staging / name).replace(folder / name)
