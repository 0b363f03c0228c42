"""Kernels by their length, and by that of the calls that launched them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jobreport.page.figures import chart
from jobreport.page.figures.canvas import Canvas, Figure
from jobreport.page.figures.scales import Tick, ceiling

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

_LABELS = 6


def lengths(labels: Sequence[str], starts: Sequence[str], kernels: Floats, calls: Floats) -> Figure:
    """Bars of kernels and an outline of calls, in percent of the kernels; bins are equally wide, ``starts`` name their edges."""
    every = -(-len(labels) // _LABELS)
    ticks = [
        Tick(at=i / len(labels), label=name)
        for i, name in enumerate(starts)
        if i % every == 0 and 0 < i < len(labels)
    ]
    x = chart.Axis(start=0, end=len(labels), ticks=tuple(ticks))
    canvas = Canvas(x, chart.upward(ceiling(float(max(kernels.max(), calls.max()))), unit="%"))
    left = np.arange(len(labels), dtype=np.float64)
    columns = {"length": list(labels), "kernels": kernels, "calls": calls}
    bars = canvas.bars("u", (left, left + 1, 0, kernels), columns, series="kernels", apart=True)
    canvas.outline("s2", np.arange(len(labels) + 1), calls, series="calls")
    rows = [
        ("Length", "@length"),
        ("Kernels", chart.quantity("kernels", "%")),
        ("Launch calls", chart.quantity("calls", "%")),
    ]
    canvas.tooltip(rows, [bars], mode="vline")
    return canvas.figure
