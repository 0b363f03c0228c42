"""The stored notebook shows its figures where viewers strip scripts, style sheets, and inline SVG."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from xml.etree import ElementTree

import nbformat
from nbformat import NotebookNode

from jobreport.output import notebook
from jobreport.output.images import with_images
from jobreport.page.figures import theme
from tests.report.page.sections import examples
from tests.report.page.sections.html import Page

SVG = "{http://www.w3.org/2000/svg}"


def cells(stored: str) -> Iterator[tuple[str, str, str]]:
    """(id, HTML, text) of every output."""
    for cell in nbformat.reads(stored, as_version=4).cells:  # type: ignore[no-untyped-call]
        for output in cell.get("outputs", ()):
            yield cell.id, output.data["text/html"], output.data.get("text/plain", "")


def images(html: str) -> list[tuple[dict[str, str | None], ElementTree.Element]]:
    """The attributes of each image, and what it draws."""
    found = []
    for attributes in Page.of(html).all("img"):
        kind, _, data = str(attributes["src"]).partition(",")
        assert kind == "data:image/svg+xml;base64"
        found.append((attributes, ElementTree.fromstring(base64.b64decode(data))))
    return found


def stripped(html: str) -> str:
    """What a strict viewer leaves."""
    return re.sub(r"<(svg|script|style)\b.*?</\1>", "", html, flags=re.DOTALL)


def test_each_figure_of_the_page_is_an_image_and_the_text_says_what_it_shows(
    gpu_notebook: NotebookNode, gpu_page: str
) -> None:
    drawn = [a["aria-label"] for _, a in Page.of(gpu_page).elements if a.get("role") == "img"]

    shown, said = [], []
    for _, html, text in cells(notebook.to_text(gpu_notebook)):
        left = stripped(html)
        labels = [attributes["alt"] for attributes, _ in images(left) if attributes["alt"]]
        assert Page.of(left).faults == []
        assert not labels or text.splitlines() == labels
        shown += labels
        said += [entry for entry in re.findall(r'<p class="key">.*?</p>', left) if "<img" not in entry]

    assert shown == drawn
    assert len(shown) > 20
    assert said == []


def test_an_image_needs_nothing_from_outside(hostile_notebook: NotebookNode) -> None:
    words = []
    for _, html, _ in cells(notebook.to_text(hostile_notebook)):
        for _, root in images(html):
            for element in root.iter():
                assert element.tag.removeprefix(SVG) in {
                    *("svg", "style", "rect", "path", "line", "text", "g", "title", "defs", "pattern")
                }
                assert not [name for name in element.attrib if name.startswith("on") or "href" in name]
                words.append("".join(element.itertext()) if element.tag == f"{SVG}text" else "")
            style = "".join(element.text or "" for element in root.iter(f"{SVG}style"))
            assert "var(" not in style
            assert "@" not in style
            assert set(re.findall(r"url\((.*?)\)", style)) <= {"#hatch"}
            ids = [element.get("id") for element in root.iter() if element.get("id")]
            assert ids == (["hatch"] if "#hatch" in style else [])

    assert any(examples.HOSTILE[:12] in text for text in words)


def test_a_drawing_in_columns_is_narrow() -> None:
    drawing = '<div class="draw chart" role="img" aria-label="a &lt; b"><svg><rect class="u x"/></svg></div>'

    html, labels = with_images(f'<div class="pairs"><p>1</p>{drawing}<p>2</p></div>{drawing}')

    assert labels == ["a &lt; b"] * 2
    assert [attributes["width"] for attributes, _ in images(html)] == ["400", "800"]
    assert re.sub("<img[^>]*>", "*", html) == '<div class="pairs"><p>1</p>*<p>2</p></div>*'
    style = next(element.text or "" for element in images(html)[0][1].iter(f"{SVG}style"))
    assert f".jr .u{{fill:{theme.light()['used']}}}" in style
    assert ".jr .x{fill:url(#hatch)}" in style
    assert ".jr .l{" not in style


def test_an_image_has_the_rules_of_its_marks_only() -> None:
    html, _ = with_images(
        '<svg class="sw" viewBox="0 0 10 10"><rect class="u" width="10" height="10"/></svg>'
    )

    style = next(element.text or "" for element in images(html)[0][1].iter(f"{SVG}style"))
    assert style == f".jr svg{{overflow:visible}}.jr .u{{fill:{theme.light()['used']}}}"
