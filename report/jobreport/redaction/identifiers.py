"""Names in a report that may identify who ran a job, and where.

Names are found by position, such as node names, or by pattern, such as e-mail addresses.
``jobreport.redaction.pseudonyms`` replaces them.
"""

from __future__ import annotations

import re
import shlex
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from jobreport.redaction.names import texts_in

if TYPE_CHECKING:
    from jobreport.document import Report

#: The option that replaces names; a redacted report has it in its command.
OPTION = "--redact"

#: Patterns by kind, the first match wins; their bounds keep the search fast in any text.
FORMS = {
    "ARN": r"arn:[a-z-]+:[^\s\"',]+",
    "Storage address": r"\b(?:s3a?|gc?s|az|abfss?|wasbs?|hdfs)://(?!…)[^\s\"',]+|(?<![\w.-])[\w.-]{1,255}\.s3[\w.-]{0,63}\.amazonaws\.com[^\s\"',]*",
    "E-mail address": r"(?<![\w.+-])[\w.+-]{1,255}@[\w-]{1,63}(?:\.[\w-]{1,63}){0,8}\.[A-Za-z]{2,24}",
    "Path with a user name": r"(?:/home|/Users|/fsx/home|/mnt/home)/[^/\s\"',]+|[A-Za-z]:\\Users\\[^\\\s\"',]+",
    "IP address": r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.])|(?<!\d)\d{1,3}(?:-\d{1,3}){3}(?!\d)"
    r"|(?<![\w:])(?:[0-9A-Fa-f]{1,4}:){7}[0-9A-Fa-f]{1,4}(?![\w:])",
    "Serial number": r"\b(?:GPU-|MIG-)?[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\b"
    r"|\bi-[0-9a-f]{8,17}\b|\b(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}\b|(?<!\d)\d{13}(?!\d)",
    "Access key": r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "Account number": r"(?<!\d)(?:\d{12}|\d{4}-\d{4}-\d{4})(?!\d)",
}
_ACCOUNT = re.compile(FORMS["Account number"])
_ANY_FORM = re.compile("|".join(f"(?P<f{i}>{form})" for i, form in enumerate(FORMS.values())))

#: What the page calls names, by their kind.
NAMES = {
    "job": "Job name",
    "node": "Node",
    "path": "File of the job",
    "capture": "File of the job",
    "row": "Row of a log",
    "label": "Label",
    "file": "File of Python code",
}
#: Kinds of names from the job's own programs.
PROGRAM_NAMES = (
    *("event", "operator", "iterator", "function", "sensor", "mount", "process"),
    *("kernel", "group", "type", "stream", "model", "tensor", "scalar"),
)
#: Words in the names that frameworks and their profilers give: operators, kernels, event types, devices, settings.
_WORDS = frozenset(Path(__file__).with_name("common_words.txt").read_text("ascii").split())
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\x00-\x7f]+")
_MAX_DIGITS, _MAX_LENGTH = 5, 600
#: Ends the name of a kernel that the reader of traces cut, perhaps within a word.
_CUT = "…"
#: Names of nodes that are searched in sentences.
_MAX_NODES = 64


@lru_cache(maxsize=1 << 16)
def is_common(name: str) -> bool:
    """Whether a name consists of words of the frameworks, and so identifies nobody."""
    if len(name) > _MAX_LENGTH or not name.isprintable() or _ANY_FORM.search(name):
        return False
    words = [word.lower() for word in _WORD.findall(name)]
    if words[-1:] == [_CUT]:
        words.pop()
        if words and any(word.startswith(words[-1]) for word in _WORDS):
            words.pop()
    return all(len(word) <= _MAX_DIGITS if word.isdecimal() else word in _WORDS for word in words)


class Identifier(Struct, frozen=True, kw_only=True):
    """One kind of identifying information, with every name of it in a report."""

    kind: str
    #: Distinct, in the order of the report.
    names: tuple[str, ...]
    #: Top-level fields of ``report.json`` that hold them.
    where: tuple[str, ...]


def is_redacted(report: Report) -> bool:
    """Whether names were replaced when the report was made."""
    return OPTION in shlex.split(report.command)[3:]


def identifiers(report: Report) -> tuple[Identifier, ...]:
    """Identifying information by kind; in a redacted report only what has one of the forms."""
    found: dict[str, dict[str, None]] = {}
    where: dict[str, dict[str, None]] = {}
    redacted = is_redacted(report)
    job, nodes = report.job.name, _any_of([node.name for node in report.job.nodes])

    def add(kind: str, name: str, field: str) -> None:
        found.setdefault(kind, {})[name] = None
        where.setdefault(kind, {})[field] = None

    for field in report.__struct_fields__:
        for kind, text in texts_in(getattr(report, field)):
            if not redacted:
                if kind in NAMES and text:
                    add(NAMES[kind], text, field)
                elif kind in PROGRAM_NAMES and not is_common(text):
                    add("Name from a program", text, field)
                if field == "command" and job in text:
                    add("Job name", job, field)
                if match := nodes.search(text):
                    add("Node", match[0], field)
            for match in _ANY_FORM.finditer(text):
                add(list(FORMS)[int((match.lastgroup or "f0")[1:])], match[0], field)
                # Within an ARN or the name of a bucket.
                for account in _ACCOUNT.findall(match[0]):
                    add("Account number", account, field)
    return tuple(
        Identifier(kind=kind, names=tuple(names), where=tuple(where[kind])) for kind, names in found.items()
    )


def _any_of(names: list[str]) -> re.Pattern[str]:
    """Pattern that finds the names in sentences; of very many names only the first ones."""
    searched = sorted(names[:_MAX_NODES], key=len, reverse=True)
    return re.compile(
        rf"(?<![\w.-])(?:{'|'.join(map(re.escape, searched))})(?![\w-])" if searched else r"(?!)"
    )
