"""The text of a trace: its head, its events in blocks, and what stands behind them.

A block is decoded at once. Where that fails, it is split into its events, and each is decoded alone. Two kinds of damage
are repaired: the end of a file that is cut, and values that JSON does not have. Any other costs the event that has it.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import msgspec

from jobreport import progress
from jobreport.readers import text_files
from jobreport.readers.kineto.event import EVENTS, EXACT_EVENTS, Event

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobreport.readers.base import SourceFile
    from jobreport.readers.tally import Tally

#: Bytes that are decoded at once: of smaller blocks each costs as much as a call of numpy for every column.
_BLOCK = 1 << 21
#: Bytes in front of the events, and behind them, that are looked at.
MAX_HEAD = 4 << 20
#: Bytes without the border of two events that are kept.
_MAX_EVENT = 16 << 20
#: Parts of a text, between what looks like borders, that may be one event.
_MAX_PARTS = 9
#: Bytes at the end of a block in which the last border usually lies.
_BLOCK_END = 1 << 13
#: Microseconds from which on a float holds no nanoseconds.
_MAX_EXACT_US = 2.0**43
#: Events of a block that are looked at for that.
_SAMPLE = 64

_CLOSING = ord("]")

EVENTS_BEGIN = re.compile(rb'\A\s*+\[|"traceEvents"\s*+:\s*+\[')
#: An event may begin with any of its keys: those of one file do not all begin with the same.
_BORDER = re.compile(rb'(?<=\})(\s*+,[\s,]*+)(?=\{\s*+"(?:ph|cat|name|pid|tid|ts|dur|args|id|bp|s)"\s*+:)')
#: A time beyond ``_MAX_EXACT_US`` with a fraction.
_INEXACT = re.compile(rb'"ts"\s*+:\s*+[0-9]{13,}\.[0-9]*[1-9]')
#: What writers put into values, and what is read instead; backslashes escape nothing in paths of Windows.
_NO_VALUES = (
    (re.compile(rb"[\x00-\x1f]"), b" "),
    (re.compile(rb'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})'), rb"\\\\"),
    (re.compile(rb"(:\s*+)(?:[-+]?(?:nan|inf(?:inity)?)|N/A)(?=\s*+[,}\]])", re.IGNORECASE), rb"\1null"),
)
#: Bytes in which the end of the list is looked for: in memory, decoded values take much.
_MAX_VALUES = 1 << 20
_JSON = json.JSONDecoder(strict=False)
_SPACE = re.compile(r"[ \t\r\n,]*+")
_BETWEEN = b" \t\r\n,"
#: The key that all events have, and nothing behind them.
_TYPE = re.compile(rb'"ph"\s*+:')
_TRUNCATED = "truncated"


class TraceText:
    """The text of one file. ``head`` and ``tail`` are complete once ``events`` has ended."""

    def __init__(self, file: SourceFile, tally: Tally) -> None:
        self.head = self.tail = b""
        #: Values of the list so far, read or not.
        self.count = 0
        self._file, self._tally = file, tally
        self._has_ended = False
        self._is_exact = False

    def events(self) -> Iterator[Sequence[Event]]:
        """The events in their order, many at a time; ``count`` includes them when they are given out."""
        pieces = self._pieces()
        # Begins with a bracket, so that a block is decoded where it lies, without a copy.
        text, wanted = bytearray(b"[" + self._read_head(pieces)), 0
        for piece in pieces:
            if self._has_ended:
                self.tail += piece[: max(0, MAX_HEAD - len(self.tail))]
                continue
            text += piece
            if len(text) < wanted:
                continue
            if border := self._last_border(text):
                yield self._block(text, border.start(1))
                if self._has_ended:
                    # What stands behind the events has borders too.
                    self.tail += text[border.start(1) :]
                del text[1 : border.end()]
                wanted = len(text) + _BLOCK
            elif len(text) > _MAX_EVENT:
                self._note("kineto.unreadable")
                self.count += 1
                del text[1:]
            else:
                # Each attempt costs as much as there is text, so that the next one waits for twice as much.
                wanted = 2 * len(text)
        if not self._has_ended:
            yield self._one_by_one(bytes(text[1:]), is_last=True)
        if not self.count:
            self._tally.note("kineto.no_events", file=self._file.name)

    def _read_head(self, pieces: Iterator[bytes]) -> bytes:
        """The first text of the list of events; empty if there is none."""
        text, wanted = b"", _BLOCK_END
        found = None
        for piece in pieces:
            text += piece
            if len(text) < wanted:
                continue
            found = EVENTS_BEGIN.search(text)
            wanted = found.end() + _BLOCK_END if found else 2 * len(text)
            if len(text) >= wanted or len(text) > MAX_HEAD:
                break
        found = found or EVENTS_BEGIN.search(text)
        if found is None:
            self.head, self._has_ended = text[:MAX_HEAD], True
            return b""
        self.head = text[: found.end()]
        return text[found.end() :]

    def _pieces(self) -> Iterator[bytes]:
        with text_files.noting(self._file, self._tally):
            for piece in text_files.chunks(self._file.path):
                yield piece
                progress.advance(len(piece) * self._file.size // max(self._file.text_size, 1))

    def _last_border(self, text: bytearray) -> re.Match[bytes] | None:
        """What separates the last event, which may be incomplete, from those before it."""
        for begin in (max(0, len(text) - _BLOCK_END), 0):
            if borders := list(_BORDER.finditer(text, begin)):
                return borders[-1]
        return None

    def _block(self, text: bytearray, end: int) -> Sequence[Event]:
        """The events in front of ``end``."""
        behind, text[end] = text[end], _CLOSING
        with memoryview(text) as view:
            events = self._decode_list(view[: end + 1])
        text[end] = behind
        if events is None:
            return self._one_by_one(bytes(text[1:end]))
        self.count += len(events)
        return events

    def _decode(self, text: bytes) -> Sequence[Event] | None:
        """The events of a text of events with commas between them; None if one of them is not sound."""
        return self._decode_list(b"".join((b"[", text, b"]")))

    def _decode_list(self, text: bytes | memoryview) -> Sequence[Event] | None:
        try:
            if self._is_exact:
                return EXACT_EVENTS.decode(text)
            events = EVENTS.decode(text)
            # A writer gives all times a fraction, or none.
            if any(map(_is_inexact, events[:: len(events) // _SAMPLE + 1])):
                self._is_exact = True
                return EXACT_EVENTS.decode(text)
            return events
        except (ValueError, RecursionError):
            return None

    def _one_by_one(self, text: bytes, *, is_last: bool = False) -> Sequence[Event]:
        """The events of a text, some of which cannot be decoded; the last text of a file has the end of their list."""
        self._is_exact = self._is_exact or _INEXACT.search(text) is not None
        parts = [part for part in (piece.strip(_BETWEEN) for piece in _BORDER.split(text)) if part]
        last = max((number for number, part in enumerate(parts) if _TYPE.search(part)), default=0)
        read: list[Event] = []
        number = 0
        while number < len(parts) and not self._has_ended:
            events, count = self._first(parts[number : number + _MAX_PARTS])
            # The list does not end where events follow.
            if events is None and number >= last:
                events = self._in_front_of_end(parts, number, is_last=is_last)
            if events is None:
                self._note("kineto.unreadable")
            read += events or ()
            self.count += 1 if events is None else len(events)
            number += count
        if is_last and not self._has_ended:
            self._note("kineto.cut")
        return read

    def _first(self, parts: Sequence[bytes]) -> tuple[Sequence[Event] | None, int]:
        """The event of the first part, or of the first parts where what looks like borders lies inside of one event.

        And the number of these parts; None for an event that cannot be read.
        """
        for count in range(1, len(parts) + 1):
            text = b",".join(parts[:count])
            if (events := self._read(text)) is not None:
                return events, count
            if not _is_cut(text):
                break
        return None, 1

    def _read(self, text: bytes) -> Sequence[Event] | None:
        """The events of a text, with values that JSON does not have, too."""
        events = self._decode(text)
        if events is None and (events := self._decode(_with_values(text))) is not None:
            self._note("kineto.value")
        return events

    def _note(self, code: str, *, count: int = 1) -> None:
        """Remark on the next event."""
        self._tally.note(code, count=count, file=self._file.name, line=self.count + 1)

    def _in_front_of_end(
        self, parts: Sequence[bytes], number: int, *, is_last: bool
    ) -> Sequence[Event] | None:
        """The events of a part in which the list of events, or the file, ends; None if neither does.

        Damage in the last event hides the end of the list; rank and time base are sought in that text all the same.
        """
        end = _end_of_values(part := parts[number])
        if is_repaired := end is None:
            end = _end_of_values(part := _with_values(part))
        if end is not None and part[end : end + 1] == b"]" and not _TYPE.search(part, end):
            self._has_ended = True
            self.tail = b",".join([part[end:], *parts[number + 1 :]])[:MAX_HEAD]
            self._note("kineto.value", count=is_repaired)
            return self._read(part[:end].rstrip(_BETWEEN))
        if is_last and number == len(parts) - 1:
            if _is_cut(part):
                return self._decode(part[: part.rfind(b"}") + 1]) or []
            self._has_ended, self.tail = True, part[:MAX_HEAD]
        return None


def _is_cut(text: bytes) -> bool:
    """Whether a text of events is sound as far as it goes."""
    try:
        EVENTS.decode(b"[" + text)
    except msgspec.DecodeError as error:
        return _TRUNCATED in str(error)
    except (ValueError, RecursionError):
        pass
    return False


def _with_values(text: bytes) -> bytes:
    """A text without what writers put into it and JSON does not have: NaN, inf, and N/A become null."""
    for pattern, instead in _NO_VALUES:
        text = pattern.sub(instead, text)
    return text.decode("utf-8", "replace").encode()


def _end_of_values(text: bytes) -> int | None:
    """Where the text goes on behind the objects with which it begins; None if one of them is not sound."""
    if len(text) > _MAX_VALUES:
        return None
    # Each character is a byte.
    values, end = text.decode("latin-1"), 0
    try:
        while values[end : end + 1] == "{":
            _, end = _JSON.raw_decode(values, end)
            end = _SPACE.match(values, end).end()  # type: ignore[union-attr]
    except (ValueError, RecursionError):
        return None
    return end


def _is_inexact(event: Event) -> bool:
    """Whether the time of an event is so large that a float has lost its fraction."""
    return isinstance(event.ts, float) and event.ts > _MAX_EXACT_US and event.ts % 1 > 0
