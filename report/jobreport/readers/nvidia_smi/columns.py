"""Meanings of the columns of an nvidia-smi log, by the names that the tool and scripts around it give them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from jobrules.model import Metric

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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

MIB, GIB = float(1 << 20), float(1 << 30)


class Column(Struct, frozen=True, kw_only=True):
    """One column of a log."""

    #: One of the words above; empty for a metric.
    says: str = ""
    metric: Metric | None = None
    #: What a bare number is multiplied with; a unit in the cell goes before.
    factor: float = 1.0
    #: Bits of a mask that make the metric 100 %; 0 for what is no mask.
    bits: int = 0
    #: Of columns with the same metric the one with the lowest is used.
    rank: int = 0
    #: Number of the GPU in the name, such as ``gpu1_util``; ``None`` without one.
    gpu: int | None = None


#: Bits of ``clocks_event_reasons.active`` (NVML, nvmlClocksEventReasons).
THERMAL_BITS = 0x20 | 0x40
POWER_CAP_BITS = 0x4
#: Slowdown by the hardware: the power brake, or heat or a reason that it does not name. With heat both may be set.
HARDWARE_BITS = 0x8 | 0x80

_WORD = re.compile(r"[a-z]+|[0-9]+")
#: No bracket within: a name of opening ones alone would take the square of its length.
_UNIT = re.compile(r"\[([^\[\]]*)\]|\(([^()]*)\)")
#: In the name of a model, such as ``A100-80GB``.
_SIZE = re.compile(r"[0-9]+ ?[kmgt]i?b", re.IGNORECASE)
_CAMEL = re.compile(r"(?<=[a-z])(?<![KMG]i)(?=[A-Z])")
_GPU_IN_NAME = re.compile(r"(?:gpu|cuda)[ ._:-]?([0-9]{1,3})(?![0-9])", re.IGNORECASE)
#: Words for the machine, next to which memory, heat, and power need not be the GPU's, and for all that is not the GPU.
_MACHINE = {"cpu", "cpus", "ram", "swap"}
_OTHERS = _MACHINE | {
    *("disk", "io", "ssd", "nvme", "net", "network", "nic", "host", "system", "sys", "ambient"),
    *("data", "dataset", "loader", "dataloader", "train", "training", "step", "steps", "batch", "model"),
}
_MEMORY_WORDS = {"mem", "memory", "fb", "vram"}
_UTILIZATION_WORDS = {"util", "utilization", "utilisation", "usage", "load", "busy"}
#: Engines of a GPU with a utilization of their own, other than its compute cores.
_OTHER_ENGINES = {"enc", "encoder", "dec", "decoder", "jpg", "jpeg", "ofa"}
#: By the unit of a metric: units that it may be written in, lower case, and what a number in them is multiplied with.
FACTORS = {
    "B": {
        **dict.fromkeys(("b", "bytes"), 1.0),
        **dict.fromkeys(("kib", "kb"), 1024.0),
        **dict.fromkeys(("mib", "mb"), MIB),  # what wraps the tool writes MB for its MiB
        **dict.fromkeys(("gib", "gb"), GIB),
    },
    "W": {**dict.fromkeys(("w", "watt", "watts"), 1.0), "mw": 1e-3, "kw": 1e3},
    "MHz": {"mhz": 1.0, "ghz": 1e3},
    "°C": dict.fromkeys(("c", "°c", "°", "degc", "celsius"), 1.0),
    "%": dict.fromkeys(("%", "pct", "percent", "percentage"), 1.0),
    "": {},
}
#: Words for units that are not read.
_UNREAD = {"ratio", "fraction", "fahrenheit", "degf"}
#: Seconds in a unit of times since a start.
_SECONDS = {
    **dict.fromkeys(("us", "usec"), 1e-6),
    **dict.fromkeys(("ms", "msec", "milliseconds"), 1e-3),
    **dict.fromkeys(("min", "mins", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hours"), 3600.0),
}
_SAYS = {
    "timestamp": TIME,
    "datetime": TIME,
    "time": TIME,
    "ts": TIME,
    "date": DATE,
    "index": INDEX,
    "idx": INDEX,
    "gpu": INDEX,
    "gpu index": INDEX,
    "gpu id": INDEX,
    "gpu idx": INDEX,
    "device": INDEX,
    "device id": INDEX,
    "uuid": UUID,
    "gpu uuid": UUID,
    "pci bus id": BUS,
    "gpu bus id": BUS,
    "pci bus": BUS,
    "bus id": BUS,
    "name": NAME,
    "gpu name": NAME,
    "host": HOST,
    "hostname": HOST,
    "node": HOST,
    "pid": PROCESS,
    "epoch": EPOCH,
    "unix time": TIME,
    "unix timestamp": TIME,
}

#: Columns of ``dmon`` and ``pmon`` that have names of their own.
_DMON = {
    "sm": Column(metric=Metric.GPU_UTILIZATION),
    "mem": Column(metric=Metric.GPU_MEMORY_ACTIVITY),
    "fb": Column(metric=Metric.GPU_MEMORY_USED, factor=MIB),
    "pclk": Column(metric=Metric.GPU_CLOCK),
    "pviol": Column(metric=Metric.GPU_POWER_CAP),
    "tviol": Column(metric=Metric.GPU_THERMAL_SLOWDOWN, bits=1),
    "sbecc": Column(metric=Metric.GPU_ECC_CORRECTED),
    "dbecc": Column(metric=Metric.GPU_ECC_UNCORRECTED),
}


def columns(names: Sequence[str]) -> list[Column | None]:
    """The meaning of each column of a header; ``None`` for one that is not read.

    Next to columns of the machine, a column of a metric has to name the GPU or to be one of the tool's own.
    """
    next_to_machine = any(_MACHINE & {*_words(name)} for name in names)
    return [
        None if found and found.metric and next_to_machine and not _is_of_gpu(name) else found
        for name, found in zip(names, map(column, names), strict=True)
    ]


def _is_of_gpu(name: str) -> bool:
    return "." in name or bool({"gpu", "cuda", "vram"} & {*_words(name)})


@lru_cache(1024)  # damaged logs name the same columns in one line after the other
def column(name: str) -> Column | None:
    """The meaning of a column of this name; ``None`` for one that is not read."""
    units = [unit.lower() for pair in _UNIT.findall(name) for unit in pair if unit]
    words = _words(name)
    plain = " ".join(words)
    seconds = next((_SECONDS[word] for word in (*words, *units) if word in _SECONDS), 1.0)
    if plain in _SAYS:
        return Column(says=_SAYS[plain], factor=seconds)
    if plain in _DMON:
        return _DMON[plain]
    if "module" in words or _OTHERS & {*words}:  # of more than the GPU, or of something else
        return None
    if "elapsed" in words:
        return Column(says=ELAPSED, factor=seconds)
    if words[:1] in (["timestamp"], ["time"]) and not _UTILIZATION_WORDS & {*words}:
        return Column(says=TIME, factor=seconds)
    found = next((found for read in _METRICS if (found := read(words, units))), None)
    if found and found.metric and _other_unit(name, found.metric, units):
        found = None
    number = _GPU_IN_NAME.search(name)
    return replace(found, gpu=int(number[1])) if found and number else found


def _words(name: str) -> list[str]:
    return _WORD.findall(_CAMEL.sub(" ", _UNIT.sub("", name)).lower())


def _other_unit(name: str, metric: Metric, units: Sequence[str]) -> bool:
    """Whether the name has a unit of something else than the metric, such as memory in percent."""
    there = {*_words(_SIZE.sub(" ", name)), *_WORD.findall(_SIZE.sub(" ", " ".join(units)))}
    if metric is Metric.GPU_TEMPERATURE and "f" in there:
        return True
    # A single letter without brackets may number columns, as in "util_b".
    named = {*units, *(word for word in there if len(word) > 1), *("%" * ("%" in name))}
    others = (FACTORS[unit] for unit in FACTORS if unit != metric.unit)
    return bool(_UNREAD & named) or any(named & other.keys() for other in others)


def _utilization(words: Sequence[str], _: Sequence[str]) -> Column | None:
    there = {*words}
    if there & _OTHER_ENGINES:
        return None
    if not there & _UTILIZATION_WORDS or "time" in there:
        return None
    if not there & _MEMORY_WORDS:
        return Column(metric=Metric.GPU_UTILIZATION)
    # "Memory usage" is that of its bytes or of its time, and only the tool's own word for it is certain.
    return None if there & {"usage", "load", "busy"} else Column(metric=Metric.GPU_MEMORY_ACTIVITY)


def _memory(words: Sequence[str], units: Sequence[str]) -> Column | None:
    there = {*words}
    if not there & _MEMORY_WORDS or there & {"bar", "bar1", "protected", "temp", "temperature", "clock"}:
        return None
    factors = [FACTORS["B"][unit] for unit in (*units, *words) if unit in FACTORS["B"]]
    factor = factors[0] if factors else MIB
    in_bytes = any(one >= 1024 for one in factors)
    if "used" in there or ("usage" in there and in_bytes):
        return Column(metric=Metric.GPU_MEMORY_USED, factor=factor)
    return Column(metric=Metric.GPU_MEMORY_TOTAL, factor=factor) if "total" in there else None


def _temperature(words: Sequence[str], _: Sequence[str]) -> Column | None:
    there = {*words}
    if not there & {"temp", "temperature", "gtemp"} or there & (_MEMORY_WORDS | {"limit", "tlimit"}):
        return None
    return Column(metric=Metric.GPU_TEMPERATURE)


def _power(words: Sequence[str], units: Sequence[str]) -> Column | None:
    there = {*words}
    if not there & {"power", "pwr"} or there & {"state", "management", "min", "max", "default", "reasons"}:
        return None
    factor = next((FACTORS["W"][unit] for unit in (*units, *words) if unit in FACTORS["W"]), 1.0)
    if "limit" in there or "cap" in there:
        return Column(metric=Metric.GPU_POWER_LIMIT, factor=factor, rank=int("enforced" not in there))
    # The average of a second is nearer to what was drawn between two samples than a moment is.
    rank = 2 if "instant" in there else 0 if "average" in there else 1
    return Column(metric=Metric.GPU_POWER, factor=factor, rank=rank)


def _clock(words: Sequence[str], units: Sequence[str]) -> Column | None:
    there = {*words}
    if not there & {"clocks", "clock", "clk"} or there & {
        "max",
        "mem",
        "memory",
        "video",
        "reasons",
        "applications",
    }:
        return None
    factor = 1e3 if "ghz" in (*words, *units) else 1.0
    return Column(metric=Metric.GPU_CLOCK, factor=factor, rank=int("sm" not in there))


def _throttle(words: Sequence[str], _: Sequence[str]) -> Column | None:
    there = {*words}
    if not there & {"reasons", "throttle", "throttling"} or there & {"counters", "supported"}:
        return None
    if "thermal" in there:
        # Those of hardware and software are one metric, and either is enough.
        return Column(metric=Metric.GPU_THERMAL_SLOWDOWN, bits=1, rank=int("sw" in there))
    if "cap" in there:
        return Column(metric=Metric.GPU_POWER_CAP, bits=1)
    if "brake" in there or {"hw", "slowdown"} <= there:
        return Column(metric=Metric.GPU_HARDWARE_SLOWDOWN, bits=1)
    return Column(says=MASK) if "active" in there or len(there) <= 3 else None


def _ecc(words: Sequence[str], _: Sequence[str]) -> Column | None:
    there = {*words}
    if "ecc" not in there or not there & {"corrected", "uncorrected"} or "mode" in there:
        return None
    # Volatile counts begin with the driver, so with the job or before; a total goes before its parts.
    rank = 2 * ("volatile" not in there) + ("total" not in there)
    metric = Metric.GPU_ECC_UNCORRECTED if "uncorrected" in there else Metric.GPU_ECC_CORRECTED
    return Column(metric=metric, rank=rank)


_METRICS: tuple[Callable[[Sequence[str], Sequence[str]], Column | None], ...] = (
    _throttle,
    _ecc,
    _temperature,
    _power,
    _clock,
    _utilization,
    _memory,
)
