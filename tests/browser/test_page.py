"""The page in a browser without a network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.visit import PIXELS, RANGES, VISIBLE, Visit, needs_browser

pytestmark = [pytest.mark.browser, needs_browser]


@pytest.fixture(scope="module")
def gpu_file(gpu_page: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("browser") / "report.html"
    path.write_text(gpu_page, "utf-8")
    return path


@pytest.fixture(scope="module")
def hostile_file(hostile_page: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("browser") / "report.html"
    path.write_text(hostile_page, "utf-8")
    return path


@pytest.fixture(scope="module")
def visit(browser: Any, gpu_file: Path) -> Iterator[Visit]:
    """A reader with a wide light screen; tests leave the page as they found it."""
    opened = Visit(browser, gpu_file).live()
    yield opened
    opened.context.close()


@pytest.fixture(scope="module")
def narrow(browser: Any, gpu_file: Path) -> Iterator[Visit]:
    """A reader with the screen of a telephone."""
    opened = Visit(browser, gpu_file, viewport={"width": 400, "height": 900}).live()
    yield opened
    opened.context.close()


def color(text: str) -> int:
    return int(text.removeprefix("#"), 16)


def token(visit: Visit, name: str) -> int:
    script = f"() => getComputedStyle(document.documentElement).getPropertyValue('--{name}').trim()"
    return color(visit.page.evaluate(script))


def test_it_asks_for_nothing_but_itself_and_complains_of_nothing(visit: Visit, gpu_file: Path) -> None:
    assert visit.requests == [gpu_file.as_uri()]
    assert visit.complaints == []


def test_every_figure_is_drawn(visit: Visit) -> None:
    used = token(visit, "used")

    visit.page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    visit.page.wait_for_timeout(500)
    drawn = visit.page.evaluate(PIXELS)
    visit.page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = false; })")

    assert len(drawn) == visit.page.locator(".live").count() > 20
    assert [name for name, colors in drawn.items() if used not in colors and len(colors) < 3] == []


@pytest.mark.parametrize("screen", ["visit", "narrow"])
def test_figures_cover_their_static_drawings_without_moving_the_page(
    screen: str, browser: Any, gpu_file: Path, request: pytest.FixtureRequest
) -> None:
    live: Visit = request.getfixturevalue(screen)
    still = Visit(browser, gpu_file, java_script_enabled=False, viewport=live.page.viewport_size)

    places = "els => els.map((e) => [e.id, Math.round(e.getBoundingClientRect().top + scrollY)])"
    still.page.locator(".no-scripts").evaluate("(words) => words.remove()")
    before = still.page.locator("section, figure").evaluate_all(places)
    after = live.page.locator("section, figure").evaluate_all(places)
    still.context.close()

    assert [b for b, a in zip(before, after, strict=True) if abs(b[1] - a[1]) > 8] == []


def test_zooming_one_time_line_moves_all_and_a_button_brings_all_back(visit: Visit) -> None:
    page = visit.page
    line = page.locator("#live-node0-cpu-utilization")
    line.scroll_into_view_if_needed()
    box = line.bounding_box()
    whole = page.evaluate(RANGES)

    page.mouse.move(box["x"] + 300, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 500, box["y"] + 42, steps=4)
    page.mouse.up()
    page.wait_for_timeout(100)
    zoomed = page.evaluate(RANGES)
    page.locator("#nodes").get_by_role("button", name="show the whole time").click()

    assert len({tuple(r) for r in zoomed}) == 1
    assert whole[0][0] < zoomed[0][0] < zoomed[0][1] < whole[0][1]
    assert page.evaluate(RANGES) == whole


def test_the_wheel_scrolls_the_page_over_a_figure(visit: Visit) -> None:
    page = visit.page
    line = page.locator("#live-node0-cpu-utilization")
    line.scroll_into_view_if_needed()
    box = line.bounding_box()
    whole, place = page.evaluate(RANGES), page.evaluate("scrollY")

    page.mouse.move(box["x"] + 300, box["y"] + 40)
    page.mouse.wheel(0, -200)
    page.wait_for_function("(y) => scrollY < y", arg=place)

    assert page.evaluate(RANGES) == whole


def test_the_pointer_shows_values_with_unit_and_utc(visit: Visit) -> None:
    page = visit.page
    line = page.locator("#live-node0-gpu-memory-activity")
    line.scroll_into_view_if_needed()
    box = line.bounding_box()

    page.mouse.move(box["x"] + 380, box["y"] + 40)
    page.mouse.move(box["x"] + 400, box["y"] + 40)

    page.get_by_text("2025-11-14 08:2").first.wait_for()
    assert page.get_by_text("75.0%").count() >= 1
    page.mouse.move(0, 0)


def test_the_scheme_of_the_reader_changes_the_colors_of_figures(visit: Visit) -> None:
    light = token(visit, "used")

    visit.page.emulate_media(color_scheme="dark")
    visit.page.wait_for_timeout(400)
    dark, drawn = token(visit, "used"), visit.page.evaluate(PIXELS)
    visit.page.emulate_media(color_scheme="light")
    visit.page.wait_for_timeout(400)
    back = visit.page.evaluate(PIXELS)

    assert dark != light
    name = "live-node0-gpu-utilization"
    assert dark in drawn[name]
    assert light not in drawn[name]
    assert light in back[name]


def test_a_reader_of_dark_pages_never_sees_light_figures(browser: Any, gpu_file: Path) -> None:
    opened = Visit(browser, gpu_file, color_scheme="dark").live()

    dark, drawn = token(opened, "used"), opened.page.evaluate(PIXELS)
    opened.context.close()

    assert dark in drawn["live-node0-gpu-utilization"]


def test_a_narrow_screen_needs_no_sideways_scrolling(browser: Any, narrow: Visit, hostile_file: Path) -> None:
    hostile = Visit(browser, hostile_file, viewport={"width": 400, "height": 900}).live()
    widths = [opened.page.evaluate("document.documentElement.scrollWidth") for opened in (narrow, hostile)]
    hostile.context.close()

    assert widths == [400, 400]


def test_it_reads_without_scripts(browser: Any, gpu_file: Path) -> None:
    opened = Visit(browser, gpu_file, java_script_enabled=False)

    visible = len(opened.page.locator(".still").evaluate_all(VISIBLE))
    folded = opened.page.locator("details:not([open]) .still").count()
    drawings = opened.page.locator(".still").count()
    text = opened.page.locator("body").inner_text()
    opened.context.close()

    assert visible == drawings - folded > 20
    assert text.count("Scripts are off") == 1
    assert opened.complaints == []


def test_it_prints(visit: Visit, tmp_path: Path) -> None:
    visit.page.pdf(path=str(tmp_path / "report.pdf"), prefer_css_page_size=True, print_background=True)
    visit.page.emulate_media(media="print")
    shown = {
        name: len(visit.page.locator(name).evaluate_all(VISIBLE))
        for name in (".still", ".live", "nav", "details")
    }
    visit.page.emulate_media(media="screen")

    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
    drawings = visit.page.locator(".still").count() - visit.page.locator("details .still").count()
    assert shown == {".still": drawings, ".live": 0, "nav": 0, "details": 0}


def test_no_tab_stop_without_a_purpose(visit: Visit) -> None:
    script = """() => {
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

    assert visit.page.evaluate(script) == []


def test_a_hostile_job_runs_nothing_of_its_own(browser: Any, hostile_file: Path) -> None:
    opened = Visit(browser, hostile_file)
    dialogs: list[str] = []
    opened.page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    opened.live()

    first = opened.page.locator("#live-gpu-utilization")
    first.scroll_into_view_if_needed()
    box = first.bounding_box()
    opened.page.mouse.move(box["x"] + 160, box["y"] + 120)
    opened.page.wait_for_timeout(200)
    opened.context.close()

    assert dialogs == []
    assert opened.complaints == []
    assert opened.requests == [hostile_file.as_uri()]
