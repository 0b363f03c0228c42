"""The icicle of stacks, in a browser without a network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from jobreport.page import sections
from tests.browser.visit import Visit, barriers, needs_axe, needs_browser, page_of
from tests.report.page.sections.test_code_waits import JOBS

pytestmark = [pytest.mark.browser, needs_browser]

#: Percent of the width of each part, which is not drawn if it has none, by what they are called, of the first icicle.
WIDTHS = """() => Object.fromEntries([...document.querySelector(".icicle").querySelectorAll("svg")]
  .map((part) => [part.querySelector("text").textContent, Math.round(parseFloat(part.getAttribute("width")))]))"""
DIMMED = '() => [...document.querySelectorAll(".icicle svg")].filter((part) => part.style.opacity).length'


@pytest.fixture(scope="module")
def visit(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visit]:
    pieces = sections.page(JOBS["idle GPU"]()).values()
    opened = Visit(browser, page_of(pieces, tmp_path_factory.mktemp("icicle") / "report.html")).live()
    yield opened
    opened.context.close()
    assert opened.complaints == []


def test_a_click_zooms_and_a_search_dims_all_others(visit: Visit) -> None:
    page = visit.page
    whole = page.evaluate(WIDTHS)
    page.locator(".icicle svg", has_text="train.py:60 other").first.click()
    zoomed = page.evaluate(WIDTHS)
    assert zoomed["train.py:60 other"] == zoomed["train.py:30 main"] == 100
    assert zoomed["train.py:84 log"] == 0
    page.get_by_role("button", name="show all", exact=True).click()
    assert page.evaluate(WIDTHS) == whole
    page.get_by_role("searchbox").fill("JSON.dump")
    parts = page.locator(".icicle svg").count()
    assert page.evaluate(DIMMED) == parts - 1
    page.keyboard.press("Enter")
    assert page.evaluate(WIDTHS)["json.dump"] == 100
    page.get_by_role("searchbox").fill("")
    page.keyboard.press("Enter")
    assert page.evaluate(WIDTHS) == whole
    assert page.evaluate(DIMMED) == 0


@needs_axe
def test_nothing_bars_anyone(visit: Visit) -> None:
    assert barriers(visit) == []
