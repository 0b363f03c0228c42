"""Sections without their live plots, for tests that look at texts alone: to make live plots takes most of the time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


class _NoPlot:
    """Stands for a live plot, whatever is done with it."""

    def __getattr__(self, _name: str) -> _NoPlot:
        return self

    def __call__(self, *_: Any, **__: Any) -> _NoPlot:
        return self


_NO_PLOT = _NoPlot()


@pytest.fixture(scope="module")
def without_live_plots() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jobreport.page.figures.chart.live_plot", _NO_PLOT)
        patch.setattr("jobreport.page.figures.chart.hover", _NO_PLOT)
        patch.setattr("jobreport.page.figures.canvas.Canvas._add", _NO_PLOT)
        patch.setattr("jobreport.page.kit.section.document_json", lambda *_: "")
        yield
