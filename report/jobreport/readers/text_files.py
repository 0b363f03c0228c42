"""The text of a file that may be compressed or damaged."""

from __future__ import annotations

import contextlib
import errno
import os
import zlib
from typing import IO, TYPE_CHECKING, Any

from jobreport.readers.tally import UnusableError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from jobreport.readers.base import SourceFile
    from jobreport.readers.tally import Tally

GZIP_MAGIC = b"\x1f\x8b"
UTF8_BOM = b"\xef\xbb\xbf"

#: Bytes of a file, and of text, at a time: 64 KiB of compressed data can hold 64 MiB of text.
_CHUNK, _PIECE = 1 << 16, 1 << 20
#: Text is damage if it has more bytes than the first and than so many times its compressed data.
_MAX_TEXT, _MAX_RATIO = 1 << 28, 200
#: Mode of zlib: header and checksum of gzip.
_GZIP = 16 + zlib.MAX_WBITS


class DamagedError(Exception):
    """Compressed data ends early, or changes into something else; the text before is good."""

    @property
    def remark(self) -> tuple[str, dict[str, Any]]:
        """Code and fields of the remark on it."""
        return "file.cut", {}


class TooLargeError(DamagedError):
    """Compressed data becomes more text than any file of its size should; the text up to there is good."""

    def __init__(self, limit: int) -> None:
        """``limit`` in bytes of text."""
        super().__init__()
        self.limit = limit

    @property
    def remark(self) -> tuple[str, dict[str, Any]]:
        """Code and fields of the remark on it."""
        return "file.unpacked", {"limit": f"{self.limit >> 20:,} MiB"}


def chunks(path: Path) -> Iterator[bytes]:
    """The text in pieces, decompressed if the file begins like gzip, without a byte order mark.

    Raises ``DamagedError`` after the last good piece, ``OSError`` for an unreadable file.
    """
    pieces = _pieces(path)
    yield next(pieces, b"").removeprefix(UTF8_BOM)
    yield from pieces


def beginning(path: Path, size: int = _PIECE) -> bytes:
    """The first bytes of the text, as far as they are read at once; none of a file that cannot be read."""
    try:
        return next(chunks(path), b"")[:size]
    except (OSError, DamagedError):
        return b""


@contextlib.contextmanager
def noting(file: SourceFile, tally: Tally) -> Iterator[None]:
    """Reads a file up to the first damage, which gets a remark; so does a file that cannot be used."""
    try:
        yield
    except UnusableError as error:
        tally.note(error.code, file=file.name, **error.fields)
    except DamagedError as error:
        code, fields = error.remark
        tally.note(code, file=file.name, **fields)
    except OSError as error:
        tally.note("file.unreadable", file=file.name, reason=error.strerror or "")


def lines(path: Path, longest: int) -> Iterator[bytes | None]:
    """The lines of the text, without their ends; None for a line of more than ``longest`` bytes.

    Raises what ``chunks`` raises, after the last line.
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


def content(path: Path, most: int) -> bytes:
    """The whole text. Raises ``UnusableError`` if it is damaged, empty, or larger than ``most`` bytes."""
    parts: list[bytes] = []
    try:
        for part in chunks(path):
            parts.append(part)
            if sum(map(len, parts)) > most:
                raise UnusableError("file.large", mib=most >> 20)
    except OSError as error:
        raise UnusableError("file.unreadable", reason=error.strerror or "") from error
    except DamagedError as error:
        raise UnusableError("file.damaged") from error
    if not any(parts):
        raise UnusableError("file.empty")
    return b"".join(parts)


def most_text(packed: int) -> int:
    """The most bytes of text that so many bytes of compressed data may become."""
    return max(_MAX_TEXT, _MAX_RATIO * packed)


def _pieces(path: Path) -> Iterator[bytes]:
    with open(path, "rb", buffering=0, opener=opened) as file:
        data = file.read(_CHUNK)
        if not data.startswith(GZIP_MAGIC):
            while data:
                yield data
                if data == bytes(len(data)):
                    _skip_hole(file)
                data = file.read(_CHUNK)
            return
        unzip = zlib.decompressobj(_GZIP)
        size, begins = 0, True
        while data:
            # A member that begins needs no copy, which takes longer than a short member.
            before = None if begins else unzip.copy()
            try:
                text = unzip.decompress(data, _PIECE)
            except zlib.error as error:
                yield _in_front_of_damage(before or zlib.decompressobj(_GZIP), data)
                raise DamagedError from error
            if text:
                yield text
            size += len(text)
            if size > (limit := most_text(file.tell())):
                raise TooLargeError(limit)
            if unzip.eof:
                # After a member of the file comes the next one, or padding, or nothing.
                data = unzip.unused_data.lstrip(b"\0")
                while not data and (more := file.read(_CHUNK)):
                    data = more.lstrip(b"\0")
                if data:
                    unzip, begins = zlib.decompressobj(_GZIP), True
            else:
                data, begins = unzip.unconsumed_tail or file.read(_CHUNK), False
        if not unzip.eof:
            yield unzip.flush()
            raise DamagedError


def _skip_hole(file: IO[bytes]) -> None:
    """Go on behind a part of the file that takes no place on the disk: it may be larger than any disk."""
    if hasattr(os, "SEEK_DATA"):
        try:
            file.seek(file.tell(), os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # up to the end
                file.seek(0, os.SEEK_END)


def opened(path: str, flags: int) -> int:
    """Do not follow what became a link after the directory was listed, and do not wait for a pipe."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))


def _in_front_of_damage(unzip: zlib._Decompress, data: bytes) -> bytes:
    """The text that a failed call unpacked and did not return, by unpacking a byte at a time."""
    text: list[bytes] = []
    with contextlib.suppress(zlib.error):
        text.extend(unzip.decompress(data[at : at + 1]) for at in range(len(data)))
    return b"".join(text)
