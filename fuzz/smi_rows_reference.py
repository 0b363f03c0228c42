"""How many rows stand in a log of nvidia-smi, counted line by line.

A *row* is a line that is not blank, names no columns, and does not begin with ``#`` in front of any header or under
one that does; a last line without an end is one, whatever it holds. Lines with columns of several GPUs (``gpu0_util``)
are several. What a name of a column means is the reader's word (``nvidia_smi.columns``, held by its tests).
"""

from __future__ import annotations

import re
from functools import lru_cache

from fuzz.sample_rows_reference import unpacked
from jobreport.readers.nvidia_smi.columns import columns

_MARKS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_GPU_IN_NAME = re.compile(r"(?i)(gpu|cuda)[ ._:-]?[0-9]")
#: In forms of logs whose rows are not lines.
_OTHER_FORMS = ("| NVIDIA-SMI ", "NVSMI LOG", "<nvidia_smi_log", '"query_time"', " MB |")
_NUMBER = re.compile(r"[-+]?[0-9.]+")


def rows(content: bytes) -> int | None:
    """The rows of a log; ``None`` where it may be read in several ways: quotes may join lines, a line be several rows."""
    text = _text(unpacked(content))
    if any(one in text for one in _OTHER_FORMS):
        return None
    *lines, last = text.split("\n")
    if '"' in text or any(_GPU_IN_NAME.search(line) for line in lines if _names_columns(line)):
        return None
    found, notes = 0, True
    for line in lines:
        if _names_columns(line):
            notes = line.startswith("#")
        elif line.strip() and not (notes and line.startswith("#")):
            found += 1
    return found + bool(last.strip())


def _text(content: bytes) -> str:
    content = content.removeprefix(b"\xef\xbb\xbf")
    mark, encoding = next(((m, e) for m, e in _MARKS.items() if content.startswith(m)), (b"", "utf-8"))
    text = content[len(mark) :].decode(encoding, "replace").replace("\0", "").lstrip("\ufeff")
    return text.replace("\r\n", "\n").replace("\r", "\n")


@lru_cache(4096)
def _names_columns(line: str) -> bool:
    if line[:1].isdigit():
        return False
    blanks = line.startswith("#") and not set(",;\t") & set(line)
    fields = line.lstrip("#").split() if blanks else line.lstrip("#").split(max(",;\t", key=line.count))
    known = [found for found in columns([name.strip() for name in fields]) if found]
    return (
        2 <= len(fields) <= 256
        and len(known) >= 2
        and any(one.metric or one.says == "mask" for one in known)
        and not any(_NUMBER.fullmatch(name.strip()) for name in fields)
    )
