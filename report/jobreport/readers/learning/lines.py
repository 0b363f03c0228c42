"""The lines of ``jobrecord/training-<rank>.jsonl``, each a JSON object of a kind."""

from __future__ import annotations

import re
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta, Struct, field

from jobreport.readers.bounds import LATEST_US

#: Bytes and numbers of a line: a record of 80,000 tensors with histograms has three million.
LONGEST, _MAX_NUMBERS = 64 << 20, 4_000_000
#: What Python writes for numbers that JSON does not have.
_BARE = re.compile(rb"(?<=[:,\[ ])(-?)(NaN|Infinity)(?= *[,\]}])")

Step: TypeAlias = Annotated[int, Meta(ge=0, le=10**12)]
#: 0 if it is not known.
Time: TypeAlias = Annotated[int, Meta(ge=0, le=LATEST_US)]
_Count: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << 31)]
_Large: TypeAlias = Annotated[int, Meta(ge=0, le=10**15)]
_Exponent: TypeAlias = Annotated[int, Meta(ge=-40, le=23)]
_Column: TypeAlias = list[float | None]


class Line(Struct, tag_field="kind", tag=str.lower):
    """Of any kind."""


class Head(Line):
    """What is known of the process and its model; a later one adds to it."""

    jobrecord: Annotated[int, Meta(ge=1, le=1)]
    rank: Annotated[int, Meta(ge=0, le=10**7)] = 0
    world: Annotated[int, Meta(ge=0, le=10**7)] | None = None
    time_us: Time = 0
    pid: int | None = None
    node: str | None = None
    every: _Large | None = None
    parameters: _Large | None = None
    trainable: _Large | None = None
    optimizer: str | None = None
    sharding: str | None = None
    amp: str | None = None
    accumulation: _Large | None = None
    classes: _Large | None = None
    compiled: bool | None = None
    not_recorded: list[str] | None = None


#: What a later head may tell.
ABOUT = (
    *("world", "node", "every", "parameters", "trainable", "optimizer", "sharding", "amp"),
    *("accumulation", "classes", "compiled"),
)


class NamedTensor(Struct):
    """An entry of ``Names``."""

    n: str
    c: str
    shape: Annotated[list[_Large], Meta(max_length=16)] = field(default_factory=list)
    dtype: str | None = None
    trainable: bool = True
    optimized: bool = True
    m: str | None = None
    order: _Count | None = None
    pad_id: int | None = None


class Names(Line):
    """Tensors, by ids that run on from the first."""

    first: _Count
    tensors: list[NamedTensor]


class Record(Line):
    """Statistics of tensors, each in arrays of the same length."""

    step: Step
    id: list[_Count]
    mode: str = "TRAIN"
    time_us: Time = 0
    cost_us: _Large = 0
    count: _Column | None = None
    nan: _Column | None = None
    inf: _Column | None = None
    zero: _Column | None = None
    sum: _Column | None = None
    l1: _Column | None = None
    l2: _Column | None = None
    min: _Column | None = None
    max: _Column | None = None
    positive: _Column | None = None
    ratio: _Column | None = None
    dead: _Column | None = None
    saturated: _Column | None = None
    hist_first: list[_Exponent | None] | None = None
    hist: list[Annotated[list[_Count], Meta(max_length=64)] | None] | None = None


class Scalar(Line):
    """Numbers that were logged."""

    step: Step
    mode: str
    values: dict[str, float | str]
    time_us: Time = 0


class Classes(Line):
    """Labels and predictions of an evaluation."""

    step: Step
    mode: str
    labels: list[_Large]
    predicted: list[_Large]
    pairs: list[tuple[_Count, _Count, _Large]]


class Event(Line):
    """Something that happened."""

    step: Step
    name: str
    time_us: Time = 0
    text: str = ""


class Trees(Line):
    """Boosted trees, at the end."""

    importance: dict[str, float] = field(default_factory=dict)
    depths: list[_Count] = field(default_factory=list)
    max_depth: _Count | None = None


class NotRecorded(Line, tag="not_recorded"):
    """Why something is missing, a clause each."""

    not_recorded: list[str]


class End(Line):
    """How the process ended, which its facts say, too."""


_DECODER = msgspec.json.Decoder(Head | Names | Record | Scalar | Classes | Event | Trees | NotRecorded | End)


def decoded(line: bytes) -> tuple[Line, bool]:
    """The line, and whether it has numbers that JSON does not have. Raises ``ValueError`` and ``RecursionError``."""
    if line.count(b",") > _MAX_NUMBERS:
        raise ValueError
    try:
        return _DECODER.decode(line), False
    except ValueError:
        if not _BARE.search(line):
            raise
    # A column has null in their place, and a logged number a word.
    by = rb'"\1\2"' if b'"values"' in line else b"null"
    return _DECODER.decode(_BARE.sub(by, line)), True
