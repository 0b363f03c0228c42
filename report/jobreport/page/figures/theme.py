"""Colors and type of the figures, read from the page's style sheet so that no color is written twice.

Bokeh draws on a canvas, which knows no custom properties: figures are made with the light colors.
``tokens`` tells the script of the page which token each of them stands for; the script puts in the
colors of the reader's scheme before it draws, and again when the scheme changes.
"""

from __future__ import annotations

import re
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any

from jobreport import assets

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Tokens that figures use. Their light colors differ, because the script knows a token by its light color.
TOKENS = (
    *("paper", "ink", "ink2", "line", "grid", "void", "rest2", "rest3"),
    *("used", "used2", "used3", "used4"),
    *("lost", *(f"lost{i}" for i in range(2, 12))),
    *("s1", "s2", "s3", "s4"),
    *(f"h{i}" for i in range(10)),
)

FONT_SIZE = "12px"
#: Room for the y axis on the left and for half a label on the right; the drawings in SVG have the same.
LEFT_PX, RIGHT_PX, TOP_PX, BOTTOM_PX = 44, 12, 6, 24
#: Room on the left for names in place of numbers.
NAMES_PX = 112

#: Token and dash of lines that share a plot: they differ without colors, too.
SERIES = (("s1", "solid"), ("s2", "dashed"), ("s3", "dotted"), ("s4", "dotdash"))

_TOKEN = re.compile(r"--([a-z0-9]+):(#[0-9a-f]{6})\b")


@cache
def light() -> Mapping[str, str]:
    """Token → color in the light scheme, also used in print and in notebooks."""
    return dict(_TOKEN.findall(sheet()))


@cache
def font() -> str:
    """The page's font stack."""
    found = re.search(r"--text:([^;]+);", sheet())
    return found.group(1) if found else "sans-serif"


def sheet() -> str:
    """The style sheet with the sizes and light colors."""
    return assets.text("style/tokens.css").partition("@media screen and (prefers-color-scheme:dark)")[0]


def tokens() -> dict[str, str]:
    """Light color → name of the token it stands for, for the script of the page."""
    return {light()[name]: f"--{name}" for name in TOKENS}


def plot_look() -> dict[str, Any]:
    """Properties that all plots with axes share: the frame of the drawing they cover, and nothing around it."""
    return {
        "sizing_mode": "stretch_both",
        "toolbar_location": None,
        "outline_line_color": None,
        "background_fill_color": None,
        "border_fill_color": None,
        "min_border_left": LEFT_PX,
        "min_border_right": RIGHT_PX,
        "min_border_top": TOP_PX,
    }


def axis_look(**more: Any) -> dict[str, Any]:
    """Properties that all axes share, and those of one."""
    colors = light()
    return {
        "axis_line_color": colors["ink2"],
        "major_tick_line_color": colors["ink2"],
        "minor_tick_line_color": None,
        "major_tick_in": 0,
        "major_tick_out": 4,
        "major_label_standoff": 3,
        "major_label_text_color": colors["ink2"],
        "major_label_text_font": font(),
        "major_label_text_font_size": FONT_SIZE,
        **more,
    }


def hatch_look() -> dict[str, Any]:
    """Properties of the hatch that stands for what was not measured."""
    return {
        "hatch_pattern": "right_diagonal_line",
        "hatch_color": light()["void"],
        "hatch_scale": 8,
        "hatch_weight": 1,
    }


def tooltip(rows: Iterable[tuple[str, str]]) -> str:
    """The box next to the pointer: pairs of a name, never from data, and a field such as ``@mean{0.0}``.

    Bokeh escapes the values of fields, so data never becomes markup. Custom properties reach into
    the box from the page, so it follows the reader's scheme.
    """
    lines = "".join(
        f'<span style="color:var(--ink2)">{escape(name)}</span><span style="text-align:right">{field}</span>'
        for name, field in rows
    )
    return f'<div style="{_TOOLTIP}">{lines}</div>'


_TOOLTIP = (
    "display:grid;grid-template-columns:auto auto;gap:0 12px;margin:-5px;padding:4px 8px;"
    "background:var(--paper,#fff);color:var(--ink,#000);font:12px/1.5 var(--text,sans-serif);"
    "font-variant-numeric:tabular-nums"
)
