"""The path from the reports of several runs to the files of their comparison."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from jobreport import pipeline
from jobreport.comparison import document, markdown, reading
from jobreport.comparison.build import Settings, compare
from jobreport.comparison.facts import run_of
from jobreport.cost.facts import PUBLIC
from jobreport.cost.prices import ANY_PRICES
from jobreport.errors import NothingReadableError
from jobreport.files import COMPARISON, FILES
from jobreport.options import Options
from jobreport.output import publish
from jobreport.output.pages import pages
from jobreport.progress import Progress, showing
from jobreport.redaction.identifiers import is_common
from jobreport.redaction.names import renamed
from jobreport.redaction.pseudonyms import Pseudonyms
from jobreport.scratch import Scratch
from jobrules.text import count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobreport.comparison.document import Comparison
    from jobreport.comparison.reading import Argument
    from jobreport.document import Report
    from jobreport.errors import JobReportError
    from jobreport.output.kernel import Kernel
    from jobreport.tables.engine import Engine


class Outcome(Struct, frozen=True, kw_only=True):
    """The comparison that ``compare_reports`` wrote."""

    comparison: Comparison
    folder: Path
    #: Paths of the files, relative to the folder.
    files: frozenset[str]
    #: What is missing because it failed; None if nothing is.
    failure: JobReportError | None = None

    @property
    def main_file(self) -> Path:
        """The page, or the next best of the files that were written."""
        names = COMPARISON.files
        return self.folder / next(names[f] for f in ("html", "ipynb", "md", "json") if names[f] in self.files)


def compare_reports(
    runs: Sequence[str],
    out: Path | None = None,
    *,
    settings: Settings | None = None,
    given: Mapping[str, Mapping[str, str | float]] | None = None,
    command: str = "",
    options: Options | None = None,
    engine: Engine | None = None,
    progress: Progress | None = None,
    kernel: Kernel | None = None,
) -> Outcome:
    """Compare runs, each ``[LABEL=]PATH`` of a report folder, a report.json, or a job, and write the comparison.

    ``out`` defaults to ``comparison`` in the working directory. ``given`` are facts by label, as of ``--set``; those of all runs under the empty one. A job
    without a report gets one in memory, with the same thresholds for all. Of the ``options``, those of the
    input and of one report have no effect. The other arguments are those of ``pipeline.make_report``.

    Raises ``UsageError`` for runs or facts that cannot be, and ``NothingReadableError`` for a path without a report.
    """
    options, progress = options or Options(), progress or Progress()
    redact, force = options.redact, options.force
    known = given or {}
    if redact:  # others may name anything
        known = {
            label: {key: value for key, value in facts.items() if key in PUBLIC}
            for label, facts in known.items()
        }
    arguments = reading.arguments(runs)
    folder = Path(os.path.abspath(out or "comparison"))  # noqa: PTH100 - Path.absolute keeps ".."
    names = {COMPARISON.files[one] for one in ("json", *options.formats)}
    with showing(progress), publish.reserved(folder, names, force=force, product=COMPARISON):
        real = Path(os.path.realpath(folder))
        progress.stage(f"Reading {count(len(arguments), 'run')}")
        reports = [_report(one, engine, options) for one in arguments]
        jobs = [f"run-{i}" if redact else report.job.name for i, report in enumerate(reports, start=1)]
        labels = reading.labels([one.label for one in arguments], jobs)
        reading.check_runs(arguments, labels, reports, force=force)
        reading.check_facts(known, labels)
        of_all = known.get("", {})
        found = [
            run_of(
                label,
                name,
                report,
                {**of_all, **known.get(label, {})},
                page="" if redact else _page(argument, real),
            )
            for label, name, report, argument in zip(labels, jobs, reports, arguments, strict=True)
        ]
        comparison = compare(found, settings or Settings(), command)
        files = {COMPARISON.files["json"]: document.to_json(comparison)}
        if "md" in options.formats:
            files[COMPARISON.files["md"]] = markdown.markdown(comparison).encode()
        made, failure = pages(files[COMPARISON.files["json"]], options, kernel, COMPARISON)
        files |= made
        publish.publish(real, files, force=force, product=COMPARISON)
    return Outcome(comparison=comparison, folder=folder, files=frozenset(files), failure=failure)


def _report(argument: Argument, engine: Engine | None, options: Options) -> Report:
    """The report of an argument; one is made for a job that has none."""
    if file := argument.report:
        report = reading.load(file)
        return without_names(report) if options.redact else report
    try:
        with Scratch() as folder:
            of_run = Options(formats=("json",), strict=options.strict, redact=options.redact)
            outcome = pipeline.make_report(argument.path, Path(folder) / "report", of_run, engine=engine)
            return outcome.report
    except NothingReadableError as error:
        raise NothingReadableError(
            f"{argument.path} has no {FILES['json']}, and is no job: {error}"
        ) from error


def without_names(report: Report) -> Report:
    """The report without labels and names in traces that may identify somebody, whatever it was made with."""
    captures = report.captures and renamed(
        report.captures, lambda kind, name: name if not kind or is_common(name) else f"{kind}-1"
    )
    cost = report.cost and replace(report.cost, source=report.cost.source and ANY_PRICES)
    return replace(report, captures=captures, cost=cost, quality=Pseudonyms(names={}).quality(report.quality))


def _page(argument: Argument, out: Path) -> str:
    """The report page of a run, relative to the folder of the comparison; empty if there is none."""
    file = argument.report
    page = file.with_name(FILES["html"]) if file else None
    if page is None or not page.is_file():
        return ""
    with contextlib.suppress(ValueError):  # on another drive
        return Path(os.path.relpath(page, out)).as_posix()
    return ""
