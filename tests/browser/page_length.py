"""How long pages are to a reader: ``python -m tests.browser.page_length --help``."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jobreport import pipeline
from tests.browser.visit import ARGUMENTS, CHROMIUM, LIMIT_S, Visit
from tests.paths import SAMPLES

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Of a window of 1280 × 900 pixels: the visible words, of what is folded only the summary; the height; and where the
#: evidence of the main finding begins: its figure, or on older pages the first one of the section that it leads to.
_LENGTH = """() => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let words = 0;
  while (texts.nextNode()) {
    const { parentElement: element, data } = texts.currentNode;
    if (element.checkVisibility({ visibilityProperty: true }) && !element.closest(".vh")) {
      words += data.split(/\\s+/).filter((word) => word !== "").length;
    }
  }
  const section = document.querySelector(".find h3 a")?.hash;
  const figure = document.querySelector("#evidence figure")
    ?? (section ? document.querySelector(`${section} figure`) : null);
  const top = figure === null ? null : figure.getBoundingClientRect().top + scrollY;
  return [words, document.documentElement.scrollHeight / innerHeight, top === null ? null : top / innerHeight];
}"""


class Length(NamedTuple):
    """Of a page with its folds closed."""

    words: int
    #: Heights of a window.
    screens: float
    #: On which screen the evidence of the main finding begins; None if there is none.
    evidence: int | None


def length_of(visit: Visit) -> Length:
    """The length of a page, once its figures are live."""
    words, screens, top = visit.live().page.evaluate(_LENGTH)
    return Length(words, screens, None if top is None else int(top) + 1)


def lengths(browser: Any, pages: Iterable[Path]) -> list[Length]:
    """The length of each page."""
    found = []
    for page in pages:
        visit = Visit(browser, page)
        found.append(length_of(visit))
        visit.context.close()
    return found


def main() -> None:
    """Measure pages, and print a row for each."""
    from playwright import sync_api  # noqa: PLC0415 - not needed for --help

    parser = argparse.ArgumentParser(
        prog="python -m tests.browser.page_length",
        description="Print how many words a reader of a page sees while all is folded, how many screens of 1280 × 900 "
        "pixels it has, and on which of them the evidence of the main finding begins.",
    )
    parser.add_argument("pages", nargs="*", type=Path, help="files; without any, pages of the sample jobs")
    pages = parser.parse_args().pages
    with tempfile.TemporaryDirectory() as folder, sync_api.sync_playwright() as driver:
        if not pages:
            pages = [Path(folder, job.name, "report.html") for job in SAMPLES]
            for job, page in zip(SAMPLES, pages, strict=True):
                pipeline.make_report(job, page.parent)
        browser = driver.chromium.launch(
            executable_path=CHROMIUM, args=list(ARGUMENTS), timeout=1000 * LIMIT_S
        )
        print(f"{'words':>6}{'screens':>9}{'evidence':>10}  page")
        for page, one in zip(pages, lengths(browser, map(Path.absolute, pages)), strict=True):
            print(f"{one.words:6}{one.screens:9.1f}{one.evidence or '–':>10}  {page.parent.name}")
        browser.close()


if __name__ == "__main__":
    main()
