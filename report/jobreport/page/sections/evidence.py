"""The figure that shows what is said first, or a remark on cores: Figure 1 of the page, taken out of its section."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup
from msgspec.structs import replace

from jobreport.page.kit import Column, Figure, Fold, Side, Subsection
from jobreport.page.kit.fragment import Fragment, render
from jobreport.page.kit.section import Empty, Failed, Heading

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from jobreport.document import Report
    from jobreport.page.kit.blocks import Block
    from jobreport.page.kit.section import Content
    from jobrules.model import Finding

#: Findings on cores that time lines show, also if they are remarks on no lost time.
_ON_CORES = ("io-pauses", "free-cores", "other-processes", "memory-kills")
#: Section and names of figures that show a cause better than the first figure of the section that its finding names, by the
#: key of the finding or by this section; the first figure that the page has.
_FIGURES = {
    "slow-rank": [("steps", "steps-ranks")],
    "straggler-rank": [("profiled-steps", "profiled-steps-ranks")],
    "cpu-bottlenecks": [("close-ups", "close-ups-worst-minute"), ("cpu-bottlenecks", "cpu-bottlenecks-time")],
    "io-bottlenecks": [("close-ups", "close-ups-worst-minute"), ("io-bottlenecks", "io-bottlenecks-time")],
    "gpu-utilization": [("nodes", "nodes")],
    **{key: [("nodes", "nodes")] for key in _ON_CORES},
    "between-steps": [("goodput", "goodput")],
    **{
        key: [("learning", "learning-gradients")]
        for key in (
            *("vanishing-gradient", "gradient-growth", "low-precision-underflow", "unchanged-tensor"),
            *("not-in-optimizer", "always-zero", "poor-weight-initialization"),
        )
    },
    **{key: [("learning", "learning-updates")] for key in ("weight-update-ratio", "large-weight-updates")},
    **{key: [("learning", "learning-activations")] for key in ("dead-relu", "saturated-activation")},
    "data-loading": [("data-loading", "data-loading-fetches"), ("framework", "framework-ranks")],
}


def with_evidence(report: Report, said: Mapping[str, Content]) -> tuple[dict[str, Content], list[Fragment]]:
    """What sections say without the figure, and the figure; all of it if there is none."""
    shown = finding_of(report)
    for section, name in places(shown) if shown else ():
        blocks = said.get(section, ())
        if isinstance(blocks, Empty | Failed | Fragment):
            continue
        figure = next((one for one in _figures(blocks) if name in ("", one.name)), None)
        if figure is not None:
            heading = Heading(anchor="evidence", title="Evidence")
            html = render("section", heading=heading, blocks=[figure])
            link = Markup('See <a href="#fig-{}">Figure 1</a>.').format(figure.name)
            return {**said, section: [link, *_without(figure, blocks)]}, [
                Fragment(name="evidence", html=html)
            ]
    return dict(said), []


def finding_of(report: Report) -> Finding | None:
    """The finding that is said first, or a remark on cores that is the main one."""
    main = report.verdict.main_finding
    return report.verdict.lead or (main if main and main.key in _ON_CORES else None)


def places(lead: Finding) -> list[tuple[str, str]]:
    """Sections and names of figures that show the cause, the best first; without a name, the first of the section."""
    better = _FIGURES.get(lead.key, _FIGURES.get(lead.section, []))
    return [*better, (lead.section, "")]


def _inner(block: Block) -> Sequence[Block]:
    return block.blocks if isinstance(block, Column | Fold | Side | Subsection) else ()


def _figures(blocks: Sequence[Block]) -> Iterator[Figure]:
    """Figures with a drawing, in the order of the page."""
    for block in blocks:
        if isinstance(block, Figure) and not block.of_tables:
            yield block
        yield from _figures(_inner(block))


def _without(figure: Figure, blocks: Sequence[Block]) -> list[Block]:
    return [
        replace(block, blocks=_without(figure, inner)) if (inner := _inner(block)) else block  # type: ignore[type-var]
        for block in blocks
        if block is not figure
    ]
