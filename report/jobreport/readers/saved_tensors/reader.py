"""What SageMaker Debugger saved of a training."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from jobreport.readers.base import Found
from jobreport.readers.saved_tensors.files import place_of
from jobreport.readers.tally import Tally
from jobreport.remarks import SourceQuality

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.readers.base import SourceFile


class SavedTensors:
    """Reads tensors, reductions, and scalars that a hook of SageMaker Debugger saved."""

    source = "saved tensors of SageMaker Debugger"
    looks_for = "tensors saved by SageMaker Debugger (collections, index, and events side by side)"
    memory = 0.1
    rows = "rows"
    names_machines = True

    def matches_name(self, file: SourceFile) -> bool:
        """By its folders."""
        return place_of(file) is not None

    def matches_content(self, file: SourceFile) -> bool:
        """Never: without its folders, nobody knows of which step a file is."""
        del file
        return False

    def groups(self, files: Sequence[SourceFile]) -> dict[str, list[SourceFile]]:
        """By the folder above."""
        found: defaultdict[str, list[SourceFile]] = defaultdict(list)
        for file in files:
            if place := place_of(file):
                found[place.job].append(file)
        return found

    def read(self, files: Sequence[SourceFile]) -> Found:
        """Read what was saved of each job."""
        from jobreport.readers.saved_tensors.job import SavedJob  # noqa: PLC0415 - most jobs have none

        tally = Tally()
        jobs = [SavedJob(some, tally) for some in self.groups(files).values()]
        found = [learning for job in jobs if (learning := job.read())]
        rows = sum(len(one.tensors or ()) + sum(map(len, one.scalars)) for one in found)
        quality = SourceQuality(
            source=self.source, files=sum(job.used for job in jobs), rows=rows, remarks=tally.remarks()
        )
        return Found(quality=quality, learning=tuple(found))
