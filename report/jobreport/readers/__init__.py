"""From a job directory to a ``Job``: each file goes to the first reader that claims it."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from jobreport.errors import NothingReadableError
from jobreport.quality import Quality
from jobreport.readers.directory import is_end_marker, job_name, listing
from jobreport.readers.system_samples import SystemSamples
from jobreport.readers.tally import Tally
from jobrules.job import Events, Job, Metric, Panel, Steps, natural_key
from jobrules.words import count, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from jobreport.readers.base import Found, Reader, SourceFile

__all__ = ["READERS", "job_name", "read_job"]

#: Asked in this order. Where two have the same metric of the same node, the first one's is used.
READERS: tuple[Reader, ...] = (SystemSamples(),)


def read_job(directory: Path, *, strict: bool = False) -> tuple[Job, Quality]:
    """Everything that the readers find in a directory, and what became of its files.

    A reader that raises costs its own files and a remark, unless ``strict``. Raises
    ``NothingReadableError`` where nothing is left to report.
    """
    tally = Tally()
    files = listing(directory, tally)
    claimed: defaultdict[int, list[SourceFile]] = defaultdict(list)
    unclaimed: list[SourceFile] = []
    ended = False
    for file in files:
        if is_end_marker(file):
            ended = True
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
            reason = f"the reader of {READERS[i].source} stopped: {type(error).__name__}: {shown(str(error))}"
            tally.add("failed", "files", reason, count=len(claimed[i]), file=claimed[i][0].name)
    panels = _panels(found, tally)
    steps = _steps([f.steps for f in found if len(f.steps)])
    events = Events.joined([f.events for f in found])
    if not panels and not len(steps) and not len(events):
        raise NothingReadableError(_nothing(directory, files, found, tally))
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
    return job, Quality(sources=tuple(f.quality for f in found), remarks=tally.remarks())


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


def _nothing(directory: Path, files: Sequence[SourceFile], found: Sequence[Found], tally: Tally) -> str:
    """What was looked for, what was found, and the first thing that went wrong, in a sentence or two."""
    text = f"{shown(str(directory), 200)} holds nothing that a report can be made from."
    text += f" Looked for {' or '.join(reader.looks_for for reader in READERS)}; "
    if files:
        text += f"found {count(len(files), 'file')}, for example {shown(files[0].name, 200)}."
    else:
        text += "it has no files that can be seen."
    remarks = [remark for one in found for remark in one.quality.remarks] + list(tally.remarks())
    if remarks:
        first = remarks[0]
        one, where = first.unit.removesuffix("s"), f" ({first.example})" if first.example else ""
        text += f" {count(first.count, one, first.unit)} {first.action}: {first.reason}{where}."
    return text
