"""The two scripts that make the figures of a page live."""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from jobreport import assets
from jobreport.errors import JobReportError
from jobreport.page.figures import theme

#: The data of live figures inside a section's HTML; what it holds is escaped, so no name can end it early.
_DATA = re.compile(r'<script type="application/json" class="jr-figures".*?</script>', re.DOTALL)
#: Elements that only scripts need: the places of live figures, and hints on their use.
_FOR_SCRIPTS = re.compile(r'<div class="live" id="[^"]*"></div>|<p class="hint"[^>]*>.*?</p>\n?', re.DOTALL)


def without_scripts(html: str) -> str:
    """HTML of a section without what only scripts need."""
    return _FOR_SCRIPTS.sub("", _DATA.sub("", html))


@cache
def bokeh_script() -> str:
    """BokehJS of the installed package: the core bundle, which holds all that the figures use."""
    spec = find_spec(
        "bokeh"
    )  # Importing Bokeh to learn where it lies would take longer than reading the file.
    if spec is None or spec.origin is None:
        raise JobReportError("Bokeh is not installed, so the figures of the page cannot be made live.")
    return (Path(spec.origin).parent / "server" / "static" / "js" / "bokeh.min.js").read_text("utf-8")


@cache
def figures_script() -> str:
    """The page's own script, with the colors of the figures and what they stand for."""
    return assets.compact("script/figures.js").replace(
        "{TOKENS}", json.dumps(theme.tokens(), separators=(",", ":"))
    )
