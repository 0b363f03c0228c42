"""Ticks and time scales that the figures of both kinds share."""

from __future__ import annotations

import math

from msgspec import Struct

from jobrules.text import dated, elapsed, utc

_SECOND_US = 1_000_000
#: Distances of time ticks that a reader can count in, in seconds.
_STEPS_S = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800),
    *(3600, 7200, 10800, 21600, 43200, 86400, 2 * 86400, 7 * 86400, 14 * 86400, 28 * 86400),
)
_DAY_US = 86400 * _SECOND_US


class Tick(Struct, frozen=True, kw_only=True):
    """A labeled place on an axis."""

    #: Of the axis, from 0 to 1.
    at: float
    label: str


def time_ticks(start_us: int, end_us: int, most: int = 6) -> tuple[Tick, ...]:
    """Round times of day inside a stretch, at most ``most``; none if it covers no time."""
    span_us = end_us - start_us
    if span_us <= 0:
        return ()
    step_us = next(
        (round(s * _SECOND_US) for s in _STEPS_S if span_us / (s * _SECOND_US) <= most),
        math.ceil(span_us / most / _DAY_US) * _DAY_US,
    )
    first = -(-start_us // step_us) * step_us
    style = time_style(step_us, start_us, end_us)
    return tuple(
        Tick(at=(us - start_us) / span_us, label=_label(us, style))
        for us in range(first, end_us + 1, step_us)
    )


def time_style(step_us: int, start_us: int, end_us: int) -> str:
    """The format of times that are so far apart."""
    several_days = start_us // _DAY_US != end_us // _DAY_US
    if step_us >= _DAY_US:
        return "%Y-%m-%d"
    if several_days and step_us >= 60 * _SECOND_US:
        return "%m-%d %H:%M"
    if step_us >= 60 * _SECOND_US:
        return "%H:%M"
    return "%H:%M:%S"


def _label(us: int, style: str) -> str:
    text = utc(us).strftime(style) if dated(us) else elapsed(us)[: None if style == "%H:%M:%S" else -3]
    part = us % _SECOND_US
    return f"{text}.{part:06d}".rstrip("0") if part and style == "%H:%M:%S" else text


def ceiling(value: float) -> float:
    """The next round number, for the top of a scale: 1, 2, 3, 4, 5, 6, 8, or 10 times a power of ten."""
    if value <= 0 or not math.isfinite(value):
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 3, 4, 5, 6, 8, 10) if step * power >= value * (1 - 1e-9))
