"""Scalars in event files of TensorBoard: ``events.out.tfevents.<seconds>.<host>.<process>.<number>``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from jobreport.readers import text_files
from jobreport.readers.base import Found
from jobreport.readers.names import as_name
from jobreport.readers.tally import Tally
from jobreport.remarks import SourceQuality
from jobrules.model.learning import Learning

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.readers.base import SourceFile
    from jobreport.readers.tensorboard.runs import Part

_NAME = re.compile(r".*tfevents.*", re.DOTALL)
_HOST = re.compile(r".*tfevents\.[0-9]+\.(?P<host>.+?)(?:\.[0-9]+){0,2}(?:\.v2)?(?:\.gz)?", re.DOTALL)
#: Files in which the profiler notes that there is something of it.
_OF_PROFILER = ".profile-empty"
#: What stands in the first record.
_VERSION = b"brain.Event:"


class TensorBoard:
    """Reads scalars; whatever else TensorBoard shows is counted."""

    source = "scalars of TensorBoard"
    looks_for = "scalars of TensorBoard (*tfevents*, also as .gz)"
    memory = 2.0
    rows = "rows"
    names_machines = True

    def matches_name(self, file: SourceFile) -> bool:
        """By ``tfevents``, which every writer puts there."""
        return _NAME.fullmatch(file.own_name) is not None

    def matches_content(self, file: SourceFile) -> bool:
        """By the first event, which names the version of the format."""
        return _VERSION in text_files.beginning(file.path, 64)

    def groups(self, files: Sequence[SourceFile]) -> dict[str, list[SourceFile]]:
        """All together: files and folders may be of one training."""
        return {"": list(files)}

    def read(self, files: Sequence[SourceFile]) -> Found:
        """Read the scalars of the last training."""
        from jobreport.readers.tensorboard.runs import SOURCE, places, scalars_of  # noqa: PLC0415 - many jobs have none
        from jobreport.readers.tensorboard.scalar_file import ScalarFile  # noqa: PLC0415 - as above

        tally = Tally()
        parts: list[Part] = []
        used: list[SourceFile] = []
        for file, place in places(sorted(files)).items():
            found = ScalarFile(file, place, tally)
            with text_files.noting(file, tally):
                found.read()
            parts += found.parts
            if found.parts:
                used.append(file)
            elif not tally.mentions(file.name) and not file.name.endswith(_OF_PROFILER):
                tally.note("tensorboard.none", file=file.name)
        scalars = scalars_of(parts, tally)
        host = next((match["host"] for file in used if (match := _HOST.fullmatch(file.own_name))), "")
        learning = Learning(scalars=scalars, node=as_name(host), sources=(SOURCE,))
        quality = SourceQuality(
            source=self.source, files=len(used), rows=sum(map(len, scalars)), remarks=tally.remarks()
        )
        return Found(quality=quality, learning=(learning,) if scalars else ())
