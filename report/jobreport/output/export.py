"""From the executed notebook to one HTML file that makes no requests."""

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

#: Cells with one of these tags are for readers of the notebook and leave no trace in the page.
NOTEBOOK_ONLY = frozenset({"parameters", "notebook-only", "bokeh-load"})
#: Elements that only scripts need: the places of live figures, and hints on their use.
_FOR_SCRIPTS = re.compile(r'<div class="live" id="[^"]*"></div>|<p class="hint"[^>]*>.*?</p>\n?', re.DOTALL)
#: Beginning of a section without data, with its anchor; a section that failed does not match.
_EMPTY = re.compile(r'<section class="[^"]* fold empty" id="([^"]+)"')
_STYLES = ("style/tokens.css", "style/drawing.css", "style/page.css")


def render_html(notebook: NotebookNode, *, static: bool = False) -> str:
    """The page, from the outputs of an executed notebook; ``static`` leaves all scripts out."""
    exporter = TemplateExporter(  # type: ignore[no-untyped-call]
        template_name="page",
        template_file="index.html.j2",
        extra_template_basedirs=[str(assets.templates())],
    )
    html, _ = exporter.from_notebook_node(notebook, resources={"page": _page(notebook, static=static)})
    return str(html)


def _page(notebook: NotebookNode, *, static: bool) -> dict[str, Any]:
    """Variables of the page's template."""
    pieces = dict(_pieces(notebook))
    if static:
        pieces = {name: _FOR_SCRIPTS.sub("", DATA.sub("", html)) for name, html in pieces.items()}
    head = pieces.pop("head", None)
    if head is None:
        raise JobReportError("The notebook has no head of the report: it was not run to its end.")
    scripts = [] if static else [assets.text("script/page.js")]
    if any("jr-figures" in html for html in pieces.values()):
        scripts += [bokeh_script(), figures_script()]
    # Checkers of the policy hash scripts without white space at their ends.
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
    """Move folded sections without data behind all others, paler in the contents. They keep their numbers."""
    ordered = sorted(pieces, key=lambda html: bool(_EMPTY.match(html)))
    anchors = [found[1] for html in ordered if (found := _EMPTY.match(html))]
    paler = re.compile(rf'<li>(?=<a href="#(?:{"|".join(anchors)})">)')
    return [paler.sub('<li class="m">', html) if html.startswith("<nav") else html for html in ordered]


def _pieces(notebook: NotebookNode) -> Iterator[tuple[str, str]]:
    """(id, HTML) of every cell of the page."""
    for cell in notebook.cells:
        if cell.cell_type != "code" or NOTEBOOK_ONLY & set(cell.metadata.get("tags", ())):
            continue
        html = [output.data["text/html"] for output in cell.outputs if "text/html" in output.get("data", {})]
        if html:
            yield cell.id, "".join(html).strip()


def policy(scripts: list[str]) -> str:
    """A Content-Security-Policy that allows these scripts and nothing else."""
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in scripts) or "'none'"
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
