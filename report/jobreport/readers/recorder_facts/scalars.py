"""Numbers that a script logged: ``jobrecord/training-<rank>.jsonl``, by ``jobrecord.log``."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import replace

from jobreport.readers import text_files
from jobreport.readers.names import as_name
from jobreport.readers.tally import UnusableError
from jobreport.recordings import Logged

if TYPE_CHECKING:
    from jobreport.readers.base import SourceFile
    from jobreport.readers.tally import Tally

NAME = re.compile(r"(?:.*/)?jobrecord/training-([0-9]{5})(?:-([0-9]{1,3}))?\.jsonl(?:\.gz)?", re.DOTALL)
#: Names that are kept, and characters of a name; bytes of a line.
_MAX_NAMES, _MAX_NAME, _MAX_LINE = 100, 100, 1 << 20


class _Line(Struct):
    kind: str
    jobrecord: int = 0
    node: str = ""
    step: Annotated[int, Meta(ge=0, le=10**15)] = 0
    mode: str = ""
    values: dict[str, float | str] = field(default_factory=dict)


def read_scalars(file: SourceFile, tally: Tally) -> tuple[str, tuple[Logged, ...]]:
    """The node that a file is of, and each number of it. Raises ``UnusableError`` and ``DamagedError``."""
    decoder, node = msgspec.json.Decoder(_Line), ""
    found: dict[tuple[str, str], Logged] = {}
    for number, line in enumerate(text_files.lines(file.path, _MAX_LINE)):
        try:
            one = decoder.decode(line or b"")
        except (ValueError, RecursionError):
            if number == 0:
                raise UnusableError("scalars.unknown") from None
            tally.note("scalars.line", file=file.name, line=number + 1)
            continue
        if number == 0:
            if one.jobrecord != 1 or one.kind != "head":
                raise UnusableError("scalars.unknown")
            node = one.node
        elif one.kind == "scalar":
            for name, value in one.values.items():
                key = one.mode[:_MAX_NAME], name[:_MAX_NAME]
                if key in found or len(found) < _MAX_NAMES:
                    found[key] = _with(found.get(key), key, one.step, value)
    return as_name(node), tuple(found.values())


def _with(before: Logged | None, key: tuple[str, str], step: int, value: float | str) -> Logged:
    mode, name = key
    known = before or Logged(mode=mode, name=name, values=0, not_finite=0, step=step, value=None)
    if isinstance(value, float) and math.isfinite(value):
        return replace(known, values=known.values + 1, step=step, value=value)
    return replace(known, values=known.values + 1, not_finite=known.not_finite + 1)
