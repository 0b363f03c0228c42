"""From the executed notebook to one HTML file that asks nobody for anything."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import TYPE_CHECKING, Any

from nbconvert.exporters.templateexporter import TemplateExporter

from jobreport import assets
from jobreport.errors import JobReportError
from jobreport.figures.live import DATA, bokeh_script, figures_script

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from nbformat import NotebookNode

#: Cells with one of these tags are for people in a notebook and leave no trace in the page.
NOTEBOOK_ONLY = frozenset({"parameters", "notebook-only", "bokeh-load"})
#: What only a script needs besides the figures' data: the places they are drawn in, hints on how to use them.
_FOR_SCRIPTS = re.compile(r'<div class="live" id="[^"]*"></div>|<p class="hint"[^>]*>.*?</p>\n?', re.DOTALL)
#: The beginning of a section without data, with its anchor; one that could not be made is none of them.
_EMPTY = re.compile(r'<section class="[^"]* fold empty" id="([^"]+)"')
_STYLES = ("style/tokens.css", "style/drawing.css", "style/page.css")


def render_html(notebook: NotebookNode, *, static: bool = False) -> str:
    """The page, from the outputs of a notebook that ``run_notebook`` ran; ``static`` leaves all scripts out."""
    exporter = TemplateExporter(  # type: ignore[no-untyped-call]
        template_name="page",
        template_file="index.html.j2",
        extra_template_basedirs=[str(assets.templates())],
    )
    html, _ = exporter.from_notebook_node(notebook, resources={"page": _page(notebook, static=static)})
    return str(html)


def _page(notebook: NotebookNode, *, static: bool) -> dict[str, Any]:
    """What the skeleton is filled with."""
    pieces = dict(_pieces(notebook))
    if static:
        pieces = {name: _FOR_SCRIPTS.sub("", DATA.sub("", html)) for name, html in pieces.items()}
    head = pieces.pop("head", None)
    if head is None:
        raise JobReportError("The notebook holds no head of the report; it was not run to its end.")
    scripts = [] if static else [assets.text("script/page.js")]
    if any("jr-figures" in html for html in pieces.values()):
        scripts += [bokeh_script(), figures_script()]
    # A checker of HTML that also checks the policy makes its hashes without what is blank at the ends.
    scripts = [script.strip() for script in scripts]
    return {
        "title": notebook.metadata.get("title", "Training job report"),
        "head": head,
        "pieces": _empty_last(pieces.values()),
        "symbols": assets.text("page/symbols.html").strip(),
        "style": "".join(assets.text(name) for name in _STYLES),
        "scripts": scripts,
        "policy": policy(scripts),
    }


def _empty_last(pieces: Iterable[str]) -> list[str]:
    """Sections without data fold away: behind all others, and paler in the contents. They keep their numbers."""
    ordered = sorted(pieces, key=lambda html: bool(_EMPTY.match(html)))
    anchors = [found[1] for html in ordered if (found := _EMPTY.match(html))]
    paler = re.compile(rf'<li>(?=<a href="#(?:{"|".join(anchors)})">)')
    return [paler.sub('<li class="m">', html) if html.startswith("<nav") else html for html in ordered]


def _pieces(notebook: NotebookNode) -> Iterator[tuple[str, str]]:
    """(id of the cell, its HTML) for every cell that belongs in the page."""
    for cell in notebook.cells:
        if cell.cell_type != "code" or NOTEBOOK_ONLY & set(cell.metadata.get("tags", ())):
            continue
        html = [output.data["text/html"] for output in cell.outputs if "text/html" in output.get("data", {})]
        if html:
            yield cell.id, "".join(html).strip()


def policy(scripts: list[str]) -> str:
    """A Content-Security-Policy that lets these scripts run, and nothing else load, run or leave."""
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in scripts) or "'none'"
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
