"""Opening a page in a browser without a network, and seeing what it does."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from jobreport.files import REPORT, Product
from jobreport.output import export
from jobreport.page.sections import Fragment
from tests.report.page.sections.html import notebook_of

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
LIVE = "html[data-figures=live]"
#: Time for what takes moments on a quiet machine.
LIMIT_S = 120
#: The ranges of the time axes of the nodes.
RANGES = """() => [...Bokeh.documents].find((one) => one.title() === "nodes").roots()
  .map((root) => [root.x_range.start, root.x_range.end])"""
#: For each figure: how many of the pixels of its canvases are not transparent, and how many colors they have.
PIXELS = """() => {
  const seen = {};
  const count = (element, found) => {
    for (const inner of element.querySelectorAll("*")) {
      if (inner instanceof HTMLCanvasElement && inner.width > 0 && inner.height > 0) {
        const { data } = inner.getContext("2d").getImageData(0, 0, inner.width, inner.height);
        for (let i = 0; i < data.length; i += 4) {
          if (data[i + 3] === 255) found.add(data[i] << 16 | data[i + 1] << 8 | data[i + 2]);
        }
      }
      if (inner.shadowRoot !== null) count(inner.shadowRoot, found);
    }
    return found;
  };
  for (const element of document.querySelectorAll(".live")) seen[element.id] = [...count(element, new Set())];
  return seen;
}"""

#: Names of the tables that have nowhere to be seen, though they are not folded away.
TABLES_WITHOUT_ROOM = """[...document.querySelectorAll(".tw")]
  .filter((e) => e.offsetParent && e.getBoundingClientRect().width < 40).map((e) => e.getAttribute("aria-label"))"""
UNFOLD = "document.querySelectorAll('details').forEach((d) => { d.open = true; })"
FOLD = "document.querySelectorAll('details').forEach((d) => { d.open = false; })"
#: The page has its size, and has had the events of it and of what was folded: they come with the frames after the change.
_SETTLED = """({ width, height }) => new Promise((done) => {
  const frame = (left) => requestAnimationFrame(() => {
    if (innerWidth !== width || innerHeight !== height) frame(2);
    else if (left > 0) frame(left - 1);
    else setTimeout(done);
  });
  frame(2);
})"""
#: Barriers that axe finds, by all of its rules or some.
_BARRIERS = """(options) => axe.run(document, { ...options, resultTypes: ["violations"] })
  .then((r) => r.violations.map((v) => [v.id, v.nodes.map((n) => n.html.slice(0, 200))]))"""

#: Of elements, those that a reader sees.
VISIBLE = "els => els.filter((e) => e.checkVisibility({visibilityProperty: true})).map((e) => e.id)"
_MODULES = Path(__file__).parent / "node_modules"
AXE = _MODULES / "axe-core" / "axe.min.js"
CHECKER = _MODULES / "vnu-jar" / "build" / "dist" / "vnu.jar"
JAVA = shutil.which("java")

needs_axe = pytest.mark.skipif(
    not AXE.is_file(), reason="axe-core is not installed: npm install in tests/browser"
)
needs_checker = pytest.mark.skipif(
    JAVA is None or not CHECKER.is_file(),
    reason="no java on PATH, or the Nu Html Checker is not installed: npm install in tests/browser",
)
needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome on PATH"
)


class Visit:
    """A page that was opened from a file, and whatever it did meanwhile."""

    def __init__(self, browser: Any, path: Path, **options: Any) -> None:
        options = {"viewport": {"width": 1280, "height": 900}, "timezone_id": "America/New_York"} | options
        self.context = browser.new_context(**options)
        self.context.set_default_timeout(1000 * LIMIT_S)
        self.context.set_offline(True)
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._listen)
        self._opened()
        self.page.goto(path.as_uri())

    def _opened(self) -> None:
        """What else is to be done before the page is read."""

    def _listen(self, message: Any) -> None:
        # Chromium advises those who read pixels, as tests do.
        if message.type in ("error", "warning") and "getImageData" not in message.text:
            self.complaints.append(message.text)

    def live(self) -> Visit:
        self.page.wait_for_selector(LIVE, state="attached")
        return self

    def fold(self, *, away: bool) -> None:
        """Every part that can be folded, folded away or shown."""
        self.page.evaluate(FOLD if away else UNFOLD)
        self.page.evaluate(_SETTLED, self.page.viewport_size)

    def resize(self, width: int, height: int) -> None:
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.evaluate(_SETTLED, self.page.viewport_size)


def page_of(
    fragments: Iterable[Fragment],
    path: Path,
    product: Product = REPORT,
    about: Mapping[str, Any] | None = None,
) -> Path:
    """The file of a page of these sections, made by the exporter of whole pages."""
    path.write_text(export.render_html(notebook_of(fragments), product=product, about=about), "utf-8")
    return path


#: Where an element is, once it can be seen.
_PLACE = """(element) => {
  element.scrollIntoView({ block: "center", behavior: "instant" });
  const { left, top, width, height } = element.getBoundingClientRect();
  return [left, top, width, height];
}"""


def place_of(visit: Visit, selector: str) -> tuple[float, float, float, float]:
    """Left, top, width, and height of the first such element on the screen."""
    left, top, width, height = visit.page.locator(selector).first.evaluate(_PLACE)
    return left, top, width, height


def drag(visit: Visit, selector: str) -> None:
    """A box of the pointer over a fifth of a figure's width, which zooms its time axis."""
    left, top, width, _ = place_of(visit, selector)
    mouse = visit.page.mouse
    mouse.move(left + 0.4 * width, top + 40)
    mouse.down()
    mouse.move(left + 0.6 * width, top + 42, steps=4)
    mouse.up()


Colors = dict[str, set[int]]


def drawn_colors(visit: Visit, wanted: Callable[[Colors], bool]) -> Colors:
    """The colors of each figure once they are as wanted, or as they are when the time is up."""
    end = time.monotonic() + LIMIT_S
    while True:
        found = {name: set(colors) for name, colors in visit.page.evaluate(PIXELS).items()}
        if wanted(found) or time.monotonic() > end:
            return found
        visit.page.wait_for_timeout(50)


def token(visit: Visit, name: str) -> int:
    """The color of a design token, as PIXELS has it."""
    script = f"() => getComputedStyle(document.documentElement).getPropertyValue('--{name}').trim()"
    return int(visit.page.evaluate(script).removeprefix("#"), 16)


def barriers(visit: Visit, *parts: str) -> list[Any]:
    """What axe finds on the page, or these parts of it, but for what Bokeh draws, which ``barriers_elsewhere`` has too."""
    visit.page.evaluate(AXE.read_text("utf-8"))
    where = json.dumps({"exclude": [[".live"]]} | ({"include": [[part] for part in parts]} if parts else {}))
    return list(visit.page.evaluate(_BARRIERS.replace("document", where), {}))


def barriers_elsewhere(visit: Visit) -> list[Any]:
    """What axe finds on the unfolded page: on a wide screen, on a narrow one, and in the dark."""
    page, wide = visit.page, visit.page.viewport_size
    page.evaluate(AXE.read_text("utf-8"))
    visit.fold(away=False)
    found = page.evaluate(_BARRIERS, {})
    # On a narrow screen the colors are the same, and in the dark all else is.
    visit.resize(400, 800)
    found += page.evaluate(_BARRIERS, {"rules": {"color-contrast": {"enabled": False}}})
    visit.resize(wide["width"], wide["height"])
    page.emulate_media(color_scheme="dark")
    found += page.evaluate(_BARRIERS, {"runOnly": ["color-contrast"]})
    page.emulate_media(color_scheme="light")
    visit.fold(away=True)
    return list(found)


#: What the Nu Html Checker says that is not so, and of what: SVG 2 has the property, the policy does not govern data, which
#: no browser runs, the policy allows images that are data, and names that are not in one form of Unicode are shown as
#: they are.
_NOT_SO = (
    ("Resource violates Content Security Policy (meta tag): image “data:image/svg+xml;base64,", ""),
    ("CSS: “vector-effect”: Property “vector-effect” doesn't exist.", ""),
    ("Inline script violates Content Security Policy", '<script type="application/json"'),
    ("Text run is not in Unicode Normalization Form C.", ""),
)


def html_faults(*pages: Path) -> list[str]:
    """What the Nu Html Checker says of the files, errors and warnings."""
    # It lives for a few seconds, in which a better compiler does not pay.
    java = (str(JAVA), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xss8m", "-jar", str(CHECKER))
    command = [*java, "--format", "json", "--stdout", "--exit-zero-always"]
    faults = subprocess.run([*command, *map(str, pages)], capture_output=True, check=True).stdout
    return [
        f"{message['url']}: {message['message']} {message.get('extract', '')}"
        for message in json.loads(faults)["messages"]
        if not any(
            message["message"].startswith(words) and about in message.get("extract", "")
            for words, about in _NOT_SO
        )
    ]
