"""The page of every sample job, made by the whole path, in a browser without a network."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

from jobreport import pipeline
from jobreport.options import Options
from jobreport.output import export
from tests.browser.visit import (
    RANGES,
    TABLES_WITHOUT_ROOM,
    UNFOLD,
    VISIBLE,
    Visit,
    barriers,
    barriers_elsewhere,
    drag,
    drawn_colors,
    html_faults,
    needs_axe,
    needs_browser,
    needs_checker,
    place_of,
    token,
)
from tests.once import slow_but
from tests.paths import SAMPLES
from tests.report.page.sections.example_cost import pricing

pytestmark = [pytest.mark.browser, needs_browser]

#: The sample that ``make test`` opens; ``make test-slow`` opens the others.
RICHEST = "cpu-bottleneck-2gpu"

PLACES = "els => els.filter((e) => e.checkVisibility()).map((e) => [e.id, Math.round(e.getBoundingClientRect().top + scrollY)])"

#: Of each figure with axes: its height, and where its plot lies from the left, from above, and from below, in px.
FRAMES = """figures => figures.map((figure) => {
  const plot = figure.querySelector(".plot")?.getBoundingClientRect();
  const { left, top, bottom } = figure.getBoundingClientRect();
  return plot ? [bottom - top, plot.left - left, plot.top - top, bottom - plot.bottom].map(Math.round) : null;
})"""
#: The same of images.
IMAGE_FRAMES = """images => images.map((image) => {
  const whole = new DOMParser().parseFromString(atob(image.src.split(",")[1]), "image/svg+xml").documentElement;
  const plot = whole.querySelector("svg");
  const [height, x, y, inner] = [[whole, "height"], [plot, "x"], [plot, "y"], [plot, "height"]]
    .map(([element, name]) => Number(element.getAttribute(name)));
  return [height, x, y, height - y - inner].map(Math.round);
})"""


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(path, id=path.name, marks=() if path.name == RICHEST else pytest.mark.slow)
        for path in SAMPLES
    ],
)
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a sample job's page."""
    folder = tmp_path_factory.mktemp(request.param.name) / "out"
    pipeline.make_report(request.param, folder, Options(pricing=pricing()))
    return folder / "report.html"


@pytest.fixture(scope="module")
def visit(browser: Any, page: Path) -> Iterator[Visit]:
    """A reader with a wide light screen; tests leave the page as they found it."""
    opened = Visit(browser, page).live()
    yield opened
    opened.context.close()


@pytest.fixture
def over_time(visit: Visit) -> Visit:
    """The same reader, of a job with samples over time."""
    if not visit.page.locator("section#nodes .live").count():
        pytest.skip("the job has no samples over time, or they are the evidence of its main finding")
    return visit


@pytest.fixture(scope="module")
def narrow(browser: Any, page: Path) -> Iterator[Visit]:
    """A reader with the screen of a telephone, who has unfolded everything."""
    opened = Visit(browser, page, viewport={"width": 400, "height": 800}).live()
    opened.fold(away=False)
    yield opened
    opened.context.close()


def test_it_asks_for_nothing_complains_of_nothing_and_is_small(visit: Visit, page: Path) -> None:
    assert visit.requests == [page.as_uri()]
    assert visit.complaints == []
    assert page.stat().st_size <= 2_000_000
    assert page.with_suffix(".ipynb").stat().st_size <= 500_000


def test_the_means_to_dig_cost_at_most_25_kb(page: Path) -> None:
    """Style and scripts but BokehJS, with the ticket that can be copied, against those that pages had before."""
    before = 34_339
    html = page.read_text("utf-8")
    pieces = re.findall(r"<(style|script)([^>]*)>(.*?)</\1>", html, re.DOTALL)
    own = [
        text
        for _, about, text in pieces
        if "jr-figures" not in about and "Bokeh Contributors" not in text[:500]
    ]

    # Style, two scripts of ours, and the ticket.
    assert len(own) == 4
    assert sum(len(text.encode()) for text in own) <= before + 25_000


def test_all_figures_are_live_and_drawn(visit: Visit) -> None:
    places = visit.page.locator(".live").count()
    # What is folded away has no size to draw on.
    visit.fold(away=False)
    drawn = drawn_colors(visit, lambda found: min(map(len, found.values())) > 2)
    visit.fold(away=True)

    assert places > 3
    assert [name for name, colors in drawn.items() if len(colors) <= 2] == []
    assert visit.page.locator(".draw:not(.is-live)").filter(has=visit.page.locator(".live")).count() == 0


def test_time_axes_of_a_section_move_together(over_time: Visit) -> None:
    page, figure = over_time.page, "section#nodes .live"
    whole = page.evaluate(RANGES)

    drag(over_time, figure)
    page.wait_for_function(f"(whole) => JSON.stringify(({RANGES})()) !== JSON.stringify(whole)", arg=whole)
    zoomed = page.evaluate(RANGES)
    page.locator("section#nodes button[data-reset]").first.click()

    assert len({tuple(r) for r in zoomed}) == 1
    assert whole[0][0] < zoomed[0][0] < zoomed[0][1] < whole[0][1]
    assert page.evaluate(RANGES) == whole


def test_the_wheel_scrolls_the_page_over_a_figure(over_time: Visit) -> None:
    page = over_time.page
    left, top, *_ = place_of(over_time, "section#nodes .live")
    whole, scrolled = page.evaluate(RANGES), page.evaluate("scrollY")

    page.mouse.move(left + 300, top + 40)
    page.mouse.wheel(0, -200)
    # To its end: what is on the way would move the next test's figure from under its pointer.
    page.wait_for_function("(y) => Math.abs(scrollY - y) < 1", arg=scrolled - 200)

    assert page.evaluate(RANGES) == whole


def test_the_pointer_shows_values_with_unit_and_utc(over_time: Visit) -> None:
    page = over_time.page
    left, top, *_ = place_of(over_time, "section#nodes .live")

    page.mouse.move(left + 380, top + 40)
    page.mouse.move(left + 400, top + 40)

    page.get_by_text(re.compile(r"^20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC$")).first.wait_for()
    page.get_by_text(re.compile(r"^[\d.]+%$")).first.wait_for()
    page.mouse.move(0, 0)


def test_a_click_on_a_key_hides_its_series_and_another_shows_it(visit: Visit) -> None:
    page = visit.page
    shown = """(series) => [...Bokeh.documents].flatMap((d) => [...d.all_models])
      .filter((m) => m.name === series && m.glyph !== undefined).map((m) => m.visible)"""
    clicked = page.locator(".key [data-series] button:visible").evaluate_all(f"""(buttons) => buttons.map((b) => {{
      const shown = () => ({shown})(b.closest("[data-series]").dataset.series);
      const before = shown();
      b.click();
      const hidden = shown(), pressed = b.getAttribute("aria-pressed");
      b.click();
      return [before, hidden, pressed, shown()];
    }})""")

    for before, hidden, pressed, after in clicked:
        assert before.count(True) > hidden.count(True)
        assert pressed == "false"
        assert after == before
    assert len(clicked) > 1


def test_the_contents_follow_the_reader(visit: Visit) -> None:
    page = visit.page
    page.evaluate("document.documentElement.style.scrollBehavior = 'auto'")
    for anchor in ("rules", "quality", "verdict"):
        page.locator(f"nav a[href='#{anchor}']").click()
        page.wait_for_selector(f"nav a[aria-current][href='#{anchor}']", state="attached")
        assert page.locator("nav a[aria-current]").count() == 1


def test_no_tab_stop_without_a_purpose(visit: Visit) -> None:
    stops = """() => {
      const found = [];
      const walk = (element) => {
        for (const inner of element.querySelectorAll("*")) {
          if (inner.tabIndex >= 0) found.push(inner.className);
          if (inner.shadowRoot !== null) walk(inner.shadowRoot);
        }
      };
      document.querySelectorAll(".live").forEach(walk);
      return found;
    }"""

    assert visit.page.evaluate(stops) == []


@pytest.mark.parametrize("screen", slow_but("visit", ["visit", "narrow"]))
def test_without_scripts_everything_is_there_and_in_its_place(
    screen: str, browser: Any, page: Path, request: pytest.FixtureRequest
) -> None:
    live: Visit = request.getfixturevalue(screen)
    still = Visit(browser, page, java_script_enabled=False, viewport=live.page.viewport_size)
    note = still.page.locator(".no-scripts")
    said = note.all_inner_texts()
    note.evaluate("(words) => words.remove()")
    if screen == "narrow":
        still.page.evaluate(UNFOLD)
    drawings = still.page.locator(".still").evaluate_all(VISIBLE)
    alive = still.page.locator(".live").evaluate_all(VISIBLE)
    folded = still.page.locator("details:not([open]) .still").count()
    tables = still.page.locator("table").count()
    before = still.page.locator("section, figure").evaluate_all(PLACES)
    after = live.page.locator("section, figure").evaluate_all(PLACES)
    still.context.close()

    assert len(said) == 1
    assert "Scripts are off" in said[0]
    assert len(drawings) == live.page.locator(".still").count() - folded > 3
    assert alive == []
    assert tables == live.page.locator("table").count() > 3
    assert still.complaints == []
    assert [b for b, a in zip(before, after, strict=True) if abs(b[1] - a[1]) > 8] == []


def test_every_table_has_room(visit: Visit) -> None:
    assert visit.page.evaluate(TABLES_WITHOUT_ROOM) == []


def test_nothing_scrolls_sideways_at_400_px(browser: Any, page: Path) -> None:
    still = Visit(browser, page, java_script_enabled=False, viewport={"width": 400, "height": 800})
    width = still.page.evaluate("document.documentElement.scrollWidth")
    still.context.close()

    assert width == 400


@pytest.mark.slow
@pytest.mark.usefixtures("page")  # known to pytest before it is asked for
@pytest.mark.parametrize("screen", ["visit", "narrow"])
def test_live_figures_do_not_scroll_sideways_at_400_px(screen: str, request: pytest.FixtureRequest) -> None:
    seen: Visit = request.getfixturevalue(screen)
    before = seen.page.viewport_size
    seen.resize(400, 800)
    width = seen.page.evaluate("document.documentElement.scrollWidth")
    seen.resize(before["width"], before["height"])

    assert width == 400


def test_print_keeps_every_drawing(visit: Visit) -> None:
    drawings = visit.page.locator(".still").count() - visit.page.locator("details .still").count()
    visit.page.emulate_media(media="print")
    shown = {
        name: len(visit.page.locator(name).evaluate_all(VISIBLE))
        for name in (".still", ".live", "nav", "details")
    }
    visit.page.emulate_media(media="screen")

    assert shown == {".still": drawings, ".live": 0, "nav": 0, "details": 0}
    assert drawings > 3


@pytest.mark.slow
def test_the_notebook_shows_the_figures_as_they_stand_on_the_page(visit: Visit, page: Path) -> None:
    notebook = nbformat.read(page.with_suffix(".ipynb"), as_version=4)  # type: ignore[no-untyped-call]
    html = "".join(
        output.data["text/html"]
        for cell in notebook.cells
        if cell.id not in ("open", "contents")
        for output in cell.get("outputs", ())
    )
    on_page = visit.page.locator("[role=img]").evaluate_all(FRAMES)
    reader = visit.context.new_page()
    reader.set_content(re.sub(r"<(svg|style)\b.*?</\1>", "", html, flags=re.DOTALL))
    in_images = reader.locator("img:not([alt=''])").evaluate_all(IMAGE_FRAMES)
    seen = reader.locator("img").evaluate_all("images => images.every((image) => image.naturalWidth > 0)")
    reader.close()

    assert seen
    assert len(in_images) == len(on_page) > 5
    assert [pair for pair in zip(on_page, in_images, strict=True) if pair[0] and pair[0] != pair[1]] == []
    assert sum(map(bool, on_page)) > 3


# The map of tests/browser/test_devices.py does so in ``make test``.
@pytest.mark.slow
def test_the_scheme_of_the_reader_changes_the_colors_of_figures(visit: Visit) -> None:
    visit.fold(away=False)
    light = token(visit, "used")
    by_day = drawn_colors(visit, lambda found: sum(light in colors for colors in found.values()) > 1)
    colored = [name for name, colors in by_day.items() if light in colors]

    visit.page.emulate_media(color_scheme="dark")
    dark = token(visit, "used")
    by_night = drawn_colors(
        visit, lambda found: all(dark in found[name] and light not in found[name] for name in colored)
    )
    visit.page.emulate_media(color_scheme="light")
    back = drawn_colors(visit, lambda found: all(light in found[name] for name in colored))

    assert dark != light
    assert len(colored) > 1
    assert [name for name in colored if dark not in by_night[name] or light in by_night[name]] == []
    assert [name for name in colored if light not in back[name]] == []


@needs_axe
def test_axe_finds_no_barrier(visit: Visit) -> None:
    assert barriers(visit) == []


@needs_axe
@pytest.mark.slow
def test_axe_finds_no_barrier_unfolded_narrow_or_in_the_dark(visit: Visit) -> None:
    assert barriers_elsewhere(visit) == []


@needs_checker
@pytest.mark.slow
def test_the_html_is_sound(page: Path, tmp_path: Path) -> None:
    notebook = nbformat.read(page.with_suffix(".ipynb"), as_version=4)  # type: ignore[no-untyped-call]
    (tmp_path / "still.html").write_text(export.render_html(notebook, static=True), "utf-8")

    assert html_faults(page, tmp_path / "still.html") == []
