"""Opening what a job left behind."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from jobreport import document
from jobreport.errors import UsageError
from jobreport.library.job import JobFrames
from jobreport.options import Choice, Options
from jobreport.pipeline import shown_as, source_of
from jobreport.progress import Progress
from jobreport.readers.registry import job_name, read_directory
from jobreport.settings import load
from jobreport.storage.urls import UrlError, is_url, parse
from jobreport.storage.urls import storage_option as checked_option
from jobreport.tables.engine import LocalEngine

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jobreport.storage.urls import Url

#: In the beginning of a ``report.json``.
_OF_REPORT, _HEAD = b'"schema_version"', 200


def open_job(
    where: str | os.PathLike[str],
    *,
    timezone: str | None = None,
    columns: str | None = None,
    date_order: str | None = None,
    run: Choice = None,
    scalar: Mapping[str, str] | None = None,
    storage_option: Mapping[str, str] | None = None,
    cache: str | os.PathLike[str] | None = None,
    max_download: int = 20 << 30,
    memory: int = 1 << 30,
) -> JobFrames:
    """Read a job: a directory, an archive, a single log, a place in object storage, or the ``report.json`` of a job.

    The job is read now, and does not change afterwards. The options are those of ``make-report``. Tables up to ``memory``
    bytes stay in memory, all others lie in a temporary folder until the job is closed or no longer used.

    Raises ``JobReportError`` with a sentence if nothing can be read.
    """
    try:
        of_storage = dict(checked_option(f"{key}={value}") for key, value in (storage_option or {}).items())
        place = _place(os.fspath(where))
    except UrlError as error:
        raise UsageError(str(error)) from None
    options = Options(
        timezone=timezone,
        columns=columns,
        date_order=date_order,
        run=run,
        scalar=scalar or {},
        storage_option=of_storage,
        cache=Path(cache) if cache else None,
        max_download=max_download,
    )
    return _opened(place, options, memory)


def _place(where: str) -> Path | Url:
    if not is_url(where):
        return Path(where)
    found = parse(where)
    return Path(found) if isinstance(found, str) else found


def _opened(where: Path | Url, options: Options, memory: int) -> JobFrames:
    def again() -> JobFrames:
        return _opened(where, options, memory)

    if isinstance(where, Path) and _is_report(where):
        return JobFrames(reload=again, report=document.load(where))
    settings = load()
    settings = replace(settings, options=(*settings.options, *options.of_input))
    engine = LocalEngine(1, in_memory=memory)
    with contextlib.ExitStack() as stack:
        stack.enter_context(engine)
        with source_of(where, options, Progress()) as source:
            name = source.name or job_name(source.directory)
            reading = read_directory(
                source.directory, options, name=name, shown=where, files=source.files, engine=engine
            )
            shown = shown_as(where, source, name)
        close = stack.pop_all().close
    quality = replace(reading.quality, remarks=(*reading.quality.remarks, *source.remarks))
    return JobFrames(
        reload=again,
        reading=replace(reading, quality=quality),
        settings=settings,
        shown=shown,
        close=close,
        source=lambda: source_of(where, options, Progress()),
    )


def _is_report(where: Path) -> bool:
    if where.suffix != ".json" or not where.is_file():
        return False
    with where.open("rb") as file:
        return _OF_REPORT in file.read(_HEAD)
