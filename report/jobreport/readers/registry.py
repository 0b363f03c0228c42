"""From a job directory to a ``Job``: each file goes to the first reader that claims it."""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import fields
from datetime import UTC
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from jobreport.errors import NothingReadableError
from jobreport.progress import Progress
from jobreport.readers.debugger_results import rule_results
from jobreport.readers.grouping import (
    drop_implausible_times,
    nodes_of,
    packed,
    read_groups,
    sources_of,
    stopped,
)
from jobreport.readers.listing import is_end_marker, job_name, listing
from jobreport.readers.machines import joined
from jobreport.readers.nvidia_smi.reader import NvidiaSmi
from jobreport.readers.profiler_config.reader import ProfilerConfig
from jobreport.readers.python_profiles.reader import PythonProfiles
from jobreport.readers.system_samples.reader import SystemSamples
from jobreport.readers.tally import Tally
from jobreport.readers.traces.reader import Traces
from jobreport.remarks import Quality, Remark
from jobreport.tables.engine import Here
from jobreport.tables.parts import JobOfParts
from jobrules.model import Job
from jobrules.text import count, escape_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from datetime import tzinfo
    from pathlib import Path

    from jobreport.readers.base import Reader, SourceFile
    from jobreport.readers.debugger_results.rule_results import RuleResults
    from jobreport.remarks import SourceQuality
    from jobreport.tables.engine import Engine

__all__ = ["READERS", "Reading", "job_name", "read_directory", "read_job"]

#: Asked in this order. Where two have the same metric of the same node, the first one's is used.
READERS: tuple[Reader, ...] = (SystemSamples(), PythonProfiles(), ProfilerConfig(), Traces(), NvidiaSmi())


class Reading(Struct, frozen=True, kw_only=True, eq=False):
    """What a directory holds: a job, or only what the vendor's service said of one."""

    job: Job
    quality: Quality
    #: The vendor's rule results; none where the job itself can be judged.
    debugger_results: RuleResults | None = None


def read_job(directory: Path, *, strict: bool = False) -> tuple[Job, Quality]:
    """The job in a directory, all of it in memory; rule results are nothing to report here."""
    reading = read_directory(directory, strict=strict, engine=Here(in_memory=sys.maxsize))
    if reading.debugger_results:
        raise NothingReadableError(f"{escape_name(str(directory), 200)} holds rule results, but no samples.")
    known = {one.name: getattr(reading.job, one.name) for one in fields(Job)}
    return Job(**known), reading.quality


def read_directory(
    directory: Path,
    *,
    name: str | None = None,
    strict: bool = False,
    engine: Engine | None = None,
    progress: Progress | None = None,
    leave: Collection[str] = (),
    zone: tzinfo = UTC,
    columns: Sequence[str] = (),
) -> Reading:
    """Everything that the readers find in a directory, and what became of its files.

    ``name`` is the job's, where the directory does not tell it. ``zone`` is that of times that name none,
    ``columns`` are those of logs without a header line. The ``engine`` reads the files and keeps
    the tables; without one, that is done here and in memory. ``leave`` are absolute paths that are no part of the
    job. A reader that raises costs its own files
    and a remark, unless ``strict``. Raises ``NothingReadableError`` where nothing is left to report.
    """
    engine, progress = engine or Here(), progress or Progress()
    tally = Tally()
    readers = tuple(NvidiaSmi(zone, columns) if isinstance(one, NvidiaSmi) else one for one in READERS)
    files = listing(directory, tally, leave)
    claimed: defaultdict[int, list[SourceFile]] = defaultdict(list)
    unclaimed: list[SourceFile] = []
    results: list[SourceFile] = []
    ended = False
    for file in files:
        if is_end_marker(file):
            ended = True
            continue
        if rule_results.matches_content(file):
            results.append(file)
            continue
        reader = next((i for i, one in enumerate(readers) if one.matches_name(file)), None)
        if reader is None:
            reader = next((i for i, one in enumerate(readers) if one.matches_content(file)), None)
        if reader is None:
            unclaimed.append(file)
        else:
            claimed[reader].append(file)
    job_is = name or job_name(directory)
    progress.stage(
        f"reading {escape_name(job_is)}", sum(f.size for some in claimed.values() for f in some), "B"
    )
    groups = [group for i in sorted(claimed) for group in packed(readers[i], claimed[i])]
    pieces = joined(read_groups(engine, groups, progress, strict=strict), engine, zone)
    pieces = drop_implausible_times(pieces, engine)
    sources = sources_of(pieces, tally)
    nodes = nodes_of(pieces, engine, tally)
    vendor = _debugger_results(results, tally, strict=strict) if results else None
    if not nodes and not (vendor and vendor.documents):
        remarks = [remark for one in sources for remark in one.remarks]
        remarks += vendor.quality.remarks if vendor else ()
        raise NothingReadableError(_nothing(directory, files, remarks, tally))
    if unclaimed:
        reason = "of a kind that is not read"
        tally.add("skipped", "files", reason, count=len(unclaimed), file=unclaimed[0].name)
    job = JobOfParts(
        name=job_is,
        engine=engine,
        nodes=nodes,
        profiles=tuple(profile for piece in pieces for profile in piece.told.profiles),
        recorded=tuple(line for piece in pieces for line in piece.told.recorded),
        finished=True if ended else _finished(piece.told.finished for piece in pieces),
    )
    if vendor and nodes:
        sources.append(_not_needed(vendor))
    quality = Quality(sources=tuple(sources), remarks=tally.remarks())
    return Reading(job=job, quality=quality, debugger_results=None if nodes else vendor)


def _debugger_results(files: Sequence[SourceFile], tally: Tally, *, strict: bool) -> RuleResults | None:
    try:
        return rule_results.read(files)
    except Exception as error:
        if strict:
            raise
        tally.add(
            "failed", "files", stopped(rule_results.SOURCE, error), count=len(files), file=files[0].name
        )
        return None


def _not_needed(vendor: RuleResults) -> SourceQuality:
    """What becomes of rule results where the job itself can be judged."""
    quality = vendor.quality
    if not vendor.documents:
        return quality
    remark = Remark.worded(
        action="skipped",
        count=len(vendor.documents),
        unit="files",
        reason="not needed: the job's own records are judged",
        place=escape_name(vendor.documents[0].file, 200),
    )
    return replace(quality, files=0, rows=0, remarks=(remark, *quality.remarks))


def _finished(says: Iterable[bool | None]) -> bool | None:
    known = [one for one in says if one is not None]
    return any(known) if known else None


def _nothing(directory: Path, files: Sequence[SourceFile], remarks: Sequence[Remark], tally: Tally) -> str:
    """What was looked for, what was found, and the first thing that went wrong, in a sentence or two."""
    text = f"{escape_name(str(directory), 200)} holds nothing that a report can be made from."
    looked_for = [*(reader.looks_for for reader in READERS if reader.looks_for), rule_results.LOOKS_FOR]
    text += f" Looked for {' or '.join(looked_for)}; "
    if files:
        text += f"found {count(len(files), 'file')}, for example {escape_name(files[0].name, 200)}."
    else:
        text += "it has no files that can be seen."
    remarks = [*remarks, *tally.remarks()]
    if remarks:
        first = remarks[0]
        one, where = first.unit.removesuffix("s"), f" ({first.place})" if first.place else ""
        text += f" {count(first.count, one, first.unit)} {first.action}: {first.reason}{where}."
    return text
