"""One event of a trace, with the values that are used; all others are skipped while the JSON is decoded."""

from __future__ import annotations

from decimal import Decimal  # noqa: TC003 - msgspec looks the type up
from typing import Any

import msgspec

#: What an event may number a process, thread, stream, or device with.
Scalar = int | float | str | None


class Args(msgspec.Struct, gc=False):
    """The arguments of an event. Values of an unexpected type count as missing, so all are allowed."""

    device: Any = None
    stream: Any = None
    correlation: Any = None
    blocks_per_sm: Any = msgspec.field(default=None, name="blocks per SM")
    occupancy: Any = msgspec.field(default=None, name="est. achieved occupancy %")
    graph: Any = msgspec.field(default=None, name="graph id")
    collective: Any = msgspec.field(default=None, name="Collective name")
    in_elements: Any = msgspec.field(default=None, name="In msg nelems")
    out_elements: Any = msgspec.field(default=None, name="Out msg nelems")
    group_size: Any = msgspec.field(default=None, name="Group size")
    dtype: Any = None
    group_name: Any = msgspec.field(default=None, name="Process Group Name")
    group_description: Any = msgspec.field(default=None, name="Process Group Description")
    group_ranks: Any = msgspec.field(default=None, name="Process Group Ranks")
    rank: Any = msgspec.field(default=None, name="Rank")
    sequence: Any = msgspec.field(default=None, name="Seq")
    communicator: Any = msgspec.field(default=None, name="Comms Id")
    waited_for: Any = msgspec.field(default=None, name="wait_on_cuda_event_record_corr_id")
    device_type: Any = msgspec.field(default=None, name="Device Type")
    device_id: Any = msgspec.field(default=None, name="Device Id")
    bytes: Any = msgspec.field(default=None, name="Bytes")
    allocated: Any = msgspec.field(default=None, name="Total Allocated")
    reserved: Any = msgspec.field(default=None, name="Total Reserved")


class Event(msgspec.Struct, gc=False):
    """An event; times in microseconds."""

    ph: str | None = None
    cat: str | None = None
    name: str | None = None
    pid: Scalar = None
    tid: Scalar = None
    ts: float | str | None = None
    dur: float | str | None = None
    args: Args | None = None


class ExactEvent(Event, gc=False):
    """An event whose times keep all their digits: those that count from the epoch with a fraction fit in no float."""

    ts: Decimal | None = None  # type: ignore[assignment]
    dur: Decimal | None = None  # type: ignore[assignment]


EVENTS = msgspec.json.Decoder(list[Event])
EXACT_EVENTS = msgspec.json.Decoder(list[ExactEvent])
