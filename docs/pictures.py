"""Take the pictures of README.md and of the documents; ``make pictures`` makes the pages first.

Needs Chromium. The comparison is drawn without scripts, so its pictures change only with the page.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

DOCS = Path(__file__).parent
REPORTS = DOCS.parent / "reports"
#: By the name of the picture, the report of which it shows the top.
TOPS = {
    "report": REPORTS / "cpu-bottleneck-2gpu" / "report.html",
    "recording": REPORTS / "my-job-report" / "report.html",
    "pytorch-traces": REPORTS / "late-rank-4gpu" / "report.html",
}
PAGE = REPORTS / "comparison" / "comparison.html"
#: The report is shown from its top to the end of this part.
LAST_PART = "#findings"
REPORT_WIDTH = 1280
#: By the name of the picture, the part of the page that it shows.
PARTS = {
    "comparison": "#verdict",
    "comparison-measures": "#measures > .tw:first-of-type",
    "comparison-time": "#time figure:first-of-type",
}
WIDTH = 1060
#: White at the left of each part and below, in pixels.
MARGIN = 4
#: Text and flat areas need no more colors; fewer shift the lightest ones.
COLORS = 256


def main() -> None:
    """Write the pictures next to this file."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    missing = [str(page) for page in (PAGE, *TOPS.values()) if not page.is_file()]
    if found is None or missing:
        sys.exit(f"Needed: {', '.join(missing) or 'Chromium'}. make pictures makes the pages.")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": REPORT_WIDTH, "height": 900})
        for name, report in TOPS.items():
            page.goto(report.as_uri())
            _, _, bottom = _edges(page, LAST_PART)
            _take(page, name, left=0, top=0, width=REPORT_WIDTH, bottom=bottom)
        page = browser.new_page(viewport={"width": WIDTH, "height": 900}, java_script_enabled=False)
        page.goto(PAGE.as_uri())
        for name, part in PARTS.items():
            left, top, bottom = _edges(page, part)
            _take(page, name, left=left, top=top, width=WIDTH - left, bottom=bottom)
        browser.close()


def _edges(page: Page, part: str) -> tuple[float, float, float]:
    """Left, top, and bottom of a part of the page, with white at the left and below."""
    place = page.locator(part).first.bounding_box()
    if place is None:
        sys.exit(f"The page has no {part}.")
    # Right above a part may be text of the one before.
    return max(0.0, place["x"] - MARGIN), place["y"], place["y"] + place["height"] + MARGIN


def _take(page: Page, name: str, *, left: float, top: float, width: float, bottom: float) -> None:
    picture = DOCS / f"{name}.png"
    page.screenshot(
        path=picture, full_page=True, clip={"x": left, "y": top, "width": width, "height": bottom - top}
    )
    with Image.open(picture) as drawn:
        drawn.convert("RGB").quantize(COLORS).save(picture, optimize=True)
    print(f"{picture} {picture.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
