"""Drawings of a stored notebook as images.

Viewers that do not trust a notebook strip scripts, style sheets, and inline SVG from its outputs, but show images. So
each drawing becomes an image of type ``image/svg+xml`` with its own style. Names in it are text, and no browser runs
scripts in an image.
"""

from __future__ import annotations

import base64
import re
from functools import cache

from msgspec import Struct

from jobreport import assets
from jobreport.page.figures import theme

#: Width of a drawing, and of one of several in columns.
_WIDTH_PX, _COLUMN_PX = 800, 400
_COLUMNS = {"pairs", "blocks", "multiples"}
#: Room above and below a drawing without a frame that has words, and right of a frame for half a label.
_WORDS_PX, _LABEL_PX = 32, 20
_PX = {"px": 1, "rem": 16}

#: Properties of marks; the others place elements of the page.
_OF_MARKS = re.compile(r"fill|stroke|color|font|overflow|rendering")
#: A tag; values of attributes are escaped, so they have no angle brackets.
_TAG = re.compile(r"<(/?)([a-z][a-z0-9]*)([^<>]*)>")
_CLASS = re.compile(r'class="([^"]*)"')
#: What a drawing shows, in its tag.
_LABEL = re.compile(r'role="img" aria-label="([^"]*)"')
_SVG = re.compile(r"<svg.*</svg>", re.DOTALL)
_MIDDLE = re.compile(r'<div class="middle"[^>]*>(.*?)</div>')
#: A mark in a key, or its scale.
_SWATCH = re.compile(r'<svg class="((?:sw|steps)\b[^"]*)" viewBox="0 0 (\d+) (\d+)"[^>]*>(.*?)</svg>')
_PATTERN = re.compile(r"<pattern.*?</pattern>", re.DOTALL)
_SELECTOR = re.compile(r"\.jr ((?:\.[\w-]+)+)(?::not\(\.([\w-]+)\))?(>\.plot)?")


class _Rule(Struct, frozen=True, kw_only=True):
    """A rule of ``drawing.css`` for one selector."""

    selector: str
    classes: frozenset[str]
    declarations: str


def with_images(html: str) -> tuple[str, list[str]]:
    """HTML of a section with images in the place of its drawings, and their labels, which are escaped."""
    parts, labels = [], []
    done = 0
    open_tags: list[re.Match[str]] = []
    for tag in _TAG.finditer(html):
        if not tag[1]:
            open_tags += [] if tag[3].endswith("/") else [tag]
            continue
        start = open_tags.pop()
        while start[2] != tag[2]:  # an element without an end tag, such as a line break
            start = open_tags.pop()
        if label := _LABEL.search(start[3]):
            narrow = any(_COLUMNS & _classes(outer[3]) for outer in open_tags)
            svg, width = _drawing(html[start.start() : tag.end()], _COLUMN_PX if narrow else _WIDTH_PX)
            parts += [html[done : start.start()], _image(svg, width, label[1])]
            labels.append(label[1])
            done = tag.end()
    return _SWATCH.sub(_swatch, "".join(parts) + html[done:]), labels


def _image(svg: str, width: float, label: str, style: str = "") -> str:
    data = base64.b64encode(svg.encode()).decode()
    return f'<img class="{style}" width="{width:g}" alt="{label}" src="data:image/svg+xml;base64,{data}">'


def _swatch(mark: re.Match[str]) -> str:
    style, width, height, shape = mark[1], int(mark[2]), int(mark[3]), mark[4]
    # Marks in cells of a scale take their color from its class.
    marks = f'<g class="{style}">{shape}</g>' if style.startswith("steps") else shape
    return _image(_document(marks, f'viewBox="0 0 {width} {height}"'), width, "", style)


def _drawing(html: str, width: float) -> tuple[str, float]:
    """Image of a drawing, and its width."""
    (marks,) = _SVG.findall(html)
    classes = _classes(_TAG.findall(html)[0][2])
    width = _length("width", classes) or width
    height = _length("height", classes)
    if "chart" in classes:
        left, right, top, bottom = (
            _length(side, classes, ">.plot") for side in ("left", "right", "top", "bottom")
        )
        right += _LABEL_PX
    else:
        left = right = 0.0
        top = bottom = _WORDS_PX if "<text" in marks else 0.0
        height += top + bottom
    frame = f'x="{left:g}" y="{top:g}" width="{width - left - right:g}" height="{height - top - bottom:g}"'
    middle = "".join(
        f'<text class="strong" x="50%" y="50%" dy=".32em" text-anchor="middle">{words}</text>'
        for words in _MIDDLE.findall(html)
    )
    placed = marks.replace("<svg", f"<svg {frame}", 1)
    size = f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}"'
    return _document(f'<g class="still">{placed}{middle}</g>', size), width


def _document(marks: str, size: str) -> str:
    """A whole SVG file, with the rules for its classes, on white paper."""
    if "x" in _classes(marks):
        marks = _hatch() + marks
    used = {"jr"} | _classes(marks)
    style = "".join(
        f"{rule.selector}{{{rule.declarations}}}"
        for rule in _rules()
        if rule.classes <= used and _OF_MARKS.search(rule.declarations)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="jr" {size}>'
        f'<style>{style}</style><rect width="100%" height="100%" fill="{theme.light()["paper"]}"/>{marks}</svg>'
    )


def _classes(html: str) -> set[str]:
    return {name for found in _CLASS.findall(html) for name in found.split()}


def _length(name: str, classes: set[str], part: str = "") -> float:
    """A length in px that the style sheet gives a drawing, or its ``part``: of the rule with most classes; 0 without."""
    best, length = 0, 0.0
    for wanted, unwanted, px in _lengths(name, part):
        if wanted <= classes and unwanted not in classes and (weight := len(wanted) + bool(unwanted)) >= best:
            best, length = weight, px
    return length


@cache
def _lengths(name: str, part: str) -> tuple[tuple[frozenset[str], str | None, float], ...]:
    """Of each rule with such a length: the classes that a drawing must have, the one that it must not have, and px."""
    declaration = re.compile(rf"(?:^|;){name}:([\d.]+)(px|rem)")
    return tuple(
        (frozenset(found[1].split(".")) - {""}, found[2], float(declared[1]) * _PX[declared[2]])
        for rule in _rules()
        if (found := _SELECTOR.fullmatch(rule.selector)) and (found[3] or "") == part
        if (declared := declaration.search(rule.declarations))
    )


@cache
def _rules() -> tuple[_Rule, ...]:
    """Rules of the drawings' style sheet in their order, with the light colors."""
    sheet = re.sub(
        r"/\*.*?\*/|@media[^{]*\{(?:[^{}]*\{[^{}]*\})*\}",
        "",
        assets.text("style/drawing.css"),
        flags=re.DOTALL,
    )
    tokens = dict(re.findall(r"--([a-z0-9]+):([^;]+);", theme.sheet()))
    filled = re.sub(r"var\(--([a-z0-9]+)\)", lambda name: tokens[name[1]].replace('"', "'"), sheet)
    return tuple(
        _Rule(
            selector=selector.strip(),
            classes=frozenset(re.findall(r"\.([a-z][\w-]*)", selector)),
            declarations=declarations,
        )
        for selectors, declarations in re.findall(r"([^{}]+)\{([^{}]*)\}", filled)
        for selector in selectors.split(",")
    )


@cache
def _hatch() -> str:
    """The pattern of what was not measured."""
    symbols = assets.text("page/symbols.html")
    return f'<defs class="jr-symbols">{_PATTERN.findall(symbols)[0]}</defs>'
