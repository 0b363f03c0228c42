"""Opening a page in a browser without a network, and seeing what it does."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

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
#: The ranges of the time axes of the nodes.
RANGES = """() => [...Bokeh.documents].find((one) => one.title() === "nodes").roots()
  .map((root) => [root.x_range.start, root.x_range.end])"""
#: For each figure: how many of the pixels of its canvases are not transparent, and how many colours they have.
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

#: Of elements, those that a reader sees.
VISIBLE = "els => els.filter((e) => e.checkVisibility({visibilityProperty: true})).map((e) => e.id)"
AXE = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"

needs_axe = pytest.mark.skipif(
    not AXE.is_file(), reason="axe-core is not installed: npm install in tests/browser"
)
needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome on PATH"
)


class Visit:
    """A page that was opened from a file, and whatever it did meanwhile."""

    def __init__(self, browser: Any, path: Path, **options: Any) -> None:
        options = {"viewport": {"width": 1280, "height": 900}, "timezone_id": "America/New_York"} | options
        self.context = browser.new_context(**options)
        self.context.set_offline(True)
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._listen)
        self.page.goto(path.as_uri())

    def _listen(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def live(self) -> Visit:
        self.page.wait_for_selector(LIVE, state="attached", timeout=20_000)
        return self
