"""How much of the job's time was training that was kept, and where the rest went."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport import formats
from jobreport.page.figures import goodput as figures
from jobreport.page.figures.embed import document_json
from jobreport.page.figures.names import rows_class
from jobreport.page.kit.fragment import Fragment, render
from jobreport.page.kit.table import Table, swatch
from jobreport.page.sections.outline import heading, section
from jobreport.page.sections.parts.recordings import interruptions
from jobreport.sentences import goodput_sentence
from jobrules.text import capitalized

if TYPE_CHECKING:
    from jobreport.document import Report
    from jobrules.analyses.goodput import Goodput

#: What to record so that a part is measured.
TO_RECORD = {
    "interruption": "record the job with record-job, or log its GPUs",
    "checkpoint": 'save within `jobrecord.phase("Checkpoint")`',
    "lost_work": "after a restart, go on with the step number of the checkpoint",
    "data_wait": "load batches with `jobrecord.data(loader)`",
}


@section
def goodput(report: Report) -> Fragment:
    """A bar of the job's time, and a table of its parts."""
    place = heading("goodput", report)
    found = report.goodput or None
    if found is None:
        debugger = report.has_debugger
        return Fragment(name="goodput", html=render("goodput", heading=place, found=None, debugger=debugger))
    figure = figures.goodput(found)
    html = render(
        "goodput",
        heading=place,
        found=found,
        lead=interruptions(report),
        finding=goodput_sentence(found),
        drawing=figure.drawing,
        style=rows_class(1),
        table=_table(found),
        not_measured=_not_measured(found),
        used=_used(report),
        figures=document_json("goodput", {"live-goodput": figure.live}),
    )
    return Fragment(name="goodput", html=html)


def _table(found: Goodput) -> Table:
    return Table(
        label="Parts of the job's time",
        heads=(":Part", "Time (s)", "Share of the job (%)"),
        rows=[
            (
                swatch(figures.FILLS[part.key], part.label),
                formats.number(part.seconds) if part.measured or part.seconds else "not measured",
                formats.number(part.percent) if part.measured or part.seconds else "–",
            )
            for part in found.parts
        ],
        caption="Parts of the job's time, in the order in which they claim it.",
    )


def _not_measured(found: Goodput) -> str:
    """The parts that are not measured, and what to record."""
    parts = [part for part in found.parts if not part.measured]
    if not parts:
        return ""
    names = formats.join_names([part.label.lower() for part in parts])
    them = "their time is" if len(parts) > 1 else "its time is"
    return f"Not measured: {names}; {them} in other parts. {capitalized('; '.join(TO_RECORD[part.key] for part in parts))}."


def _used(report: Report) -> str:
    """How much of the GPU time was used, which is another measure."""
    use = report.verdict.use
    if use is None or use.device != "GPU":
        return ""
    hours, percent = use.of("used")
    return (
        f"GPUs were used for {use.amount(hours)} of {use.amount(use.hours)}{formats.NBSP}{use.units} "
        f"({formats.percent(percent)}). That is not goodput: a GPU is also used in steps whose result was lost, and idle "
        "within steps that were kept."
    )
