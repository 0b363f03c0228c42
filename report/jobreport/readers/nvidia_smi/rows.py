"""The rows of nvidia-smi logs: each says of one GPU at one moment what was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.model import BoolArray, FloatArray, IntArray, Metric

_T = TypeVar("_T")


class GPU(Struct, frozen=True, kw_only=True):
    """A GPU as a row names it; empty where the row does not."""

    #: Made of its number, such as ``gpu0``.
    name: str = ""
    bus: str = ""
    uuid: str = ""


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
        """The rows of one part after the other."""
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
                    [part.values.get(metric, np.full(len(part.time_us), np.nan)) for part in parts]
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
