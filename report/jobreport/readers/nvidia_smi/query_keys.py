"""Keys of ``nvidia-smi -q``, as text and as XML, of all drivers, by the name that ``--query-gpu`` has for the same."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING

from jobreport.readers.nvidia_smi.unheaded import Row, part_of_row

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from jobreport.readers.nvidia_smi.table import Skipped

_UUID = re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_BARE = re.compile(r"[0-9.]+")
_OTHER = re.compile(r"[^a-z0-9]+")
_REASONS = (
    "hw_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "sw_power_cap",
    "sw_thermal_slowdown",
)
_POWER = {
    "power_draw": "power.draw",
    "average_power_draw": "power.draw.average",
    "instantaneous_power_draw": "power.draw.instant",
    "instant_power_draw": "power.draw.instant",
    "current_power_limit": "enforced.power.limit",
    "enforced_power_limit": "enforced.power.limit",
    "power_limit": "power.limit",
}
_CORRECTED, _UNCORRECTED = "ecc.errors.corrected.volatile.total", "ecc.errors.uncorrected.volatile.total"
_SUMS = {_CORRECTED, _UNCORRECTED}
#: Digits of a count of errors.
_DIGITS = 18
#: Errors by the part of the memory; all of them are added.
_ERRORS = {
    **dict.fromkeys(("single_bit/total", "sram_correctable", "dram_correctable"), _CORRECTED),
    **dict.fromkeys(
        (
            *("double_bit/total", "sram_uncorrectable", "sram_uncorrectable_parity", "dram_uncorrectable"),
            *("sram_uncorrectable_sec_ded", "sram_uncorrectable_secded"),
        ),
        _UNCORRECTED,
    ),
}
#: By the keys under that of the GPU, as ``key_of`` writes them.
_COLUMNS = {
    **dict.fromkeys(("gpu_uuid", "uuid"), "uuid"),
    "product_name": "name",
    **dict.fromkeys(("utilization/gpu", "utilization/gpu_util"), "utilization.gpu"),
    **dict.fromkeys(("utilization/memory", "utilization/memory_util"), "utilization.memory"),
    "fb_memory_usage/used": "memory.used",
    "fb_memory_usage/total": "memory.total",
    **dict.fromkeys(("temperature/gpu_current_temp", "temperature/gpu_temp"), "temperature.gpu"),
    **dict.fromkeys(("clocks/sm", "clocks/sm_clock"), "clocks.sm"),
    **{
        f"{section}/{key}": column
        for section in ("gpu_power_readings", "power_readings")
        for key, column in _POWER.items()
    },
    **{
        f"clocks_{of}_reasons/{before}{reason}": f"clocks_event_reasons.{reason}"
        for of in ("event", "throttle")
        for before in ("", "hw_slowdown/", f"clocks_{of}_reason_")
        for reason in _REASONS
    },
    **{f"ecc_errors/volatile/{key}": column for key, column in _ERRORS.items()},
}


#: Characters of a key, more than any that is read has.
_MAX_KEY = 256
#: Keys from that of the GPU to a value, at most.
MAX_KEYS = max(path.count("/") for path in _COLUMNS) + 1


class GpuKeys:
    """The keys of one GPU, with their values."""

    def __init__(self, bus: str = "", line: int = 0) -> None:
        """``bus`` is its bus id, if that is known, and ``line`` the number of its first line."""
        self._bus, self._line = bus, line
        self._values: dict[str, str] = {}
        self._is_damaged = not bus

    def add(self, keys: Sequence[str], value: str) -> None:
        """A value, and the keys that lead to it."""
        path = "/".join(keys[: MAX_KEYS + 1])
        column = _COLUMNS.get(path)
        if column is None:
            return
        # A second value is that of another GPU, or of another group of keys.
        self._is_damaged |= _is_cut(column, value) or self._values.setdefault(path, value) != value

    def rows(self, moment: int, time: datetime | None) -> Iterator[Row | Skipped]:
        """The row of the GPU, if it is whole."""
        if self._is_damaged or not self._values:
            if self._bus or self._values:
                yield part_of_row(self._line, self._bus)
            return
        texts: defaultdict[str, list[str]] = defaultdict(list)
        for path, value in self._values.items():
            texts[_COLUMNS[path]].append(value)
        cells = {column: some[0] for column, some in texts.items()} | {"pci.bus_id": self._bus}
        for column in _SUMS & texts.keys():
            if numbers := [int(text[:_DIGITS]) for text in texts[column] if text.isdecimal()]:
                cells[column] = str(sum(numbers))
        yield Row(line=self._line, moment=moment, time=time, gpu=self._bus, cells=cells)


def _is_cut(column: str, value: str) -> bool:
    """Whether the end of a value is missing: a UUID has a fixed length, and all numbers but counts have units."""
    if column == "uuid":
        return not _UUID.fullmatch(value)
    return column not in _SUMS and bool(_BARE.fullmatch(value))


def key_of(text: str) -> str:
    """A key of the text as the XML writes it: ``FB Memory Usage`` is ``fb_memory_usage``."""
    return _key_of(text[:_MAX_KEY])


@lru_cache(1 << 12)  # every document has the same keys
def _key_of(text: str) -> str:
    return _OTHER.sub("_", text.strip().lower())
