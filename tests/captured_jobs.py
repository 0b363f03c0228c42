"""Jobs of traces alone in which a known share of the profiled time is lost to a known cause."""

from __future__ import annotations

from pathlib import Path

from jobrules.captures.across import joined
from jobrules.model import JobInMemory
from tests.kineto import Recording, read_text

#: Steps of a trace, and the length of each in microseconds.
STEPS, STEP = 10, 50_000.0

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
#: Of an operator that launches kernels with tensor cores, without, and of others.
TENSOR_CORES, NONE, OTHER = "ampere_fp16_s16816gemm_fp16", "volta_sgemm_128x64_nn", "elementwise_kernel"

V100 = {"id": 0, "name": "Tesla V100", "computeMajor": 7, "totalGlobalMem": 32 * 2**30}


def training(
    cause: str = "",
    share: float = 0.0,
    *,
    rank: int | None = None,
    world: int | None = None,
    kernel: str = OTHER,
    steps: int = STEPS,
    length: float = STEP,
    marked: bool = True,
    clock: float = 0.0,
    collectives: int = 0,
) -> Recording:
    """A trace whose GPU computes but for a share of each step; a data loader fetches without making it wait.

    ``collectives`` of 1 µs behind computing end each step.
    """
    trace = Recording(rank, world=world, clock=clock)
    trace.top["deviceProperties"] = [V100]
    trace.add("overhead", "Buffer Flush", 10, 11, 99)
    lost = share * length
    for number in range(steps):
        start = 1000 + number * length
        middle, end = start + 10_000, start + length
        if marked:
            trace.step(number, start, end)
        trace.operator("aten::step", start, end - 1)
        trace.mark(LOADER, start + 5, start + 6)
        trace.kernel(kernel, start, middle, launch=(start - 3, start - 2))
        call = (middle + lost - 5, middle + lost)
        queued = (start + 10, start + 15)
        if cause in ("", "communication", "copy"):
            call = queued
        if cause == "communication":
            trace.kernel("ncclDevKernel_AllReduce_Sum_f32", middle, middle + lost, 20, queued)
        elif cause == "copy":
            name = "Memcpy HtoD (Pageable -> Device)"
            trace.kernel(name, middle, middle + lost, 21, (start + 20, start + 21), category="gpu_memcpy")
        elif cause == "data loading":
            trace.mark(LOADER, middle, call[0])
        elif cause == "blocking":
            trace.call("cudaStreamSynchronize", middle - lost, middle + 1)
        elif cause == "allocation":
            trace.call("cudaMalloc", middle, call[0])
        elif cause == "profiler":
            trace.add("overhead", "Buffer Flush", middle, call[0], 99)
        trace.kernel(kernel, middle + lost, end, launch=call)
        for i in range(collectives):
            at = end - 2 * (i + 1)
            trace.kernel(
                "ncclDevKernel_AllReduce_Sum_f32", at, at + 1, 20, (start + 30 + i, start + 30.5 + i)
            )
    return trace


def job_of(folder: Path, *traces: Recording) -> JobInMemory:
    """A job of these traces, one a rank."""
    if not traces:
        return JobInMemory(name="job")
    found = read_text(folder, **{f"trace{i}": one.text() for i, one in enumerate(traces)})
    captures, together = joined(found.captures, found.communication)
    return JobInMemory(name="job", captures=captures, across_ranks=together)
