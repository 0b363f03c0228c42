"""From the executed notebook to one HTML file that makes no requests."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Any

from jobreport import assets
from jobreport.errors import JobReportError
from jobreport.files import REPORT, Product
from jobreport.output.postponed import postponed
from jobreport.page.figures.embed import inert
from jobreport.page.figures.live import bokeh_script, figures_script, without_scripts

with postponed("soupsieve"):  # for selectors of elements
    from nbconvert.exporters.templateexporter import TemplateExporter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from nbformat import NotebookNode

#: Cells with one of these tags are for readers of the notebook and leave no trace in the page.
NOTEBOOK_ONLY = frozenset({"parameters", "notebook-only", "bokeh-load"})


def render_html(
    notebook: NotebookNode,
    *,
    static: bool = False,
    product: Product = REPORT,
    about: Mapping[str, Any] | None = None,
    refresh_s: float | None = None,
) -> str:
    """The page, from the outputs of an executed notebook; ``static`` leaves all scripts out.

    ``about`` is for the script of the page: ``summary`` as Markdown, ``phases`` with their ends in milliseconds, and
    the starts of some ``steps``, likewise. After ``refresh_s`` the page loads itself again.
    """
    exporter = TemplateExporter(  # type: ignore[no-untyped-call]
        template_name="page",
        template_file="index.html.j2",
        extra_template_basedirs=[str(assets.templates())],
        # The outputs are taken as they are; the notebook would be checked again for each.
        default_preprocessors=[],
    )
    page = _page(notebook, product, about or {}, static=static) | {"refresh_s": round(refresh_s or 0)}
    html, _ = exporter.from_notebook_node(notebook, resources={"page": page})
    return str(html)


def _page(
    notebook: NotebookNode, product: Product, about: Mapping[str, Any], *, static: bool
) -> dict[str, Any]:
    """Variables of the page's template."""
    pieces = dict(_pieces(notebook))
    if static:
        pieces = {name: without_scripts(html) for name, html in pieces.items()}
    head = pieces.pop("head", None)
    if head is None:
        raise JobReportError("The notebook has no head of the report: it was not run to its end.")
    own = ["page", "dig", *(["icicle"] if any('class="icicle' in html for html in pieces.values()) else [])]
    scripts = [] if static else ["".join(assets.compact(f"script/{name}.js") for name in own)]
    if any("jr-figures" in html for html in pieces.values()):
        scripts += [bokeh_script(), figures_script()]
    # Checkers of the policy hash scripts without white space at their ends.
    scripts = [script.strip() for script in scripts]
    return {
        "title": notebook.metadata.get("title", "Training job report"),
        "head": head,
        "data": product.files["json"],
        "pieces": list(pieces.values()),
        "symbols": assets.text("page/symbols.html").strip(),
        "style": style(product),
        "scripts": scripts,
        "about": inert(about) if about and not static else "",
        "policy": policy(scripts),
    }


def style(product: Product = REPORT) -> str:
    """The style sheet of a page; rules of drawings are nested, as each of them has the class of the report in front."""
    tokens, drawing, *others = map(
        assets.compact, ("style/tokens.css", "style/drawing.css", "style/page.css", *product.styles)
    )
    return "".join([tokens, ".jr{", drawing.replace(".jr ", ""), "}\n", *others])


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
