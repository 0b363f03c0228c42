"""Events that are no JSON: what writers of traces get wrong, mended one event at a time."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from jobreport.readers.kineto.event import Event

#: Longer text is no event.
_MAX_TEXT = 1 << 20
_CONTROL = re.compile(r"[\x00-\x1f]")
_ESCAPE = re.compile(r'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')
_BARE_WORD = re.compile(r"(:\s*+)(?:[-+]?(?:nan|inf(?:inity)?)|N/A)(?=\s*+[,}\]])", re.IGNORECASE)
_COMMA = re.compile(r",\s*+(?:,\s*+)*+(?=[}\]])|(?<=[{\[])\s*+,")
#: The keys of an event, by which its name is found when quotes in it are not escaped.
_KEYS = "ph|cat|name|pid|tid|ts|dur|args|id|bp|s"
_NAME = re.compile(rf'"name"\s*+:\s*+"(.*?)"\s*+(?:,\s*+"(?:{_KEYS})"\s*+:|\}}\s*+\Z)', re.DOTALL)
_BETWEEN_ARGS = re.compile(r'"args"\s*+:\s*+\{')
_BEGIN = re.compile(rf'\{{\s*+"(?:{_KEYS})"\s*+:')
_TYPE, _START, _KEY = re.compile(r'"ph"\s*+:'), re.compile(r'"ts"\s*+:'), re.compile(r'"\s*+:')
_JSON = json.JSONDecoder()
_VALUE = re.compile(r'"([^"\\]{1,60})"\s*+:\s*+("[^"\\]{0,512}"|-?[0-9][0-9.eE+-]{0,40}|true|false|null)')


def apart(part: bytes) -> list[bytes]:
    """The texts of the events in a text; several where what separates them is damaged."""
    if len(part) > _MAX_TEXT:
        return [part]
    text = part.decode("utf-8", "replace")
    begins = [found.start() for found in _BEGIN.finditer(text) if found.start()]
    found: list[str] = []
    for begin, end in pairwise([0, *begins, len(text)]):
        if found and not _TYPE.search(text, begin, end):
            found[-1] += text[begin:end]
        else:
            found.append(text[begin:end])
    return [one.encode() for joined in found for one in _first_apart(joined)]


def _first_apart(text: str) -> list[str]:
    """A sound event and the text behind it, if that is another one."""
    try:
        _, end = _JSON.raw_decode(text)
    except (ValueError, RecursionError):
        return [text]
    if not _START.search(text, 0, end) or len(_KEY.findall(text, end)) < 2:
        return [text]
    return [text[:end], text[end:].strip(" \t\r\n,")]


def repaired(part: bytes, kind: type[Event]) -> tuple[Event | None, list[str]]:
    """The event that a text was meant to be, and the codes of what was wrong with it; None if it cannot be told."""
    if len(part) > _MAX_TEXT:
        return None, []
    text = part.decode("utf-8", "replace")
    codes: list[str] = ["kineto.utf8"] if "\ufffd" in text else []
    for code, pattern, instead in (
        ("kineto.control", _CONTROL, " "),
        ("kineto.escape", _ESCAPE, r"\\\\"),
        ("kineto.bare_word", _BARE_WORD, r"\1null"),
        ("kineto.comma", _COMMA, ""),
    ):
        better, count = pattern.subn(instead, text)
        # Line breaks between values are no damage.
        if code != "kineto.control" or _breaks_string(text):
            codes += [code] * (count > 0)
        text = better
    if (event := _decoded(text, kind)) is not None:
        return event, codes
    return _in_part(text, kind), ["kineto.in_part"]


def _decoded(text: str, kind: type[Event]) -> Event | None:
    try:
        return msgspec.json.decode(text, type=kind)
    except (ValueError, RecursionError):
        return None


def _breaks_string(text: str) -> bool:
    """Whether a control character stands inside of a string."""
    return any(_CONTROL.search(string) for string in re.findall(r'"(?:[^"\\]|\\.)*+"', text, re.DOTALL))


def _in_part(text: str, kind: type[Event]) -> Event | None:
    """The event made of the values that stand where a pattern expects them."""
    # Values of two events make neither.
    if not (name := _NAME.search(text)) or len(_START.findall(text)) > 1:
        return None
    around = text[: name.start()] + text[name.end(1) + 1 :]
    begin = _BETWEEN_ARGS.search(around)
    outside, args = (around[: begin.start()], around[begin.end() :]) if begin else (around, "")
    fields = [f'"{key}":{value}' for key, value in _VALUE.findall(outside) if key not in ("name", "args")]
    inner = ",".join(f'"{key}":{value}' for key, value in _VALUE.findall(args))
    quoted = msgspec.json.encode(name[1].replace("\\", "")).decode()
    fields += [f'"name":{quoted}', f'"args":{{{inner}}}']
    return _decoded(f"{{{','.join(fields)}}}", kind)
