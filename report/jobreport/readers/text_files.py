"""The text of a file that may be compressed and may be damaged."""

from __future__ import annotations

import contextlib
import os
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GZIP_MAGIC = b"\x1f\x8b"
UTF8_BOM = b"\xef\xbb\xbf"

#: Bytes of a file, and of text, at a time: 64 KiB of compressed data can hold 64 MiB of text.
_CHUNK, _PIECE = 1 << 16, 1 << 20
#: Text that is more than so many bytes and times its compressed data is no record of anything.
_MOST_TEXT, _MOST_TIMES = 1 << 28, 200
#: Lets zlib expect the header and the checksum of gzip.
_GZIP = 16 + zlib.MAX_WBITS


class DamagedError(Exception):
    """Compressed data ends early, goes over into something else or does not end; what came before was good."""


def chunks(path: Path) -> Iterator[bytes]:
    """The text in pieces, decompressed if the file begins like gzip, without a byte order mark.

    Raises ``DamagedError`` behind the last good piece, ``OSError`` for a file that cannot be read.
    """
    pieces = _pieces(path)
    yield next(pieces, b"").removeprefix(UTF8_BOM)
    yield from pieces


def lines(path: Path, longest: int) -> Iterator[bytes | None]:
    """The lines of the text, without their ends; none for a line of more than ``longest`` bytes.

    Raises what ``chunks`` raises, behind the last line.
    """
    rest: list[bytes] = []
    size = 0
    damage: DamagedError | None = None
    try:
        for chunk in chunks(path):
            first, *others = chunk.split(b"\n")
            size += len(first)
            if size <= longest:
                rest.append(first)
            if others:
                yield b"".join(rest) if size <= longest else None
                last = others.pop()
                for line in others:
                    yield line if len(line) <= longest else None
                rest, size = [last], len(last)
    except DamagedError as error:
        damage = error
    if size:
        yield b"".join(rest) if size <= longest else None
    if damage:
        raise damage


def _pieces(path: Path) -> Iterator[bytes]:
    with open(path, "rb", buffering=0, opener=_opened) as file:
        data = file.read(_CHUNK)
        if not data.startswith(GZIP_MAGIC):
            while data:
                yield data
                data = file.read(_CHUNK)
            return
        unzip = zlib.decompressobj(_GZIP)
        size = 0
        while data:
            before = unzip.copy()
            try:
                text = unzip.decompress(data, _PIECE)
            except zlib.error as error:
                yield _in_front_of_damage(before, data)
                raise DamagedError from error
            if text:
                yield text
            size += len(text)
            if size > max(_MOST_TEXT, _MOST_TIMES * file.tell()):
                raise DamagedError
            if unzip.eof:
                # Behind a member of the file stands the next one, or padding, or nothing.
                data = unzip.unused_data.lstrip(b"\0")
                while not data and (more := file.read(_CHUNK)):
                    data = more.lstrip(b"\0")
                if data:
                    unzip = zlib.decompressobj(_GZIP)
            else:
                data = unzip.unconsumed_tail or file.read(_CHUNK)
        if not unzip.eof:
            yield unzip.flush()
            raise DamagedError


def _opened(path: str, flags: int) -> int:
    """What has become a link since the directory was listed is not followed, and a pipe is not waited for."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))


def _in_front_of_damage(unzip: zlib._Decompress, data: bytes) -> bytes:
    """The text that a failed call has unpacked and not given back: that of a byte at a time."""
    text: list[bytes] = []
    with contextlib.suppress(zlib.error):
        text.extend(unzip.decompress(data[at : at + 1]) for at in range(len(data)))
    return b"".join(text)
