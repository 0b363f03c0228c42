"""Traces of PyTorch's profiler as frames."""

from __future__ import annotations

from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from jobreport.document import Report
    from jobreport.library.results import Table


def _columns(place: int, kind: str, *names: str) -> Table:
    """Fields of one of the things that make up a row: the capture, its device, and what is listed of it."""

    def value(name: str) -> Callable[[Any], Any]:
        field = attrgetter(name)
        return lambda row: field(row[place])

    return {name: (kind, value(name)) for name in names}


_CAPTURE: Table = {**_columns(0, "str", "file", "host"), **_columns(0, "Int64", "rank")}
_DEVICE: Table = {**_CAPTURE, **_columns(1, "int64", "device")}

#: By the names that ``captures`` takes.
TABLES: dict[str, Table] = {
    "devices": {
        **_DEVICE,
        **_columns(1, "str", "name"),
        **_columns(
            1, "int64", "window_ns", "compute_ns", "exposed_communication_ns", "exposed_copies_ns", "idle_ns"
        ),
        **_columns(1, "int64", "communication_ns", "copies_ns", "busy_ns", "kernel_busy_ns"),
        **_columns(1, "Int64", "exposed_transfer_ns", "exposed_waiting_ns", "not_matched_ns"),
    },
    "idle": {
        **_DEVICE,
        "cause": ("str", lambda row: row[2][0]),
        "idle_ns": ("int64", lambda row: row[2][1]),
        "share": ("float64", lambda row: row[2][1] / row[1].window_ns if row[1].window_ns else 0.0),
    },
    "kernels": {
        **_DEVICE,
        **_columns(2, "str", "name", "kind"),
        **_columns(2, "int64", "calls", "total_ns"),
        **_columns(2, "float64", "median_ns"),
        **_columns(2, "int64", "max_ns"),
        **_columns(2, "boolean", "tensor_cores"),
    },
    "steps": {
        **_DEVICE,
        **_columns(2, "int64", "number", "start_ns", "window_ns", "compute_ns", "exposed_communication_ns"),
        **_columns(2, "int64", "exposed_copies_ns", "idle_ns"),
        **_columns(2, "Int64", "exposed_waiting_ns"),
        "host_ns": ("Int64", itemgetter(3)),
    },
    "operators": {
        **_CAPTURE,
        **_columns(1, "str", "name"),
        **_columns(1, "int64", "calls", "self_ns", "total_ns", "device_self_ns", "device_total_ns"),
    },
    "waiting": _columns(0, "int64", "rank", "suffered_ns", "caused_ns", "last"),
    "collectives": {
        **_columns(0, "str", "kind", "dtype"),
        **_columns(0, "Int64", "bytes", "group_size"),
        **_columns(0, "str", "group"),
        **_columns(0, "int64", "calls"),
        **_columns(0, "Int64", "total_bytes"),
        **_columns(
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
