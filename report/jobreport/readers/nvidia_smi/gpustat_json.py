"""Objects of ``gpustat --json``, one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct, field

from jobreport.readers.nvidia_smi.table import Skipped
from jobreport.readers.nvidia_smi.unheaded import Row, as_tables, damaged_document, documents_of, iso_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from jobreport.readers.nvidia_smi.table import Block


class _Gpu(Struct):
    index: int
    uuid: str | None = None
    name: str | None = None
    utilization: float | None = field(default=None, name="utilization.gpu")
    memory_used: float | None = field(default=None, name="memory.used")
    memory_total: float | None = field(default=None, name="memory.total")
    temperature: float | None = field(default=None, name="temperature.gpu")
    power: float | None = field(default=None, name="power.draw")
    power_limit: float | None = field(default=None, name="enforced.power.limit")


class _Query(Struct):
    hostname: str
    query_time: str
    gpus: list[_Gpu]


def is_log(beginning: str, _: Sequence[str]) -> bool:
    """Whether there are the keys of such an object."""
    return all(key in beginning for key in ('"hostname"', '"query_time"', '"gpus"'))


@as_tables
def tables(blocks: Iterable[Block]) -> Iterator[Row | Skipped]:
    """All rows, one for each GPU in an object."""
    for document in documents_of(blocks, lambda line: line.startswith("{"), _is_end):
        if isinstance(document, Skipped):
            yield document
            continue
        line, text = document
        try:
            query = msgspec.json.decode(text, type=_Query)
        except (msgspec.DecodeError, ValueError, RecursionError):
            yield damaged_document(line)
            continue
        for gpu in query.gpus:
            values = msgspec.to_builtins(gpu)
            cells = {column: "" if value is None else str(value) for column, value in values.items()}
            cells["hostname"] = query.hostname
            yield Row(
                line=line, moment=line, time=iso_time(query.query_time), gpu=str(gpu.index), cells=cells
            )


def _is_end(line: str) -> bool:
    return line.startswith("}") or (line.startswith("{") and line.rstrip().endswith("}"))
