"""The page of every sample job, made by the whole path, in a browser without a network."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
import pytest

from jobreport import pipeline
from jobreport.output import export
from tests.browser.visit import (
    AXE,
    PIXELS,
    RANGES,
    VISIBLE,
    Visit,
    html_faults,
    needs_axe,
    needs_browser,
    needs_checker,
)
from tests.paths import SAMPLES

pytestmark = [pytest.mark.browser, needs_browser]


#: Every test is made on this sample. On the others ``make test`` looks whether all is drawn, nothing is asked for, and
#: the page fits a narrow screen and paper; ``make test-all`` makes every test on every sample.
RICHEST = next(path for path in SAMPLES if path.name == "cpu-bottleneck-2gpu")
in_depth = pytest.mark.parametrize(
    "page",
    [
        pytest.param(path, id=path.name, marks=() if path == RICHEST else pytest.mark.slow)
        for path in sorted(SAMPLES, key=lambda path: path != RICHEST)
    ],
    indirect=True,
    scope="module",
)

#: The barriers that axe finds, by all of its rules or some.
BARRIERS = """(options) => axe.run(document, options)
  .then((r) => r.violations.map((v) => [v.id, v.nodes.map((n) => n.html.slice(0, 200))]))"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """The file of the page of a sample job, which is made once."""

    @cache
    def page_of(sample: Path) -> Path:
        folder = tmp_path_factory.mktemp(sample.name)
        pipeline.make_report(sample, folder / "out")
        return folder / "out" / "report.html"

    return page_of


@pytest.fixture(scope="module", params=SAMPLES, ids=lambda path: path.name)
def page(request: pytest.FixtureRequest, made: Callable[[Path], Path]) -> Path:
    """The file of a sample job's page."""
    return made(request.param)


@pytest.fixture(scope="module")
def visit(browser: Any, page: Path) -> Iterator[Visit]:
    """A reader with a wide light screen; tests leave the page as they found it."""
    opened = Visit(browser, page).live()
    yield opened
    opened.context.close()


@pytest.fixture(scope="module")
def narrow(browser: Any, page: Path) -> Iterator[Visit]:
    """A reader with the screen of a telephone, who has unfolded everything."""
    opened = Visit(browser, page, viewport={"width": 400, "height": 800}).live()
    opened.page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    yield opened
    opened.context.close()


def test_it_asks_for_nothing_complains_of_nothing_and_is_small(visit: Visit, page: Path) -> None:
    assert visit.requests == [page.as_uri()]
    assert visit.complaints == []
    assert page.stat().st_size <= 2_000_000
    assert (page.parent / "report.ipynb").stat().st_size <= 400_000


def test_all_figures_are_live_and_drawn(visit: Visit) -> None:
    places = visit.page.locator(".live").count()
    # What is folded away has no size to draw on.
    visit.page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    visit.page.wait_for_function(f"() => Object.values(({PIXELS})()).every((colors) => colors.length)")
    drawn = visit.page.evaluate(PIXELS)
    visit.page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = false; })")

    assert len(drawn) == places > 3
    assert [name for name, colors in drawn.items() if not colors] == []
    assert visit.page.locator(".draw:not(.is-live)").filter(has=visit.page.locator(".live")).count() == 0


@in_depth
def test_time_axes_of_a_section_move_together(visit: Visit) -> None:
    page = visit.page
    section = page.locator("section#nodes")
    first = section.locator(".live").first
    if not first.count():
        pytest.fail("the sample has time lines")
    first.scroll_into_view_if_needed()
    box = first.bounding_box()
    assert box is not None
    whole = page.evaluate(RANGES)

    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 42, steps=4)
    page.mouse.up()
    page.wait_for_function(f"(whole) => JSON.stringify(({RANGES})()) !== JSON.stringify(whole)", arg=whole)
    zoomed = page.evaluate(RANGES)
    section.locator("button[data-reset]").first.click()

    assert len({tuple(r) for r in zoomed}) == 1
    assert whole[0][0] < zoomed[0][0] < zoomed[0][1] < whole[0][1]
    assert page.evaluate(RANGES) == whole


@in_depth
def test_a_click_on_a_key_hides_its_series_and_another_shows_it(visit: Visit) -> None:
    page = visit.page
    buttons = page.locator(".key [data-series] button")
    assert buttons.count() > 1
    shown = """(series) => [...Bokeh.documents].flatMap((d) => [...d.all_models])
      .filter((m) => m.name === series && m.glyph !== undefined).map((m) => m.visible)"""
    for i in range(buttons.count()):
        button = buttons.nth(i)
        if not button.is_visible():
            continue
        series = button.evaluate("(b) => b.closest('[data-series]').dataset.series")
        before = page.evaluate(shown, series)

        button.click()
        hidden, pressed = page.evaluate(shown, series), button.get_attribute("aria-pressed")
        button.click()

        assert before.count(True) > hidden.count(True)
        assert pressed == "false"
        assert page.evaluate(shown, series) == before


@in_depth
def test_the_contents_follow_the_reader(visit: Visit) -> None:
    page = visit.page
    for anchor in ("rules", "quality", "verdict"):
        page.evaluate(
            f"document.documentElement.style.scrollBehavior = 'auto'; document.getElementById('{anchor}').scrollIntoView()"
        )
        page.wait_for_selector(f"nav a[aria-current][href='#{anchor}']", state="attached")
        assert page.locator("nav a[aria-current]").count() == 1


@in_depth
def test_every_section_and_finding_has_an_address(visit: Visit) -> None:
    page = visit.page
    sections = page.locator("main > section").evaluate_all("els => els.map((e) => e.id)")
    findings = page.locator(".find > li").evaluate_all("els => els.map((e) => e.id)")

    assert all(sections)
    assert all(re.fullmatch(r"f-[\w-]+", name) for name in findings)


@in_depth
def test_without_scripts_every_drawing_and_table_is_there(browser: Any, page: Path, visit: Visit) -> None:
    opened = Visit(browser, page, java_script_enabled=False)
    still = opened.page.locator(".still").evaluate_all(VISIBLE)
    tables = opened.page.locator("table").count()
    live = opened.page.locator(".live").evaluate_all(VISIBLE)
    opened.context.close()

    assert len(still) == visit.page.locator(".still").count() >= visit.page.locator(".live").count()
    assert live == []
    assert tables == visit.page.locator("table").count() > 3
    assert opened.complaints == []


def test_nothing_scrolls_sideways_at_400_px(narrow: Visit) -> None:
    assert narrow.page.evaluate("document.documentElement.scrollWidth") == 400


def test_print_keeps_every_drawing(visit: Visit, tmp_path: Path) -> None:
    drawings = visit.page.locator(".still").count()
    folded = visit.page.locator("details .still").count()
    visit.page.emulate_media(media="print")
    still = len(visit.page.locator(".still").evaluate_all(VISIBLE))
    live = visit.page.locator(".live").evaluate_all(VISIBLE)
    visit.page.emulate_media(media="screen")
    pdf = visit.page.pdf(prefer_css_page_size=True, print_background=True)

    assert still == drawings - folded > 3
    assert live == []
    assert pdf.startswith(b"%PDF")


@needs_axe
@in_depth
def test_axe_finds_no_barrier(visit: Visit, narrow: Visit) -> None:
    for opened in (visit, narrow):
        opened.page.evaluate(AXE.read_text("utf-8"))
    visit.page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")

    light = visit.page.evaluate(BARRIERS, {})
    # On a narrow screen the colors are the same, and in the dark all else is.
    small = narrow.page.evaluate(BARRIERS, {"rules": {"color-contrast": {"enabled": False}}})
    visit.page.emulate_media(color_scheme="dark")
    visit.page.wait_for_timeout(400)
    dark = visit.page.evaluate(BARRIERS, {"runOnly": ["color-contrast"]})
    visit.page.emulate_media(color_scheme="light")
    visit.page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = false; })")

    assert (light, small, dark) == ([], [], [])


@needs_checker
def test_the_html_is_sound(made: Callable[[Path], Path], tmp_path: Path) -> None:
    pages = [made(sample) for sample in SAMPLES]
    for number, page in enumerate(pages):
        notebook = nbformat.read(page.with_suffix(".ipynb"), as_version=4)  # type: ignore[no-untyped-call]
        (tmp_path / f"{number}.html").write_text(export.render_html(notebook, static=True), "utf-8")

    assert html_faults(*pages, *sorted(tmp_path.iterdir())) == []
