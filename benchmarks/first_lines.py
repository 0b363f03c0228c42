"""What a recording says first, beside TraceML: ``python -m benchmarks.first_lines --help``.

The same four loops run alone, under ``record-job`` without a change, and under ``traceml run`` with its marks, one after
the other, so that whatever else the machine does falls on all of them.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

SCRIPT = """
import contextlib, os, sys, time, torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

loop, steps = sys.argv[1], int(sys.argv[2])
ranks, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
trace_step = lambda _: contextlib.nullcontext()
if "MARKS" in os.environ:
    import traceml_ai as traceml
    traceml.init(mode="auto")
    trace_step = traceml.trace_step

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 4 * steps
    def __getitem__(self, i):
        if loop == "data" or (loop == "rank-data" and rank):
            time.sleep(0.02)
        return torch.ones(64), torch.ones(1)

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
    def forward(self, x):
        time.sleep(0.08 if loop == "rank-forward" and rank else 0.03)
        return self.layers(x)

torch.set_num_threads(1)
model = Model()
if ranks > 1:
    torch.distributed.init_process_group("gloo")
    model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
began = time.perf_counter()
for x, y in DataLoader(Data(), batch_size=4):
    with trace_step(model):
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        optimizer.step()
if rank == 0:
    print("loop took", time.perf_counter() - began, "s", flush=True)
if ranks > 1:
    torch.distributed.destroy_process_group()
"""
#: By name: ranks, and what a reader must find in our first line.
LOOPS = {
    # Nothing slows it; that cores are free is a remark.
    "healthy": (1, ("No cause found", "No problem found", "Nothing", "cores were free")),
    "data": (1, ("waits for data",)),
    "rank-data": (2, ("data on rank 1", "batch fetch")),
    "rank-forward": (2, ("Rank 1 is late", "forward pass")),
}
WAYS = ("alone", "record-job", "TraceML")


def run(way: str, loop: str, steps: int, python: str, folder: Path) -> tuple[float, str]:
    """Seconds of the loop, and the first line of the verdict; raises RuntimeError if the script failed."""
    ranks, _ = LOOPS[loop]
    script = folder / "train.py"
    script.write_text(SCRIPT)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    several = ["--nproc-per-node", str(ranks), "--master-port", port]
    launcher = ["-m", "torch.distributed.run", *several] if ranks > 1 else []
    command = [python, *launcher, str(script), loop, str(steps)]
    environment, job = dict(os.environ), folder / f"{way}-{loop}-{port}"
    if way == "record-job":
        command = [sys.executable, "-m", "jobrecord", "--quiet", "--out", str(job), "--", *command]
    elif way == "TraceML":
        environment["MARKS"] = "1"
        command = [
            str(Path(python).with_name("traceml")),
            "run",
            "--logs-dir",
            str(folder),
            "--run-name",
            job.name,
        ]
        command += [*several, str(script), "--args", loop, str(steps)]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=folder)
    took = re.search(r"loop took ([0-9.]+) s", found.stdout)
    if found.returncode or not took:
        raise RuntimeError(f"{way}: {(found.stderr or found.stdout)[-500:]}")
    if way == "record-job":
        report = folder / port
        subprocess.run(
            [
                sys.executable,
                "-m",
                "jobreport",
                "--job-dir",
                job,
                "--out",
                report,
                "--formats",
                "md",
                "--quiet",
            ],
            stdout=subprocess.DEVNULL,
            check=True,
        )
        return float(took[1]), (report / "summary.md").read_text("utf-8").split("\n")[2].strip("*")
    lines = re.findall(r"(?:Verdict|Why): *[^|\n]*[^|\s]", found.stdout)
    return float(took[1]), "; ".join(lines[:2])


def main() -> None:
    """Print a table of the loops."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_lines", description=__doc__)
    parser.add_argument(
        "--python", default=sys.executable, help="interpreter that has PyTorch and traceml-ai"
    )
    parser.add_argument("--steps", type=int, default=300, help="steps of each loop (default 300)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each way (default 3)")
    options = parser.parse_args()
    print("| loop | way | time of the loop, of alone | first line |\n|---|---|---|---|")
    for loop, (_, expected) in LOOPS.items():
        took: dict[str, list[float]] = {way: [] for way in WAYS}
        says: dict[str, set[str]] = {way: set() for way in WAYS}
        for _ in range(options.runs):
            for way in WAYS:
                with tempfile.TemporaryDirectory() as folder:
                    try:
                        seconds, line = run(way, loop, options.steps, options.python, Path(folder))
                    except (OSError, RuntimeError) as error:
                        says[way].add(f"not measured: {error}")
                        continue
                took[way].append(seconds)
                says[way].add(line)
        right = all(any(part in line for part in expected) for line in says["record-job"])
        for way in WAYS[1:]:
            ratios = [own / alone for own, alone in zip(took[way], took["alone"], strict=False)]
            times = (
                f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})" if ratios else ""
            )
            mark = "" if way != "record-job" else "right: " if right else "WRONG: "
            print(f"| {loop} | {way} | {times} | {mark}{' / '.join(sorted(says[way]))} |", flush=True)


if __name__ == "__main__":
    main()
