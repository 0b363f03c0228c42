"""Communication that PyTorch's profiler recorded: what hid it, who waited for whom, and how fast it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jobreport import formats
from jobreport.page.figures.captures import communication as drawings
from jobreport.page.figures.names import rows_class
from jobreport.page.kit import Drawing, Figure, Sentences, Table
from jobreport.page.sections.captures.parts import (
    MAX_ODD,
    NO_DEVICE,
    NS,
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
from jobrules.text import some_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.document import Report
    from jobreport.page.kit.section import Content
    from jobreport.page.sections.captures.parts import DeviceRow
    from jobrules.model.captures import AcrossRanks, CollectiveTable, RankWaiting, Skew

#: Rows of the table of collectives.
MAX_COLLECTIVES = 25
_NOT_MATCHED = {
    "one_rank": "Only one rank has a trace, so waiting for other ranks is unknown: record more ranks.",
    "counts": "The ranks recorded different numbers of collectives, so waiting for other ranks is unknown.",
    "not_synchronizing": "No recorded kind of collective makes all ranks wait, so waiting is unknown.",
}


@section
def communication(report: Report) -> Content:
    """Share that computing hid, waiting between ranks, and all collectives by size."""
    rows = [row for row in devices_of(report) if row.device.communication_ns]
    if not rows:
        why = "No communication kernel was recorded." if devices_of(report) else NO_DEVICE
        return nothing(report, why)
    across = report.across_ranks or None
    return [
        Sentences(_lead(rows, across)),
        _waiting(across) if across and any(one.suffered_ns for one in across.waiting) else None,
        _skew(across.skew) if across and across.skew else None,
        _overlap(rows),
        _collectives(across) if across else None,
    ]


def _lead(rows: Sequence[DeviceRow], across: AcrossRanks | None) -> list[str]:
    whole, exposed = (
        sum(getattr(row.device, name) for row in rows)
        for name in ("communication_ns", "exposed_communication_ns")
    )
    window = sum(row.device.window_ns for row in rows)
    found = [
        f"{formats.percent(percent_of(whole - exposed, whole))} of communication was hidden behind computing; "
        f"the rest, exposed communication, took {formats.percent(percent_of(exposed, window))} of the profiled time."
    ]
    if across is None:
        return found
    if across.reason:
        found.append(_NOT_MATCHED[across.reason])
    else:
        here = len(across.ranks)
        world = max(across.world_size or 0, here)
        found.append(
            f"{formats.count(across.matched, 'collective')} matched between {some_of(here, world, 'rank')}."
        )
        if across.not_matched:
            found.append(f"Not matched: {formats.count(across.not_matched, 'call')} of single ranks.")
        if here < world:
            found.append("Ranks without a trace make waiting a lower bound.")
    if across.alone:
        found.append(f"Recorded at other times than the other ranks: {formats.join_names(across.alone)}.")
    return found


def _waiting(across: AcrossRanks) -> Figure:
    ranks = across.waiting
    caused = [percent_of(one.caused_ns, across.window_ns) for one in ranks]
    # On the scale of the first, which is of all ranks, this one would vanish in a large job.
    suffered = [percent_of(one.suffered_ns, across.window_ns / len(ranks)) for one in ranks]
    chosen = odd_first(list(zip(caused, suffered, strict=True)), MAX_ODD)
    if len(chosen) < len(ranks):
        chosen.sort(key=lambda i: -caused[i])
    names = [f"rank {ranks[i].rank}" for i in chosen]
    return Figure(
        name="communication-waiting",
        title="Waiting between ranks",
        finding=_waited(across),
        aid="Percent of the profiled time." + omitted(len(chosen), len(ranks), "rank"),
        drawings=(
            Drawing(
                figure=drawings.waiting(names, [caused[i] for i in chosen], [suffered[i] for i in chosen]),
                style=f"names {rows_class(len(names))}",
            ),
        ),
        key=((*drawings.CAUSED, "caused"), (*drawings.SUFFERED, "suffered")),
        reading="A collective's shortest duration over the ranks is its transfer; the rest is waiting for the rank "
        "with the shortest duration, which arrived last. Percent of the time of all ranks where others waited for a rank, and "
        "of one rank where it waited.",
        tables=[_waiting_table([ranks[i] for i in chosen], across)],
    )


def _skew(skew: Skew) -> Figure:
    columns = skew.columns
    scale = ns_scale([column.longest_ns for column in columns])
    most = max(columns, key=lambda column: column.longest_ns)
    calls = np.array([column.calls for column in columns])
    usual = float(np.median(np.repeat([column.median_ns for column in columns], calls)))
    group = f" of group {formats.escape_name(skew.group, 40)}" if skew.group else ""
    at = formats.number(most.start_ns / 1e6, 1)
    return Figure(
        name="communication-skew",
        title="Skew over the capture",
        finding=f"Skew{group}: median {ns_text(usual)}, longest {ns_text(most.longest_ns)}, when "
        f"rank{formats.NBSP}{most.last} arrived last at {at}{formats.NBSP}ms.",
        aid="Skew: wait of a collective's first rank for its last. Milliseconds from the first recorded kernel.",
        drawings=[Drawing(figure=drawings.skew(skew, scale))],
        key=((*drawings.LONGEST, "longest"), (*drawings.MEDIAN, "median")),
        zoom="skew",
        reading=f"Collectives of {formats.count(skew.ranks, 'rank')} in columns of {ns_text(skew.column_ns)}. "
        "The group whose ranks waited most.",
        tables=[
            Table(
                label="Skew over the capture",
                fold="skew over the capture",
                heads=(
                    *("From (ms)", "Collectives", f"Median ({scale.unit})", f"Longest ({scale.unit})"),
                    ":Arrived last in it",
                ),
                rows=[
                    (
                        formats.number(column.start_ns / 1e6, 2),
                        formats.number(column.calls, 0),
                        scale(column.median_ns * NS),
                        scale(column.longest_ns * NS),
                        f"rank {column.last}",
                    )
                    for column in columns
                ],
            )
        ],
    )


def _waited(across: AcrossRanks) -> str:
    """Time that ranks waited for one another, and the rank that others waited for most."""
    whole = sum(one.suffered_ns for one in across.waiting)
    most = max(across.waiting, key=lambda one: one.caused_ns)
    return (
        f"Ranks waited for one another in {formats.percent(percent_of(whole, across.window_ns))} of the profiled "
        f"time, {formats.percent(percent_of(most.caused_ns, whole))} of it for rank{formats.NBSP}{most.rank}."
    )


def _waiting_table(ranks: Sequence[RankWaiting], across: AcrossRanks) -> Table:
    scale = ns_scale([ns for one in ranks for ns in (one.caused_ns, one.suffered_ns)])
    whole = sum(one.caused_ns for one in across.waiting)
    return Table(
        label="Waiting between ranks",
        fold="waiting of each rank",
        caption="Arrived last: matched collectives that the rank was the last to join.",
        heads=(
            ":Rank",
            *(f"Others waited for it ({scale.unit})", "Share of all waiting (%)"),
            *(f"It waited ({scale.unit})", "Arrived last"),
        ),
        rows=[
            (
                f"rank {one.rank}",
                scale(one.caused_ns * NS),
                formats.number(percent_of(one.caused_ns, whole)),
                scale(one.suffered_ns * NS),
                formats.number(one.last, 0),
            )
            for one in ranks
        ],
    )


def _overlap(rows: Sequence[DeviceRow]) -> Table:
    shares = [
        (
            percent_of(row.device.exposed_communication_ns, row.device.window_ns),
            row.device.overlap_percent or 0.0,
        )
        for row in rows
    ]
    chosen = [rows[i] for i in odd_first(shares)]
    scale = ns_scale([row.device.communication_ns for row in chosen])
    return Table(
        label="Communication of each device",
        caption=f"Communication of each device.{omitted(len(chosen), len(rows), 'device')}",
        fold="communication of each device" if len(rows) > MAX_ODD // 2 else "",
        heads=(
            *(":Device", f"Communication ({scale.unit})", f"Exposed ({scale.unit})"),
            *("Exposed (% of profiled time)", "Hidden (% of communication)"),
        ),
        rows=[
            (
                row.name,
                scale(row.device.communication_ns * NS),
                scale(row.device.exposed_communication_ns * NS),
                formats.number(percent_of(row.device.exposed_communication_ns, row.device.window_ns)),
                formats.known(row.device.overlap_percent),
            )
            for row in chosen
        ],
    )


def _collectives(across: AcrossRanks) -> Table:
    found = sorted(across.collectives, key=lambda one: -one.calls * one.median_transfer_ns)
    shown = found[:MAX_COLLECTIVES]
    times = ns_scale([int(max(one.median_transfer_ns, one.median_skew_ns or 0)) for one in shown])
    bytes_ = formats.rate_scale((float(one.bytes or 0) for one in shown), "B")
    sums = formats.rate_scale((float(one.total_bytes or 0) for one in shown), "B")
    return without_empty(
        label="Collectives by kind, type, size, and group",
        caption="Collectives, most time first; medians. Without skew, transfer includes waiting."
        + formats.not_shown(len(found) - len(shown), "row"),
        heads=(
            *(
                ":Kind",
                ":Type",
                f"Size ({bytes_.unit})",
                "Ranks",
                ":Group",
                "Calls",
                f"In total ({sums.unit})",
            ),
            *(f"Transfer ({times.unit})", f"Skew ({times.unit})", "algbw (GB/s)", "busbw (GB/s)"),
        ),
        rows=[_collective(one, times, bytes_.factor, sums.factor) for one in shown],
    )


def _collective(one: CollectiveTable, times: formats.TimeScale, size: float, total: float) -> tuple[str, ...]:
    return (
        formats.escape_name(one.kind, 24) or "–",
        formats.escape_name(one.dtype, 24) or "–",
        formats.known(None if one.bytes is None else one.bytes / size, 2),
        "–" if one.group_size is None else formats.number(one.group_size, 0),
        formats.escape_name(one.group, 40) or "–",
        formats.number(one.calls, 0),
        formats.known(None if one.total_bytes is None else one.total_bytes / total, 2),
        times(one.median_transfer_ns * NS),
        "–" if one.median_skew_ns is None else times(one.median_skew_ns * NS),
        formats.known(one.algorithm_bandwidth, 2),
        formats.known(one.bus_bandwidth, 2),
    )
