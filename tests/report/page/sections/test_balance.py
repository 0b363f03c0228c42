"""What the section on workload balance says, and that drawing and live plot say the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from jobreport.document import Origin, Report
from jobreport.page import sections
from jobreport.page.figures.balance import Curve, Histograms, frame, histograms
from jobreport.page.figures.models import GlyphRenderer, HoverTool, Quad
from jobrules.analyses.balance import Balance
from jobrules.model import Status
from tests.copies import replace
from tests.report.page.sections import examples
from tests.report.page.sections.example_balance import balance, of_panels, panel
from tests.report.page.sections.html import Page

NBSP = "\u00a0"


def page_of(found: Balance | None, **facts: Any) -> Page:
    return Page.of(html_of(found, **facts))


def html_of(found: Balance | None, **facts: Any) -> str:
    return sections.balance(report_of(found, **facts)).html


def report_of(found: Balance | None, **facts: Any) -> Report:
    base = examples.gpu_job()
    told: dict[str, Any] = {"status": Status.PASSED, "evaluated": 90} | facts
    card = examples.card("LoadBalancing", told.pop("status"), **told)
    return replace(base, balance=found, rules=(card,))


def shown(found: Balance | None, **facts: Any) -> sections.Fragment:
    return sections.balance(report_of(found, **facts))


def nodes(*levels: list[float]) -> Balance:
    """A node for each list of mean uses of its GPUs."""
    return of_panels(*(panel(f"n{i}", own) for i, own in enumerate(levels)))


def in_turn() -> Balance:
    """Two GPUs with one mean, of which one swings."""
    swinging = panel("n", [50, 50])
    swinging.values[:, 1] = np.where(np.arange(len(swinging.values)) % 2, 10.0, 90.0)
    return of_panels(swinging)


def short() -> Balance:
    few = panel("n", [90, 40, 90])
    return of_panels(replace(few, values=few.values[:9], time_us=few.time_us[:9]))


OPEN: dict[str, Any] = {"status": Status.NOT_EVALUATED, "reason": "only 600 of 1001 samples", "evaluated": 0}
EARLY: dict[str, Any] = {
    "status": Status.TRIGGERED,
    "violating": 9,
    "severity": 0.1,
    "last_us": examples.START_US,
}
VARIANTS: dict[str, Callable[[], sections.Fragment]] = {
    "a pair that differs": lambda: shown(nodes([90, 90, 40])),
    "one mean at different times": lambda: shown(in_turn()),
    "similar": lambda: shown(nodes([90, 90])),
    "too few samples of some": lambda: shown(balance("gpu"), **OPEN),
    "too few samples of all": lambda: shown(short(), **OPEN),
    "one GPU": lambda: shown(nodes([50])),
    "one GPU on each node": lambda: shown(nodes([50], [50], [50])),
    "one node of one GPU": lambda: shown(nodes([50], [50, 60])),
    "triggered and apart at the end": lambda: shown(nodes([90, 40]), **EARLY),
    "triggered and alike at the end": lambda: shown(nodes([90, 90]), **EARLY),
    "not selected": lambda: sections.balance(replace(report_of(balance("gpu")), rules=())),
    "many nodes that differ": lambda: shown(nodes(*([90.0, 90.0, 90.0, 90.0 - 8 * i] for i in range(6)))),
    "many GPUs": lambda: shown(nodes([90.0] * 19 + [40.0])),
    "six GPUs": lambda: shown(nodes([90.0] * 5 + [40.0])),
    "not recorded": lambda: shown(None),
    "results": lambda: sections.balance(replace(report_of(None), origin=Origin.DEBUGGER_RESULTS)),
    "nodes alike": lambda: shown(nodes(*([90 + i / 4, 90, 90] for i in range(4)))),
    "nodes of two GPUs": lambda: shown(nodes([90, 90], [90, 40], [70, 70])),
    "many nodes of two GPUs": lambda: shown(nodes(*([90.0, 90.0 - 8 * i] for i in range(6)))),
}


def renderers(plot: Any, kind: type) -> list[Any]:
    return [r for r in plot.renderers if isinstance(r, GlyphRenderer) and isinstance(r.glyph, kind)]


RAMP = tuple(float(i) / 12.25 for i in range(50))


def test_a_bin_tells_the_share_of_every_gpu() -> None:
    shown = Histograms(curves=(Curve(name="$$x$$", values=RAMP), Curve(name="b", values=RAMP)))

    plot: Any = histograms(shown, frame([shown])).live

    (hover,) = [tool for tool in plot.toolbar.tools if isinstance(tool, HoverTool)]
    (bins,) = renderers(plot, Quad)
    assert hover.renderers == [bins]
    assert bins.data_source.data["left"].tolist() == list(range(0, 100, 2))
    assert bins.data_source.data["right"].tolist() == list(range(2, 101, 2))
    assert bins.data_source.data["v1"] == pytest.approx(RAMP)
    assert set(bins.data_source.data["n0"]) == {"$$x$$"}
    # Names of data are fields and never part of the markup.
    assert "$$" not in str(hover.tooltips)
    assert "@v1{0,0.00}" in str(hover.tooltips)


def test_the_scale_holds_the_fullest_bin_and_one_without_any() -> None:
    full = Histograms(curves=(Curve(name="a", values=(0.0,) * 49 + (100.0,)),))

    assert frame([full])[1].end == 100
    assert frame([])[1].end == 1


def test_few_gpus_share_a_plot_with_a_switch_each() -> None:
    found = of_panels(panel("algo-1", [90, 90, 91, 40]), panel("algo-2", [90, 90]))

    page = page_of(found)

    keys = [a["data-series"] for _, a in page.elements if "data-series" in a]
    assert keys == ["gpu-1", "gpu-2", "gpu-3", "gpu-4"]
    assert len([i for i in page.ids if i.startswith("live-balance")]) == 2
    styles = [a["class"] for tag, a in page.elements if tag == "path" and "d" in a and len(str(a["d"])) > 9]
    assert styles == ["s1", "s2", "s3", "s4", "s1", "s2"]


def shades(page: Page) -> list[str]:
    """Classes of the cells of the matrices, row by row."""
    styles = [str(a.get("class") or "") for tag, a in page.elements if tag == "td"]
    return [style for style in styles if re.fullmatch(r"h\d|m", style)]


def test_cells_are_shaded_up_to_the_limit_and_marked_above_it() -> None:
    found = of_panels(panel("n", [90, 90, 40]))
    (node,) = found.nodes
    given = replace(node, distances=((0.0, 0.1), (0.2,), ()))
    over = replace(node, distances=((0.199, 0.2001), (0.83,), ()))

    pages = [page_of(replace(found, nodes=(one,))) for one in (given, over)]

    # Rows of the symmetric matrix: (–, a, b), (a, –, c), (b, c, –).
    assert shades(pages[0]) == ["m", "h0", "h3", "h0", "m", "h5", "h3", "h5", "m"]
    assert shades(pages[1]) == ["m", "h5", "h9", "h5", "m", "h9", "h9", "h9", "m"]
    assert pages[0].text.count("▲") == 1  # in the caption alone
    assert pages[1].text.count("▲") == 5
    assert "0.83 above the threshold" in pages[1].text


def test_a_limit_of_0_shades_nothing() -> None:
    found = of_panels(panel("n", [90, 90, 90]))

    page = page_of(replace(found, limit=0.0))

    assert shades(page) == ["m", "h0", "h0", "h0", "m", "h0", "h0", "h0", "m"]
