"""Meanings of the columns of an nvidia-smi log, by the names that the tool and scripts around it give them."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import lru_cache
from itertools import accumulate, chain
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from jobreport.readers.nvidia_smi.units import FACTORS, MIB, UNREAD
from jobrules.model import Metric

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

#: What a column says of its row other than a metric; a mask is that of all reasons for a low clock.
TIME, EPOCH, DATE, ELAPSED, INDEX, UUID, BUS, NAME, HOST, PROCESS, MASK = (
    "time",
    "epoch",
    "date",
    "elapsed",
    "index",
    "uuid",
    "bus",
    "name",
    "host",
    "process",
    "mask",
)


class Column(Struct, frozen=True, kw_only=True):
    """One column of a log."""

    #: One of the words above; empty for a metric.
    says: str = ""
    metric: Metric | None = None
    #: What a number without a unit is multiplied with; ``None`` where the name has no unit either.
    factor: float | None = None
    #: Whether the tool itself writes this name, so that the units of its numbers are known.
    own: bool = False
    #: Whether numbers up to 100 may as well be percent of something.
    is_share_possible: bool = False
    #: What it means where its values are not possible for this.
    otherwise: Column | None = None
    #: Bits of a mask that make the metric 100%; 0 for what is no mask.
    bits: int = 0
    #: Of columns with the same metric the one with the lowest is used.
    rank: int = 0
    #: Number of the GPU in the name, such as ``gpu1_util``; ``None`` without one.
    gpu: int | None = None


_WORD = re.compile(r"[a-z]+|[0-9]+")
#: No bracket within: a name of opening ones alone would take the square of its length.
_UNIT = re.compile(r"\[([^\[\]]*)\]|\(([^()]*)\)")
#: In the name of a model, such as ``A100-80GB``.
_SIZE = re.compile(r"[0-9]+ ?[kmgt]i?b", re.IGNORECASE)
_CAMEL = re.compile(r"(?<=[a-z])(?<![KMG]i)(?=[A-Z])")
#: ``gpu1_util``, or a number by itself: ``util_1``. Not ``utilization.gpu.1``, as pandas names a second column.
_GPU_IN_NAME = re.compile(
    r"(?:(?:gpu|cuda)[ ._:-]?|(?<![a-z0-9.])(?=[0-9]+(?![a-z0-9.])))([0-9]{1,3})(?![0-9])", re.IGNORECASE
)
#: Words for the machine, next to which memory, heat, and power need not be the GPU's, and for all that is not the GPU.
_MACHINE = {"cpu", "cpus", "ram", "swap"}
_OTHERS = _MACHINE | {
    *("disk", "io", "ssd", "nvme", "net", "network", "nic", "host", "system", "sys", "ambient"),
    *("process", "proc"),
    *("data", "dataset", "loader", "dataloader", "train", "training", "step", "steps", "batch", "model"),
}
#: Words for what is no sample.
_STATISTICS = {"max", "min", "peak", "std"}
_MEMORY_WORDS = {"mem", "memory", "fb", "vram"}
_USAGE = {"usage", "load", "busy"}
_UTILIZATION_WORDS = {"util", "utilization", "utilisation"} | _USAGE
#: Engines of a GPU with a utilization of their own, other than its compute cores.
_OTHER_ENGINES = {"enc", "encoder", "dec", "decoder", "jpg", "jpeg", "ofa"}
_SAYS = {
    **dict.fromkeys(("timestamp", "datetime", "time", "ts", "unix time", "unix timestamp"), TIME),
    **dict.fromkeys(
        ("index", "idx", "id", "gpu", "gpu index", "gpu id", "gpu idx", "device", "device id"), INDEX
    ),
    **dict.fromkeys(("uuid", "gpu uuid"), UUID),
    **dict.fromkeys(("pci bus id", "gpu bus id", "pci bus", "bus id"), BUS),
    **dict.fromkeys(("name", "gpu name"), NAME),
    **dict.fromkeys(("host", "hostname", "node"), HOST),
    "date": DATE,
    "epoch": EPOCH,
    "pid": PROCESS,
}
#: Other queries of the tool, which list no samples of GPUs, and columns that only they have.
_QUERIES = {
    "accounted-apps": {"max memory usage"},
    "compute-apps": {"pid", "process name", "used gpu memory"},
    "retired-pages": {"retired pages address", "retired pages cause"},
}

#: Columns of ``dmon`` and ``pmon`` that have names of their own.
_DMON = {
    "sm": Column(metric=Metric.GPU_UTILIZATION, factor=1.0),
    "mem": Column(metric=Metric.GPU_MEMORY_ACTIVITY, factor=1.0, own=True),
    "fb": Column(metric=Metric.GPU_MEMORY_USED, factor=MIB),
    "pclk": Column(metric=Metric.GPU_CLOCK),
    "pviol": Column(metric=Metric.GPU_POWER_CAP, factor=1.0),
    "tviol": Column(metric=Metric.GPU_THERMAL_SLOWDOWN, bits=1),
    "sbecc": Column(metric=Metric.GPU_ECC_CORRECTED),
    "dbecc": Column(metric=Metric.GPU_ECC_UNCORRECTED),
}


def columns(names: Sequence[str]) -> list[Column | None]:
    """The meaning of each column of a header; ``None`` for one that is not read.

    Next to columns of the machine, a column of a metric has to name the GPU or to be one of the tool's own.
    """
    words = [" ".join(_words(name)) for name in names]
    next_to_machine = any(_MACHINE & {*plain.split()} for plain in words)
    found = [
        None if one and one.metric and next_to_machine and not _is_of_gpu(name) else one
        for name, one in zip(names, map(column, names), strict=True)
    ]
    if "gpu" in words and (one := found[words.index("gpu")]) and one.says:
        found[words.index("gpu")] = _use_or_index(found)
    if "mem" in words and "sm" not in words and found[words.index("mem")]:
        # Without the other columns of dmon, a script wrote it.
        activity = Column(metric=Metric.GPU_MEMORY_ACTIVITY, rank=1)
        found[words.index("mem")] = replace(activity, otherwise=column("memory"))
    return found


def _use_or_index(others: Sequence[Column | None]) -> Column:
    """The meaning of a column ``gpu``: its use, unless another column has that, or the index."""
    index, use = Column(says=INDEX), Column(metric=Metric.GPU_UTILIZATION)
    if any(one and one.metric is Metric.GPU_UTILIZATION for one in others):
        return index
    if sum(one is not None and one.says == INDEX for one in others) > 1:
        return use
    return replace(index, otherwise=use)


def without_gpu(name: str) -> str:
    """The name of a column without the number of a GPU in it."""
    return _GPU_IN_NAME.sub("gpu", name)


def is_header(names: Sequence[str]) -> bool:
    """Whether these are names of columns of a log, or of another query of the tool."""
    words = [{*_split(name)} for name in names]
    if sum(not _TELLING.isdisjoint(one) for one in words) < 2 and not _OF_GPUS & {*chain(*words)}:
        return False  # seen sooner than by the meaning of each name
    known = [column for column in columns(names) if column]
    has_time = any(one.says in (TIME, ELAPSED) for one in known)
    measured = any(one.metric or one.says == MASK or (one.otherwise and has_time) for one in known)
    is_of_gpus = any(_OF_GPUS & {*_words(name)} for name in names)
    return (len(known) > 1 and measured) or (is_of_gpus and bool(query_of(names)))


def may_measure(texts: Sequence[str]) -> list[str]:
    """Those texts in which a name may be that of a metric, or of a column of another query."""
    # All at once: of many thousands of damaged texts, few have one of the words. "İ" alone gets longer in lower case.
    text = "\n".join(texts).replace("İ", "I")
    small, ends = text.lower(), [*accumulate(len(one) + 1 for one in texts)]
    found = {
        bisect_right(ends, place)
        for word in _IN_MEASURED
        for place in _places(small, word)
        if not _MEASURED.isdisjoint(_split(text[max(0, place - _LONGEST) : place + _LONGEST]))
    }
    return [texts[place] for place in sorted(found)]


def _places(text: str, word: str) -> Iterator[int]:
    place = text.find(word)
    while place >= 0:
        yield place
        place = text.find(word, place + 1)


def query_of(names: Sequence[str]) -> str:
    """The query of the tool, other than that of samples, that has such columns; empty if it is none."""
    words = {" ".join(_words(name)) for name in names}
    if "sm" in words:  # pmon
        return ""
    return next((query for query, own in _QUERIES.items() if own & words), "")


def _is_own(name: str) -> bool:
    """Whether a name of a metric is the tool's own, as is ``utilization.gpu``."""
    return "." in name


def _is_of_gpu(name: str) -> bool:
    return _is_own(name) or bool({"gpu", "cuda", "vram"} & {*_words(name)})


class _Meaning(NamedTuple):
    """The words in the names of the columns of a metric."""

    metric: Metric
    #: A name has a word or a unit of each of these sets ...
    needs: tuple[set[str], ...]
    #: ... and no word of this one.
    without: frozenset[str] | set[str] = frozenset()
    #: What a word adds to the rank of a column.
    ranks: tuple[tuple[str, int], ...] = ()
    bits: int = 0


_POWER, _NO_POWER = {"power", "pwr"}, {"state", "management", "default", "reasons"}
_REASONS, _NO_REASONS = {"reasons", "throttle", "throttling"}, {"counters", "supported"}
_NO_CLOCK = {"mem", "memory", "video", "reasons", "applications"}
_NO_MEMORY = {"bar", "bar1", "protected", "temp", "temperature", "clock"}
#: Volatile counts begin with the driver, so with the job or before; a total goes before its parts.
_ECC_RANKS = ("volatile", -2), ("total", -1)
#: The first one that fits is the meaning of a name.
_MEANINGS = (
    # Heat that the hardware and that the software names are one metric, and either is enough.
    _Meaning(Metric.GPU_THERMAL_SLOWDOWN, (_REASONS, {"thermal"}), _NO_REASONS, ranks=(("sw", 1),), bits=1),
    _Meaning(Metric.GPU_POWER_CAP, (_REASONS, {"cap"}), _NO_REASONS, bits=1),
    _Meaning(Metric.GPU_HARDWARE_SLOWDOWN, (_REASONS, {"brake"}), _NO_REASONS, bits=1),
    _Meaning(Metric.GPU_HARDWARE_SLOWDOWN, (_REASONS, {"hw"}, {"slowdown"}), _NO_REASONS, bits=1),
    _Meaning(Metric.GPU_ECC_UNCORRECTED, ({"ecc"}, {"uncorrected"}), {"mode"}, _ECC_RANKS),
    _Meaning(Metric.GPU_ECC_CORRECTED, ({"ecc"}, {"corrected"}), {"mode"}, _ECC_RANKS),
    _Meaning(
        Metric.GPU_TEMPERATURE, ({"temp", "temperature", "gtemp"},), _MEMORY_WORDS | {"limit", "tlimit"}
    ),
    _Meaning(Metric.GPU_POWER_LIMIT, (_POWER, {"limit", "cap"}), _NO_POWER, ranks=(("enforced", -1),)),
    # The average of a second is nearer to what was drawn between two samples than a moment is.
    _Meaning(Metric.GPU_POWER, (_POWER,), _NO_POWER, ranks=(("average", -1), ("instant", 1))),
    _Meaning(Metric.GPU_CLOCK, ({"clocks", "clock", "clk"},), _NO_CLOCK, ranks=(("sm", -1),)),
    _Meaning(Metric.GPU_UTILIZATION, (_UTILIZATION_WORDS,), _OTHER_ENGINES | _MEMORY_WORDS | {"time"}),
    # "Memory usage" is that of its bytes or of its time; see ``_plain_meaning``.
    _Meaning(
        Metric.GPU_MEMORY_ACTIVITY,
        (_UTILIZATION_WORDS - _USAGE, _MEMORY_WORDS),
        _OTHER_ENGINES | _USAGE | {"time"},
    ),
    _Meaning(Metric.GPU_MEMORY_USED, (_MEMORY_WORDS, {"used"}), _NO_MEMORY),
    _Meaning(Metric.GPU_MEMORY_TOTAL, (_MEMORY_WORDS, {"total"}), _NO_MEMORY),
)
#: A name of a column of another query has one of these words, and any of a metric one of the others.
_OF_GPUS = {"gpu", "retired"}
_MEASURED = _OF_GPUS.union(_DMON, _MEMORY_WORDS, *(meaning.needs[0] for meaning in _MEANINGS))
#: Characters in which any of these words ends, with one that shows it.
_LONGEST = 1 + max(map(len, _MEASURED))
#: Every text with one of these words has one of these in it.
_IN_MEASURED = tuple(word for word in sorted(_MEASURED) if not any(one in word for one in _MEASURED - {word}))
#: Any name of a column that is read has one of these words.
_TELLING = _MEASURED.union({"elapsed"}, *(name.split() for name in _SAYS))
#: Memory in use or a share of it, which its numbers show; a name that says more goes before.
_MEMORY = _Meaning(Metric.GPU_MEMORY_USED, (_MEMORY_WORDS,), ranks=tuple((word, 1) for word in _MEMORY_WORDS))


@lru_cache(1024)  # damaged logs name the same columns in one line after the other
def column(name: str) -> Column | None:
    """The meaning of a column of this name; ``None`` for one that is not read."""
    units = [unit.lower() for pair in _UNIT.findall(name) for unit in pair if unit] + ["%"] * ("%" in name)
    words = _words(name)
    plain = " ".join(words)
    if plain in _DMON and "%" not in name:
        return _DMON[plain]
    if meaning := _plain_meaning({*words}, is_percent="%" in name):
        return _measured(meaning, name, words, units)
    if says := _SAYS.get(plain) or _time_word(words):
        seconds = _factor("s", (*words, *units)) or 1.0
        return Column(says=says, factor=seconds)
    if "module" in words or (_OTHERS | _STATISTICS) & {*words}:  # of more than the GPU, or of something else
        return None
    if meaning := next((one for one in _MEANINGS if _fits(one, {*words}, units)), None):
        return _measured(meaning, name, words, units)
    # All reasons for a low clock in one column; most columns of a single reason have longer names.
    is_mask = _REASONS & {*words} and not _NO_REASONS & {*words} and ("active" in words or len(words) <= 3)
    return Column(says=MASK) if is_mask else None


def _plain_meaning(words: set[str], *, is_percent: bool) -> _Meaning | None:
    """The meaning of a name that has nothing but the word for the GPU and for percent, or that for its memory."""
    named = {word for word in words if not word.isdecimal()}
    percent = FACTORS["%"].keys() & named
    if named - percent == {"gpu"} and (percent or is_percent):
        return _Meaning(Metric.GPU_UTILIZATION, ())
    if named & _MEMORY_WORDS and named - FACTORS["B"].keys() <= _MEMORY_WORDS | {"gpu", "cuda", "usage"}:
        return _MEMORY
    return None


def _time_word(words: Sequence[str]) -> str:
    if _OTHERS & {*words}:
        return ""
    if "elapsed" in words:
        return ELAPSED
    return TIME if words[:1] in (["timestamp"], ["time"]) and not _UTILIZATION_WORDS & {*words} else ""


def _measured(meaning: _Meaning, name: str, words: Sequence[str], units: Sequence[str]) -> Column | None:
    if _other_unit(name, meaning.metric, units):
        return None
    number = _GPU_IN_NAME.search(name)
    return Column(
        metric=meaning.metric,
        factor=_factor(meaning.metric.unit, (*units, *words)),
        own=_is_own(name),
        is_share_possible=meaning is _MEMORY,
        bits=meaning.bits,
        rank=sum(rank for word, rank in meaning.ranks if word in words),
        gpu=int(number[1]) if number else None,
    )


def _factor(base: str, words: Iterable[str]) -> float | None:
    """That of the first word for a unit; ``None`` without one."""
    return next((FACTORS[base][word] for word in words if word in FACTORS[base]), None)


def _fits(meaning: _Meaning, words: set[str], units: Sequence[str]) -> bool:
    there = words | {*units}
    return all(one & there for one in meaning.needs) and not meaning.without & words


def _words(name: str) -> list[str]:
    """Those of a name, but for its units."""
    return _split(_UNIT.sub("", name))


def _split(text: str) -> list[str]:
    return _WORD.findall(_CAMEL.sub(" ", text).lower())


def _other_unit(name: str, metric: Metric, units: Sequence[str]) -> bool:
    """Whether the name has a unit of something else than the metric, such as memory in percent."""
    there = {*_words(_SIZE.sub(" ", name)), *_WORD.findall(_SIZE.sub(" ", " ".join(units)))}
    if metric is Metric.GPU_TEMPERATURE and "f" in there:
        return True
    # A single letter without brackets may number columns, as in "util_b".
    named = {*units, *(word for word in there if len(word) > 1), *("%" * ("%" in name))}
    others = (words for base, words in FACTORS.items() if base not in (metric.unit, "s"))
    return bool(UNREAD & named) or any(named & other.keys() for other in others)
