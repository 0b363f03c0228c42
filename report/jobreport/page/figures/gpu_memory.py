"""GPU memory activity of a node over time: GPUs as lines over the band of all, and the jumps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from jobreport.formats import NBSP
from jobreport.page.figures import chart, over_columns, theme
from jobreport.page.figures.over_time import SharedTime, TimeCanvas

if TYPE_CHECKING:
    from jobreport.page.figures.canvas import Figure
    from jobrules.analyses.gpu_memory import MemoryBand, MemoryLine, MemoryRise
    from jobrules.verdict.phases import JobPhases

#: Names of the lines where that of a GPU may not stand in a tooltip's frame.
_DASHES = ("Solid", "Dashed", "Dotted", "Dash-dot")


class NodeMemory(Struct, frozen=True, kw_only=True):
    """What is drawn of a node."""

    #: Names the series, so that each can be switched: ``n0``.
    key: str
    band: MemoryBand
    #: At most four.
    lines: tuple[MemoryLine, ...]
    rises: tuple[MemoryRise, ...]

    @property
    def has_mean(self) -> bool:
        """Whether there are more GPUs than lines, so that the mean of all adds something."""
        return self.band.devices > len(self.lines)

    def series(self, name: str) -> str:
        """A name for a series of this node."""
        return f"{self.key}-{name}"


def memory(node: NodeMemory, time: SharedTime, phases: JobPhases) -> Figure:
    """Band from the lowest to the highest sample of any GPU, lines of single GPUs, triangles at jumps."""
    canvas = TimeCanvas(time, chart.upward(100))
    mean, low, high = map(over_columns.numbers, (node.band.mean, node.band.low, node.band.high))
    gaps = [(gap.start_us, gap.end_us) for gap in phases.gaps if gap.node == node.band.node]
    canvas.hatch(over_columns.merged(gaps + over_columns.holes(time.columns, mean)))
    lowest, highest = canvas.band("band", low, high, series=node.series("band"))
    rows = []
    if node.has_mean:
        name = canvas.curve("all", mean, series=node.series("mean"))
        rows.append((f"Mean of {node.band.devices}{NBSP}GPUs", name))
    for i, (one, (style, _)) in enumerate(zip(node.lines, theme.SERIES, strict=False)):
        name = canvas.curve(style, over_columns.numbers(one.mean), series=node.series(style))
        rows.insert(i, (_named(one.device, i), name))
    canvas.phases(phases)
    canvas.text([(rise.start_us, rise.to_percent, "▲") for rise in node.rises], dy=0.35)
    rows += [("Lowest sample", lowest), ("Highest sample", highest)]
    canvas.values_at([(words, chart.quantity(name, "%")) for words, name in rows], highest)
    return canvas.figure


def _named(device: str, place: int) -> str:
    """A plain name as it is; Bokeh would read ``@`` and ``$`` in others, so these go by their line."""
    plain = len(device) <= 24 and device.isascii() and device.replace("-", "").replace("_", "").isalnum()
    return device if plain else f"{_DASHES[place]} line"
