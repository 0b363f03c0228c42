"""The text of a trace: its head, its events in blocks, and what stands behind them.

A block is decoded at once. Where that fails, it is split into its events, and each is decoded alone, repaired if need
be; an event that cannot be read costs itself.
"""

from __future__ import annotations

import json
import re
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from jobreport import progress
from jobreport.readers import text_files
from jobreport.readers.kineto.event import EVENTS, EXACT_EVENTS, Event, ExactEvent
from jobreport.readers.kineto.repair import apart, repaired

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
#: Borders that look like those of events, inside of one.
_MAX_INSIDE = 8
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
_LIST_ENDS = re.compile(rb"[}\[]\s*+,?\s*+(\])\s*+(?=,\s*+\"|\}|\Z)")
#: A time beyond ``_MAX_EXACT_US`` with a fraction.
_INEXACT = re.compile(rb'"ts"\s*+:\s*+[0-9]{13,}\.[0-9]*[1-9]')
#: Ends of lists that are looked at where one of them is that of the events.
_MAX_ENDS = 64
#: Bytes in which it is looked for behind sound events: of others in memory, these take much.
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
                self._lose("kineto.unreadable")
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
        try:
            for piece in text_files.chunks(self._file.path):
                yield piece
                progress.advance(len(piece) * self._file.size // max(self._file.text_size, 1))
        except text_files.DamagedError as error:
            code, fields = error.remark
            self._tally.note(code, file=self._file.name, **fields)
        except OSError as error:
            self._tally.note("file.unreadable", file=self._file.name, reason=error.strerror or "")

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
        """The events of a text, some of which cannot be decoded."""
        self._is_exact = self._is_exact or _INEXACT.search(text) is not None
        found: list[Event] = []
        parts = [part for part in _BORDER.split(text) if part.strip(_BETWEEN)]
        last = max((number for number, part in enumerate(parts) if _TYPE.search(part)), default=-1)
        number = 0
        while number < len(parts):
            part = parts[number].strip(_BETWEEN)
            number += 1
            events = self._decode(part)
            # The list does not end where events follow.
            end = None
            if events is None and number > last:
                end = self._list_end(part, parts[number:], is_last=is_last)
            if end is not None:
                self.tail, self._has_ended = b",".join([part[end:], *parts[number:]])[:MAX_HEAD], True
                part, number = part[:end].rstrip(_BETWEEN), len(parts)
                events = self._decode(part)
            if events is None and self._is_truncated(part):
                # Borders inside the arguments of an event.
                for end in range(number + 1, min(number + _MAX_INSIDE, len(parts)) + 1):
                    if (events := self._decode(b",".join(parts[number - 1 : end]))) is not None:
                        number = end
                        break
            if events is None and number == len(parts) and is_last and not self._has_ended:
                events = self._before_cut(part)
            if events is not None:
                found += events
                self.count += len(events)
            else:
                for one in apart(part):
                    found += self._repaired(one)
        if is_last and not self._has_ended:
            self._tally.note("kineto.cut", file=self._file.name, line=self.count + 1)
        return found

    def _list_end(self, part: bytes, later: Sequence[bytes], *, is_last: bool) -> int | None:
        """Where in the text of an event, behind which no other follows, the list ends; None if it does not."""
        end = _end_of_values(part)
        if end is not None:
            return end if part[end : end + 1] == b"]" and not _TYPE.search(part, end) else None
        # In front of it is damage, so that all that is behind it has to be sound.
        ends = [found.start(1) - 1 for found in islice(_LIST_ENDS.finditer(b"[" + part), _MAX_ENDS)]
        return next((end for end in ends if is_last and _is_tail(b",".join([part[end:], *later]))), None)

    def _before_cut(self, part: bytes) -> Sequence[Event] | None:
        """The event in front of one that is cut so early that no border is left; None if the text is not cut."""
        if not self._is_truncated(part):
            return None
        return self._decode(part[: part.rfind(b"}") + 1]) or []

    def _is_truncated(self, part: bytes) -> bool:
        try:
            EVENTS.decode(b"[" + part)
        except msgspec.DecodeError as error:
            return _TRUNCATED in str(error)
        except (ValueError, RecursionError):
            pass
        return False

    def _repaired(self, part: bytes) -> list[Event]:
        event, codes = repaired(part, ExactEvent if self._is_exact else Event)
        if event is None:
            self._lose("kineto.unreadable")
            return []
        self.count += 1
        for code in codes:
            self._tally.note(code, file=self._file.name, line=self.count)
        return [event]

    def _lose(self, code: str) -> None:
        self.count += 1
        self._tally.note(code, file=self._file.name, line=self.count)


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


def _is_tail(text: bytes) -> bool:
    """Whether a text is all that stands behind the events."""
    behind = text.removeprefix(b"]").strip(_BETWEEN)
    try:
        msgspec.json.decode(b"{" + (behind or b"}"))
    except (ValueError, RecursionError):
        return False
    return True


def _is_inexact(event: Event) -> bool:
    """Whether the time of an event is so large that a float has lost its fraction."""
    return isinstance(event.ts, float) and event.ts > _MAX_EXACT_US and event.ts % 1 > 0
