"""Why devices were idle while PyTorch's profiler recorded, and what the host did meanwhile."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from jobreport import formats
from jobreport.page.figures.chart import upward
from jobreport.page.figures.names import rows_class
from jobreport.page.figures.scales import ceiling
from jobreport.page.figures.stacked import Part, stacked
from jobreport.page.kit import Drawing, Figure, Sentences, Table
from jobreport.page.kit.table import as_code
from jobreport.page.sections.captures.parts import (
    NO_DEVICE,
    NS,
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
from jobrules.model.captures import IDLE_CAUSES, IdleCause
from jobrules.model.time_parts import TIME_PARTS, NamedPart
from jobrules.text import some_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.document import Report
    from jobreport.page.kit.section import Content
    from jobreport.page.sections.captures.parts import DeviceRow

#: Part of time of each cause.
CAUSES: dict[IdleCause, NamedPart] = {
    "between_kernels": TIME_PARTS["between-kernels"],
    "launch_latency": TIME_PARTS["launch-latency"],
    "host": TIME_PARTS["late-launch"],
    "data_loading": TIME_PARTS["data-loading"],
    "synchronisation": TIME_PARTS["synchronization"],
    "memory_allocation": TIME_PARTS["memory-allocation"],
    "profiler": TIME_PARTS["profiler"],
    "device_wait": TIME_PARTS["device-wait"],
    "unlinked": TIME_PARTS["not-linked"],
}
#: Rows of what the host did.
MAX_ROWS = 15
#: Blocking calls in a sentence.
MAX_CALLS = 3


@section
def idle_time(report: Report) -> Content:
    """Idle time of each device by cause, and the operators in which the host spent it."""
    rows = [row for row in devices_of(report) if row.device.complete and row.device.window_ns]
    if not rows:
        why = "Events are missing from the traces: the causes of idle time are unknown."
        return nothing(report, why if devices_of(report) else NO_DEVICE)
    if not any(row.device.idle_ns for row in rows):
        return nothing(report, "No device was idle.")
    return [
        Sentences(_calls(report)),
        _figure(rows, sum(not row.device.complete for row in devices_of(report))),
        _host(report),
    ]


def _causes_in(rows: Sequence[DeviceRow]) -> list[IdleCause]:
    return [cause for cause in IDLE_CAUSES if any(row.device.idle_by_cause_ns[cause] for row in rows)]


def _figure(rows: Sequence[DeviceRow], incomplete: int) -> Figure:
    """``incomplete`` is the number of devices whose traces lack events, so that no cause is known."""
    causes = _causes_in(rows)
    shares = [
        [percent_of(row.device.idle_by_cause_ns[cause], row.device.window_ns) for cause in causes]
        for row in rows
    ]
    chosen = odd_first(shares)
    names = [rows[i].name for i in chosen]
    bars = [
        Part(
            style=CAUSES[cause].fill,
            label=CAUSES[cause].name,
            percents=tuple(shares[i][j] for i in chosen),
            amounts=tuple(ns_text(rows[i].device.idle_by_cause_ns[cause]) for i in chosen),
        )
        for j, cause in enumerate(causes)
    ]
    top = min(100.0, ceiling(max(sum(shares[i]) for i in chosen)))
    several = len(rows) > 1
    return Figure(
        name="idle-time-causes",
        title="Idle time by cause",
        finding=_caption(rows, len(rows) + incomplete),
        aid="Percent of the profiled time."
        + omitted(len(chosen), len(rows), "device")
        + formats.not_shown(incomplete, "device with incomplete events", "devices with incomplete events"),
        drawings=(
            Drawing(
                figure=stacked(names, bars, bar="Device", amount="Time", x=upward(top, 4, unit="%")),
                style=rows_class(len(names)) + (" names" if several else ""),
            ),
        ),
        key=tuple((bar.style, bar.label, f"kind-{j}") for j, bar in enumerate(bars)),
        reading="A gap without work has one cause for each moment, see Method. Between queued kernels, launch latency, "
        "and late launches together are launch-bound time. Hatched: no event of the trace explains it.",
        tables=[_table([rows[i] for i in chosen], causes)],
    )


def _caption(rows: Sequence[DeviceRow], devices: int) -> str:
    """Idle share of devices, and the largest cause."""
    window, idle = (sum(getattr(row.device, name) for row in rows) for name in ("window_ns", "idle_ns"))
    sums = {cause: sum(row.device.idle_by_cause_ns[cause] for row in rows) for cause in IDLE_CAUSES}
    most = max(IDLE_CAUSES, key=sums.__getitem__)
    share = formats.percent(percent_of(sums[most], idle))
    return (
        f"Idle: {formats.percent(percent_of(idle, window))} of the profiled time of "
        f"{some_of(len(rows), devices, 'device')}, {ns_text(idle)}. Largest cause: {CAUSES[most].name}, {share} of the idle "
        "time."
    )


def _table(rows: Sequence[DeviceRow], causes: Sequence[IdleCause]) -> Table:
    scale = ns_scale([row.device.idle_ns for row in rows])
    return Table(
        label="Idle time of each device by cause",
        fold="idle time of each device by cause",
        heads=(
            *(":Device", f"Idle ({scale.unit})", "Idle (%)"),
            *(f"{CAUSES[cause].title} ({scale.unit})" for cause in causes),
        ),
        rows=[
            (
                row.name,
                scale(row.device.idle_ns * NS),
                formats.number(percent_of(row.device.idle_ns, row.device.window_ns)),
                *(scale(row.device.idle_by_cause_ns[cause] * NS) for cause in causes),
            )
            for row in rows
        ],
    )


def _host(report: Report) -> Table:
    """In which operators and marks the host spent the time for which devices waited, summed over captures."""
    sums: Counter[str] = Counter()
    for row in captures_of(report):
        for part in row.capture.host_parts:
            sums[part.name] += part.time_ns
    whole = sum(
        row.device.idle_by_cause_ns["host"]
        for row in devices_of(report)
        if row.device.complete and row.capture.host_parts
    )
    found = sums.most_common(MAX_ROWS)
    scale = ns_scale([ns for _, ns in found])
    return Table(
        label="What the host did while devices waited for a launch",
        caption="What the host did while a device waited for a launch: the innermost operator or mark.",
        heads=(":Operator or mark", f"Time ({scale.unit})", "Share of late launches (%)"),
        rows=[
            (
                as_code(name) if name else "outside any operator (Python)",
                scale(ns * NS),
                formats.number(percent_of(ns, whole)),
            )
            for name, ns in found
        ],
    )


def _calls(report: Report) -> list[str]:
    """Number of batch fetches, and calls that blocked the host."""
    captures = [row.capture for row in captures_of(report)]
    found = []
    fetches, loading = (sum(getattr(one, name) for one in captures) for name in ("loader_calls", "loader_ns"))
    if fetches:
        names = formats.join_names(
            list(dict.fromkeys(name for one in captures for name in one.loader_names)), 2
        )
        found.append(
            f"The loop fetched {formats.count(fetches, 'batch', 'batches')} in {ns_text(loading)}: {names}."
        )
    calls: Counter[str] = Counter()
    for one in captures:
        calls.update(dict(one.blocking_calls))
    if calls:
        most = [
            f"{formats.escape_name(name, 60)} {formats.number(n, 0)}×"
            for name, n in calls.most_common(MAX_CALLS)
        ]
        found.append(f"Calls that block the host: {formats.join_names(most)}.")
    return found
