"""Share of the job's time that was training and was kept, and the parts of the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport import formats
from jobreport.page.figures import goodput as figures
from jobreport.page.figures.names import rows_class
from jobreport.page.kit import Drawing, Figure, Table, code
from jobreport.page.kit.table import swatch
from jobreport.page.sections.outline import not_recorded, section
from jobreport.page.sections.parts.recordings import interruptions
from jobreport.sentences import goodput_sentence
from jobrules.model.time_parts import named
from jobrules.text import capitalized

if TYPE_CHECKING:
    from jobreport.document import Report
    from jobreport.page.kit.section import Content
    from jobrules.analyses.goodput import Goodput

#: What to record so that a part is measured.
TO_RECORD = {
    "interruption": "record the job with record-job, or log its GPUs",
    "checkpoint": 'save within `jobrecord.phase("Checkpoint")`',
    "evaluation": "evaluate within `jobrecord.eval()`",
    "lost-work": "after a restart, go on with the step number of the checkpoint",
    "data-loading": "load batches with `jobrecord.data(loader)`",
}

READING = (
    "Each moment counts once, for the first part that holds. Interruption: more than 60 s and 10 sampling intervals "
    "without samples, steps, or events of any node; a shorter one is time to the first step. Lost work: steps that ran "
    "again after a restart. Time to the first step: from the start of the job, an interruption, or a restart. Start-up "
    "and wind-down, the phases of the job, leave out GPU work before and after the steps. First step: what exceeds the "
    "median step. Stall: what exceeds the median step by half, and by five standard deviations. Between steps: the rest."
)


@section
def goodput(report: Report) -> Content:
    """A bar of the job's time, and a table of its parts."""
    found = report.goodput or None
    if found is None:
        return not_recorded("single training step", in_results=report.has_debugger)
    return [
        interruptions(report),
        Figure(
            name="goodput",
            title="Parts of the job's time",
            finding=goodput_sentence(found),
            aid="Blue: training. Orange: lost time of training. Gray: outside of training.",
            drawings=[Drawing(figure=figures.goodput(found), style=rows_class(1))],
            reading=READING,
            tables=[_table(found)],
        ),
        code(_not_measured(found, report)),
        _used(report),
    ]


def _table(found: Goodput) -> Table:
    return Table(
        label="Parts of the job's time",
        heads=(":Part", "Time (s)", "Share of the job (%)"),
        rows=[
            (
                swatch(named(part.key).fill, part.label),
                formats.number(part.amount) if part.measured or part.amount else "not measured",
                formats.number(part.percent) if part.measured or part.amount else "–",
            )
            for part in found.parts
        ],
        caption="Parts of the job's time, in the order in which they claim it.",
    )


def _not_measured(found: Goodput, report: Report) -> str:
    """The parts that are not measured, and what to record."""
    parts = [part for part in found.parts if not part.measured]
    if not parts:
        return ""
    names = formats.join_names([part.label.lower() for part in parts])
    hints = {part.key: TO_RECORD[part.key] for part in parts}
    if "data-loading" in hints and report.data_loading and report.data_loading.fetches:
        hints["data-loading"] = "record batch fetches in all steps: some steps have none"
    return f"Not measured, and in other parts: {names}. {capitalized('; '.join(hints.values()))}."


def _used(report: Report) -> str:
    """Share of used GPU time, which is another measure."""
    use = report.verdict.use
    if use is None or use.device != "GPU":
        return ""
    hours, percent = use.of("used")
    gpus = "The GPU was" if sum(node.gpus for node in report.job.nodes) == 1 else "GPUs were"
    return (
        f"{gpus} used for {use.amount(hours)} of {use.amount(use.hours)}{formats.NBSP}{use.units} "
        f"({formats.percent(percent)}). That is not goodput: a GPU is also used in steps whose result was lost, and idle "
        "within steps that were kept."
    )
