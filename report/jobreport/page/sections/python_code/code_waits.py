"""Lines of code at which processes were while time was lost, beside other moments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from jobreport import formats
from jobreport.page.kit import Column, Empty, Figure, Html, Note, Side, Table, code
from jobreport.page.kit.table import as_code
from jobreport.page.sections.outline import section
from jobreport.page.sections.python_code.icicle import height, icicle
from jobrules.text import took

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.document import Report
    from jobreport.page.kit.blocks import Block
    from jobreport.page.kit.section import Content
    from jobreport.page.kit.table import Row
    from jobrules.analyses.code_lines import CodeLine, CodeLines

#: What the moments are called in which time was lost, and the other ones; and as heads of columns.
_MOMENTS = {
    "gpu": ("While the GPU was idle", "While it was busy", "GPU idle", "GPU busy"),
    "fetch": ("While training waited for a batch", "At other times", "Waiting", "Otherwise"),
    "none": ("", "All the time", "", "Share"),
}
_EXACT = "Lines whose visits last under 5 ms count for their caller, or for the wait that follows."


@section
def code_waits(report: Report) -> Content:
    """Stacks in lost time beside those of other moments, and a table of lines."""
    found = report.code_lines
    if not found:
        return Empty("No stacks of Python code were sampled.", absent=True)
    who = formats.count(found.processes, "training process", "training processes")
    loaders = formats.count(found.loaders, "loader process", "loader processes")
    return [
        f"{formats.count(found.samples, 'sample')} of {who} during the work, one in {took(found.interval_us)}"
        f"{f'; and of {loaders}, less often' if found.loaders else ''}.",
        Figure(
            name="code-waits",
            title="Stacks by where the code was",
            finding=_finding(found),
            aid="Each function stands above what it called; own code has the color.",
            drawings=[Side(blocks=_icicles(found))],
            tables=[_table(found)],
        ),
        Note(_EXACT),
    ]


def _finding(found: CodeLines) -> Markup:
    lines = [one for one in found.lines if one.kind == "main"]
    lost = _MOMENTS[found.waiting][0]
    if not lines:
        return Markup("No line of code was seen.")
    first = lines[0]
    if not found.idle:
        part = formats.percent(100 * first.samples / found.samples)
        return code(f"Training was at {first.place} in {part} of {formats.count(found.samples, 'sample')}.")
    part = formats.percent(100 * first.idle / found.idle)
    rest = f" ({formats.percent(100 * first.busy / found.busy)} otherwise)" if found.busy else ""
    return code(
        f"{lost}, training was at {first.place} in {part} of {formats.count(found.idle, 'sample')}{rest}."
    )


def _icicles(found: CodeLines) -> Sequence[Block]:
    sides = (
        (found.idle, "l3", [one.idle for one in found.parts]),
        (found.busy, "u3", [one.busy for one in found.parts]),
    )
    return [
        Column(
            title="",
            blocks=[
                Markup("{}: {}").format(title, formats.count(whole, "sample")),
                Html.of("icicle", label=title, parts=bars, height=height(bars)),
            ],
        )
        for title, (whole, style, counts) in zip(_MOMENTS[found.waiting][:2], sides, strict=True)
        if whole and (bars := icicle(found.parts, counts, whole, style))
    ]


def _table(found: CodeLines) -> Table:
    lost, other = _MOMENTS[found.waiting][2:]
    heads = [":Line of code", ":Process", *([f"{lost} (%)"] if lost else []), f"{other} (%)", "Samples"]
    rows: list[Row] = [_row(one, found) for one in found.lines]
    return Table(
        label="Lines of code",
        caption=f"Lines of code by samples.{formats.not_shown(found.lines_left, 'line')}",
        style="wide words",
        heads=heads,
        rows=rows,
    )


def _row(line: CodeLine, found: CodeLines) -> Row:
    place = line.place
    name = as_code(place.name)
    if place.call:
        name += Markup('<br><code class="m">→ {}</code>').format(formats.escape_name(place.call, 60))
    main = line.kind == "main"
    idle, busy = (found.idle, found.busy) if main else (found.loader_idle, found.loader_busy)
    kind = "training" if main else "loader"
    who = f"rank {formats.escape_name(line.rank, 24)}" if line.rank else f"{line.processes} processes"
    shares = [_share(line.idle, idle)] if found.waiting != "none" else []
    return [name, f"{who}, {kind}", *shares, _share(line.busy, busy), formats.number(line.samples, 0)]


def _share(count: int, whole: int) -> str:
    return formats.number(100 * count / whole) if whole else "–"
