"""Units in GPU logs: the words for each, in names of columns and behind numbers, and its factor."""

from __future__ import annotations

from typing import NamedTuple

MIB, GIB = float(1 << 20), float(1 << 30)
#: As nvidia-smi writes them behind numbers: a pattern.
OF_TOOL = "%|MiB|MHz|W"


class Unit(NamedTuple):
    """A unit that a value may be written in."""

    #: The unit of metrics, or seconds, and what makes it of a number in this one.
    base: str
    factor: float
    #: In lower case, those in names of columns and behind numbers, and those that only stand behind numbers.
    words: tuple[str, ...] = ()
    short: tuple[str, ...] = ()
    #: As remarks name it, if numbers without a unit may be in it: the first one in which they are possible is assumed.
    name: str = ""


UNITS = (
    Unit("B", MIB, ("mib", "mb"), ("m", "mi", "mbytes"), "MiB"),  # what wraps the tool writes MB for its MiB
    Unit("B", 1.0, ("b", "bytes"), (), "bytes"),
    Unit("B", GIB, ("gib", "gb"), ("g", "gi"), "GiB"),
    Unit("B", 1024.0, ("kib", "kb"), ("k", "ki")),
    Unit("W", 1.0, ("w", "watt", "watts"), (), "W"),
    Unit("W", 1e-3, ("mw",), (), "mW"),
    Unit("W", 1e3, ("kw",)),
    Unit("°C", 1.0, ("c", "°c", "°", "degc", "celsius"), ("deg", "degrees"), "°C"),
    Unit("°C", 1e-3, (), (), "m°C"),
    Unit("MHz", 1.0, ("mhz",), (), "MHz"),
    Unit("MHz", 1e-3, (), (), "kHz"),
    Unit("MHz", 1e3, ("ghz",), (), "GHz"),
    Unit("%", 1.0, ("%", "pct", "percent", "percentage"), (), "%"),
    Unit("%", 100.0, ("fraction", "ratio")),
    Unit("s", 1e-6, ("us", "usec")),
    Unit("s", 1e-3, ("ms", "msec", "milliseconds")),
    Unit("s", 60.0, ("min", "mins", "minutes")),
    Unit("s", 3600.0, ("h", "hr", "hours")),
)
#: Words for units that are not read.
UNREAD = {"fahrenheit", "degf"}
_BASES = ("", *dict.fromkeys(unit.base for unit in UNITS))
#: By base and word the factor: in the names of columns, and behind numbers.
FACTORS = {
    base: {word: one.factor for one in UNITS if one.base == base for word in one.words} for base in _BASES
}
BEHIND_NUMBERS = {
    base: words | {word: one.factor for one in UNITS if one.base == base for word in one.short}
    for base, words in FACTORS.items()
}
#: By base, the factors of units that numbers without one may be in, by name.
ASSUMED = {base: {one.name: one.factor for one in UNITS if one.base == base and one.name} for base in _BASES}
ASSUMED[""] = {"": 1.0}
