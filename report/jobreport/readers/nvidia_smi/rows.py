"""The rows of nvidia-smi logs: each says of one GPU at one moment what was measured."""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

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


#: (n,) positions among names; -1 for none. There is one for each row of a log.
Places: TypeAlias = "NDArray[np.int32]"
#: Names, and (n,) positions among them.
Names: TypeAlias = "tuple[tuple[str, ...], Places]"


def gpus_of(numbers: Names, buses: Names, uuids: Names) -> tuple[tuple[GPU, ...], Places]:
    """The GPUs by all that rows name, in the order of the numbers, and (n,) a position among them, -1 for none."""
    code = np.zeros(len(numbers[1]), np.int64)
    for names, position in (numbers, buses, uuids):
        code = code * (len(names) + 1) + position + 1
    distinct, gpu = np.unique(code, return_inverse=True)
    rest, uuid = np.divmod(distinct, len(uuids[0]) + 1)
    number, bus = np.divmod(rest, len(buses[0]) + 1)
    # Position 0 stands for none.
    of_number, of_bus, of_uuid = (("", *names) for names, _ in (numbers, buses, uuids))
    gpus = tuple(
        GPU(name=of_number[i], bus=of_bus[j], uuid=of_uuid[k])
        for i, j, k in zip(number.tolist(), bus.tolist(), uuid.tolist(), strict=True)
    )
    has_nameless = gpus[:1] == (GPU(),)
    return gpus[has_nameless:], gpu.astype(np.int32) - has_nameless


def nowhere(rows: int) -> Places:
    """(rows,) -1, which takes no memory."""
    return np.broadcast_to(np.int32(-1), rows)


class Rows(Struct, frozen=True, kw_only=True, eq=False):
    """Rows of a log, every array of the same length."""

    #: (n,) microseconds, and what kind of times they are (``nvidia_smi.times``).
    time_us: IntArray
    kind: str
    #: All GPUs, and (n,) a position among them; -1 where the row names none.
    gpus: tuple[GPU, ...]
    gpu: Places
    #: Names of machines, and (n,) a position among them; empty where the log names none.
    hosts: tuple[str, ...]
    host: Places
    #: (n,) each, NaN where there is no value.
    values: dict[Metric, FloatArray]

    def of_gpus(self, gpus: Sequence[GPU], gpu: Places) -> Rows:
        """The same rows of other GPUs; equal ones become one."""
        if self.gpus == gpus and gpu is self.gpu:
            return self
        distinct, code = _merged([(tuple(gpus), gpu)])
        return replace(self, gpus=distinct, gpu=code)

    def spans_us(self) -> tuple[IntArray, IntArray]:
        """When each GPU was seen first and last."""
        first_us = np.full(len(self.gpus), np.iinfo(np.int64).max)
        last_us = np.full(len(self.gpus), np.iinfo(np.int64).min)
        for start in range(0, len(self.gpu), _BLOCK):
            gpu, time_us = (some[start : start + _BLOCK] for some in (self.gpu, self.time_us))
            np.minimum.at(first_us, gpu, time_us)
            np.maximum.at(last_us, gpu, time_us)
        return first_us, last_us

    def where(self, rows: BoolArray | IntArray | Places) -> Rows:
        """The rows of a mask, or at these places, with the GPUs in them."""
        time_us, gpu = self.time_us[rows], self.gpu[rows]
        used = np.zeros(len(self.gpus) + 1, np.bool_)
        used[gpu] = True
        used[-1] = False
        return replace(
            self,
            time_us=time_us,
            gpus=tuple(compress(self.gpus, used)),
            gpu=np.where(used, np.cumsum(used) - 1, -1).astype(np.int32)[gpu],
            host=self.host[rows] if self.hosts else nowhere(len(gpu)),
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


def _merged(parts: Sequence[tuple[tuple[_T, ...], Places]]) -> tuple[tuple[_T, ...], Places]:
    """Names of all parts, and the positions among them."""
    place = {name: i for i, name in enumerate(dict.fromkeys(name for names, _ in parts for name in names))}
    if not place:
        return (), nowhere(sum(len(code) for _, code in parts))
    # The last position is -1, which stands for none.
    moved = [np.array([*(place[name] for name in names), -1], np.int32)[code] for names, code in parts]
    return tuple(place), np.concatenate(moved) if len(moved) > 1 else moved[0]
