"""How many rows stand in a log of nvidia-smi, counted line by line.

A *row* is a line that is not blank, names no columns, is no date with a clock time and no banner, and does not begin
with ``#`` in front of any header or under one that does; a last line without an end is one, whatever it holds. Lines
with columns of several GPUs (``gpu0_util``, ``util_0``) are several. What a name of a column means, what is a date, and
what launchers put in front of lines is the reader's word (``nvidia_smi.columns``, ``times``, ``prefixes``, held by their
tests).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from fuzz.sample_rows_reference import unpacked
from jobreport.readers.nvidia_smi.columns import is_header
from jobreport.readers.nvidia_smi.prefixes import PREFIXES
from jobreport.readers.nvidia_smi.times import is_date

if TYPE_CHECKING:
    from collections.abc import Iterator

_RULE = "-=+*#~_<>[]|: \t"
_BANNER = re.compile(r"\W*|\s*([-=+*#~_])\1.*\1\1\s*")
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()*+][0-9A-Za-z]|[=>78A-Z])")
_MARKS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_GPU_IN_NAME = re.compile(r"(?i)(gpu|cuda)[ ._:-]?[0-9]|(?<![a-z0-9.])[0-9]")
#: In forms of logs whose rows are not lines, and in one whose columns have no metric.
_OTHER_FORMS = (
    "| NVIDIA-SMI ",
    "s: nvidia-smi",
    "NVSMI LOG",
    "<nvidia_smi_log",
    '"query_time"',
    " MB |",
    "retired_pages.",
)
_NUMBER = re.compile(r"[-+]?[0-9.]+")


def rows(content: bytes) -> int | None:
    """The rows of a log; ``None`` where it may be read in several ways.

    Quotes may join lines, a line may be several rows, a date or a banner may have as many cells as a row, and lines may
    begin with the name of their writer.
    """
    unzipped = unpacked(content)
    text = _text(unzipped)
    # UTF-16 without a byte order mark may begin in the middle of a character.
    if any(one in text for one in _OTHER_FORMS) or (b"\0" in unzipped and unzipped[:2] not in _MARKS):
        return None
    *lines, last = text.split("\n")
    if '"' in text or any(_GPU_IN_NAME.search(line) for line in lines if _names_columns(line)):
        return None
    if any(_names_columns(line[match.end() :]) for line in lines for match in _prefixed(line)):
        return None
    found, notes = 0, True
    for line in lines:
        if _names_columns(line):
            notes = line.startswith("#")
        elif not line.strip() or (notes and line.startswith("#")):
            continue
        elif (":" in line and is_date(line.strip(_RULE))) or _BANNER.fullmatch(line):
            if set(line.strip()) & set(",;\t -"):
                return None
        else:
            found += 1
    return found + bool(last.strip())


def _text(content: bytes) -> str:
    content = content.removeprefix(b"\xef\xbb\xbf")
    mark, encoding = next(((m, e) for m, e in _MARKS.items() if content.startswith(m)), (b"", "utf-8"))
    text = content[len(mark) :].decode(encoding, "replace").replace("\0", "").lstrip("\ufeff")
    return _ANSI.sub("", text.replace("\ufeff", "").replace("\r\n", "\n").replace("\r", "\n"))


def _prefixed(line: str) -> Iterator[re.Match[str]]:
    return filter(None, (prefix.match(line) for prefix in PREFIXES))


@lru_cache(4096)
def _names_columns(line: str) -> bool:
    if line.lstrip()[:1].isdigit():
        return False
    if set(",;\t") & set(line):
        fields = line.lstrip("#").split(max(",;\t", key=line.count))
    elif line.startswith("#"):
        fields = line.lstrip("#").split()
    else:
        fields = re.split(r"\s\s+", line.strip()) if "|" not in line else []
    names = [name.strip() for name in fields]
    return 2 <= len(names) <= 256 and is_header(names) and not any(map(_NUMBER.fullmatch, names))
