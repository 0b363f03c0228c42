"""From the bytes of a log to its lines, a few MiB at a time."""

from __future__ import annotations

import codecs
import io
import re
from typing import TYPE_CHECKING

from jobreport.readers.nvidia_smi.table import Block, Skipped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

#: Characters of a line at most.
MAX_LINE = 1 << 20
#: Bytes that are read at a time, and those that show the encoding.
_PIECE, _BEGINNING = 1 << 20, 1 << 12
_MARKS = (
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF8, "utf-8"),
)
#: What colors a terminal, moves its cursor, or names its window.
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()*+][0-9A-Za-z]|[=>78A-Z])")


def blocks(chunks: Iterable[bytes], skip: Callable[[Skipped], None]) -> Iterator[Block]:
    """The lines of a text in any encoding that scripts write; ``skip`` gets what is passed over.

    A carriage return ends a line too. A line that is too long is blank.
    """
    line, rest = 1, ""
    for text in _texts(_pieces(chunks)):
        whole, end, last = text.rpartition("\n")
        if not end:
            rest = (rest + last)[: MAX_LINE + 1]
            continue
        block = _block(rest + whole, line, skip)
        yield block
        line += len(block.lines)
        rest = last
    if rest.strip():
        yield _block(rest, line, skip, cut=True)


def _block(text: str, line: int, skip: Callable[[Skipped], None], *, cut: bool = False) -> Block:
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    lines = text.split("\n")
    if _has_long_line(text):
        for place, one in enumerate(lines):
            if len(one) > MAX_LINE:
                skip(Skipped(code="nvidia_smi.long_line", count=1, line=line + place, text=one[:MAX_LINE]))
                lines[place] = ""
    return Block(line=line, lines=lines, cut=cut)


def _has_long_line(text: str) -> bool:
    """From line end to line end, as far apart as they may be: there may be a million lines."""
    begin = 0
    while len(text) - begin > MAX_LINE:
        begin = text.rfind("\n", begin, begin + MAX_LINE + 1) + 1
        if not begin:
            return True
    return False


def _texts(pieces: Iterable[bytes]) -> Iterator[str]:
    """The text with one kind of line end, and a mark in place of what is none."""
    decode = None
    for piece in pieces:
        data = piece
        if decode is None:
            mark, encoding = _encoding(data[:_BEGINNING])
            data = data[len(mark) :]
            decoder = codecs.getincrementaldecoder(encoding)("replace")
            decode = io.IncrementalNewlineDecoder(decoder, translate=True).decode
        # Nothing at all is what a crash leaves of text that it lost: there may be gigabytes of it.
        if encoding == "utf-8" and b"\0" in data:
            data = data.translate(None, b"\0")
        yield decode(data).replace("\ufeff", "").replace("\0", "")
    if decode is not None:
        yield decode(b"", final=True)


def _encoding(beginning: bytes) -> tuple[bytes, str]:
    """The mark in front of a text, and its encoding."""
    for mark, encoding in _MARKS:
        if beginning.startswith(mark):
            return mark, encoding
    for first, encoding in ((1, "utf-16-le"), (0, "utf-16-be")):
        nulls, others = beginning[first::2], beginning[1 - first :: 2]
        if nulls and not any(nulls) and all(others):
            return b"", encoding
    return b"", "utf-8"


def _pieces(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The chunks, joined to larger ones."""
    held: list[bytes] = []
    size = 0
    for chunk in chunks:
        held.append(chunk)
        size += len(chunk)
        if size >= _PIECE:
            yield b"".join(held)
            held, size = [], 0
    yield b"".join(held)
