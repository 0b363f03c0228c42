"""Kernels and operators that PyTorch's profiler recorded, by their own time."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobreport import formats
from jobreport.page.figures.captures.launches import lengths
from jobreport.page.figures.framework import MAX_RANKED, Rank, other, ranked
from jobreport.page.figures.names import rows_class
from jobreport.page.kit import Drawing, Figure, Sentences, Subsection, Table
from jobreport.page.kit.table import as_code
from jobreport.page.sections.captures.kernel_names import short_names
from jobreport.page.sections.captures.parts import (
    MAX_ALL,
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
from jobrules.model.captures import BIN_ENDS_NS, Operators
from jobrules.text import capitalized

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.document import Report
    from jobreport.page.kit.section import Content
    from jobreport.page.sections.captures.parts import CaptureRow, DeviceRow
    from jobrules.model.captures import Kernels

#: Rows of the table of kernels, and rows of operators that are not folded away.
MAX_ROWS, MAX_OPEN = 25, 10
#: Marks of the profiler itself, which old versions write as operators.
STEP = "ProfilerStep#"
_KINDS = {"compute": "computing", "communication": "communication", "copy": "copy"}
_CORES = {True: "yes", False: "no", None: "–"}


class KernelSum(Struct, frozen=True, kw_only=True):
    """All kernels of one name on all devices."""

    first: Kernels
    calls: int
    total_ns: int
    max_ns: int
    #: Median duration and thread blocks per multiprocessor if one device has all, otherwise None.
    median_ns: float | None
    blocks_per_sm: float | None


@section
def kernels(report: Report) -> Content:
    """Kernels, their launches, and operators."""
    devices = [row for row in devices_of(report) if row.device.kernel_calls]
    of_device = [row for row in devices if row.device.kernels]
    captures = [row for row in captures_of(report) if row.capture.operators or row.capture.marks]
    if not of_device and not captures:
        return nothing(report, "The traces hold neither kernels nor operators.")
    launched = [row for row in devices if row.device.launches]
    return [
        Sentences([*_lead(devices), *_detailed(devices, of_device)]),
        Subsection(title="Kernels", blocks=[_figure(of_device), _fill(devices)] if of_device else []),
        Subsection(title="Launches", blocks=[*_lengths(launched), _launches(launched)] if launched else []),
        Subsection(title="Operators", blocks=_operators(captures)),
        Subsection(title="Marks", blocks=_marks(captures)),
    ]


def _lead(rows: Sequence[DeviceRow]) -> list[str]:
    found = []
    whole, cores, without = (
        sum(getattr(row.device, name) for row in rows)
        for name in ("compute_total_ns", "tensor_core_ns", "no_tensor_core_ns")
    )
    if cores or without:
        found.append(
            f"By their names, {formats.percent(percent_of(cores, whole))} of computing time used tensor cores and "
            f"{formats.percent(percent_of(without, whole))} did not; other names do not say."
        )
    return found


def _detailed(devices: Sequence[DeviceRow], of_device: Sequence[DeviceRow]) -> list[str]:
    """Devices of a large job that have names of kernels."""
    if len(of_device) == len(devices):
        return []
    whole = formats.count(len(devices), "device")
    shown = formats.number(len(of_device), 0)
    return [f"Names are those of {shown} of {whole}: the ones that computed least and most."]


def kernel_sums(rows: Sequence[DeviceRow]) -> list[KernelSum]:
    """The kernels of all devices by name, most time first."""
    found: defaultdict[str, list[Kernels]] = defaultdict(list)
    for row in rows:
        for one in row.device.kernels:
            found[one.name].append(one)
    sums = [
        KernelSum(
            first=same[0],
            calls=sum(one.calls for one in same),
            total_ns=sum(one.total_ns for one in same),
            max_ns=max(one.max_ns for one in same),
            median_ns=same[0].median_ns if len(same) == 1 else None,
            blocks_per_sm=same[0].blocks_per_sm if len(same) == 1 else None,
        )
        for same in found.values()
    ]
    return sorted(sums, key=lambda one: (-one.total_ns, one.first.name))


def _figure(rows: Sequence[DeviceRow]) -> Figure:
    found = kernel_sums(rows)
    whole = sum(row.device.kernel_total_ns for row in rows)
    drawn = found[:MAX_RANKED]
    shorts = _shorts(found)
    bars = [
        Rank(
            name=shorts[one.first.name],
            percent=percent_of(one.total_ns, whole),
            detail=f"{ns_text(one.total_ns)}, {formats.count(one.calls, 'call')}",
        )
        for one in drawn
    ]
    names = max(row.device.kernel_names for row in rows)
    if (left := max(names, len(found)) - len(drawn)) > 0:
        rest = whole - sum(one.total_ns for one in drawn)
        bars.append(other(left, percent_of(rest, whole)))
    first = drawn[0]
    share = formats.percent(percent_of(first.total_ns, whole))
    return Figure(
        name="kernels-kernels",
        title="Kernels with most time",
        finding=f"{formats.escape_name(shorts[first.first.name], 60)} took {share} of the time of all kernels, "
        f"{ns_text(first.total_ns)}.",
        aid="Percent of the sum over all kernels; kernels on several streams can overlap.",
        drawings=[Drawing(figure=ranked(bars), style=f"ranked {rows_class(len(bars))}")],
        tables=[_kernels(rows, found, whole)],
    )


def _shorts(found: Sequence[KernelSum]) -> dict[str, str]:
    return short_names([one.first.name for one in found[:MAX_ROWS]])


def _kernels(rows: Sequence[DeviceRow], found: Sequence[KernelSum], whole: int) -> Table:
    shown = found[:MAX_ROWS]
    scale, each = ns_scale([one.total_ns for one in shown]), ns_scale([one.max_ns for one in shown])
    one_device = len(rows) == 1
    shorts = _shorts(found)
    cells = [
        (
            as_code(shorts[one.first.name]),
            _KINDS[one.first.kind],
            formats.number(one.calls, 0),
            scale(one.total_ns * NS),
            formats.number(percent_of(one.total_ns, whole)),
            each(one.total_ns / one.calls * NS),
            *(("–" if one.median_ns is None else each(one.median_ns * NS),) if one_device else ()),
            each(one.max_ns * NS),
            _CORES[one.first.tensor_cores],
            *((formats.known(one.blocks_per_sm),) if one_device else ()),
            _operators_of(one.first),
        )
        for one in shown
    ]
    calls, total = (
        sum(getattr(row.device, name) for row in rows) for name in ("kernel_calls", "kernel_total_ns")
    )
    rest_calls, rest = calls - sum(one.calls for one in shown), total - sum(one.total_ns for one in shown)
    if rest_calls > 0:
        dashes = ("–", "–", "–") if one_device else ("–", "–")
        last = ("–", "–", "–") if one_device else ("–", "–")
        name = "All others"
        counted = (formats.number(rest_calls, 0), scale(rest * NS), formats.number(percent_of(rest, whole)))
        cells.append((name, "–", *counted, *dashes, *last))
    heads = (
        *(":Kernel", ":Class", "Calls", f"Total ({scale.unit})", "Share (%)", f"Mean ({each.unit})"),
        *((f"Median ({each.unit})",) if one_device else ()),
        *(f"Longest ({each.unit})", ":Tensor cores"),
        *(("Blocks per SM",) if one_device else ()),
        ":Launched by",
    )
    return Table(
        label="Kernels by time",
        fold=f"kernels by time: {formats.count(calls, 'call')}, {ns_text(total)}",
        heads=heads,
        rows=cells,
    )


def _operators_of(one: Kernels) -> str:
    return formats.join_names([formats.escape_name(name, 60) for name in one.operators]) or "–"


def _fill(rows: Sequence[DeviceRow]) -> Table:
    """Occupancy of each device by kernels."""
    chosen = odd_first([(percent_of(row.device.kernel_busy_ns, row.device.window_ns),) for row in rows])
    return Table(
        label="How well kernels filled the devices",
        caption="How well kernels filled the devices, over the profiled time; estimates of the profiler."
        + omitted(len(chosen), len(rows), "device"),
        fold="how well kernels filled each device" if len(rows) > MAX_RANKED else "",
        heads=(
            *(":Device", "Kernels", "Names", "Kernel busy (%)", "SM efficiency (%)", "Occupancy (%)"),
            *("Tensor cores (% of computing)", "No tensor cores (% of computing)"),
        ),
        rows=[_filled(rows[i]) for i in chosen],
    )


def _filled(row: DeviceRow) -> tuple[str, ...]:
    device = row.device
    estimates = (device.sm_efficiency_percent, device.occupancy_percent)
    return (
        row.name,
        formats.number(device.kernel_calls, 0),
        formats.number(device.kernel_names, 0),
        formats.number(percent_of(device.kernel_busy_ns, device.window_ns)),
        *("not recorded" if value is None else formats.number(value) for value in estimates),
        formats.number(percent_of(device.tensor_core_ns, device.compute_total_ns)),
        formats.number(percent_of(device.no_tensor_core_ns, device.compute_total_ns)),
    )


def _lengths(rows: Sequence[DeviceRow]) -> list[Figure]:
    """Histograms of the lengths of kernels and of the calls that launched them."""
    found = [one for row in rows if (one := row.device.launches) and one.kernel_bins]
    kernel, call = (
        np.array([getattr(one, name) for one in found], np.int64)
        .reshape(-1, len(BIN_ENDS_NS) + 1)
        .sum(axis=0)
        for name in ("kernel_bins", "call_bins")
    )
    if not kernel.any():
        return []
    used = np.flatnonzero(kernel + call)
    bins = slice(int(used[0]), int(used[-1]) + 1)
    ends = (0, *BIN_ENDS_NS)[bins.start : bins.stop + 1]
    whole = int(kernel.sum())
    linked, shorter, below = (
        sum(getattr(row.device.launches, name) for row in rows)
        for name in ("linked", "shorter_than_call", "below_10_us")
    )
    labels = [
        _bin(ends[i], ends[i + 1] if i + 1 < len(ends) else None) for i in range(bins.stop - bins.start)
    ]
    shares = [100 * one[bins] / whole for one in (kernel, call)]
    return [
        Figure(
            name="kernels-lengths",
            title="Lengths of kernels and of their launch calls",
            finding=f"{formats.percent(percent_of(shorter, linked))} of {formats.count(linked, 'kernel')} lasted shorter "
            f"than the call that launched them, {formats.percent(percent_of(below, linked))} less than 10{formats.NBSP}µs.",
            aid="Percent of kernels by length; the line: by length of their calls."
            + formats.not_shown(len(rows) - len(found), "device"),
            drawings=[Drawing(figure=lengths(labels, [_short_bin(end) for end in ends], *shares))],
            key=(("u", "kernels", "kernels"), ("s2", "their launch calls", "calls")),
            reading="If most kernels are shorter than their calls, the host cannot keep the GPU busy. Each bin is about "
            "twice as long as the one before it.",
            tables=[
                Table(
                    label="Lengths of kernels and of their launch calls",
                    fold="kernels and launch calls by length",
                    heads=(":Length", "Kernels", "Kernels (%)", "Launch calls", "Launch calls (%)"),
                    rows=[
                        (
                            label,
                            *(
                                cell
                                for one in (kernel, call)
                                for cell in (
                                    formats.number(int(one[bins][i]), 0),
                                    formats.number(percent_of(int(one[bins][i]), whole)),
                                )
                            ),
                        )
                        for i, label in enumerate(labels)
                    ],
                )
            ],
        )
    ]


def _bin(start_ns: int, end_ns: int | None) -> str:
    """``2 to 5 µs``."""
    if end_ns is None:
        return f"{_short_bin(start_ns)} or more"
    if not start_ns:
        return f"below {_short_bin(end_ns)}"
    start, end = _short_bin(start_ns), _short_bin(end_ns)
    return f"{start} to {end}"


def _short_bin(ns: int) -> str:
    """``2 µs``."""
    for unit, size in (("s", 10**9), ("ms", 10**6)):
        if ns >= size:
            return f"{ns // size}{formats.NBSP}{unit}"
    return f"{ns // 1000}{formats.NBSP}µs"


def _launches(rows: Sequence[DeviceRow]) -> Table:
    found = [(row, row.device.launches) for row in rows if row.device.launches]
    chosen = odd_first([(one.delay_ns[0],) for _, one in found])
    return Table(
        label="Launches of kernels",
        caption="Kernels, the calls that launched them, and the delay from the end of the call to the kernel."
        + omitted(len(chosen), len(found), "device"),
        fold="launches per device" if len(found) > MAX_RANKED else "",
        heads=(
            *(":Device", "Kernels", "Without launch", "Shorter than call (%)", "Below 10 µs (%)"),
            *(f"{what}, median–p95 (µs)" for what in ("Kernel", "Call", "Delay")),
            *("Queued, mean", "Queued, most"),
        ),
        rows=[
            (
                row.name,
                formats.number(one.linked, 0),
                formats.number(one.unlinked, 0),
                formats.number(percent_of(one.shorter_than_call, one.linked)),
                formats.number(percent_of(one.below_10_us, one.linked)),
                *(
                    "–".join(formats.number(ns / 1000) for ns in pair)
                    for pair in (one.kernel_ns, one.call_ns, one.delay_ns)
                ),
                formats.number(one.queued_mean),
                formats.number(one.queued_max, 0),
            )
            for row, one in (found[i] for i in chosen)
        ],
    )


def operator_sums(rows: Sequence[Operators]) -> list[Operators]:
    """Operators or marks of several captures by name, most own time first."""
    found: dict[str, Operators] = {}
    for one in rows:
        before = found.get(one.name)
        found[one.name] = one if before is None else _added(before, one)
    return sorted(found.values(), key=lambda one: (-one.self_ns, one.name))


def _added(one: Operators, two: Operators) -> Operators:
    names = ("calls", "self_ns", "total_ns", "device_self_ns", "device_total_ns")
    return Operators(name=one.name, **{name: getattr(one, name) + getattr(two, name) for name in names})


def _operators(rows: Sequence[CaptureRow]) -> list[Table]:
    calls_of = [one for row in rows for one in row.capture.operators]
    found = operator_sums([one for one in calls_of if not one.name.startswith(STEP)])
    calls = sum(row.capture.operator_calls for row in rows)
    none = sum(row.capture.no_operator_ns for row in rows)
    caption = (
        f"Operators by own time on the host, {formats.count(calls, 'call')} in all. Kernels and copies outside any operator: "
        f"{ns_text(none)}."
    )
    return _by_time("operator", found, caption)


def _marks(rows: Sequence[CaptureRow]) -> list[Table]:
    """Marks of the program without the steps."""
    marks = [one for row in rows for one in row.capture.marks if not one.name.startswith(STEP)]
    found = sorted(operator_sums(marks), key=lambda one: (-one.total_ns, one.name))
    return _by_time("mark", found, "Marks of your program (record_function) by time.") if found else []


def _by_time(what: str, found: Sequence[Operators], caption: str) -> list[Table]:
    """The first rows, and the next ones in a fold."""
    scale = ns_scale([one.total_ns for one in found[:MAX_ALL]])
    on_device = any(one.device_total_ns for one in found)
    where = [("host", "self_ns", "total_ns")]
    where += [("device", "device_self_ns", "device_total_ns")] if on_device else []
    fields = [name for _, own, total in where for name in (own, total)]
    heads = [f":{capitalized(what)}", "Calls"]
    heads += [f"{kind}, {on} ({scale.unit})" for on, _, _ in where for kind in ("Own time", "Total")]
    rows = [
        (
            as_code(one.name),
            formats.number(one.calls, 0),
            *(scale(getattr(one, name) * NS) for name in fields),
        )
        for one in found[:MAX_ALL]
    ]
    left = rows[MAX_OPEN:]
    tables = [
        Table(label=f"{capitalized(what)}s by time", caption=caption, heads=heads, rows=rows[:MAX_OPEN])
    ]
    if left:
        fold = formats.count(len(left), f"more {what}")
        tables.append(Table(label=f"More {what}s by time", fold=fold, heads=heads, rows=left))
    return tables
