"""Steps that PyTorch's profiler recorded: in parts, compared between ranks, and the slowest in full detail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jobreport import formats
from jobreport.page.figures.captures import profiled_steps as drawings
from jobreport.page.figures.names import rows_class
from jobreport.page.figures.rank_times import RankTimes
from jobreport.page.kit import Drawing, Figure, Sentences, Subsection, Table
from jobreport.page.sections.captures.parts import (
    MAX_ALL,
    MAX_ODD,
    NS,
    CaptureRow,
    DeviceRow,
    captures_of,
    devices_of,
    nothing,
    ns_scale,
    ns_text,
    odd_first,
    omitted,
    percent_of,
)
from jobreport.page.sections.outline import section
from jobreport.page.sections.parts.rank_times import rank_times
from jobrules.captures.own_times import own_times
from jobrules.model.captures import BAR_KINDS
from jobrules.model.time_parts import named
from jobrules.text import capitalized, some_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.document import Report
    from jobreport.page.kit.section import Content
    from jobrules.captures.own_times import OwnTimes
    from jobrules.model import FloatArray
    from jobrules.model.captures import Capture, DeviceStep, StepLines, StepOfRanks

#: Steps and cells of a figure.
MAX_STEPS, MAX_CELLS = 120, 4096
#: Slowest steps that are drawn in full detail.
MAX_LINES = 2
#: Fields of a step over all ranks.
_ENDS = ("shortest", "median", "longest")
_STEP_PARTS = ("computing", "communication", "waiting", "copies", "device-idle")
NS_PER_MS = 1e6
_TIMES = {
    "own time": "Own time: step time without waiting for other ranks.",
    "time": "Step time, waiting included.",
}
_NO_STEPS = {
    "other_process": "The recorded steps belong to another process.",
    "overlapping": "The recorded steps overlap, so their times are unknown.",
}


@section
def profiled_steps(report: Report) -> Content:
    """Steps in parts, the own time of each rank in each step, and the slowest step as bars."""
    rows = [row for row in captures_of(report) if row.capture.step_times]
    if not rows:
        reasons = (row.capture.no_steps for row in captures_of(report))
        why = next((_NO_STEPS[one] for one in reasons if one), "")
        none = "No steps were recorded. Call profiler.step() after each step."
        return nothing(report, why or none)
    own = own_times([row.capture for row in rows])
    over_ranks = report.across_ranks.steps if report.across_ranks else ()
    stepped = [row for row in devices_of(report) if row.device.steps]
    # Of the rank that others waited for most, then of those with the longest steps.
    lines = [
        (row, row.capture.step_lines)
        for row in rows
        if row.capture.step_lines and row.capture.step_lines.bars
    ]
    caused = {one.rank: one.caused_ns for one in report.across_ranks.waiting} if report.across_ranks else {}
    lines.sort(key=lambda one: (-caused.get(one[0].capture.rank or 0, 0), one[1].start_ns - one[1].end_ns))
    slowest = [_one_step(row, found) for row, found in lines[:MAX_LINES]]
    return [
        Sentences(_lead(rows, _captured(over_ranks) if over_ranks else len(rows))),
        _heat_map(rows, own, over_ranks) if over_ranks else None,
        _parts(_widest(stepped, rows, own), _time_of(own)) if stepped else None,
        _table(over_ranks, _time_of(own)),
        Subsection(title="Slowest step", blocks=slowest),
    ]


def _complete(capture: Capture) -> list[int]:
    """Times of the steps that no device recorded in part only."""
    cut = {device.incomplete_step for device in capture.devices}
    return [step.host_ns for step in capture.step_times if step.number not in cut]


def _lead(rows: Sequence[CaptureRow], captured: int) -> list[str]:
    times = np.array([ns for row in rows for ns in _complete(row.capture)], np.float64)
    cut = [
        (row.name, device.incomplete_step)
        for row in rows
        for device in row.capture.devices
        if device.incomplete_step is not None
    ]
    found = []
    if len(times):
        of = some_of(len(rows), captured, "capture")
        found.append(
            f"{formats.count(len(times), 'step')} of {of}, on the host: median {ns_text(float(np.median(times)))}, "
            f"mean {ns_text(float(times.mean()))}, p95 {ns_text(float(np.percentile(times, 95)))}, "
            f"longest {ns_text(float(times.max()))}."
        )
    if cut:
        steps = formats.join_names([f"{number} of {name}" for name, number in cut])
        found.append(f"Cut short by the end of the trace and not counted: step {steps}.")
    return found


def _heat_map(rows: Sequence[CaptureRow], own: OwnTimes, over_ranks: Sequence[StepOfRanks]) -> Figure:
    steps = own.numbers[:MAX_STEPS]
    medians = own.medians_ns
    most = max(1, min(MAX_ALL if len(rows) == _captured(over_ranks) else MAX_ODD, MAX_CELLS // len(steps)))
    chosen = odd_first(medians[:, np.newaxis].tolist(), most)
    if len(chosen) < len(rows):
        chosen.sort(key=lambda i: -medians[i])
    slowest, what = int(medians.argmax()), _time_of(own)
    drawn = over_ranks[: len(steps)]
    found = RankTimes(
        names=[rows[i].name for i in chosen],
        steps=[str(number) for number in steps],
        what=capitalized(what),
        unit="ms",
        digits=2,
        times=own.ns[chosen, : len(steps)] / NS_PER_MS,
        **{name: np.array([getattr(step, f"{name}_ns") for step in drawn]) / NS_PER_MS for name in _ENDS},
    )
    return rank_times(
        "profiled-steps-ranks",
        found,
        finding=f"{capitalized(rows[slowest].name)} has the longest {what} per step: median {ns_text(medians[slowest])}; "
        f"median rank {ns_text(float(np.median([step.median_ns for step in over_ranks])))}.",
        aid=_TIMES[what] + omitted(len(chosen), _captured(over_ranks), "rank"),
        more=formats.not_shown(len(own.numbers) - len(steps), "later step"),
        table=_own_table(found.names, steps, own.ns[chosen, : len(steps)], what),
    )


def _time_of(own: OwnTimes) -> str:
    """Own time; the time of steps if waiting for other ranks is not known."""
    return "own time" if own.own else "time"


def _captured(over_ranks: Sequence[StepOfRanks]) -> int:
    """The number of captures with steps."""
    return max(step.captures for step in over_ranks)


def _own_table(names: Sequence[str], steps: Sequence[int], times: FloatArray, what: str) -> Table:
    scale = ns_scale([int(np.nan_to_num(times).max())])
    return Table(
        label=f"{capitalized(what)} of each rank in each step",
        fold=f"{what} of each rank in each step ({scale.unit})",
        heads=(":Rank", *(f"Step {number}" for number in steps)),
        rows=[
            (name, *("not recorded" if np.isnan(ns) else scale(ns * NS) for ns in row))
            for name, row in zip(names, times.tolist(), strict=True)
        ],
    )


def _table(over_ranks: Sequence[StepOfRanks], what: str) -> Table:
    """Each step over all ranks: how much the slowest exceeds the median."""
    steps = over_ranks[:MAX_STEPS]
    scale = ns_scale([step.longest_ns for step in steps])
    return Table(
        label="Steps over all ranks",
        caption=f"{capitalized(what)} of each step over all ranks. Imbalance: longest over median, minus 1.",
        fold="steps over all ranks" if len(steps) > 16 else "",
        heads=(
            *(":Step", "Ranks", f"Shortest ({scale.unit})", f"Median ({scale.unit})"),
            *(f"Longest ({scale.unit})", ":Longest on", "Imbalance (%)"),
        ),
        rows=[
            (
                str(step.number),
                formats.number(step.captures, 0),
                *(scale(getattr(step, f"{name}_ns") * NS) for name in _ENDS),
                "–" if step.longest_on is None else f"rank {step.longest_on}",
                formats.number(percent_of(step.longest_ns - step.median_ns, step.median_ns)),
            )
            for step in steps
        ],
    )


def _widest(devices: Sequence[DeviceRow], rows: Sequence[CaptureRow], own: OwnTimes) -> DeviceRow:
    """The device of the rank with the longest own time per step."""
    medians = {row.capture.file: ns for row, ns in zip(rows, own.medians_ns.tolist(), strict=True)}
    return max(devices, key=lambda row: (medians[row.capture.file], row.device.busy_ns))


def _step_parts(step: DeviceStep) -> dict[str, int]:
    waiting = step.exposed_waiting_ns or 0
    return {
        "computing": step.compute_ns,
        "communication": step.exposed_communication_ns - waiting,
        "waiting": waiting,
        "copies": step.exposed_copies_ns,
        "device-idle": step.idle_ns,
    }


def _parts(row: DeviceRow, what: str) -> Figure:
    steps = row.device.steps[:MAX_STEPS]
    parts = [part for part in _STEP_PARTS if any(_step_parts(step)[part] for step in steps)]
    looks = [(named(part).fill, named(part).name) for part in parts]
    times_ms = np.array([[_step_parts(step)[part] for step in steps] for part in parts]) / 1e6
    return Figure(
        name="profiled-steps-parts",
        title="Steps in parts",
        finding=_parts_caption(row, steps),
        aid=f"One bar per step.{formats.not_shown(len(row.device.steps) - len(steps), 'later step')}",
        drawings=(Drawing(figure=drawings.step_parts([step.number for step in steps], looks, times_ms)),),
        key=tuple((*look, f"kind-{i}") for i, look in enumerate(looks)),
        reading=f"The device of the rank with the longest {what} per step. A step on the device lasts from the end of the work "
        "of the step before it to the end of its own.",
        tables=[_parts_table(row, parts)],
    )


def _parts_caption(row: DeviceRow, steps: Sequence[DeviceStep]) -> str:
    """The longest step, and the part that it has more of than the median step."""
    complete = [step for step in steps if step.number != row.device.incomplete_step] or steps
    longest = max(complete, key=lambda step: step.window_ns)
    median = float(np.median([step.window_ns for step in complete]))
    more = {
        part: _step_parts(longest)[part] - float(np.median([_step_parts(step)[part] for step in complete]))
        for part in _STEP_PARTS
    }
    most = max(more, key=more.__getitem__)
    found = (
        f"Step {longest.number} is the longest on the device of {row.name}: {ns_text(longest.window_ns)}, "
        f"median {ns_text(median)}"
    )
    if more[most] <= 0.01 * median:
        return f"{found}."
    return f"{found}; {ns_text(more[most])} more {named(most).name} than usual."


def _parts_table(row: DeviceRow, parts: Sequence[str]) -> Table:
    steps = row.device.steps[:MAX_STEPS]
    scale = ns_scale([step.window_ns for step in steps])
    host = {step.number: step.host_ns for step in row.capture.step_times}
    return Table(
        label=f"Steps of {row.name} in parts",
        fold=f"steps in parts ({scale.unit})",
        heads=(":Step", "On the host", "On the device", *(named(part).title for part in parts)),
        rows=[
            (
                f"{step.number}{' (cut short)' if step.number == row.device.incomplete_step else ''}",
                scale(host[step.number] * NS) if step.number in host else "–",
                scale(step.window_ns * NS),
                *(scale(_step_parts(step)[part] * NS) for part in parts),
            )
            for step in steps
        ],
    )


def _one_step(row: CaptureRow, lines: StepLines) -> Figure:
    length = lines.end_ns - lines.start_ns
    names = drawings.lane_names(lines)
    streams = [(lane, name) for lane, name in zip(lines.lanes, names, strict=True) if lane.name]
    caption = f"Step {lines.number} of {row.name} took {ns_text(length)} with its last kernel"
    if streams:
        lane, name = max(streams, key=lambda one: one[0].covered_ns)
        share = formats.percent(percent_of(lane.covered_ns, length))
        caption += f"; {formats.escape_name(name, 40)} was busy for {share}"
    kinds = {BAR_KINDS[code] for code in np.frombuffer(lines.bars, "<i4").reshape(-1, 6)[:, 3].tolist()}
    scale = ns_scale([lane.covered_ns for lane in lines.lanes])
    return Figure(
        name=f"profiled-steps-slowest-{row.capture.rank if row.capture.rank is not None else 'x'}",
        title=f"Slowest step of {row.name}",
        finding=f"{caption}.",
        aid="Milliseconds from the start of the step; host above, streams of the device below.",
        drawings=[Drawing(figure=drawings.one_step(lines), style=f"ranked {rows_class(len(lines.lanes))}")],
        key=tuple((*look, kind) for kind, look in drawings.KINDS.items() if kind in kinds),
        zoom="the step",
        reading=f"Events shorter than {ns_text(lines.cell_ns)} that begin close together share a bar. "
        "Launches: calls of the runtime on all threads; other rows of the host: the thread of the steps.",
        tables=[
            Table(
                label=f"Rows of the slowest step of {row.name}",
                fold="time per row",
                heads=(":Row", "Events", f"Time ({scale.unit})", "Covers (%)"),
                rows=[
                    (
                        formats.escape_name(name, 60),
                        formats.number(lane.events, 0),
                        scale(lane.covered_ns * NS),
                        formats.number(percent_of(lane.covered_ns, length)),
                    )
                    for lane, name in zip(lines.lanes, names, strict=True)
                ],
            )
        ],
    )
