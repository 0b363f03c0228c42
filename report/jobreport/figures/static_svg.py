"""Static drawings of box plots: places for inline SVG, in percent.

The page shows them without scripts and on paper. Heights run downwards as in SVG.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from jobreport.figures.box_plot import LOOP, Grouping, borders, by_node, extent, labels, limit_lines, slots

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobrules.analyses.gpu_utilization import Box
#: Characters that fit on a narrow screen.
_NARROW_DEVICES, _NARROW_GROUPS = 50, 40


class StaticBox(Struct, frozen=True, kw_only=True):
    """One box; places and heights in percent."""

    #: ``loop`` or ``whole``.
    kind: str
    left: float
    width: float
    top: float
    height: float
    median: float
    p95: float
    upper: float
    lower: float

    @property
    def middle(self) -> float:
        """Where the whiskers stand."""
        return round(self.left + self.width / 2, 2)


class StaticBoxes(Struct, frozen=True, kw_only=True):
    """The boxes of all devices with their axis."""

    boxes: tuple[StaticBox, ...]
    borders: tuple[float, ...]
    #: Place, device and, below it, group; either may be empty.
    labels: tuple[tuple[float, str, str], ...]
    #: Left, right and height of each limit.
    limits: tuple[tuple[float, float, float], ...]

    @property
    def crowded_devices(self) -> bool:
        """Whether the names of the devices do not fit on a narrow screen."""
        return sum(len(device) for _, device, _ in self.labels) > _NARROW_DEVICES

    @property
    def crowded_groups(self) -> bool:
        """Whether the names of the groups do not fit on a narrow screen."""
        return sum(len(group) for _, _, group in self.labels) > _NARROW_GROUPS


def static_boxes(
    boxes: Sequence[Box], grouping: Grouping = by_node, limits: Mapping[str, float] | None = None
) -> StaticBoxes:
    """The static drawing of ``box_plot``."""
    places = slots(boxes, grouping)
    per = 100 / max(len(places), 1)
    drawn = []
    for i, slot in enumerate(places):
        for j, box in enumerate(slot.boxes):
            left, right = extent(i, j, len(slot.boxes), len(places))
            drawn.append(
                StaticBox(
                    kind="loop" if box.basis == LOOP else "whole",
                    left=round(left * per, 2),
                    width=round((right - left) * per, 2),
                    top=round(100 - box.p75, 1),
                    height=round(box.p75 - box.p25, 1),
                    median=round(100 - box.p50, 1),
                    p95=round(100 - box.p95, 1),
                    upper=round(100 - box.upper, 1),
                    lower=round(100 - box.lower, 1),
                )
            )
    named = [(round((i + 0.5) * per, 2), *text.partition("\n")[::2]) for i, text in labels(places).items()]
    return StaticBoxes(
        boxes=tuple(drawn),
        borders=tuple(round(b * per, 2) for b in borders(places)),
        labels=tuple(named),
        limits=tuple(
            (round(start * per, 2), round(end * per, 2), round(100 - value, 1))
            for start, end, value in limit_lines(places, limits or {})
        ),
    )
