"""Heat map and chosen lines in a browser without a network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobreport.page import sections
from tests.browser.visit import Visit, drag, drawn_colors, needs_browser, page_of, place_of, token
from tests.copies import replace
from tests.report.page.sections import example_devices, examples

pytestmark = [pytest.mark.browser, needs_browser]

RANGES = """() => Bokeh.documents.flatMap((one) => one.roots())
  .map((root) => [root.x_range.start, root.x_range.end])"""
LINES = """() => Bokeh.documents.flatMap((one) => one.roots()).find((root) => root.name === "single-devices")
  .renderers.filter((one) => one.glyph.type === "Line").map((line) => line.visible ? [line.name, ...line.data_source.get_column(line.glyph.y.field)] : null)"""

MAP = "live-devices-map"

#: How many pixels of the lower figure have been painted.
INK = """() => {
  let painted = 0;
  const walk = (element) => {
    for (const inner of element.querySelectorAll("*")) {
      if (inner instanceof HTMLCanvasElement && inner.width > 0 && inner.height > 0) {
        const { data } = inner.getContext("2d").getImageData(0, 0, inner.width, inner.height);
        for (let i = 3; i < data.length; i += 4) painted += data[i] > 0;
      }
      if (inner.shadowRoot !== null) walk(inner.shadowRoot);
    }
  };
  walk(document.getElementById("live-devices-lines"));
  return painted;
}"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of this section alone, made by the exporter of whole pages."""
    grid = example_devices.devices(examples.HOSTILE, nodes=2, count=60)
    report = replace(examples.gpu_job(), devices=grid)
    fragments = (call(report) for call in (sections.head, sections.devices))
    return page_of(fragments, tmp_path_factory.mktemp("devices") / "report.html")


@pytest.fixture(scope="module")
def visit(browser: Any, file: Path) -> Iterator[Visit]:
    opened = Visit(browser, file).live()
    yield opened
    opened.context.close()


def test_the_map_has_the_colors_of_its_cells_in_both_schemes(visit: Visit) -> None:
    # GPUs at 20 and 50 %, cores at 35 % and in part full.
    steps = ("h2", "h5", "h3", "lost")

    light = {token(visit, name) for name in steps}
    bright = drawn_colors(visit, lambda found: light <= found[MAP])[MAP]
    visit.page.emulate_media(color_scheme="dark")
    dark = {token(visit, name) for name in steps}
    night = drawn_colors(visit, lambda found: dark <= found[MAP] and not light & found[MAP])[MAP]
    visit.page.emulate_media(color_scheme="light")
    back = drawn_colors(visit, lambda found: light <= found[MAP])[MAP]

    assert light <= bright
    assert dark <= night
    assert not light & night
    assert light <= back


@pytest.mark.slow
def test_a_page_opened_in_the_dark_has_the_dark_steps(browser: Any, file: Path) -> None:
    opened = Visit(browser, file, color_scheme="dark").live()

    wanted = {token(opened, name) for name in ("h2", "h5", "lost")}
    drawn = drawn_colors(opened, lambda found: wanted <= found[MAP])[MAP]
    opened.context.close()

    assert wanted <= drawn


def test_a_chosen_device_becomes_a_line_with_its_values(visit: Visit) -> None:
    assert visit.page.get_by_role("combobox").count() == 4
    before, ink = visit.page.evaluate(LINES), visit.page.evaluate(INK)

    third = visit.page.get_by_label("Line 3, dotted")
    third.focus()
    third.select_option(label=f"{examples.HOSTILE}-01 gpu1 memory")
    after = visit.page.evaluate(LINES)
    visit.page.wait_for_function(f"(ink) => ({INK})() > ink + 200", arg=ink)
    label = visit.page.locator("#fig-devices-lines .draw").get_attribute("aria-label")
    third.select_option(value="")
    gone = visit.page.evaluate(LINES)

    assert [line is None for line in before] == [False, False, True, True]
    assert after[:2] == before[:2]
    assert after[2][0] == f"{examples.HOSTILE}-01 gpu1 memory"
    assert after[2][1:49] == [75] * 48
    assert all(value is None or value != value for value in after[2][49:55])
    assert "gpu1 memory" in label
    assert gone == before


def test_every_row_of_the_job_can_be_chosen_by_the_values_of_its_own(visit: Visit) -> None:
    third = visit.page.get_by_label("Line 3, dotted")
    names = third.locator("option").all_text_contents()[1:]
    seen = []
    for i in (0, 1, 4, len(names) - 1):
        third.select_option(index=i + 1)
        line = visit.page.evaluate(LINES)[2]
        seen.append((line[0] == names[i], line[1]))
    third.select_option(value="")

    assert len(names) == 2 * (2 + 4 + 2)
    assert seen == [(True, 20), (True, 50), (True, 35), (True, 75)]


def test_zooming_the_map_moves_the_lines(visit: Visit) -> None:
    page = visit.page
    whole = page.evaluate(RANGES)

    drag(visit, "#live-devices-map")
    page.wait_for_function(f"(whole) => JSON.stringify(({RANGES})()) !== JSON.stringify(whole)", arg=whole)
    zoomed = page.evaluate(RANGES)
    page.get_by_role("button", name="show the whole time").click()

    assert len(zoomed) == 2
    assert zoomed[0] == zoomed[1]
    assert whole[0][0] < zoomed[0][0] < zoomed[0][1] < whole[0][1]
    assert page.evaluate(RANGES) == whole


def test_the_pointer_shows_device_time_and_percent_and_what_is_missing(visit: Visit) -> None:
    page = visit.page
    left, top, width, _ = place_of(visit, "#live-devices-map")
    frame = width - 112 - 12

    for share, words in ((0.25, "20"), (0.85, "not measured")):
        x = left + 112 + share * frame
        page.mouse.move(x - 4, top + 60)
        page.mouse.move(x, top + 60)
        page.get_by_text("UTC", exact=False).filter(has_text="2025-11-14 08:").first.wait_for()
        page.get_by_text(words, exact=True).first.wait_for()
    assert page.get_by_text(f"{examples.HOSTILE}-00 gpu0", exact=True).count() >= 1
    page.mouse.move(0, 0)


@pytest.mark.slow
def test_the_lists_move_nothing(browser: Any, file: Path) -> None:
    size = {"width": 400, "height": 900}
    still = Visit(browser, file, java_script_enabled=False, viewport=size)
    live = Visit(browser, file, viewport=size).live()

    places = "els => els.map((e) => [Math.round(e.getBoundingClientRect().top + scrollY), e.className])"
    still.page.locator(".no-scripts").evaluate("(words) => words.remove()")
    before = still.page.locator("figure, figure .draw, .picks, details").evaluate_all(places)
    after = live.page.locator("figure, figure .draw, .picks, details").evaluate_all(places)
    wide = live.page.evaluate("document.documentElement.scrollWidth")
    hidden = still.page.locator("select").count()
    still.context.close()
    live.context.close()

    assert [b for b, a in zip(before, after, strict=True) if abs(b[0] - a[0]) > 8] == []
    assert wide == 400
    assert hidden == 0


def test_print_shows_the_drawn_lines_by_name(visit: Visit) -> None:
    visit.page.emulate_media(media="print")
    lists = visit.page.locator(".pick select").evaluate_all(
        "els => els.filter((e) => e.checkVisibility()).length"
    )
    names = visit.page.locator(".pick .text").evaluate_all(
        "els => els.filter((e) => e.checkVisibility()).map((e) => e.textContent)"
    )
    visit.page.emulate_media(media="screen")

    assert lists == 0
    assert names == [f"{examples.HOSTILE}-00 gpu0", f"{examples.HOSTILE}-01 gpu1"]


def test_nothing_is_asked_for_and_nothing_complained_of(visit: Visit, file: Path) -> None:
    assert visit.requests == [file.as_uri()]
    assert visit.complaints == []
