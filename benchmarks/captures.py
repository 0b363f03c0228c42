"""Traces of PyTorch's profiler as large as real ones: ``captures.py --ranks N --megabytes N --out DIR``.

The steps are those of ``sample_data/generator/pytorch.py``. Around its operators, launches, and kernels stands what a
real trace with shapes and stacks holds: outer operators, calls of Python functions, flows, events of the allocator, all
arguments, and many names.
"""

from __future__ import annotations

import argparse
import gzip
import json
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from generator.pytorch import STEPS, ranks_of, train

if TYPE_CHECKING:
    from collections.abc import Iterator

LEVEL = 4
HEAD = """\
{{
  "schemaVersion": 1,
  "deviceProperties": [
    {{
      "id": {rank}, "name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 85049999360,
      "computeMajor": 8, "computeMinor": 0,
      "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048,
      "regsPerBlock": 65536, "warpSize": 32,
      "sharedMemPerBlock": 49152, "numSms": 108
    }}
  ],
  "cuda_runtime_version": 12040,
  "with_stack": 1,
  "record_shapes": 1,
  "profile_memory": 1,
  "distributedInfo": {{"backend": "nccl", "rank": {rank}, "world_size": {ranks}}},
  "baseTimeNanoseconds": 1741511000125000000,
  "traceEvents": [
  {{
    "name": "process_name", "ph": "M", "ts": 1000.000, "pid": {rank}, "tid": 0,
    "args": {{
      "name": "python3"
    }}
  }}"""
TAIL = """
  ],
  "traceName": "rank-{rank}.pt.trace.json"
}}
"""
EVENT = """,
  {{
    "ph": "X", "cat": "{cat}", "name": "{name}", "pid": {pid}, "tid": {tid},
    "ts": {ts:.3f}, "dur": {dur:.3f},
    "args": {{
      {args}
    }}
  }}"""
OPERATOR = (
    '"External id": {0},"Record function id": 0, "Sequence number": {0}, "Fwd thread id": 0, "Ev Idx": {0}, '
    '"Input Dims": [[64, 1024], [1024, 4096], [4096], []], "Input type": ["c10::Half", "c10::Half", "c10::Half", '
    '"Scalar"], "Input Strides": [[1024, 1], [1, 1024], [1], []], "Concrete Inputs": ["", "", "", "1"]'
).format
PYTHON = '"Python parent id": {0}, "Python id": {0}, "Ev Idx": {0}'.format
CALL = '"External id": {0}, "cbid": 211, "correlation": {1}'.format
KERNEL = (
    '"External id": {0}, "queued": 0, "context": 1, "registers per thread": 38, "shared memory": 16384,\n'
    '      "blocks per SM": 9.481481, "warps per SM": 37.925926,\n      "grid": [1024, 1, 1],\n'
    '      "block": [128, 1, 1],\n      "est. achieved occupancy %": 54'
).format
FLOW = """,
  {{
    "ph": "{ph}", "id": {id}, "pid": {pid}, "tid": {tid}, "ts": {ts:.3f},
    "cat": "ac2g", "name": "ac2g"{end}
  }}"""
MEMORY = """,
  {{
    "ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]",
    "pid": {pid}, "tid": {tid},
    "ts": {ts:.3f},
    "args": {{
      "Total Reserved": 42949672960, "Total Allocated": {allocated}, "Bytes": {bytes}, "Addr": 140021, "Device Id": {rank}, "Device Type": 1, "Ev Idx": {number}
    }}
  }}"""
#: How many names functions and modules have, and kernels of a shape.
FUNCTIONS, SHAPES = 300, 12


def texts(rank: int, events: list[dict[str, Any]], numbers: Iterator[int]) -> Iterator[str]:
    """The text of simulated events, and of those that a real trace has around them."""
    for event in events:
        number, category, name, args = next(numbers), event["cat"], event["name"], event["args"]
        if category == "cpu_op":
            for depth, function in enumerate(
                ("nn.Module: Linear_{}", "torch/nn/modules/l{}.py(114): forward")
            ):
                called = function.format(number % (FUNCTIONS - depth))
                yield EVENT.format(
                    **event | {"cat": "python_function", "name": called, "args": PYTHON(number)}
                )
            yield EVENT.format(**event | {"name": "aten::linear", "args": OPERATOR(number)})
            event["ts"], event["dur"] = event["ts"] + 1, event["dur"] - 2
            yield EVENT.format(**event | {"args": OPERATOR(number)})
            event["dur"] = 0.9
            yield EVENT.format(**event | {"name": "aten::empty", "args": OPERATOR(number)})
            change = (1 << 20) * (1 - number % 2 * 2)
            allocated = 20 << 30 if number % 2 else (20 << 30) + change
            yield MEMORY.format(
                **event | {"rank": rank, "bytes": change, "allocated": allocated, "number": number}
            )
        elif category == "cuda_runtime":
            yield EVENT.format(**event | {"args": CALL(number, args.get("correlation", 0))})
            if "correlation" in args:
                yield FLOW.format(ph="s", id=args["correlation"], end="", **_place(event))
        elif category in ("kernel", "gpu_memcpy"):
            event["name"] = name.replace("128x128", f"{64 + number % SHAPES}x128")
            event["args"] = f"{json.dumps(args)[1:-1]},\n      {KERNEL(number)}"
            yield EVENT.format(**event)
            yield FLOW.format(ph="f", id=args["correlation"], end=', "bp": "e"', **_place(event))
        else:
            yield EVENT.format(**event | {"args": f'"External id": {number}'})


def _place(event: dict[str, Any]) -> dict[str, Any]:
    return {key: event[key] for key in ("pid", "tid", "ts")}


def make(folder: Path, ranks: int, size: int, layers: int, *, gzipped: bool) -> None:
    """Write the traces of all ranks, each of about the same number of bytes, step by step."""
    folder.mkdir()
    every, written = ranks_of(ranks, 1), 0
    numbers = [count(1) for _ in every]

    def write(rank: int, text: str) -> int:
        content = text.encode("ascii")
        with (folder / f"rank-{rank}.pt.trace.json{'.gz' * gzipped}").open("ab") as file:
            file.write(gzip.compress(content, LEVEL) if gzipped else content)
        return len(content)

    for rank in range(ranks):
        written = write(rank, HEAD.format(rank=rank, ranks=ranks))
    for step in count(STEPS.start):
        train(every, step, layers)
        for one in every:
            added = write(one.number, "".join(texts(one.number, one.events, numbers[one.number])))
            one.events.clear()
        written += added
        if written >= size:
            break
    for rank in range(ranks):
        write(rank, TAIL.format(rank=rank))


def main() -> None:
    """Make what the options say."""
    options = argparse.ArgumentParser(description="Make traces of PyTorch's profiler.")
    options.add_argument("--ranks", type=int, default=1)
    options.add_argument("--megabytes", type=float, required=True, help="of text, for each rank")
    options.add_argument(
        "--layers", type=int, default=400, help="of the model: a step has 18 kB of text for each"
    )
    options.add_argument("--gzip", action="store_true")
    options.add_argument("--out", type=Path, required=True)
    given = options.parse_args()
    make(given.out, given.ranks, round(given.megabytes * 1e6), given.layers, gzipped=given.gzip)


if __name__ == "__main__":
    main()
