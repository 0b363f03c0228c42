"""The text of a file that may be compressed and may be damaged."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GZIP_MAGIC = b"\x1f\x8b"
UTF8_BOM = b"\xef\xbb\xbf"

#: Small, because 64 KiB of compressed data can hold 64 MiB of text.
_CHUNK = 1 << 16
#: Lets zlib expect the header and the checksum of gzip.
_GZIP = 16 + zlib.MAX_WBITS


class DamagedError(Exception):
    """Compressed data ends early or goes over into something else; what came before was good."""


def chunks(path: Path) -> Iterator[bytes]:
    """The text in pieces, decompressed if the file begins like gzip, without a byte order mark.

    Raises ``DamagedError`` behind the last good piece, ``OSError`` for a file that cannot be read.
    """
    pieces = _pieces(path)
    yield next(pieces, b"").removeprefix(UTF8_BOM)
    yield from pieces


def is_wrapped(path: Path) -> bool:
    """Whether the file is more than its text: compressed, or with a byte order mark."""
    try:
        head = next(_pieces(path), b"")
        with path.open("rb") as file:
            zipped = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    except (OSError, DamagedError):
        return False
    return zipped or head.startswith(UTF8_BOM)


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
            for part in (first, *others):
                if part is not first:
                    yield b"".join(rest) if size <= longest else None
                    rest, size = [], 0
                size += len(part)
                if size <= longest:
                    rest.append(part)
    except DamagedError as error:
        damage = error
    if size:
        yield b"".join(rest) if size <= longest else None
    if damage:
        raise damage


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        data = file.read(_CHUNK)
        if not data.startswith(GZIP_MAGIC):
            while data:
                yield data
                data = file.read(_CHUNK)
            return
        unzip = zlib.decompressobj(_GZIP)
        while data:
            try:
                text = unzip.decompress(data)
            except zlib.error as error:
                raise DamagedError from error
            if text:
                yield text
            if not unzip.eof:
                data = file.read(_CHUNK)
                continue
            # Behind a member of the file stands the next one, or padding, or nothing.
            data = (unzip.unused_data or file.read(_CHUNK)).lstrip(b"\0")
            if data:
                unzip = zlib.decompressobj(_GZIP)
        if not unzip.eof:
            raise DamagedError
