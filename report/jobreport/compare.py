"""The path from the reports of several runs to the files of their comparison."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from jobreport.comparison import document, markdown, reading
from jobreport.comparison.build import compare
from jobreport.comparison.comparing import Settings
from jobreport.files import COMPARISON
from jobreport.options import Options
from jobreport.output import github, junit, places
from jobreport.output.pages import pages
from jobreport.progress import Progress, showing
from jobrules.text import count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobreport.comparison.document import Comparison
    from jobreport.errors import JobReportError
    from jobreport.output.kernel import Kernel
    from jobreport.storage.urls import Url
    from jobreport.tables.engine import Engine


class Outcome(Struct, frozen=True, kw_only=True):
    """The comparison that ``compare_reports`` wrote."""

    comparison: Comparison
    folder: Path | Url
    #: Paths of the files, relative to the folder.
    files: frozenset[str]
    #: What is missing because it failed; None if nothing is.
    failure: JobReportError | None = None

    @property
    def main_file(self) -> Path | Url:
        """The page, or the next best of the files that were written."""
        return self.folder / COMPARISON.main_file(self.files)


def compare_reports(
    runs: Sequence[str],
    out: Path | Url | None = None,
    *,
    settings: Settings | None = None,
    given: Mapping[str, Mapping[str, str | float]] | None = None,
    command: str = "",
    options: Options | None = None,
    engine: Engine | None = None,
    progress: Progress | None = None,
    kernel: Kernel | None = None,
) -> Outcome:
    """Compare runs, each ``[LABEL=]PATH`` or URL of a report folder, a report.json, or a job, and write the comparison.

    ``out`` defaults to ``comparison`` in the working directory. ``given`` are facts by label, as of ``--set``; those of all runs under the empty one. A job
    without a report gets one in memory, with the same thresholds for all. Of the ``options``, those of the
    input and of one report have no effect. The other arguments are those of ``pipeline.make_report``.

    Raises ``UsageError`` for runs or facts that cannot be, and ``NothingReadableError`` for a path without a report.
    """
    options, progress = options or Options(), progress or Progress()
    arguments = reading.arguments(runs)
    names = {COMPARISON.files[one] for one in ("json", *options.formats)}
    reserved = places.reserved(out or Path("comparison"), names, options, COMPARISON)
    with showing(progress), reserved as place:
        progress.stage(f"Reading {count(len(arguments), 'run')}")
        found = reading.read(arguments, given or {}, place.real, options, engine)
        comparison = compare(found, settings or Settings(), command)
        files = {COMPARISON.files["json"]: document.to_json(comparison)}
        text = markdown.markdown(comparison)
        if "md" in options.formats:
            files[COMPARISON.files["md"]] = text.encode()
        if "github" in options.formats and not github.has_summary():
            files[COMPARISON.files["github"]] = text.encode()
        made, failure = pages(files[COMPARISON.files["json"]], options, kernel, COMPARISON, {"summary": text})
        files |= made
        if "junit" in options.formats:
            files[COMPARISON.files["junit"]] = junit.of_comparison(comparison, COMPARISON.main_file(files))
        place.publish(files)
    return Outcome(comparison=comparison, folder=place.folder, files=frozenset(files), failure=failure)
