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
#: A time without other cells, which may be that of the rows below.
_TIME_ALONE = re.compile(r"[^,;\t]*[0-9]:[0-9]{2}[^,;\t]*")
#: A line that begins like a rule or a banner, which is no row of any log.
_BANNER = re.compile(r"\s*([^\w\s])\1\1[^,;\t]*")
#: The end of what a launcher puts in front of a line.
_PREFIX_END = re.compile(r"[]:|)Z0-9] ?(?=[a-zA-Z])")
_FIRST_CELL = re.compile(r"[^,;\t]*")


def rows(content: bytes) -> int | None:
    """The rows of a log; ``None`` where it may be read in several ways: quotes may join lines, a line be several rows."""
    unzipped = unpacked(content)
    # UTF-16 without a byte order mark.
    if b"\0" in unzipped and unzipped[:2] not in _MARKS:
        return None
    text = _text(unzipped)
    # Names of columns without a metric.
    if "retired_pages." in text or any(one in text for one in _OTHER_FORMS):
        return None
    *lines, last = text.split("\n")
    if '"' in text or any(_GPU_IN_NAME.search(line) for line in lines if _names_columns(line)):
        return None
    if any(map(_is_unclear, lines)):
        return None
    found, notes = 0, True
    for line in lines:
        if _names_columns(line):
            notes = line.startswith("#")
        elif line.strip() and not (notes and line.startswith("#")):
            found += 1
    return found + bool(last.strip())


def _is_unclear(line: str) -> bool:
    """Whether it is a time or a banner, or names columns behind something else or with blanks between them."""
    cells = _FIRST_CELL.match(line)
    ends = [found.end() for found in _PREFIX_END.finditer(cells[0])] if cells else []
    return (
        bool(_TIME_ALONE.fullmatch(line) or _BANNER.fullmatch(line))
        or any(_names_columns(line[end:]) for end in ends[:8])
        or (not _names_columns(line) and _names_columns(re.sub(r" {2,}", ";", line.strip())))
    )


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
