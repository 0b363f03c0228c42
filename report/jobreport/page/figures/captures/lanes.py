"""Events as bars in lanes along an axis, and the parts of steps as one column per step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobreport.formats import escape_name
from jobreport.page.figures.chart import quantity
from jobreport.page.figures.stacked import HALF

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from jobreport.page.figures.canvas import Canvas

#: The narrowest bar, as a share of the axis.
_NARROWEST = 1 / 1000
_NAME = 60


class Events(Struct, frozen=True, kw_only=True):
    """Events in lanes, an entry of each array per bar."""

    #: Lane from the top, start and length on the axis, kind, name (−1 for several), and number of events.
    lane: npt.NDArray[np.int64]
    start: npt.NDArray[np.float64]
    length: npt.NDArray[np.float64]
    kind: npt.NDArray[np.str_]
    name: npt.NDArray[np.int64]
    events: npt.NDArray[np.int64]


def lanes(
    canvas: Canvas,
    found: Events,
    kinds: Mapping[str, tuple[str, str]],
    names: Sequence[str],
    start: str,
    *,
    per_ms: float = 1.0,
) -> None:
    """A bar per event in the class of its kind; ``kinds`` have class and words, and are switched by their keys.

    ``start`` is the start in a tooltip, and ``per_ms`` the length of a millisecond on the axis.
    """
    shown = [escape_name(name, _NAME) for name in names]
    length = np.maximum(found.length, (canvas.x.end - canvas.x.start) * _NARROWEST)
    middle = -found.lane - 0.5
    drawn = []
    for kind, (style, words) in kinds.items():
        at = np.flatnonzero(found.kind == kind)
        if not len(at):
            continue
        columns = {
            "kind": [words] * len(at),
            "name": [shown[i] if i >= 0 else "several" for i in found.name[at].tolist()],
            "ms": (found.length[at] / per_ms).astype(np.float32),
            "events": found.events[at],
        }
        sides = (found.start[at], (found.start + length)[at], middle[at] - HALF, middle[at] + HALF)
        drawn.append(canvas.bars(style, sides, columns, series=kind, apart=kind == "steps"))
    rows = [
        ("Kind", "@kind"),
        ("Name", "@name"),
        ("Start", start),
        ("Duration", quantity("ms", "ms", 3)),
        ("Events", "@events{0,0}"),
    ]
    options = {"formatters": {"@left": "datetime"}} if "%" in start else {}
    canvas.tooltip(rows, drawn, **options)


def columns(
    canvas: Canvas,
    steps: Sequence[str],
    parts: Sequence[tuple[str, str]],
    times: npt.NDArray[np.float64],
    time: str,
) -> None:
    """One column per step; ``parts`` have class and words, and ``times`` (parts, steps) stand on one another.

    ``time`` is the time in a tooltip.
    """
    ends = np.cumsum(np.vstack([np.zeros(len(steps)), times]), axis=0)
    left = np.arange(len(steps)) + 0.07
    drawn = []
    for i, (style, words) in enumerate(parts):
        values = {"step": list(steps), "name": [escape_name(words, _NAME)] * len(steps), "time": times[i]}
        drawn.append(
            canvas.bars(style, (left, left + 0.86, ends[i], ends[i + 1]), values, series=f"kind-{i}")
        )
    canvas.tooltip([("Step", "@step"), ("Part", "@name"), ("Time", time)], drawn)
