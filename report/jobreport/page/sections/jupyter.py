"""Parts that only a notebook needs: the style of the drawings, and the script that makes the figures live."""

from __future__ import annotations

from jobreport import assets
from jobreport.page.figures import theme
from jobreport.page.figures.live import bokeh_script, figures_script
from jobreport.page.kit.fragment import Fragment


def style() -> Fragment:
    """Colors and marks of the drawings; nothing of it reaches beyond the report's own elements.

    Light in every notebook: its theme does not follow the reader's system, as the page does.
    """
    tokens = theme.sheet().replace(":root", ".jr,.jr-symbols").replace("light dark", "light")
    paper = ".jr{background:var(--paper);color:var(--ink)}\n"
    sheet = tokens + paper + assets.text("style/drawing.css")
    return Fragment(name="style", html=f"<style>{sheet}</style>{assets.text('page/symbols.html')}")


def live_figures() -> Fragment:
    """Zoom and values on hover for the figures above; to be run once they stand there."""
    html = f"<script>{bokeh_script()}</script><script>{figures_script()}</script>"
    return Fragment(name="live figures", html=html)
