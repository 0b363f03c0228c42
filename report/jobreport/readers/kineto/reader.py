"""Traces of PyTorch's profiler (Kineto), of one rank or of many: each file is a capture of one process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport.readers.base import Found
from jobreport.readers.tally import Tally
from jobreport.remarks import SourceQuality

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.readers.base import SourceFile
    from jobrules.captures.collectives import Communication
    from jobrules.model.captures import Capture


class Kineto:
    """Reads traces of PyTorch's profiler."""

    source = "PyTorch traces"
    looks_for = "traces of PyTorch's profiler (*.pt.trace.json, also as .gz)"
    memory = 0.15
    rows = "events"
    names_machines = True

    def matches_name(self, _: SourceFile) -> bool:
        """No file by its name alone."""
        return False

    def matches_content(self, file: SourceFile) -> bool:
        """By the keys and events at its beginning."""
        from jobreport.readers.kineto.files import is_kineto  # noqa: PLC0415 - most jobs have no such file

        return is_kineto(file)

    def groups(self, files: Sequence[SourceFile]) -> dict[str, list[SourceFile]]:
        """Each file alone: a capture is reduced where it is read."""
        return {file.name: [file] for file in files}

    def read(self, files: Sequence[SourceFile]) -> Found:
        """Read and reduce each file."""
        from jobreport.readers.kineto.table import read_trace  # noqa: PLC0415 - as above
        from jobrules.captures.capture import reduced  # noqa: PLC0415

        captures: list[Capture] = []
        communication: list[Communication] = []
        tally, rows = Tally(), 0
        for file in sorted(files):
            trace, used = read_trace(file, tally)
            if not used:
                continue
            rows += used
            capture, own = reduced(trace, file.name)
            captures.append(capture)
            communication += own
        quality = SourceQuality(source=self.source, files=len(captures), rows=rows, remarks=tally.remarks())
        return Found(quality=quality, captures=tuple(captures), communication=tuple(communication))
