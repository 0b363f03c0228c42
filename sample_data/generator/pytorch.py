"""Traces as PyTorch's profiler writes them: a few steps of data-parallel training, in which one rank loads slowly."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The rank that loads slowly.
LATE_RANK = 2
#: The first steps are the profiler's warm-up.
STEPS = range(5, 11)
LAYERS, LAYERS_A_BUCKET, BUCKET_ELEMENTS = 40, 4, 6_389_258
GEMM = "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_nn"
POINTWISE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::Half>, at::detail::Array<char*, 3>>"
    "(int, at::native::CUDAFunctor_add<c10::Half>, at::detail::Array<char*, 3>)"
)
ADAM = "void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>>"
ALLREDUCE = "ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
#: Microseconds: of a launch call, to the kernel on an idle GPU, of a transfer, and to copy a batch.
CALL, LATENCY, TRANSFER, COPY = 7.0, 3.0, 900.0, 1200.0
PROCESS, COMPUTE, COMMUNICATION = 4100, 7, 20


@dataclass
class Rank:
    """One rank while it is simulated; times are microseconds."""

    number: int
    rng: np.random.Generator
    #: Where the host is, and until when its streams are busy.
    host: float = 1000.0
    busy: dict[int, float] = field(default_factory=lambda: {COMPUTE: 0.0, COMMUNICATION: 0.0})
    events: list[dict[str, Any]] = field(default_factory=list)
    launches: int = 0

    def add(self, category: str, name: str, start: float, end: float, tid: int, **args: Any) -> None:
        """Record a complete event."""
        device = category in ("kernel", "gpu_memcpy")
        where = {"pid": self.number if device else PROCESS + self.number, "tid": tid}
        times = {"ts": round(start, 3), "dur": round(end - start, 3)}
        self.events.append({"ph": "X", "cat": category, "name": name, **where, **times, "args": args})

    def launch(self, call: str) -> tuple[int, float]:
        """Record a launch call; return its correlation and when its kernel can start."""
        self.launches += 1
        start = self.host
        self.host += CALL * self.rng.uniform(0.8, 1.4)
        tid = PROCESS + self.number
        self.add("cuda_runtime", call, start, self.host, tid, correlation=self.launches)
        return self.launches, self.host + LATENCY

    def run(self, operator: str, kernel: str, length: float) -> float:
        """Call an operator that launches one kernel; return the end of the kernel."""
        begin = self.host
        self.host += 15 * self.rng.uniform(0.8, 1.5)
        correlation, ready = self.launch("cudaLaunchKernel")
        self.host += 6
        self.add("cpu_op", operator, begin, self.host, PROCESS + self.number)
        start = max(ready, self.busy[COMPUTE])
        self.busy[COMPUTE] = start + length * self.rng.uniform(0.95, 1.05)
        self.on_device("kernel", kernel, start, self.busy[COMPUTE], COMPUTE, correlation)
        return self.busy[COMPUTE]

    def on_device(
        self, category: str, name: str, start: float, end: float, stream: int, correlation: int, **args: Any
    ) -> None:
        """Record a kernel or a copy."""
        given = {"device": self.number, "stream": stream, "correlation": correlation}
        self.add(category, name, start, end, stream, **given, **args)


def trace_files(ranks: int, seed: int, start_us: int) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of the trace of every rank."""
    every = ranks_of(ranks, seed)
    for step in STEPS:
        train(every, step)
    for rank in every:
        yield f"rank-{rank.number}.pt.trace.json", _text(rank, ranks, start_us)


def ranks_of(ranks: int, seed: int) -> list[Rank]:
    """Return ranks that have made no step."""
    return [Rank(rank, np.random.default_rng([seed, rank])) for rank in range(ranks)]


def train(every: list[Rank], step: int, layers: int = LAYERS) -> None:
    """Make a step on all ranks."""
    sequence = (step - STEPS.start) * (layers // LAYERS_A_BUCKET)
    begun = [rank.host for rank in every]
    for rank in every:
        _forward(rank, layers)
    for layer in range(layers):
        done = [
            rank.run("aten::mm", GEMM, 620.0) and rank.run("aten::add_", POINTWISE, 90.0) for rank in every
        ]
        if (layer + 1) % LAYERS_A_BUCKET == 0:
            _reduce(every, done, sequence + layer // LAYERS_A_BUCKET)
    for rank, begin in zip(every, begun, strict=True):
        _optimize(rank)
        tid = PROCESS + rank.number
        rank.add("user_annotation", f"ProfilerStep#{step}", begin, rank.host, tid)


def _forward(rank: Rank, layers: int) -> None:
    """Fetch a batch, copy it, and run the layers."""
    begin, tid = rank.host, PROCESS + rank.number
    rank.host += rank.rng.uniform(24_000, 30_000) if rank.number == LATE_RANK else rank.rng.uniform(300, 900)
    rank.add("user_annotation", LOADER, begin, rank.host, tid)
    correlation, ready = rank.launch("cudaMemcpyAsync")
    start = max(ready, rank.busy[COMPUTE])
    rank.busy[COMPUTE] = start + COPY
    copy = "Memcpy HtoD (Pinned -> Device)"
    size = {"bytes": 38_535_168}
    rank.on_device("gpu_memcpy", copy, start, rank.busy[COMPUTE], COMPUTE, correlation, **size)
    for _ in range(layers):
        rank.run("aten::mm", GEMM, 310.0)
        rank.run("aten::add", POINTWISE, 60.0)


def _reduce(every: list[Rank], done: list[float], sequence: int) -> None:
    """Sum up gradients over all ranks: no rank ends before all have begun."""
    starts = []
    for rank, ready in zip(every, done, strict=True):
        begin = rank.host
        correlation, launched = rank.launch("cudaLaunchKernelExC")
        rank.add("user_annotation", "nccl:all_reduce", begin, rank.host, PROCESS + rank.number)
        starts.append((correlation, max(ready, launched, rank.busy[COMMUNICATION])))
    end = max(start for _, start in starts) + TRANSFER
    known = {
        "Collective name": "allreduce",
        "In msg nelems": BUCKET_ELEMENTS,
        "Out msg nelems": BUCKET_ELEMENTS,
        "Group size": len(every),
        "dtype": "Half",
        "Process Group Name": "0",
        "Process Group Description": "default_pg",
        "Process Group Ranks": str([rank.number for rank in every]),
        "Seq": sequence,
    }
    for rank, (correlation, start) in zip(every, starts, strict=True):
        rank.busy[COMMUNICATION] = end
        rank.on_device("kernel", ALLREDUCE, start, end, COMMUNICATION, correlation, **known)


def _optimize(rank: Rank) -> None:
    """Update the weights once all gradients are there, and wait for the loss."""
    begin, tid = rank.host, PROCESS + rank.number
    rank.busy[COMPUTE] = max(rank.busy.values())
    for _ in range(6):
        rank.run("aten::_fused_adam_", ADAM, 450.0)
    rank.add("user_annotation", "Optimizer.step#Adam.step", begin, rank.host, tid)
    begin, rank.host = rank.host, max(rank.host, rank.busy[COMPUTE]) + 12
    rank.add("cpu_op", "aten::item", begin, rank.host + 5, tid)
    rank.add("cuda_runtime", "cudaStreamSynchronize", begin + 3, rank.host, tid)
    rank.host += 40


def _text(rank: Rank, ranks: int, start_us: int) -> bytes:
    """The file, as the profiler lays it out."""
    properties = {
        "id": rank.number,
        "name": "NVIDIA A100-SXM4-80GB",
        "totalGlobalMem": 85_049_999_360,
        "computeMajor": 8,
        "computeMinor": 0,
        "numSms": 108,
    }
    top = {
        "schemaVersion": 1,
        "deviceProperties": [properties],
        "cuda_runtime_version": 12040,
        "distributedInfo": {"backend": "nccl", "rank": rank.number, "world_size": ranks},
        "baseTimeNanoseconds": start_us * 1000,
        "traceName": f"rank-{rank.number}.pt.trace.json",
    }
    lines = ",\n".join(json.dumps(event) for event in rank.events)
    head = json.dumps(top, indent=1).removesuffix("\n}")
    return f'{head},\n "traceEvents": [\n{lines}\n]}}\n'.encode("ascii")
