"""Annotations of the texts in tables and results: which are names from data, and of what kind.

Redaction replaces names by their annotation, before any rule runs. Each text that a table of a job or a report holds
has one of these annotations; enumerations need none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

from msgspec import Struct


class Name(Struct, frozen=True):
    """Annotates a text that holds a name from data."""

    #: ``node``, ``kernel``, …; or what gives it for the struct that has the text, or for the key of a table.
    kind: str | Callable[[Any], str]


class Own(Struct, frozen=True):
    """Annotates a text that holds no name from data, or only names that were replaced before it was made."""


#: A key, a unit, a word of a known set, or a sentence of ours.
OwnText: TypeAlias = Annotated[str, Own()]

NodeName: TypeAlias = Annotated[str, Name("node")]
DeviceName: TypeAlias = Annotated[str, Name("device")]
#: Rank or process number.
RankName: TypeAlias = Annotated[str, Name("rank")]
#: ``node/device``, ``node device``, or how a sentence names several.
PlaceName: TypeAlias = Annotated[str, Name("place")]
#: A file of the job directory.
PathName: TypeAlias = Annotated[str, Name("path")]
#: An event type, or a mode of steps.
EventName: TypeAlias = Annotated[str, Name("event")]
OperatorName: TypeAlias = Annotated[str, Name("operator")]
IteratorName: TypeAlias = Annotated[str, Name("iterator")]
#: One of these, or words of ours in its place.
ShownName: TypeAlias = Annotated[str, Name("shown")]
KernelName: TypeAlias = Annotated[str, Name("kernel")]
#: Of processes that communicate.
GroupName: TypeAlias = Annotated[str, Name("group")]
#: A file of PyTorch's profiler.
CaptureName: TypeAlias = Annotated[str, Name("capture")]
#: What the recorder and the system say.
Message: TypeAlias = Annotated[str, Name("message")]
#: The type of an exception.
ErrorName: TypeAlias = Annotated[str, Name("error")]
#: A file with Python code, and a function in it.
FileName: TypeAlias = Annotated[str, Name("file")]
FunctionName: TypeAlias = Annotated[str, Name("function")]
