"""Where the framework's time went: steps, forward and backward, data loading, operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport import formats
from jobreport.document import Origin
from jobreport.sections.fragment import Fragment, render
from jobreport.sections.outline import heading
from jobrules.framework_time import OUTSIDE

if TYPE_CHECKING:
    from jobreport.document import Report
    from jobrules.result import FrameworkTime, Operators

#: Time outside of steps that is worth a look, in percent.
MUCH_OUTSIDE = 25.0


def framework(report: Report) -> Fragment:
    """Tables of shares, the largest first; operators by the time that is their own."""
    time = report.framework
    html = render(
        "framework",
        heading=heading("framework"),
        time=time,
        lead=_lead(time) if time else "",
        basis=_basis(time) if time else "",
        seconds=_seconds,
        finding=_finding,
        why_none=_why_none(report),
    )
    return Fragment(name="framework", html=html)


def _lead(time: FrameworkTime) -> str:
    outside = next((part.percent for part in time.steps if part.name == OUTSIDE), None)
    if outside is None:
        return "No step was recorded, so the time between steps is not known."
    text = f"{formats.percent(outside)} of the workers' time from their first to their last step lay outside of steps."
    if time.forward_only:
        return (
            f"{text} Steps end with the forward pass here, because no backward pass was recorded: backward pass, "
            "optimizer and data loading lie between them, so this share says nothing by itself."
        )
    if outside > MUCH_OUTSIDE:
        return f"{text} That is much: look at what runs between them, as data loading, evaluation and checkpoints."
    return text


def _basis(time: FrameworkTime) -> str:
    """What the tables besides the first one come from."""
    if not (time.general or time.operators):
        return ""
    if time.first_step is None or time.last_step is None:
        return "The other tables are of what was profiled, which may be a few steps only."
    span = (
        f"step {time.first_step}"
        if time.first_step == time.last_step
        else f"steps {time.first_step} to {time.last_step}"
    )
    return f"Operators were recorded for {span}; their shares describe these, not the job."


def _finding(table: Operators) -> str:
    """The operator that takes most, for the caption."""
    first = table.rows[0]
    name = formats.shown(first.name, 60)
    return f"{name} takes {formats.percent(first.percent)} of the operators' own time on the {table.device}"


def _seconds(seconds: float) -> str:
    """``12.3 s``, ``4.56 ms``, ``7.8 µs``: three digits or so, whatever the size."""
    for factor, unit in ((1.0, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            value = seconds * factor
            digits = 0 if value >= 1000 else 1 if value >= 10 else 2
            return f"{formats.number(value, digits)}{formats.NBSP}{unit}"
    return f"{formats.number(seconds * 1e6, 1)}{formats.NBSP}µs"


def _why_none(report: Report) -> str:
    if report.origin is Origin.VENDOR:
        return "The vendor's figures stand in rules/OverallFrameworkMetrics.json."
    if not any(card.name == "OverallFrameworkMetrics" for card in report.rules):
        return "OverallFrameworkMetrics was not selected."
    return "Neither steps nor framework events were recorded."
