"""What small input of odd shapes costs, against an honest one: ``python -m fuzz.small_input --help``.

Prints processor time per megabyte of each shape, as a multiple of that of an honest input of its kind. What costs by the
GPU, the machine, the node, the moment, or the row is compared with an honest input of as many GPUs or machines as are
kept, of as many nodes or moments, or of as short rows; these are in the table themselves, as multiples of the usual one.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from contextlib import suppress
from math import inf
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from jobreport.errors import JobReportError
from jobreport.options import Options
from jobreport.pipeline import make_report
from jobreport.tables.engine import LocalEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

#: What a shape may cost against an honest input of its kind.
LIMIT = 2.0
#: Each input is reported so often, and the least time counts: other work on the machine only adds to it.
_TIMES, _MOST_TIMES = 3, 9
#: More often than the least, while the multiple is within this factor of the limit.
_NEAR = 1.5
#: Pieces of the honest input that costs what every report does.
_FEW = 16


class Kind(NamedTuple):
    """A kind of files."""

    file: str
    megabytes: float
    begin: str = ""
    end: str = ""


KINDS = {
    "trace": Kind("rank-0.pt.trace.json", 4, '{"schemaVersion":1,"traceEvents":[', "null]}"),
    "log": Kind("gpu.csv", 2),
    # Of 3,000 nodes with two samples.
    "samples": Kind("system/incremental/2025030620/1741292400.node.json", 0.7),
}


class Shape(NamedTuple):
    """How a file begins behind what all of its kind do, and the pieces that follow, by their number."""

    begin: str
    piece: Callable[[int], str]
    #: The honest shape of its kind that it is compared with.
    peer: str = "honest"


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


#: Events by their number.
_TRACES: dict[str, Callable[[int], list[dict[str, Any]]]] = {
    "honest": _launched,
    "a thread per event": lambda i: [_event(i, "aten::add", tid=i)],
    "a thread per launch": lambda i: _launched(i, thread=i),
    "a thread per blocking call": lambda i: [*_launched(i, i), *_launched(i, i, "cudaDeviceSynchronize")],
    "a stream per kernel": lambda i: [_kernel(i, stream=i)],
    "a device per kernel": lambda i: [_kernel(i, device=i)],
    "a name per kernel": lambda i: [_kernel(i, name=f"void kernel{i}(float*)")],
    "a device and a name per kernel": lambda i: [_kernel(i, name=f"void kernel{i}(float*)", device=i)],
    "a name per operator": lambda i: [_event(i, f"aten::op{i}")],
    "a step per event": lambda i: [_event(i, f"ProfilerStep#{i}", "user_annotation", dur=39.0)],
    "all events nested": lambda i: [_event(i, "aten::add", ts=1e6 + i, dur=2e6 - 2.0 * i)],
}

_NAMES = "timestamp, index, utilization.gpu [%], memory.used [MiB], power.draw [W]\n"
_BY_UUID = _NAMES.replace("index", "uuid")


def _at(i: int) -> str:
    return f"2026/01/{1 + i // 86_400 % 28:02} {i // 3600 % 24:02}:{i // 60 % 60:02}:{i % 60:02}.417"


def _row(i: int) -> str:
    """A row of one of eight GPUs."""
    return f"{_at(i // 8)}, {i % 8}, {i * 37 % 101} %, {i * 7919 % 80_000} MiB, {50 + i * 31 % 35_000 / 100:.2f} W\n"


def _some_rows(i: int, other: str) -> str:
    """A row in a thousand pieces."""
    return other if i % 1000 else _row(i // 1000)


def _box(i: int) -> str:
    """The table of two GPUs."""
    return f"""Mon Jan  5 {i // 3600 % 24:02}:{i // 60 % 60:02}:{i % 60:02} 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|=========================================+========================+======================|
""" + "".join(
        f"""|   {gpu}  NVIDIA A100-SXM4-80GB          On  |   00000000:{17 + gpu}:00.0 Off |                    0 |
| N/A   45C    P0             {i % 300:3}W /  400W |   {i * 7 % 80_000:5}MiB /  81920MiB |    {i % 100:3}%      Default |
+-----------------------------------------+------------------------+----------------------+
"""
        for gpu in range(2)
    )


#: What is printed of ASCII.
_LETTERS = "".join(map(chr, range(32, 127)))
_ROWS = _NAMES + "".join(map(_row, range(200)))
_GPUS, _MACHINES, _FOUR = "honest, 512 GPUs", "honest, 1,024 machines", "honest, 4 machines of 8 GPUs"
_IN_TURN, _SHORT = "honest, GPUs in turn", "honest, short rows"
_LOGS: dict[str, Shape] = {
    "honest": Shape(_NAMES, _row),
    _GPUS: Shape(_BY_UUID, lambda i: f"{_at(i // 512)}, GPU-{i % 512}, {i * 37 % 101} %, 5 MiB, 7.00 W\n"),
    _MACHINES: Shape(
        f"hostname, {_NAMES}",
        lambda i: f"h{i % 1024}, {_at(i // 1024)}, 0, {i * 37 % 101} %, 5 MiB, 7.00 W\n",
    ),
    _FOUR: Shape(f"hostname, {_NAMES}", lambda i: f"h{i // 8 % 4}, {_row(i - i // 8 % 4 * 8)}"),
    # A moment each, so that a report has eight times as many minutes.
    _IN_TURN: Shape(
        _NAMES.replace("timestamp", "elapsed_s"),
        lambda i: f"{i}, {i % 8}, {i * 37 % 101} %, 5 MiB, 7.00 W\n",
    ),
    _SHORT: Shape("elapsed_s,index,utilization.gpu\n", lambda i: f"{i // 8},{i % 8},{i * 37 % 101}\n"),
    "one character": Shape(_ROWS, lambda _: "a\n"),
    "one character, some rows": Shape(_NAMES, lambda i: _some_rows(i, "x\n")),
    "commas": Shape(_ROWS, lambda _: ",\n"),
    "hashes": Shape(_ROWS, lambda _: "#\n"),
    "quotes": Shape(_ROWS, lambda _: '"\n'),
    "blank lines": Shape(_ROWS, lambda _: "\n"),
    "blank lines, some rows": Shape(_NAMES, lambda i: _some_rows(i, "\n")),
    "few short fields": Shape(_ROWS, lambda _: "1, 2\n", _SHORT),
    "few short fields, each another": Shape(_ROWS, lambda i: f"{i}, {i % 7}\n", _SHORT),
    "wrong number of fields": Shape(_NAMES, lambda i: _row(i).rstrip() + ", 1" * (i % 100 and i % 3) + "\n"),
    "messages": Shape(_ROWS, lambda i: f"loss {i / 7:.4f} step {i}\n"),
    "messages with commas": Shape(_ROWS, lambda i: f"Epoch {i // 99}, loss: {i / 7:.4f}, lr: {i % 13}\n"),
    "headers in turn": Shape(
        _ROWS, lambda i: _NAMES.replace("power.draw [W]", "temperature.gpu") if i % 2 else _NAMES
    ),
    "varied headers": Shape(_ROWS, lambda i: f"timestamp, index, utilization.gpu [%], x{i}\n"),
    "varied headers with rows": Shape(
        "", lambda i: f"timestamp, index, utilization.gpu [%], x{i}\n{_at(i)}, 0, 3 %, 4\n"
    ),
    "many indexes": Shape(_NAMES, lambda i: f"{_at(i)}, {i % 1000}, 3 %, 5 MiB, 7.00 W\n"),
    "many names": Shape(_NAMES, lambda i: f"{_at(i)}, gpu-name-{i}, 3 %, 5 MiB, 7.00 W\n", _GPUS),
    "many UUIDs": Shape(_BY_UUID, lambda i: f"{_at(i)}, GPU-{i}, 3 %, 5 MiB, 7.00 W\n", _GPUS),
    "many hosts": Shape(
        f"hostname, {_NAMES}", lambda i: f"h{i % 4000}, {_at(i)}, 0, 3 %, 5 MiB, 7.00 W\n", _MACHINES
    ),
    "hosts and UUIDs": Shape(
        f"hostname, {_BY_UUID}",
        lambda i: f"h{i % 4}, {_at(i)}, GPU-{i % 8}, {i % 99} %, 5 MiB, 7.00 W\n",
        _FOUR,
    ),
    "bad values": Shape(_NAMES, lambda i: f"{_at(i)}, {i % 8}, x{i} %, y{i} MiB, z{i} W\n"),
    "bad times": Shape(_NAMES, lambda i: f"2026/13/{i}, {i % 8}, 3 %, 5 MiB, 7.00 W\n"),
    "a time per row": Shape(_NAMES, lambda i: f"20{i}, {i % 8}, 3 %, 5 MiB, 7.00 W\n", _IN_TURN),
    "short rows": Shape("elapsed_s,index,utilization.gpu\n", lambda i: f"{i % 9999},{i % 8},3\n", _SHORT),
    "boxes": Shape("", _box),
    "lines of a box": Shape(
        _box(0), lambda i: f"| N/A   45C    P0   {i}W /  400W | 5MiB / 9MiB | 3% Default |\n"
    ),
    "binary": Shape("", lambda i: Random(i).randbytes(64).decode("latin-1")),
    "binary after rows": Shape(_ROWS, lambda i: Random(i).randbytes(64).decode("latin-1")),
    "letters after rows": Shape(
        _ROWS, lambda i: "".join(Random(i).choices(_LETTERS, k=64)) + "\n" * (i % 3 > 0)
    ),
    "NULs": Shape(_ROWS, lambda _: "\0" * 64),
    "lines of NULs": Shape(_ROWS, lambda _: "\0\n"),
    "NULs in rows": Shape(_NAMES, lambda i: _row(i).replace(",", ",\0")),
    "long line": Shape(_ROWS, lambda i: f"{i}, "),
    "long lines": Shape(_ROWS, lambda i: "loss, " * 2000 + f"{i}\n"),
    "CRs": Shape(_ROWS, lambda _: "\r"),
    "CRs behind rows": Shape(_NAMES, lambda i: _row(i).replace("\n", "\r")),
    "progress bars": Shape(_ROWS, lambda i: f"\r{i % 100}%|####  | {i}/1000" + "\n" * (i % 1000 == 0)),
    "prefixes": Shape(f"0: {_NAMES}", lambda i: f"{i // 8 % 4}: {_row(i)}"),
    "many prefixes": Shape(f"0: {_NAMES}", lambda i: f"{i % 4000}: {_row(i)}"),
    "times in front": Shape(
        f"[2026-01-05 10:00:00] {_NAMES}",
        lambda i: f"[2026-01-05 {i // 3600 % 24:02}:{i // 60 % 60:02}:{i % 60:02}] {_row(i)}",
    ),
    "hosts in front": Shape(f"pod-0 | {_NAMES}", lambda i: f"pod-{i} | {_row(i)}"),
}


def _sample(i: int, node: int, moment: int) -> str:
    core = {
        "Type": "cpu",
        "Name": f"cpu{i % 4}",
        "Dimension": "CPUUtilization",
        "Value": i * 37 % 10_000 / 100,
    }
    return json.dumps(core | {"NodeId": f"algo-{node}", "Timestamp": 1741292400.25 + moment / 2}) + "\n"


_NODES = "honest, 3,000 nodes"
_SAMPLES: dict[str, Shape] = {
    "honest": Shape("", lambda i: _sample(i, 1, i // 4)),
    _NODES: Shape("", lambda i: _sample(0, i % 3000, i // 3000)),
    "many nodes": Shape("", lambda i: _sample(0, i // 2, i % 2), _NODES),
}


def _lines(events: Callable[[int], list[dict[str, Any]]]) -> Shape:
    return Shape("", lambda i: "".join(f"{json.dumps(one)},\n" for one in events(i)))


#: By kind and name.
SHAPES: dict[str, Shape] = {
    f"{kind}: {name}": shape
    for kind, shapes in {
        "trace": {name: _lines(events) for name, events in _TRACES.items()},
        "log": _LOGS,
        "samples": _SAMPLES,
    }.items()
    for name, shape in shapes.items()
}


def text(name: str, size: float, pieces: int = sys.maxsize) -> str:
    """A file of a shape, of about so many characters; of at most so many pieces."""
    kind, shape = KINDS[name.partition(":")[0]], SHAPES[name]
    parts = [kind.begin, shape.begin]
    length = sum(map(len, parts))
    for i in range(pieces):
        if length >= size:
            break
        parts.append(shape.piece(i))
        length += len(parts[-1])
    return "".join([*parts, kind.end])


def _seconds(kind: str, content: str, scratch: Path) -> float:
    """Processor time of the report."""
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        file = Path(folder, "job", KINDS[kind].file)
        file.parent.mkdir(parents=True)
        file.write_text(content, "latin-1", newline="")
        began = time.process_time()
        with LocalEngine(1) as engine, suppress(JobReportError):  # some hold nothing that is readable
            make_report(
                Path(folder, "job"), Path(folder, "report"), Options(formats=("json",)), engine=engine
            )
        return time.process_time() - began


def multiples(names: Iterable[str], scratch: Path, scale: float = 1) -> Iterable[tuple[str, float, float]]:
    """Name of each shape, seconds per megabyte beyond what every report costs, and their multiple of its peer's."""
    for name in names:
        kind = name.partition(":")[0]
        size = KINDS[kind].megabytes * 1e6 * scale
        honest, own = text(f"{kind}: {SHAPES[name].peer}", size), text(name, size)
        few = text(f"{kind}: honest", size, _FEW)
        least = [inf] * 4
        for turn in range(1, _MOST_TIMES + 1):
            # Side by side, since what else runs on the machine changes; the first one also pays for what is imported.
            seconds = [_seconds(kind, content, scratch) for content in (few, few, honest, own)]
            _, fixed, honest_s, own_s = least = [*map(min, least, seconds)]
            of_honest, of_own = (honest_s - fixed) / len(honest), (own_s - fixed) / len(own)
            if turn >= _TIMES and not LIMIT / _NEAR < of_own / of_honest < LIMIT * _NEAR:
                break
        yield name, of_own * 1e6, of_own / of_honest


def main() -> None:
    """Print the table; exit with 1 if a shape costs more than it may."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.small_input", description=__doc__)
    parser.add_argument(
        "--only", default="", help="a part of the names of shapes, such as 'trace: ' or 'CRs'"
    )
    parser.add_argument("--scale", type=float, default=1, help="times the usual size of the inputs")
    options = parser.parse_args()
    above = False
    with tempfile.TemporaryDirectory() as folder:
        names = [name for name in SHAPES if options.only in name]
        for name, own, times in multiples(names, Path(folder), options.scale):
            print(f"{name:38} {own:7.3f} s/MB {times:6.2f} x", flush=True)
            above |= times > LIMIT and ": honest" not in name
    sys.exit(above)


if __name__ == "__main__":
    main()
