"""From a job directory to a ``Job``: each file goes to the first reader that claims it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from jobreport.errors import NothingReadableError
from jobreport.quality import Quality, Remark
from jobreport.readers import rule_results
from jobreport.readers.directory import is_end_marker, job_name, listing
from jobreport.readers.profiler_config import ProfilerConfig
from jobreport.readers.python_profiles import PythonProfiles
from jobreport.readers.strays import FAR_US
from jobreport.readers.system_samples import SystemSamples
from jobreport.readers.tally import Tally
from jobreport.readers.traces import Traces
from jobrules.job import Events, Job, Metric, Panel, Steps, natural_key
from jobrules.words import count, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from jobreport.quality import SourceQuality
    from jobreport.readers.base import Found, Reader, SourceFile
    from jobreport.readers.rule_results import RuleResults

__all__ = ["READERS", "Reading", "job_name", "read_directory", "read_job"]

#: Asked in this order. Where two have the same metric of the same node, the first one's is used.
READERS: tuple[Reader, ...] = (SystemSamples(), PythonProfiles(), ProfilerConfig(), Traces())


@dataclass(frozen=True, kw_only=True, eq=False)
class Reading:
    """What a directory holds: a job, or only what the vendor's service said of one."""

    job: Job
    quality: Quality
    #: The vendor's rule results; none where the job itself can be judged.
    vendor: RuleResults | None = None


def read_job(directory: Path, *, strict: bool = False) -> tuple[Job, Quality]:
    """The job in a directory; as ``read_directory``, but rule results are nothing to report."""
    reading = read_directory(directory, strict=strict)
    if reading.vendor:
        raise NothingReadableError(f"{shown(str(directory), 200)} holds rule results, but no samples.")
    return reading.job, reading.quality


def read_directory(directory: Path, *, strict: bool = False) -> Reading:
    """Everything that the readers find in a directory, and what became of its files.

    A reader that raises costs its own files and a remark, unless ``strict``. Raises
    ``NothingReadableError`` where nothing is left to report.
    """
    tally = Tally()
    files = listing(directory, tally)
    claimed: defaultdict[int, list[SourceFile]] = defaultdict(list)
    unclaimed: list[SourceFile] = []
    results: list[SourceFile] = []
    ended = False
    for file in files:
        if is_end_marker(file):
            ended = True
            continue
        if rule_results.claims(file):
            results.append(file)
            continue
        reader = next((i for i, reader in enumerate(READERS) if reader.claims(file)), None)
        if reader is None:
            unclaimed.append(file)
        else:
            claimed[reader].append(file)
    found = []
    for i in sorted(claimed):
        try:
            found.append(READERS[i].read(claimed[i]))
        except Exception as error:
            if strict:
                raise
            _stopped(READERS[i].source, error, claimed[i], tally)
    panels = _panels(found, tally)
    found = [_near_samples(one, panels) for one in found]
    steps = _steps([f.steps for f in found if len(f.steps)])
    events = Events.joined([f.events for f in found])
    vendor = _vendor(results, tally, strict=strict) if results else None
    empty = not panels and not len(steps) and not len(events)
    if empty and not (vendor and vendor.documents):
        remarks = [remark for one in found for remark in one.quality.remarks]
        remarks += vendor.quality.remarks if vendor else ()
        raise NothingReadableError(_nothing(directory, files, remarks, tally))
    if unclaimed:
        reason = "of a kind that is not read"
        tally.add("skipped", "files", reason, count=len(unclaimed), file=unclaimed[0].name)
    job = Job(
        name=job_name(directory),
        panels=panels,
        steps=steps,
        events=events,
        profiles=tuple(profile for f in found for profile in f.profiles),
        recorded=tuple(line for f in found for line in f.recorded),
        finished=True if ended else _finished(f.finished for f in found),
    )
    sources = [f.quality for f in found]
    if vendor and not empty:
        sources.append(_not_needed(vendor))
    quality = Quality(sources=tuple(sources), remarks=tally.remarks())
    return Reading(job=job, quality=quality, vendor=vendor if empty else None)


def _near_samples(one: Found, panels: Sequence[Panel]) -> Found:
    """Without events that lie far from all samples: they have no date, or are of another job."""
    if not panels or not len(one.events):
        return one
    first = min(int(panel.time_us[0]) for panel in panels) - FAR_US
    last = max(panel.last_us for panel in panels) + FAR_US
    near = (one.events.start_us >= first) & (one.events.end_us <= last)
    if near.all():
        return one
    dropped = int(np.count_nonzero(~near))
    remark = Remark(
        action="dropped",
        count=dropped,
        unit="events",
        reason="more than 30 days from all samples, or without a date",
    )
    events, steps = one.events.where(near), one.steps
    loaders = tuple(loader for loader in events.loaders if first <= loader.start_us <= last)
    return replace(
        one,
        events=replace(events, loaders=loaders),
        steps=steps.where((steps.start_us >= first) & (steps.end_us <= last)),
        quality=replace(one.quality, rows=one.quality.rows - dropped, remarks=(*one.quality.remarks, remark)),
    )


def _vendor(files: Sequence[SourceFile], tally: Tally, *, strict: bool) -> RuleResults | None:
    try:
        return rule_results.read(files)
    except Exception as error:
        if strict:
            raise
        _stopped(rule_results.SOURCE, error, files, tally)
        return None


def _stopped(source: str, error: Exception, files: Sequence[SourceFile], tally: Tally) -> None:
    reason = f"the reader of {source} stopped: {type(error).__name__}: {shown(str(error))}"
    tally.add("failed", "files", reason, count=len(files), file=files[0].name)


def _not_needed(vendor: RuleResults) -> SourceQuality:
    """What becomes of rule results where the job itself can be judged."""
    quality = vendor.quality
    if not vendor.documents:
        return quality
    remark = Remark(
        action="skipped",
        count=len(vendor.documents),
        unit="files",
        reason="not needed: the job's own records are judged",
        example=shown(vendor.documents[0].file, 200),
    )
    return replace(quality, files=0, rows=0, remarks=(remark, *quality.remarks))


def _panels(found: Sequence[Found], tally: Tally) -> tuple[Panel, ...]:
    panels: dict[tuple[str, Metric], Panel] = {}
    for one in found:
        for panel in one.panels:
            if (panel.node, panel.metric) in panels:
                reason = f"{panel.metric.label} of {shown(panel.node)} is known from another source"
                samples = int(np.count_nonzero(~np.isnan(panel.values)))
                tally.add("dropped", "samples", reason, count=samples)
            else:
                panels[panel.node, panel.metric] = panel
    order = list(Metric)
    return tuple(sorted(panels.values(), key=lambda p: (natural_key(p.node), order.index(p.metric))))


def _steps(tables: Sequence[Steps]) -> Steps:
    if len(tables) < 2:
        return tables[0] if tables else Steps()
    return Steps(
        node=np.concatenate([t.node for t in tables]),
        worker=np.concatenate([t.worker for t in tables]),
        phase=np.concatenate([t.phase for t in tables]),
        number=np.concatenate([t.number for t in tables]),
        start_us=np.concatenate([t.start_us for t in tables]),
        end_us=np.concatenate([t.end_us for t in tables]),
    )


def _finished(says: Iterable[bool | None]) -> bool | None:
    known = [one for one in says if one is not None]
    return any(known) if known else None


def _nothing(directory: Path, files: Sequence[SourceFile], remarks: Sequence[Remark], tally: Tally) -> str:
    """What was looked for, what was found, and the first thing that went wrong, in a sentence or two."""
    text = f"{shown(str(directory), 200)} holds nothing that a report can be made from."
    looked_for = [*(reader.looks_for for reader in READERS if reader.looks_for), rule_results.LOOKS_FOR]
    text += f" Looked for {' or '.join(looked_for)}; "
    if files:
        text += f"found {count(len(files), 'file')}, for example {shown(files[0].name, 200)}."
    else:
        text += "it has no files that can be seen."
    remarks = [*remarks, *tally.remarks()]
    if remarks:
        first = remarks[0]
        one, where = first.unit.removesuffix("s"), f" ({first.example})" if first.example else ""
        text += f" {count(first.count, one, first.unit)} {first.action}: {first.reason}{where}."
    return text
