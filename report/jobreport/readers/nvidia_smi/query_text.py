"""What ``nvidia-smi -q`` writes, again and again: keys and values, each level of them indented."""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING

from msgspec.structs import replace

from jobreport.readers.nvidia_smi.query_keys import GpuKeys, key_of
from jobreport.readers.nvidia_smi.unheaded import as_tables, last_time, lines_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from jobreport.readers.nvidia_smi.table import Block, Skipped
    from jobreport.readers.nvidia_smi.unheaded import Row

_TITLE, _TIME, _GPU = "==============NVSMI LOG==============", "Timestamp ", "GPU "
_BUS = re.compile(r"[0-9A-Fa-f]{4,8}(?::[0-9A-Fa-f]{2}){2}\.[0-9A-Fa-f]")
#: Blanks of a level.
_INDENT = 4


def is_log(beginning: str, _: Sequence[str]) -> bool:
    """Whether there is the title of such a text."""
    return _TITLE in beginning


@as_tables
def tables(blocks: Iterable[Block]) -> Iterator[Row | Skipped]:
    """All rows, one for each GPU under a title."""
    moment, time = 0, None
    gpu = GpuKeys()
    keys: list[str] = []
    for number, line in chain(lines_of(map(_whole, blocks)), [(0, _TITLE)]):
        text = line.lstrip(" ")
        key, _, value = text.partition(":")
        if level := (len(line) - len(text)) // _INDENT:
            keys[level - 1 :] = [key_of(key)]
            gpu.add(keys, value.strip())
            continue
        if text.startswith((_TITLE, _TIME, _GPU)):
            yield from gpu.rows(moment, time)
            match = _BUS.fullmatch(text.rstrip()[len(_GPU) :])
            gpu = GpuKeys(match[0] if match else "", number)
            if not text.startswith(_GPU):
                moment, time = number, last_time(text)


def _whole(block: Block) -> Block:
    """The block without a last line that may be cut."""
    return replace(block, lines=block.lines[:-1]) if block.cut else block
