"""The collectives of one device: what each does, and what its ranks need to find it on one another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from jobrules.captures.kinds import COMMUNICATION
from jobrules.captures.operators import call_sums
from jobrules.captures.trace import NOT_GIVEN, CollectiveArgs
from jobrules.measures.collective_kinds import kind_of
from jobrules.measures.intervals import Intervals, intersection

if TYPE_CHECKING:
    from jobrules.captures.device_time import DeviceTime
    from jobrules.captures.steps import HostSteps
    from jobrules.captures.trace import Trace
    from jobrules.model import CodeArray, IntArray

#: Each rank sends other amounts.
UNEVEN = "alltoallv"
_SIZES = {
    **dict.fromkeys(("double", "long", "uint64", "complexfloat"), 8),
    **dict.fromkeys(("float", "int", "uint32"), 4),
    **dict.fromkeys(("half", "bfloat16", "short", "uint16"), 2),
    **dict.fromkeys(("byte", "char", "bool"), 1),
    "complexdouble": 16,
}
_FLOAT8, _GATHER = "float8_", "allgather"


class Collective(Struct, frozen=True, kw_only=True):
    """What equal collectives have in common."""

    kind: str
    dtype: str = ""
    in_elements: int | None = None
    out_elements: int | None = None
    group_size: int | None = None
    #: Name and ranks of the group; empty if the trace does not say.
    group: tuple[str, str] = ("", "")
    description: str = ""

    @classmethod
    def of(cls, args: CollectiveArgs, kernel: str) -> Collective:
        """By what the kernel or its operator says; the kind by the kernel's name if that is nothing."""
        return cls(
            kind=kind_of(args.name) if args.name else kind_of(kernel),
            dtype=args.dtype,
            in_elements=args.in_elements,
            out_elements=args.out_elements,
            group_size=args.group_size,
            group=(args.group_name, args.group_ranks),
            description=args.group_description,
        )

    @property
    def bytes(self) -> int | None:
        """Bytes as the bandwidth counts them; None where elements or their size are not known."""
        elements = self.out_elements if self.kind == _GATHER else self.in_elements
        dtype = self.dtype.lower()
        size = 1 if dtype.startswith(_FLOAT8) else _SIZES.get(dtype)
        return None if elements is None or size is None else elements * size

    @property
    def in_group(self) -> tuple[str, str, int] | None:
        """The group; None if the trace does not say."""
        return (*self.group, self.group_size or 0) if any(self.group) or self.group_size else None


class Communication(Struct, frozen=True, kw_only=True, eq=False):
    """The communication of one device of a capture, sorted by start."""

    file: str
    device: int
    collectives: tuple[Collective, ...]
    communicators: tuple[str, ...]
    #: (calls,) position of the collective; and of its communicator, its number in the group, step, and stream:
    #: ``NOT_GIVEN`` where not known.
    what: CodeArray
    communicator: IntArray
    sequence: IntArray
    step: IntArray
    stream: CodeArray
    start_ns: IntArray
    end_ns: IntArray
    window: Intervals
    #: The part of it that computing hides.
    hidden: Intervals
    #: (steps + 1,) borders of the steps' windows; empty without steps.
    borders: IntArray

    def __len__(self) -> int:
        return len(self.start_ns)


def communication_of(
    trace: Trace, time: DeviceTime, steps: HostSteps, borders: IntArray, file: str
) -> Communication | None:
    """The communication of a device; None without any."""
    (rows,) = np.nonzero(time.kind == COMMUNICATION)
    if not len(rows):
        return None
    args = time.events.collective[rows].astype(np.int64)
    launch = time.launch[rows]
    by_operator = np.append(_of_launches(trace), NOT_GIVEN)[launch]
    args = np.where(args == NOT_GIVEN, by_operator, args)
    seen: dict[tuple[int, int], int] = {}
    names = time.events.name[rows].tolist()
    what = np.array(
        [seen.setdefault(key, len(seen)) for key in zip(args.tolist(), names, strict=True)], np.int64
    )
    known = [trace.collectives[one] if one != NOT_GIVEN else CollectiveArgs() for one, _ in seen]
    kinds: dict[Collective, int] = {}
    code = [
        kinds.setdefault(Collective.of(one, trace.names[name]), len(kinds))
        for one, (_, name) in zip(known, seen, strict=True)
    ]
    communicators: dict[str, int] = {}
    communicator = [
        communicators.setdefault(one.communicator, len(communicators)) if one.communicator else NOT_GIVEN
        for one in known
    ]
    of_step = np.where(launch == NOT_GIVEN, steps.of(time.events.start_ns[rows]), time.step[rows])
    return Communication(
        file=file,
        device=time.device,
        collectives=tuple(kinds),
        communicators=tuple(communicators),
        what=np.array(code, np.int32)[what],
        communicator=np.array(communicator, np.int64)[what],
        sequence=np.array([NOT_GIVEN if one.sequence is None else one.sequence for one in known], np.int64)[
            what
        ],
        step=np.where(of_step == NOT_GIVEN, NOT_GIVEN, np.append(steps.number, NOT_GIVEN)[of_step]),
        stream=time.events.stream[rows],
        start_ns=time.events.start_ns[rows],
        end_ns=time.events.end_ns[rows],
        window=time.window,
        hidden=intersection(time.computing, time.communication),
        borders=borders,
    )


def _of_launches(trace: Trace) -> IntArray:
    """(launches,) position of the arguments of the operator in which each lies; ``NOT_GIVEN`` for none."""
    return call_sums([trace.param_comms], len(trace.collectives), trace.launches).innermost.astype(np.int64)
