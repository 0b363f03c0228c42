"""The rows of nvidia-smi logs: each says of one GPU at one moment what was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.model import BoolArray, FloatArray, IntArray, Metric

_T = TypeVar("_T")
#: Rows at a time.
_BLOCK = 1 << 18


class GPU(Struct, frozen=True, kw_only=True):
    """A GPU as a row names it; empty where the row does not."""

    #: Made of its number, such as ``gpu0``.
    name: str = ""
    bus: str = ""
    uuid: str = ""


#: Names, and (n,) the position of each row's among them; -1 for none.
Names: TypeAlias = "tuple[tuple[str, ...], IntArray]"


def gpus_of(numbers: Names, buses: Names, uuids: Names) -> tuple[tuple[GPU, ...], IntArray]:
    """The GPUs by all that rows name, in the order of the numbers, and (n,) a position among them, -1 for none."""
    code = np.zeros(len(numbers[1]), np.int64)
    for names, position in (numbers, buses, uuids):
        code *= len(names) + 1
        code += position
        code += 1
    # The distinct ones of some rows at a time: sorting all takes several times their memory.
    some = [np.unique(code[start : start + _BLOCK]) for start in range(0, len(code), _BLOCK)]
    distinct = np.unique(np.concatenate(some or [code]))
    gpu = np.searchsorted(distinct, code)
    rest, uuid = np.divmod(distinct, len(uuids[0]) + 1)
    number, bus = np.divmod(rest, len(buses[0]) + 1)
    # Position 0 stands for none.
    of_number, of_bus, of_uuid = (("", *names) for names, _ in (numbers, buses, uuids))
    gpus = tuple(
        GPU(name=of_number[i], bus=of_bus[j], uuid=of_uuid[k])
        for i, j, k in zip(number.tolist(), bus.tolist(), uuid.tolist(), strict=True)
    )
    return (gpus[1:], gpu - 1) if gpus[:1] == (GPU(),) else (gpus, gpu)


class Rows(Struct, frozen=True, kw_only=True, eq=False):
    """Rows of a log, every array of the same length."""

    #: (n,) microseconds, and what kind of times they are (``nvidia_smi.times``).
    time_us: IntArray
    kind: str
    #: All GPUs, and (n,) a position among them; -1 where the row names none.
    gpus: tuple[GPU, ...]
    gpu: IntArray
    #: Names of machines, and (n,) a position among them; empty where the log names none.
    hosts: tuple[str, ...]
    host: IntArray
    #: (n,) each, NaN where there is no value.
    values: dict[Metric, FloatArray]

    def of_gpus(self, gpus: Sequence[GPU], gpu: IntArray) -> Rows:
        """The same rows of other GPUs; equal ones become one."""
        distinct, code = _merged([(tuple(gpus), gpu)])
        return replace(self, gpus=distinct, gpu=code)

    def spans_us(self) -> tuple[IntArray, IntArray]:
        """When each GPU was seen first and last."""
        first_us = np.full(len(self.gpus), np.iinfo(np.int64).max)
        last_us = np.full(len(self.gpus), np.iinfo(np.int64).min)
        np.minimum.at(first_us, self.gpu, self.time_us)
        np.maximum.at(last_us, self.gpu, self.time_us)
        return first_us, last_us

    def where(self, rows: BoolArray | IntArray) -> Rows:
        """The rows of a mask, or at these places, with the GPUs in them."""
        gpus, gpu = np.unique(self.gpu[rows], return_inverse=True)
        nameless = int(np.count_nonzero(gpus < 0))
        return replace(
            self,
            time_us=self.time_us[rows],
            gpus=tuple(self.gpus[i] for i in gpus[nameless:].tolist()),
            gpu=gpu - nameless,
            host=self.host[rows],
            values={metric: values[rows] for metric, values in self.values.items()},
        )

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Rows:
        """The rows of one part after the other, whose values are given up measure by measure."""
        if len(parts) == 1:
            return parts[0]
        gpus, gpu = _merged([(part.gpus, part.gpu) for part in parts])
        hosts, host = _merged([(part.hosts, part.host) for part in parts])
        if hosts and (host < 0).any():
            # Rows under another header name no machine: they are of the only one, or of one without a name.
            hosts, host = (hosts, np.zeros_like(host)) if len(hosts) == 1 else (("", *hosts), host + 1)
        metrics = dict.fromkeys(metric for part in parts for metric in part.values)
        return cls(
            time_us=np.concatenate([part.time_us for part in parts]),
            kind=parts[0].kind,
            gpus=gpus,
            gpu=gpu,
            hosts=hosts,
            host=host,
            values={
                metric: np.concatenate(
                    [part.values.pop(metric, np.full(len(part.time_us), np.nan)) for part in parts]
                )
                for metric in metrics
            },
        )


def _merged(parts: Sequence[tuple[tuple[_T, ...], IntArray]]) -> tuple[tuple[_T, ...], IntArray]:
    """Names of all parts, and the positions among them."""
    place = {name: i for i, name in enumerate(dict.fromkeys(name for names, _ in parts for name in names))}
    # The last position is -1, which stands for none.
    moved = [np.array([*(place[name] for name in names), -1], np.int64)[code] for names, code in parts]
    return tuple(place), np.concatenate(moved)
