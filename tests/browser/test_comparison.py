"""The page of a comparison in a browser without a network: two variants, and twelve."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobreport.comparison import document
from jobreport.comparison.build import compare
from jobreport.comparison.comparing import Settings
from jobreport.files import COMPARISON
from jobreport.page.sections import comparison
from tests.browser.visit import (
    TABLES_WITHOUT_ROOM,
    Visit,
    barriers_elsewhere,
    needs_axe,
    needs_browser,
    page_of,
)
from tests.report.comparison.runs import run, steady
from tests.report.page.sections.test_comparison import EXAMPLES

pytestmark = [pytest.mark.browser, needs_browser]

WIDER_THAN_ITS_WINDOW = "document.documentElement.scrollWidth > document.documentElement.clientWidth"

#: Start and width of the place of each bar, by list.
BARS = """[...document.querySelectorAll(".duo")].map((list) =>
  [...list.querySelectorAll(".value-bar")].map((bar) => {
    const {x, width} = bar.getBoundingClientRect();
    return [x, width];
  }))"""


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("priced", marks=pytest.mark.slow),
        "traces and samples",
        pytest.param("repeats", marks=pytest.mark.slow),
        pytest.param("twelve", marks=pytest.mark.slow),
    ],
)
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(EXAMPLES[request.param](), tmp_path_factory.mktemp(request.param))


def written(found: document.Comparison, folder: Path) -> Path:
    """The page of a comparison."""
    return page_of(comparison.page(found).values(), folder / "comparison.html", COMPARISON)


@pytest.fixture(scope="module")
def visit(browser: Any, page: Path) -> Iterator[Visit]:
    found = Visit(browser, page).live()
    yield found
    found.context.close()


def test_every_figure_becomes_live_and_nothing_is_asked_for(visit: Visit, page: Path) -> None:
    places = visit.page.locator(".live").count()
    assert places >= 6
    assert visit.page.locator(".is-live > .live").count() == places
    assert visit.complaints == []
    assert visit.requests == [page.as_uri()]


def test_every_table_has_room(visit: Visit) -> None:
    assert visit.page.evaluate(TABLES_WITHOUT_ROOM) == []


@pytest.mark.slow
def test_nothing_scrolls_sideways(visit: Visit) -> None:
    visit.fold(away=False)
    wider = []
    for width in (400, 1280):
        visit.resize(width, 900)
        wider.append(visit.page.evaluate(WIDER_THAN_ITS_WINDOW))

    assert wider == [False, False]


@pytest.mark.slow
@pytest.mark.parametrize("width", [400, 1280])
def test_bars_start_at_one_place_and_have_one_scale_though_a_label_wraps(
    browser: Any, tmp_path: Path, width: int
) -> None:
    found = compare([run("cpu-bottleneck-2gpu", steady()), run("B", steady(1.3, 2))], Settings(), "")
    seen = Visit(browser, written(found, tmp_path))
    seen.resize(width, 900)
    lists = seen.page.evaluate(BARS)
    seen.context.close()

    assert [len(bars) for bars in lists] == [2, 2]
    for one, other in lists:
        assert one == other


@needs_axe
@pytest.mark.slow
def test_the_page_has_no_barriers(visit: Visit) -> None:
    assert barriers_elsewhere(visit) == []


def test_the_page_is_small(page: Path) -> None:
    """BokehJS alone has 1.3 MB."""
    assert page.stat().st_size < (2.0e6 if page.parent.name.startswith("twelve") else 1.6e6)
