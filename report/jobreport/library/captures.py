"""Traces of PyTorch's profiler as frames."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any

from jobreport.library.results import of_part

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from jobreport.document import Report
    from jobreport.library.results import Table


_CAPTURE: Table = {**of_part(0, "str", "file", "host"), **of_part(0, "Int64", "rank")}
_DEVICE: Table = {**_CAPTURE, **of_part(1, "int64", "device")}

#: By the names that ``captures`` takes.
TABLES: dict[str, Table] = {
    "devices": {
        **_DEVICE,
        **of_part(1, "str", "name"),
        **of_part(
            1, "int64", "window_ns", "compute_ns", "exposed_communication_ns", "exposed_copies_ns", "idle_ns"
        ),
        **of_part(1, "int64", "communication_ns", "copies_ns", "busy_ns", "kernel_busy_ns"),
        **of_part(1, "Int64", "exposed_transfer_ns", "exposed_waiting_ns", "not_matched_ns"),
    },
    "idle": {
        **_DEVICE,
        "cause": ("str", lambda row: row[2][0]),
        "idle_ns": ("int64", lambda row: row[2][1]),
        "share": ("float64", lambda row: row[2][1] / row[1].window_ns if row[1].window_ns else 0.0),
    },
    "kernels": {
        **_DEVICE,
        **of_part(2, "str", "name", "kind"),
        **of_part(2, "int64", "calls", "total_ns"),
        **of_part(2, "float64", "median_ns"),
        **of_part(2, "int64", "max_ns"),
        **of_part(2, "boolean", "tensor_cores"),
    },
    "steps": {
        **_DEVICE,
        **of_part(2, "int64", "number", "start_ns", "window_ns", "compute_ns", "exposed_communication_ns"),
        **of_part(2, "int64", "exposed_copies_ns", "idle_ns"),
        **of_part(2, "Int64", "exposed_waiting_ns"),
        "host_ns": ("Int64", itemgetter(3)),
    },
    "operators": {
        **_CAPTURE,
        **of_part(1, "str", "name"),
        **of_part(1, "int64", "calls", "self_ns", "total_ns", "device_self_ns", "device_total_ns"),
    },
    "waiting": of_part(0, "int64", "rank", "suffered_ns", "caused_ns", "last"),
    "collectives": {
        **of_part(0, "str", "kind", "dtype"),
        **of_part(0, "Int64", "bytes", "group_size"),
        **of_part(0, "str", "group"),
        **of_part(0, "int64", "calls"),
        **of_part(0, "Int64", "total_bytes"),
        **of_part(
            0, "float64", "median_transfer_ns", "median_skew_ns", "algorithm_bandwidth", "bus_bandwidth"
        ),
    },
}


def rows(report: Report, table: str) -> Iterator[tuple[Any, ...]]:
    """The rows of a table; copies of captures take no part, as on the page."""
    captures = [one for one in report.captures or () if not one.copy_of]
    devices = [(capture, device) for capture in captures for device in capture.devices]
    host_ns = {(one.file, step.number): step.host_ns for one in captures for step in one.step_times}
    ranks = report.across_ranks or None
    listed: dict[str, Iterable[tuple[Any, ...]]] = {
        "devices": devices,
        "idle": ((*own, cause) for own in devices for cause in own[1].idle_by_cause_ns.items()),
        "kernels": ((*own, kernel) for own in devices for kernel in own[1].kernels),
        "steps": (
            (*own, step, host_ns.get((own[0].file, step.number))) for own in devices for step in own[1].steps
        ),
        "operators": ((capture, one) for capture in captures for one in capture.operators),
        "waiting": ((one,) for one in (ranks.waiting if ranks else ())),
        "collectives": ((one,) for one in (ranks.collectives if ranks else ())),
    }
    yield from listed[table]
