"""How many rows stand in a log of nvidia-smi, counted line by line.

A *row* is a line that is not blank, names no columns, and does not begin with ``#``, as what dmon says of its columns;
a last line without an end is one, whatever it holds. Lines with columns of several GPUs (``gpu0_util``) are several.
What a name of a column means is the reader's word (``smi_columns``, held by ``tests/readers/test_smi_columns.py``).
"""

from __future__ import annotations

import itertools
import re
from functools import lru_cache

from fuzz.sample_rows_reference import unpacked
from jobreport.readers.nvidia_smi.columns import columns

_MARKS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_GPU_IN_NAME = re.compile(r"(?i)(gpu|cuda)[ ._:-]?[0-9]")
_NUMBER = re.compile(r"[-+]?[0-9.]+")


def rows(content: bytes) -> int | None:
    """The rows of a log; none where it may be read in several ways.

    Quotes may join lines, a line may be several rows, and one with # is none only behind columns that begin with it
    and have blanks between them.
    """
    text = _text(unpacked(content))
    if '"' in text:
        return None
    if any(_names_columns(line) and _GPU_IN_NAME.search(line) for line in text.split("\n")):
        return None
    notes_before = any(
        line.startswith("#")
        for line in itertools.takewhile(lambda line: not _names_columns(line), text.split("\n"))
    )
    heads = [line for line in text.split("\n")[:-1] if _names_columns(line)]
    marked = {line.startswith("#") for line in heads}
    if any(line.startswith("#") and set(",;\t") & set(line) for line in heads):
        return None
    if len(marked) > 1 or (notes_before and True in marked):
        return None
    *whole, last = text.split("\n")
    lines = [line for line in whole if line.strip() and not _names_columns(line)]
    notes = sum(line.startswith("#") for line in lines) if True in marked else 0
    return len(lines) - notes + bool(last.strip())


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
