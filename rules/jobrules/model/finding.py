"""What a rule reports: findings and measures."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from jobrules.model.names import OwnText, PlaceName, ShownName
from jobrules.text import between, escape_name, join_names, quantity

if TYPE_CHECKING:
    from collections.abc import Sequence


#: What the share of a finding is of, where its amount of GPU time is not known.
OF_LOOP = "of the training loop"


class Severity(StrEnum):
    """How much a finding matters, worst first."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


class Where(Struct, frozen=True, tag="where"):
    """Nodes or devices by the names that a sentence gives them: ``algo-1 gpu0``, ``All 8 GPUs``."""

    names: tuple[PlaceName, ...]


class When(Struct, frozen=True, tag="when"):
    """From the first to the last moment."""

    start_us: int
    end_us: int


class HowMuch(Struct, frozen=True, tag="how much"):
    """A number with what it is of: the longest gap, 14 s."""

    what: OwnText
    value: float
    #: ``%``, ``s``, ``MHz``, ``°C``, ``points``, or a noun in the plural; empty for a bare count.
    unit: OwnText = ""
    #: The device or the part of the job, where ``what`` is given for several.
    of: ShownName = ""


class AlsoSeenAs(Struct, frozen=True, tag="also seen as"):
    """What another rule reports of the same, as a noun phrase with its number."""

    text: OwnText


class Inferred(Struct, frozen=True, tag="inferred"):
    """What a cause was inferred from, where it was not measured."""

    source: OwnText


class Note(Struct, frozen=True, tag="note"):
    """Anything that the other facts cannot hold: a sentence without its period."""

    text: OwnText


#: A piece of evidence.
Fact: TypeAlias = Where | When | HowMuch | AlsoSeenAs | Inferred | Note


class Finding(Struct, frozen=True, kw_only=True):
    """One entry of the list of results, with its evidence and advice."""

    #: Short name for links, the same in every report: ``low-gpu-utilization``.
    key: OwnText
    severity: Severity
    #: The fact with its number.
    title: OwnText
    #: Where, when, how much, and what else shows it.
    evidence: tuple[Fact, ...]
    #: Sentences, the first of which the verdict shows in bold: what to try, then its limits.
    advice: tuple[OwnText, ...]
    #: The fact as a noun phrase with its number, for the evidence of a finding that it is joined with.
    seen_as: OwnText = ""
    #: Keys of findings that explain this one; it is told in the first of them that there is for the same devices.
    because_of: tuple[OwnText, ...] = ()
    #: Names of the rules that saw it; empty for what no rule reports, such as a sampling pause.
    rules: tuple[OwnText, ...]
    #: The section of the page that holds the evidence, by its anchor.
    section: OwnText
    #: The devices it is about, as ``node/device``; empty if it is about no device in particular.
    devices: tuple[PlaceName, ...] = ()
    #: Share of the whole that ``share_of`` names; None if no share makes sense.
    share: float | None = None
    #: "of GPU time", "of windows".
    share_of: OwnText = ""
    #: The same amount in GPU-seconds, if it is GPU time.
    gpu_s: float | None = None
    start_us: int | None = None
    end_us: int | None = None


#: Of thresholds.
Side = Literal["above", "below", "outside", ""]


class Measure(Struct, frozen=True, kw_only=True):
    """What a rule compared with its thresholds, for the bar on its card."""

    value: float
    limits: tuple[float, ...]
    #: The side of the thresholds on which a rule triggers; empty if the value alone does not decide it.
    bad: Side = ""
    #: Right end of the bar.
    scale: float
    #: Written after the value: "% of windows", "min".
    unit: OwnText
    #: The thresholds in words: "threshold 50%".
    limit_text: OwnText

    @property
    def bad_parts(self) -> tuple[tuple[float, float], ...]:
        """Values with which the rule triggers, as pairs of ends: from the mildest threshold on."""
        low, high = min(self.limits), max(self.limits)
        parts: dict[Side, tuple[tuple[float, float], ...]] = {
            "above": ((low, math.inf),),
            "below": ((-math.inf, high),),
            "outside": ((-math.inf, low), (high, math.inf)),
        }
        return parts.get(self.bad, ())

    @property
    def is_bad(self) -> bool:
        """True if the value is one of them."""
        return any(start < self.value < end for start, end in self.bad_parts)


def in_words(evidence: Sequence[Fact]) -> str:
    """The evidence as one paragraph: where and when, how much, notes, what else shows it."""
    named = [fact.names for fact in evidence if isinstance(fact, Where)]
    places = [join_names(names) for names in named]
    times = [between(fact.start_us, fact.end_us) for fact in evidence if isinstance(fact, When)]
    amounts: dict[str, list[str]] = {}
    for fact in evidence:
        if isinstance(fact, HowMuch):
            value = quantity(fact.value, fact.unit)
            # The only place needs no second mention.
            of = "" if named == [(fact.of,)] else escape_name(fact.of, 40)
            amounts.setdefault(fact.what, []).append(f"{of} {value}".lstrip())
    seen = [fact.text for fact in evidence if isinstance(fact, AlsoSeenAs)]
    sources = dict.fromkeys(fact.source for fact in evidence if isinstance(fact, Inferred))
    paragraph = [
        ", ".join([*places, *times]),
        *(f"{what}: {'; '.join(values)}" for what, values in amounts.items()),
        *(fact.text for fact in evidence if isinstance(fact, Note)),
        f"Also seen as: {'; '.join(seen)}" if seen else "",
        f"Inferred from {' and '.join(sources)}" if sources else "",
    ]
    return " ".join(f"{sentence}." for sentence in paragraph if sentence)
