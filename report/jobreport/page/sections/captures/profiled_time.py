"""Time of devices while PyTorch's profiler recorded: each moment in one part."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jobreport import formats
from jobreport.page.figures.names import rows_class
from jobreport.page.figures.stacked import Part, stacked
from jobreport.page.kit import Drawing, Figure, Sentences, Table
from jobreport.page.kit.table import as_code
from jobreport.page.sections.captures.parts import (
    MAX_ALL,
    NO_DEVICE,
    NS,
    DeviceRow,
    captures_of,
    devices_of,
    nothing,
    ns_scale,
    ns_text,
    odd_first,
    omitted,
    percent_of,
    without_empty,
)
from jobreport.page.sections.outline import section
from jobrules.model.time_parts import named
from jobrules.rules.traces.shares import profiled_gpus
from jobrules.text import capitalized, some_of
from jobrules.verdict.profiled import MIN_LEAD_IN, ranks_of, world_sizes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.document import Report
    from jobreport.page.kit.section import Content
    from jobrules.model.captures import Capture, DeviceCapture
    from jobrules.verdict.sampled_gpus import SampledGPUs

#: The parts of a device's time, in the order in which they are drawn.
PARTS = ("computing", "transfer", "communication", "waiting", "not-matched", "copies", "device-idle")
#: A device that computes less than the median by more points is named.
ALIKE_POINTS = 1.0
#: Captures that are listed without a fold.
MAX_OPEN = 8
#: How the GPUs of the samples were found, or why not.
_MATCHES = {
    "node": "",
    "order": "Assumed: ranks are in the order of the sampled GPUs.",
    "counts": "Which of the sampled GPUs these are is not known: nodes or numbers of GPUs differ.",
    "differs": "Which of the sampled GPUs these are is not known: utilization then was not what the traces show.",
}
_SWITCHES = {
    "record_shapes": "shapes",
    "with_stack": "stacks",
    "profile_memory": "memory",
    "with_modules": "modules",
    "with_flops": "FLOPs",
}


@section
def profiled_time(report: Report) -> Content:
    """Recorded captures, and the time of each device in parts."""
    rows = devices_of(report)
    if not rows:
        return [NO_DEVICE, _captures(report)] if report.captures else nothing(report, NO_DEVICE)
    return [Sentences(_lead(report, rows)), _figure(rows), _captures(report)]


def parts_of(device: DeviceCapture) -> dict[str, int]:
    """The parts of a device's time, which add up to its window; communication in parts where ranks are matched."""
    split = device.exposed_waiting_ns is not None
    found = {
        "computing": device.compute_ns,
        "transfer": device.exposed_transfer_ns or 0,
        "communication": 0 if split else device.exposed_communication_ns,
        "waiting": device.exposed_waiting_ns or 0,
        "not-matched": device.not_matched_ns or 0,
        "copies": device.exposed_copies_ns,
        "device-idle": device.idle_ns,
    }
    return {part: found[part] for part in PARTS}


def parts_in(rows: Sequence[DeviceRow]) -> list[str]:
    """The parts that any device has; computing and idle time always."""
    found = [parts_of(row.device) for row in rows]
    return [part for part in PARTS if part in ("computing", "device-idle") or any(one[part] for one in found)]


def _lead(report: Report, rows: Sequence[DeviceRow]) -> list[str]:
    captures = [row.capture for row in captures_of(report)]
    ranks, sizes = ranks_of(captures), world_sizes(captures)
    parts = [formats.count(len(captures), "capture")]
    if len(sizes) > 1:
        parts.append("several jobs or attempts")
    elif sizes and ranks:
        parts.append(some_of(len(ranks), max(sizes[0], len(ranks)), "rank"))
    hosts = {one.host for one in captures if one.host}
    counts = (len(profiled_gpus(captures)), "GPU"), (len(hosts), "node")
    parts += [formats.count(n, what) for n, what in counts if n]
    parts.append(f"at most {formats.count(max(one.steps for one in captures), 'step')} each")
    parts.append(f"{ns_text(sum(row.device.window_ns for row in rows))} of device time")
    found = [f"Recorded: {', '.join(parts)}."]
    captured, repeated = len(captures), len(report.captures or ()) - len(captures)
    if repeated:
        found.append(f"Left out: {formats.count(repeated, 'file')} with the same capture as another.")
    if empty := sum(not one.devices for one in captures):
        found.append(f"Captures without GPU activity: {empty} of {captured}.")
    if len(profiled_gpus(captures)) < len(rows) or sum(one.rank is None for one in captures) > 1:
        found.append("A GPU is a device of a rank, over all its captures, or of one capture without a rank.")
    longest = max(rows, key=lambda row: row.device.lead_in_ns)
    if percent_of(longest.device.lead_in_ns, longest.device.window_ns) > MIN_LEAD_IN:
        found.append(
            f"At most {ns_text(longest.device.lead_in_ns)} before the first recorded kernel are not judged "
            f"({longest.name}); {ns_text(longest.device.lead_in_loading_ns)} of it was data loading."
        )
    incomplete = [row for row in rows if not row.device.complete]
    if incomplete:
        names = formats.join_names([row.name for row in incomplete])
        found.append(f"Events are missing from the trace of {names}: idle time has no causes there.")
    other = [row.name for row in captures_of(report) if row.capture.no_steps == "other_process"]
    if other:
        found.append(f"The steps of {formats.join_names(other)} belong to another process and are not used.")
    if (sampled := _sampled(report)) and _MATCHES[sampled.match]:
        found.append(_MATCHES[sampled.match])
    return found


def _sampled(report: Report) -> SampledGPUs | None:
    profiled = report.verdict.profiled
    return profiled.sampled if profiled else None


def _figure(rows: Sequence[DeviceRow]) -> Figure:
    parts = parts_in(rows)
    shares = [
        [percent_of(parts_of(row.device)[part], row.device.window_ns) for part in parts] for row in rows
    ]
    chosen = odd_first(shares)
    several = len(rows) > 1
    bars = [
        Part(
            style=named(part).fill,
            label=named(part).name,
            percents=tuple(shares[i][j] for i in chosen),
            amounts=tuple(ns_text(parts_of(rows[i].device)[part]) for i in chosen),
        )
        for j, part in enumerate(parts)
    ]
    names = [rows[i].name for i in chosen]
    return Figure(
        name="profiled-time-parts",
        title="Profiled time in parts",
        finding=_caption(rows),
        aid="Exposed: nothing was computed meanwhile." + omitted(len(chosen), len(rows), "device"),
        drawings=(
            Drawing(
                figure=stacked(names, bars, bar="Device", amount="Time"),
                style=rows_class(len(names)) + (" names" if several else ""),
            ),
        ),
        key=tuple((part.style, part.label, f"kind-{j}") for j, part in enumerate(bars)),
        reading="Percent of the profiled time. Each moment counts once: as computing, else as communication, else as "
        "copies, else as idle.",
        tables=[_table([rows[i] for i in chosen], parts)],
    )


def _caption(rows: Sequence[DeviceRow]) -> str:
    """Share of computing, the largest other part, and the device that computed least."""
    window = sum(row.device.window_ns for row in rows)
    sums = {part: sum(parts_of(row.device)[part] for row in rows) for part in PARTS}
    rest = max((part for part in PARTS if part != "computing"), key=sums.__getitem__)
    computed, lost = (formats.percent(percent_of(sums[part], window)) for part in ("computing", rest))
    found = f"{computed} of the profiled time was computing, {lost} {named(rest).name}"
    shares = [percent_of(row.device.compute_ns, row.device.window_ns) for row in rows]
    lowest = int(np.argmin(shares))
    if float(np.median(shares)) - shares[lowest] > ALIKE_POINTS:
        found += f". {capitalized(rows[lowest].name)} computed least, {formats.percent(shares[lowest])}"
    return f"{found}."


def _table(rows: Sequence[DeviceRow], parts: Sequence[str]) -> Table:
    scale = ns_scale([row.device.window_ns for row in rows])
    return Table(
        label="Profiled time of each device in parts",
        fold="time of each device in parts",
        caption="Busy: any kernel or copy ran. Kernel busy: what nvidia-smi calls utilization. Before: up to the first "
        "recorded kernel, not judged.",
        heads=(
            ":Device",
            f"Profiled ({scale.unit})",
            *(f"{named(part).title} ({scale.unit})" for part in parts),
            *(f"{named(part).title} (%)" for part in parts),
            *("Busy (%)", "Kernel busy (%)", f"Before ({scale.unit})"),
        ),
        rows=[
            (
                row.name,
                scale(row.device.window_ns * NS),
                *(scale(parts_of(row.device)[part] * NS) for part in parts),
                *(
                    formats.number(percent_of(parts_of(row.device)[part], row.device.window_ns))
                    for part in parts
                ),
                *(
                    formats.number(percent_of(ns, row.device.window_ns))
                    for ns in (row.device.busy_ns, row.device.kernel_busy_ns)
                ),
                scale(row.device.lead_in_ns * NS),
            )
            for row in rows
        ],
    )


def _captures(report: Report) -> Table:
    rows = captures_of(report)
    shown = rows[:MAX_ALL]
    sampled = _sampled(report)
    gpus = sampled.gpus if sampled else {}
    return without_empty(
        label="Captures",
        caption=f"Captures, one per file.{formats.not_shown(len(rows) - len(shown), 'capture')}",
        fold="captures" if len(rows) > MAX_OPEN else "",
        heads=(
            ":Capture",
            ":File",
            ":Node",
            ":Devices",
            ":Sampled as",
            "Steps",
            "Length (ms)",
            ":Recorded too",
            ":Versions",
        ),
        rows=[
            (
                "–" if row.capture.rank is None else row.name,
                as_code(row.capture.file),
                formats.escape_name(row.capture.host, 32) or "–",
                _devices(row.capture),
                formats.escape_name(" ".join(gpus.get(row.capture.rank or 0, ())), 60) or "–",
                formats.number(row.capture.steps, 0),
                formats.number((row.capture.end_ns - row.capture.start_ns) / 1e6),
                _recorded(row.capture),
                _versions(row.capture),
            )
            for row in shown
        ],
    )


def _devices(capture: Capture) -> str:
    names = [formats.escape_name(one.name, 40) or f"device {one.device}" for one in capture.devices]
    return formats.join_names(names) or "none"


def _recorded(capture: Capture) -> str:
    """``shapes and stacks``: what costs time while it is recorded."""
    found = [_SWITCHES[one] for one in capture.recorded if one in _SWITCHES]
    if capture.python_calls and "stacks" not in found:
        found.append("stacks")
    return formats.join_names(found) or "–"


def _versions(capture: Capture) -> str:
    found = [
        f"{name.removesuffix('_version').replace('_', ' ')} {version}"
        for name, version in capture.versions.items()
    ]
    return formats.join_names([formats.escape_name(one, 40) for one in found]) or "–"
