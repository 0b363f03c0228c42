"""The page of a job whose every name was chosen to break it, in a browser without a network."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

from fuzz.hostile import MARK, NAMES
from jobreport.output import export
from jobrules.text import escape_name
from tests.browser.visit import Visit, drag, html_faults, needs_browser, needs_checker, place_of
from tests.hostile_run import hostile_run

pytestmark = [pytest.mark.browser, needs_browser]

#: Runs before anything of the page: notes whatever a script of the data would do, and any use of storage.
WATCH = """(() => {
  const seen = window.jrSeen = [];
  const note = (what) => function (...given) { seen.push(what + " " + given.map(String).join(" ").slice(0, 200)); };
  Object.defineProperty(window, "MARK", { set: note("a name ran"), get: () => undefined, configurable: false });
  for (const name of ["alert", "confirm", "prompt", "open", "print", "fetch", "WebSocket", "EventSource",
                      "XMLHttpRequest", "Worker", "SharedWorker", "postMessage"]) window[name] = note(name);
  Navigator.prototype.sendBeacon = note("sendBeacon");
  Document.prototype.write = note("write");
  for (const name of ["getItem", "setItem", "removeItem", "key"]) Storage.prototype[name] = note("storage " + name);
  for (const name of ["localStorage", "sessionStorage", "indexedDB", "caches", "cookieStore"]) {
    Object.defineProperty(window, name, { get: note(name) });
  }
  Object.defineProperty(Document.prototype, "cookie", { get: note("cookie"), set: note("cookie") });
  document.addEventListener("securitypolicyviolation", (event) =>
    seen.push(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
})()""".replace("MARK", MARK)

#: What names could have made of elements, wherever they stand, shadow trees included, and of models of Bokeh.
STRANGE = """() => {
  const found = [];
  const walk = (root) => {
    for (const one of root.querySelectorAll("*")) {
      const name = one.localName;
      if (/^(img|iframe|object|embed|form|base|audio|video|textarea|math|template)$/.test(name)) found.push(name);
      for (const { name: key, value } of one.attributes) {
        if (key.startsWith("on")) found.push(`${name} ${key}`);
        if (/^(href|src|action|xlink:href)$/.test(key) && !/^(#|data:,)/.test(value)) found.push(`${key} ${value}`);
      }
      if (one.shadowRoot !== null) walk(one.shadowRoot);
    }
  };
  walk(document);
  for (const shown of window.Bokeh?.documents ?? []) {
    for (const model of shown.all_models) {
      if (/TeX|MathML|MathText|CustomJS$|OpenURL/.test(model.type)) found.push(model.type);
    }
  }
  return found;
}"""

#: The texts of all boxes beside the pointer.
BOXES = """async () => {
  for (let frame = 0; frame < 3; frame++) await new Promise(requestAnimationFrame);
  const found = [];
  const walk = (root) => {
    for (const one of root.querySelectorAll("*")) {
      if (one.matches(".bk-Tooltip")) {
        found.push([...one.shadowRoot.children].filter((part) => part.localName === "div").map((part) => part.textContent).join(" "));
      }
      if (one.shadowRoot !== null) walk(one.shadowRoot);
    }
  };
  walk(document);
  return found.filter((text) => text.trim() !== "");
}"""


#: Whether all figures have got their size, also those that were folded away.
SIZED = """() => {
  const sized = (root) => [...root.querySelectorAll("*")].every((one) =>
    (one.localName !== "canvas" || one.getBoundingClientRect().width > 0) && (one.shadowRoot === null || sized(one.shadowRoot)));
  return [...document.querySelectorAll(".live")].every(sized);
}"""

#: Figures that are hovered over: all but those over time, whose boxes hold numbers only.
USED = ".live:not([id^='live-node'], [id*='-course'], [id$='-samples'], [id$='-time'])"


class Watched(Visit):
    """A visit that listens to all that a hostile name could bring about, and uses everything there is to use."""

    def __init__(self, browser: Any, path: Path) -> None:
        self.events: list[str] = []
        super().__init__(browser, path)

    def _opened(self) -> None:
        self.context.add_init_script(WATCH)
        for kind in ("dialog", "popup", "download", "worker", "websocket", "frameattached", "crash"):
            self.page.on(kind, lambda _, kind=kind: self.events.append(kind))

    def used(self) -> list[str]:
        """Every figure hovered over and zoomed, every switch, list and fold used; the texts beside the pointer."""
        page = self.page
        self.fold(away=False)
        page.wait_for_function(SIZED)
        boxes: set[str] = set()
        for name in page.locator(USED).evaluate_all("els => els.map((e) => e.id)"):
            left, top, width, height = place_of(self, f"#{name}")
            for x, y in ((0.03, 0.45), (0.3, 0.3)):
                page.mouse.move(left + 112 + x * (width - 124), top + y * height)
                boxes.update(page.evaluate(BOXES))
        for zoomed in ("live-node0-cpu-utilization", "live-devices-map"):
            drag(self, f"#{zoomed}")
        page.mouse.move(0, 0)
        page.evaluate("document.querySelectorAll('.key button, .hint button').forEach((b) => b.click())")
        for chosen in page.locator("select").all():
            chosen.select_option(index=1)
        for query in ("script", "onerror", "rank"):
            page.keyboard.press("/")
            page.keyboard.type(query)
            boxes.update(page.locator("#jr-hits li").all_inner_texts())
            page.keyboard.press("Enter")
        for means in ("thead button", ".here", ".tw > .sign", ".means button", "dialog input[type=checkbox]"):
            page.evaluate("(s) => document.querySelectorAll(s).forEach((one) => one.click())", means)
        page.evaluate("document.querySelectorAll('dialog button').forEach((one) => one.click())")
        return sorted(boxes)

    def faults(self) -> list[str]:
        """Whatever happened that should not have."""
        others = [url for url in self.requests if url != self.page.url.partition("#")[0]]
        return [
            *self.events,
            *self.complaints,
            *others,
            *self.page.evaluate("jrSeen"),
            *self.page.evaluate(STRANGE),
        ]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hostile_run(tmp_path_factory).folder / "report.html"


def test_no_name_is_more_than_text(browser: Any, page: Path) -> None:
    opened = Watched(browser, page)
    opened.live()
    opened.fold(away=False)
    text = opened.page.locator("body").inner_text()
    found = opened.faults()
    opened.context.close()

    assert found == []
    plain = " ".join(text.split())
    assert [
        kind for kind, name in NAMES.items() if " ".join(escape_name(name[:14]).split()) not in plain
    ] == []


@pytest.mark.slow
def test_no_name_becomes_more_than_text_when_the_page_is_used(browser: Any, page: Path) -> None:
    opened = Watched(browser, page)
    opened.live()
    boxes = opened.used()
    opened.page.emulate_media(media="print")
    paper = opened.page.pdf(prefer_css_page_size=True)
    opened.page.emulate_media(media="screen")
    opened.resize(400, 900)
    width = opened.page.evaluate("document.documentElement.scrollWidth")
    found = opened.faults()
    opened.context.close()

    assert found == []
    assert width == 400
    assert paper.startswith(b"%PDF")
    assert len(boxes) >= 10
    assert any("<script>" in box for box in boxes)
    assert any("onerror" in box for box in boxes)


@pytest.mark.slow
def test_the_watch_sees_what_it_is_for(browser: Any, page: Path, tmp_path: Path) -> None:
    head = "".join(re.findall("<meta [^>]*>", page.read_text("utf-8")))
    free = "".join(re.findall("<meta charset[^>]*>", head))
    found = []
    for number, text in enumerate(
        (f"{head}{NAMES['markup']}", f"{free}{NAMES['markup']}", f"{free}{NAMES['script']}")
    ):
        file = tmp_path / f"{number}.html"
        file.write_text(text, "utf-8")
        opened = Watched(browser, file)
        found.append(opened.faults())
        opened.context.close()

    assert any(fault.startswith("policy: script-src-attr") for fault in found[0])
    assert "a name ran 1" in found[1]
    assert "img onerror" in found[1]
    assert "a name ran 1" in found[2]


@needs_checker
@pytest.mark.slow
def test_the_html_is_sound(page: Path, tmp_path: Path) -> None:
    notebook = nbformat.read(page.with_suffix(".ipynb"), as_version=4)  # type: ignore[no-untyped-call]
    still = export.render_html(notebook, static=True)
    head = still[: still.index("<style>")] + "</head><body><main></main></body></html>"
    for name, text in (
        ("notebook", still),
        ("unsound", head.replace("<main>", "<main><p><div></p>", 1)),
        ("forbidden", head.replace("</body>", "<script>1</script></body>")),
    ):
        (tmp_path / f"{name}.html").write_text(text, "utf-8")

    found = html_faults(page, *sorted(tmp_path.iterdir()))

    assert [fault for fault in found if "unsound.html" not in fault and "forbidden.html" not in fault] == []
    assert any("No “p” element in scope" in fault for fault in found)
    assert any("Inline script violates" in fault for fault in found)
