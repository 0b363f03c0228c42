"""The path from a job directory to the files of a report."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct
from msgspec.structs import replace

from jobreport import document
from jobreport.build import priced, report_of
from jobreport.errors import JobReportError, NothingReadableError
from jobreport.files import FILES, REPORT
from jobreport.options import Options
from jobreport.output import places, publish, summary
from jobreport.output.pages import pages, written_without
from jobreport.progress import Progress, showing
from jobreport.readers import archive
from jobreport.remarks import without_open_ends
from jobreport.settings import load
from jobreport.tables.engine import LocalEngine
from jobrules.model import Status

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from contextlib import AbstractContextManager

    from jobreport.document import Report
    from jobreport.output.kernel import Kernel
    from jobreport.output.places import Place
    from jobreport.readers.archive import Unpacked
    from jobreport.readers.registry import Reading
    from jobreport.remarks import Quality, Remark
    from jobreport.storage.urls import Url
    from jobreport.tables.engine import Engine


class Outcome(Struct, frozen=True, kw_only=True):
    """The report that ``make_report`` wrote."""

    report: Report
    folder: Path | Url
    #: Paths of the files, relative to the folder.
    files: frozenset[str]
    #: What is missing in the report because it failed; None if nothing is.
    failure: JobReportError | None = None

    @property
    def main_file(self) -> Path | Url:
        """The page, or the next best of the files that were written."""
        return self.folder / REPORT.main_file(self.files)


def make_report(
    job_dir: Path | Url,
    out: Path | Url | None = None,
    options: Options | None = None,
    *,
    engine: Engine | None = None,
    progress: Progress | None = None,
    kernel: Kernel | None = None,
) -> Outcome:
    """Read a job directory (or an archive of one) and write its report into a folder; both may be in object storage.

    ``out`` defaults to ``<name of the job>-report`` in the working directory. ``engine`` reads the files and runs the
    rules; without one, this process does. ``kernel``, of ``jobreport.output.kernel.started()``, runs the notebook;
    without it, one is started when needed.

    Raises ``NothingReadableError`` if the directory has no readable input, and ``UsageError`` if the folder already
    contains a report and ``force`` is not set, or other files of these names, if an option of the input is wrong
    (see ``readers.registry.read_directory``), or if the machine of the job has several prices.
    """
    # The readers are not needed for --help.
    from jobreport.readers.registry import job_name  # noqa: PLC0415

    if options and options.redact:
        from jobreport.redaction import pseudonyms  # noqa: PLC0415 - few reports need it

    options, progress = options or Options(), progress or Progress()
    settings = options.settings or load()
    settings = replace(settings, options=(*settings.options, *options.of_input))
    with contextlib.ExitStack() as stack:
        stack.enter_context(showing(progress))
        engine = engine or stack.enter_context(LocalEngine(1))
        names = {FILES[one] for one in ("json", *options.formats)}
        names |= publish.rule_files(rule.name for rule in settings.rules)
        place = None
        if out and not (isinstance(job_dir, Path) and isinstance(out, Path)):
            # Before a job is fetched.
            place = stack.enter_context(places.reserved(out, names, options))
        source = stack.enter_context(source_of(job_dir, options, progress, out))
        name = pseudonyms.JOB if options.redact else source.name or job_name(source.directory)
        place = place or stack.enter_context(places.reserved(out or Path(f"{name}-report"), names, options))
        reading = _read(source, options, name, job_dir, place.leave, engine, progress)
        quality = _with_remarks(reading.quality, (*source.remarks, *settings.failed), options, place)
        reading = replace(reading, quality=quality)
        if options.redact:
            reading, quality, settings = pseudonyms.redacted(reading, reading.quality, settings)
            reading = replace(reading, quality=quality)
            shown = name if isinstance(job_dir, Path) else f"{job_dir.scheme}://…"
        else:
            shown = shown_as(job_dir, source, name)
        report, files = report_of(reading, settings, shown, strict=options.strict)
        return written(report, files, place, options, kernel)


def written(
    report: Report, files: dict[str, bytes], place: Place, options: Options, kernel: Kernel | None = None
) -> Outcome:
    """Write a report, and the ``files`` of its rules."""
    report = priced(report, options.pricing, strict=options.strict)
    report = replace(report, made_us=time.time_ns() // 1000 if options.refresh_s else UNSET)
    files = files | {FILES["json"]: document.to_json(report)}
    about = None
    if {"html", "md", "github"} & set(options.formats):
        text = summary.markdown(report)
        if "md" in options.formats:
            files[FILES["md"]] = text.encode()
        if "github" in options.formats:
            from jobreport.output import github  # noqa: PLC0415 - few reports are for CI

            files |= {} if github.has_summary() else {FILES["github"]: text.encode()}
        about = {"summary": text, **_times(report)}
    made, no_page = pages(files[FILES["json"]], options, kernel, about=about)
    files |= made
    if "junit" in options.formats:
        from jobreport.output import junit  # noqa: PLC0415 - as above

        files[FILES["junit"]] = junit.of_report(report, REPORT.main_file(files), options.fail_on)
    place.publish(files)
    return Outcome(
        report=report,
        folder=place.folder,
        files=frozenset(files),
        failure=no_page or _failed_parts(report),
    )


def shown_as(job_dir: Path | Url, source: Unpacked, name: str) -> str:
    """What the command of the report calls its job."""
    if not isinstance(job_dir, Path):
        return str(job_dir)
    return archive.printable(job_dir.name) if source.name else name


def _times(report: Report) -> dict[str, Any]:
    """What the script of the page knows of times, which are milliseconds: phases, and steps if there are any."""
    starts = report.steps and report.steps.starts
    phases = [(one.label, one.start_us / 1000, one.end_us / 1000) for one in report.phases.phases]
    steps = zip(starts.number, starts.start_us, strict=True) if starts else ()
    points = [(number, us / 1000) for number, us in steps]
    return {"phases": phases} | ({"steps": points} if points else {})


def source_of(
    job_dir: Path | Url, options: Options, progress: Progress, out: Path | Url | None = None
) -> AbstractContextManager[Unpacked]:
    """The files of the job on this machine."""
    if isinstance(job_dir, Path):
        return archive.unpacked(job_dir)
    from jobreport.storage.fetching import fetched  # noqa: PLC0415 - few runs need it

    return fetched(job_dir, options, progress, None if isinstance(out, Path) else out)


def _read(
    source: Unpacked,
    options: Options,
    name: str,
    shown: Path | Url,
    leave: Collection[str],
    engine: Engine,
    progress: Progress,
) -> Reading:
    """The job in a directory, without the files of an older report in it."""
    from jobreport.readers.registry import read_directory  # noqa: PLC0415 - not needed for --help

    try:
        return read_directory(
            source.directory,
            options,
            name=name,
            shown=shown,
            leave=leave,
            files=source.files,
            engine=engine,
            progress=progress,
        )
    except NothingReadableError as error:
        if options.redact:
            raise NothingReadableError("No readable input. Run without --redact to see the files.") from error
        raise


def _with_remarks(quality: Quality, more: Sequence[Remark], options: Options, place: Place) -> Quality:
    """The quality with more remarks: of a watch those on its actions, but none on the open ends of files."""
    if options.refresh_s:
        quality = without_open_ends(quality)
    if options.refresh_s is not None and place.real:
        from jobreport.actions.acting import failures  # noqa: PLC0415 - of a watch only

        more = (*more, *failures(place.real))
    return replace(quality, remarks=(*quality.remarks, *more))


def _failed_parts(report: Report) -> JobReportError | None:
    """Rules and readers that failed, as one error for the exit status."""
    failed = [card.name for card in report.rules if card.status is Status.ERROR]
    failed += [one.rule for one in report.verdict.not_evaluated if one.status is Status.ERROR]
    failed = list(dict.fromkeys(failed))
    failed += [remark.reason for remark in report.quality.remarks if remark.action == "failed"]
    return written_without(failed) if failed else None
