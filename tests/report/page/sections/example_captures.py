"""Captures of made traces, as the sections on them want them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from jobrules.model.captures import AcrossRanks, Capture
from tests.copies import replace
from tests.kineto import Recording, across, capture

STEPS = (10, 11, 12)
LATE = 2
_LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def recording(rank: int | None, world: int, name: str = "") -> Recording:
    """Three steps of one rank: a batch, a gemm, an allreduce, a copy. The gemm of rank 2 takes twice as long.

    ``name`` is that of an operator, a mark, a kernel, a group, and a call.
    """
    trace = Recording(rank, clock=1000, world=world)
    trace.top |= {"record_shapes": 1, "with_stack": 1, "cuda_runtime_version": 12040, "hostname": "host-7"}
    gpu = {"id": 0, "name": name or "H100", "totalGlobalMem": 80 << 30, "computeMajor": 9}
    trace.top |= {"deviceProperties": [gpu]}
    group = {
        "Process Group Name": "0",
        "Process Group Description": name or "default_pg",
        "Group size": world,
    }
    for i, number in enumerate(STEPS):
        at = 20_000 * i
        gemm = 8000 if rank == LATE else 4000 + 100 * i
        trace.step(number, at, at + 19_000)
        trace.operator(_LOADER, at, at + 700)
        trace.operator(name or "aten::mm", at + 800, at + 900)
        trace.mark(name or "## backward ##", at + 900, at + 1500)
        fill: dict[str, Any] = {"blocks per SM": 0.5, "est. achieved occupancy %": 40}
        trace.kernel(name or "sm90_gemm", at + 1000, at + 1000 + gemm, launch=(at + 810, at + 830), **fill)
        # All begin to transfer when the last rank has come.
        known: dict[str, Any] = {
            "Collective name": "allreduce",
            "In msg nelems": 1000,
            "dtype": "Float",
            "Seq": i,
            **group,
        }
        trace.kernel(
            "ncclDevKernel_AllReduce", at + 1010 + gemm, at + 11_000, 20, (at + 1000, at + 1010), **known
        )
        trace.kernel(
            "Memcpy DtoH (Device -> Pageable)",
            at + 11_100,
            at + 11_300,
            launch=(at + 1020, at + 1040),
            category="gpu_memcpy",
        )
        trace.call("cudaDeviceSynchronize", at + 1100, at + 18_000)
        totals = {"Total Allocated": (i + 1) << 30, "Total Reserved": 8 << 30}
        trace.memory(at + 850, 1 << 30, **totals)
        trace.memory(at + 900, -(1 << 29), **totals | {"Total Allocated": (i + 1 << 30) - (1 << 29)})
    return trace


@cache
def ranks(count: int = 4, name: str = "") -> tuple[tuple[Capture, ...], AcrossRanks]:
    """Captures of so many ranks, and what they say together."""
    with TemporaryDirectory() as folder:
        found, joined = across(Path(folder), *(recording(rank, count, name) for rank in range(count)))
    if name:
        found = tuple(replace(one, file=f"{name}{one.rank}", host=name) for one in found)
    return found, joined


@cache
def alone() -> Capture:
    """A capture of a process whose rank is unknown."""
    with TemporaryDirectory() as folder:
        return capture(Path(folder), recording(None, 1))
