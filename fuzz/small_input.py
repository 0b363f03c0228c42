"""What small input of odd shapes costs, against an honest one: ``python -m fuzz.small_input --help``.

Prints processor time per megabyte of each shape, as a multiple of that of an honest input of its kind.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobreport.errors import JobReportError
from jobreport.pipeline import make_report
from jobreport.tables.engine import LocalEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

#: What a shape may cost against an honest input of its kind.
LIMIT = 2.0


def _event(i: int, name: str, category: str = "cpu_op", **other: Any) -> dict[str, Any]:
    return {
        "ph": "X", "cat": category, "name": name, "pid": 7, "tid": 7, "ts": 1e6 + 40 * i, "dur": 2.0
    } | other  # fmt: skip


def _kernel(i: int, *, name: str = "", device: int = 0, stream: int = 7) -> dict[str, Any]:
    known = {"correlation": i, "device": device, "stream": stream}
    return _event(
        i, name or f"void k{i % 60}(float*)", "kernel", pid=device, tid=stream, dur=20.0, args=known
    )


def _launched(i: int, thread: int = 7, kind: str = "cudaLaunchKernel") -> list[dict[str, Any]]:
    """An operator, its launch, and its kernel; every hundredth begins a step."""
    step = [_event(i, f"ProfilerStep#{i // 100}", "user_annotation", dur=3990.0)] if i % 100 == 0 else []
    call = _event(i, kind, "cuda_runtime", tid=thread, args={"correlation": i})
    return [*step, _event(i, f"aten::op{i % 40}", tid=thread), call, _kernel(i)]


#: Events of a trace, by their number.
TRACES: dict[str, Callable[[int], list[dict[str, Any]]]] = {
    "honest trace": _launched,
    "a thread per event": lambda i: [_event(i, "aten::add", tid=i)],
    "a thread per launch": lambda i: _launched(i, thread=i),
    "a thread per blocking call": lambda i: [*_launched(i, i), *_launched(i, i, "cudaDeviceSynchronize")],
    "a stream per kernel": lambda i: [_kernel(i, stream=i)],
    "a device per kernel": lambda i: [_kernel(i, device=i)],
    "a name per kernel": lambda i: [_kernel(i, name=f"void kernel{i}(float*)")],
    "a device and a name per kernel": lambda i: [_kernel(i, name=f"void kernel{i}(float*)", device=i)],
    "a step per event": lambda i: [_event(i, f"ProfilerStep#{i}", "user_annotation", dur=39.0)],
    "all events nested": lambda i: [_event(i, "aten::add", ts=1e6 + i, dur=2e6 - 2.0 * i)],
}


def _row(i: int) -> str:
    tick = i // 4
    second = f"2025/03/{4 + tick // 86400:02} {tick // 3600 % 24:02}:{tick // 60 % 60:02}:{tick % 60:02}.137"
    return f"{second}, {i % 4}, {i * 7 % 101} %, {i * 13 % 80_000} MiB"


_HEADER = "timestamp, index, utilization.gpu [%], memory.used [MiB]\n"
#: Lines of an nvidia-smi log, by their number.
LOGS: dict[str, Callable[[int], str]] = {
    "honest log": _row,
    "lines of one character": lambda i: "x" if i % 1000 else _row(i // 1000),
    "empty lines": lambda i: "" if i % 1000 else _row(i // 1000),
    "wrong number of fields": lambda i: _row(i) + ", 1" * (i % 3 + 1) if i % 100 else _row(i // 100),
}


def _filled(parts: Iterable[str], size: int) -> str:
    """Parts up to a size together."""
    kept = []
    for part in parts:
        kept.append(part)
        if (size := size - len(part)) <= 0:
            break
    return "".join(kept)


def write(shape: str, folder: Path, megabytes: float) -> int:
    """Write a job of a shape; returns its size in bytes."""
    folder.mkdir()
    numbers, size = range(sys.maxsize), int(megabytes * 1e6)
    if shape in TRACES:
        events = (f"{json.dumps(event)},\n" for i in numbers for event in TRACES[shape](i))
        file, text = folder / "rank-0.pt.trace.json", _filled(events, size).rstrip(",\n")
        text = f'{{"schemaVersion":1,"traceEvents":[{text}]}}'
    else:
        file, text = folder / "gpu.csv", _HEADER + _filled((f"{LOGS[shape](i)}\n" for i in numbers), size)
    return file.write_bytes(text.encode())


def seconds(shape: str, scratch: Path, megabytes: float) -> float:
    """Processor time of the report, per megabyte."""
    size = write(shape, scratch / shape, megabytes)
    began = time.process_time()
    with LocalEngine(1) as engine, suppress(JobReportError):  # some hold nothing that is readable
        make_report(scratch / shape, scratch / f"{shape} report", formats=("json",), engine=engine)
    return (time.process_time() - began) / size * 1e6


def multiples(shapes: Iterable[str], scratch: Path, megabytes: float) -> dict[str, tuple[float, float]]:
    """Seconds per megabyte of each shape, and their multiple of those of an honest input of its kind."""
    # The first report also pays for what is imported and compiled.
    (scratch / "first").mkdir()
    for kind in ("honest trace", "honest log"):
        seconds(kind, scratch / "first", megabytes / 10)
    honest = {kind: seconds(kind, scratch, megabytes) for kind in ("honest trace", "honest log")}
    found = {}
    for shape in shapes:
        own = honest[shape] if shape in honest else seconds(shape, scratch, megabytes)
        found[shape] = own, own / honest["honest trace" if shape in TRACES else "honest log"]
    return found


def main() -> None:
    """Print the table; exit with 1 if a shape costs more than it may."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.small_input", description=__doc__)
    parser.add_argument("--megabytes", type=float, default=4, help="size of each input (default 4)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = multiples([*TRACES, *LOGS], Path(folder), options.megabytes)
    for shape, (own, times) in found.items():
        print(f"{shape:31} {own:7.3f} s/MB {times:6.2f} x")
    sys.exit(any(times > LIMIT for _, times in found.values()))


if __name__ == "__main__":
    main()
