"""Numbers, rates, times, and names in words, in addition to those of the rules."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct

from jobrules import text
from jobrules.measures.quartiles import ALIKE_POINTS
from jobrules.model import SECOND_US
from jobrules.text import (
    MINUS,
    NBSP,
    between,
    clock,
    count,
    dated,
    duration,
    elapsed,
    escape_name,
    join_names,
    percent,
    share,
    utc,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from jobreport.remarks import Run
    from jobrules.analyses.utilization import UsageRow
    from jobrules.model import Finding
    from jobrules.model.time_parts import TimePart
    from jobrules.verdict.phases import JobPhases
    from jobrules.verdict.time_use import TimeUse

__all__ = [
    "MINUS",
    "NBSP",
    "Scale",
    "TimeScale",
    "amount",
    "between",
    "clock",
    "column_time",
    "compact",
    "count",
    "date_time",
    "dated",
    "duration",
    "escape_name",
    "every",
    "extremes",
    "join_names",
    "known",
    "median",
    "moment",
    "never_used",
    "not_shown",
    "number",
    "part_hours",
    "percent",
    "plain_number",
    "rate_scale",
    "reported_run",
    "seconds",
    "share",
    "signed",
    "spans_days",
    "spread",
    "time_scale",
    "times",
]

#: Other runs that a sentence lists.
MAX_RUNS = 5

_RATES = ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s"))
#: Of memory, which is sold in powers of two.
_BYTES = ((1024.0**3, "GiB"), (1024.0**2, "MiB"), (1024.0, "KiB"), (1.0, "B"))


def number(value: float, digits: int = 1) -> str:
    """``12,345.6``."""
    return text.number(value, digits)


def known(value: float | None, digits: int = 1) -> str:
    """A number, or ``–`` for None."""
    return "–" if value is None else number(value, digits)


def compact(value: float | None) -> str:
    """Four digits of a number of any size: ``0.1235``, ``1.2e−7``, ``123,456``; ``–`` for None."""
    if value is None:
        return "–"
    shown = f"{value:,.0f}" if 1e4 <= abs(value) < 1e6 else f"{value:,.4g}"
    return shown.replace("e-0", "e-").replace("e+0", "e+").replace("-", MINUS)


def signed(value: float | None, digits: int = 1) -> str:
    """``−9.0`` or ``+9.0`` with a true minus; no sign where 0.0 is printed; ``–`` for None."""
    if value is None:
        return "–"
    size = number(abs(value), digits)
    return size if not size.strip("0.") else f"{'+' if value > 0 else MINUS}{size}"


def plain_number(value: float | str | None) -> str:
    """A parameter's value: ``70``, ``0.5``, ``12,000``; ``none`` if not set."""
    if value is None:
        return "none"
    if isinstance(value, str):
        return value
    return f"{value:,.10g}"


class Median(Struct, frozen=True, kw_only=True):
    """Median utilization, a range if that of the nodes differs."""

    #: ``GPU`` or ``CPU``.
    device: str
    value: str


def median(usage: Sequence[UsageRow]) -> Median | None:
    """Of the GPUs, otherwise of the CPUs; None if neither has a row."""
    for device in ("GPU", "CPU"):
        rows = [row for row in usage if row.label == device]
        if rows:
            return Median(device=device, value=spread(row.p50 for row in rows))
    return None


def spread(values: Iterable[float]) -> str:
    """``34.0%``, or ``34.0 to 41.0%`` if the ends print differently; empty without a value."""
    found = sorted(values)
    if not found:
        return ""
    low, high = found[0], found[-1]
    return percent(high) if f"{low:.1f}" == f"{high:.1f}" else f"{low:.1f} to {percent(high)}"


def extremes(values: Mapping[str, float]) -> str:
    """``34.0 to 35.2%`` if all values are similar, otherwise ``from 10.0% on a to 90.0% on b``."""
    low, high = min(values, key=values.__getitem__), max(values, key=values.__getitem__)
    if values[high] - values[low] < ALIKE_POINTS:
        return spread(values.values())
    return f"from {percent(values[low])} on {low} to {percent(values[high])} on {high}"


class Scale(Struct, frozen=True, kw_only=True):
    """A unit that keeps numbers short: print ``value / factor`` and then ``unit``."""

    factor: float
    unit: str


def rate_scale(values: Iterable[float], unit: str = "B/s") -> Scale:
    """The unit of a row of values: bytes and bytes per second get a prefix that suits the largest value."""
    largest = max(values, default=0.0)
    scales = {"B/s": _RATES, "B": _BYTES}.get(unit, ())
    return next((Scale(factor=f, unit=u) for f, u in scales if largest >= f), Scale(factor=1.0, unit=unit))


def size(value: float) -> str:
    """``1.5 GiB``."""
    scale = rate_scale((value,), "B")
    return f"{number(value / scale.factor)}{NBSP}{scale.unit}"


def rate(per_second: float, what: str) -> str:
    """``1,024 samples/s``, ``9.77 samples/s``: three digits or more."""
    digits = max(0, 2 - math.floor(math.log10(per_second)))
    return f"{number(per_second, digits)}{NBSP}{what}/s"


def every(n: int, one: str) -> str:
    """``The GPU``, ``Both GPUs``, ``All 8 GPUs``."""
    return f"The {one}" if n == 1 else f"Both {one}s" if n == 2 else f"All {count(n, one)}"


def not_shown(n: int, one: str, many: str | None = None) -> str:
    """`` Not shown: 5 more rows.``, the end of a caption; empty for 0."""
    return f" Not shown: {count(n, one, many)}." if n > 0 else ""


def seconds(value: float) -> str:
    """``12.3 s``, ``4.56 ms``, ``7.8 µs``, ``2 h 5 min``: about three digits."""
    if value >= 100:
        return duration(value * 1e6)
    for factor, unit in ((1.0, "s"), (1e3, "ms")):
        scaled = value * factor
        if scaled >= 0.9995:
            return f"{number(scaled, 1 if scaled >= 10 else 2)}{NBSP}{unit}"
    return f"{number(value * 1e6)}{NBSP}µs"


class TimeScale(Struct, frozen=True, kw_only=True):
    """The unit of a column of times."""

    factor: float
    unit: str
    digits: int

    def __call__(self, seconds: float) -> str:
        """The number without its unit."""
        return number(seconds * self.factor, self.digits)


def time_scale(values: Iterable[float]) -> TimeScale:
    """One unit for a column of times, by the largest: seconds from 10 s on, milliseconds from 0.1 ms on."""
    largest = max(values, default=0.0)
    factor, unit = (1.0, "s") if largest >= 10 else (1e3, "ms") if largest >= 1e-4 else (1e6, "µs")
    scaled = largest * factor
    return TimeScale(factor=factor, unit=unit, digits=1 if scaled >= 100 else 2 if scaled >= 10 else 3)


def amount(finding: Finding, use: TimeUse | None) -> tuple[str, str]:
    """Amount and share of a finding: ("11.6 GPU-h", "45.4% of GPU time"), summed over its parts of the verdict's bar.

    Either is empty if the finding has none, or if its title says it already.
    """
    parts = [part.amount for part in use.parts if part.finding == finding.key] if use else []
    hours = ""
    if finding.gpu_s is not None:
        total = sum(parts) if parts else finding.gpu_s / 3600
        hours = f"{use.amount(total)}{NBSP}{use.unit}" if use else f"{number(total, 1)}{NBSP}GPU-h"
    part = f"{share(finding.share)} {finding.share_of}".rstrip() if finding.share is not None else ""
    if not hours and finding.share is not None and share(finding.share) in finding.title:
        part = ""
    return hours, part


def part_hours(use: TimeUse, phases: JobPhases, part: TimePart) -> str:
    """Amount of a part of the verdict's bar: ``1.25``; ``under 0.01`` if it rounds to 0."""
    nothing = part.role == "used" and never_used(use, phases)
    return use.amount(part.amount) if part.amount or nothing else f"under {10**-use.digits:g}"


def never_used(use: TimeUse, phases: JobPhases) -> bool:
    """Whether no GPU was ever used."""
    return use.device == "GPU" and phases.first_work_us is None


def column_time(us: int, *, with_day: bool, tenths: bool = False) -> str:
    """``08:26:31``, or ``2026-11-14 08:26:31`` in a job of several days, without the zone.

    Hours, minutes, and seconds from the start if times are not dated; ``tenths`` of a second in a short job.
    """
    tenth = f".{us // (SECOND_US // 10) % 10}" if tenths else ""
    if not dated(us):
        return elapsed(us) + tenth
    return (f"{utc(us):%Y-%m-%d %H:%M:%S}" if with_day else f"{utc(us):%H:%M:%S}") + tenth


def date_time(us: int) -> str:
    """``2026-11-14 08:14:07 UTC``."""
    return f"{utc(us):%Y-%m-%d %H:%M:%S}{NBSP}UTC" if dated(us) else clock(us)


def moment(us: int, *, with_day: bool, tenths: bool = False) -> str:
    """``column_time`` in a sentence: ``08:26:31 UTC``, ``00:12:24 after the start``."""
    time = column_time(us, with_day=with_day, tenths=tenths)
    return f"{time}{NBSP}UTC" if dated(us) else f"{time} after the start"


def reported_run(runs: Sequence[Run]) -> str:
    """Which run of a recording is reported, and how to choose another; empty if there is one run.

    ``2 of 2. Other runs: 1 (2026-11-14 08:14:07 to 09:14:07 UTC, 1 h). Choose with --run N, or --run all.``
    """
    others = [(i, run) for i, run in enumerate(runs, start=1) if not run.reported]
    if not others:
        return f"all {len(runs)} of the recording" if len(runs) > 1 else ""
    number = next(i for i, run in enumerate(runs, start=1) if run.reported)
    named = [
        f"{i} ({between(run.start_us, run.end_us)}, {duration(run.end_us - run.start_us)})"
        for i, run in others
    ]
    newest = ", the newest" if number == len(runs) else ""
    if runs[0].command:
        longest = max(runs, key=lambda run: run.end_us - run.start_us)
        newest = f" training commands{', the longest' if longest.reported else ''}"
    left = len(named) - MAX_RUNS
    more = f", and {left} earlier in report.json" if left > 0 else ""
    listed = "; ".join(named[-MAX_RUNS:])
    return f"{number} of {len(runs)}{newest}. Other runs: {listed}{more}. Choose with --run N, or --run all."


def times(us: int) -> str:
    """The zone of times, as a sentence."""
    return "Times are UTC." if dated(us) else "Times count from the start of the log."


def day(us: int) -> str:
    """``2026-11-14``."""
    return f"{utc(us):%Y-%m-%d}"


def spans_days(start_us: int, end_us: int) -> bool:
    """Whether a time span crosses midnight, so that times need a date."""
    return dated(end_us) and day(start_us) != day(end_us)
