"""Measure what recording a training costs, where PyTorch is: ``python -m benchmarks.learning --help``.

Two models of the same seed train in turn in one process, one of them recorded: stretches in the order ABBA, each with one
record. Of each four, both recorded stretches are compared with both others; the median over all, and its interval. Times are
those of the process on the CPU, with the thread that writes, and of the clock where a GPU computes.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

import jobrecord

PAGE = Path(__file__).parents[1] / "docs/recording.md"
BEGIN, END = "<!-- benchmarks.learning -->\n", "<!-- end -->\n"
#: Layers, width, tokens of a step, and what it computes in.
SIZES: dict[str, tuple[int, int, int, Any]] = {
    "cpu": (4, 384, 128, torch.float32),
    "cuda": (20, 2048, 4096, torch.bfloat16),
}
VOCABULARY, CONTEXT, RESAMPLED = 512, 64, 2000
#: Rows of an hour of a model with 1.0 B parameters: 292 weights, gradients, and updates, 192 activations, 72 records.
ROWS_PER_HOUR = 72 * (3 * 292 + 192)
#: Idle hooks, and how often they are called.
HOOKS, CALLS = 500, 30


class GPT(nn.Module):  # type: ignore[misc]
    """A language model."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width,
                6 if width % 6 == 0 else 16,
                4 * width,
                0.0,
                nn.GELU(),
                batch_first=True,
                norm_first=True,
            )
            for _ in range(layers)
        )
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: Any) -> Any:
        """Scores of the next token."""
        mask = nn.Transformer.generate_square_subsequent_mask(CONTEXT, tokens.device)
        found = self.embedding(tokens)
        for block in self.blocks:
            found = block(found, mask.to(found.dtype), is_causal=True)
        return self.head(found)


class Run:
    """A model, and how it trains on."""

    def __init__(self, device: str) -> None:
        layers, width, self.tokens, dtype = SIZES[device]
        torch.manual_seed(0)
        self.device = device
        self.clock = time.process_time if device == "cpu" else time.perf_counter
        self.model = GPT(layers, width).to(device, dtype)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.random = torch.Generator().manual_seed(1)
        self.losses: list[float] = []
        #: By the clock, of each stretch.
        self.step_s: list[float] = []

    def stretch(self, steps: int, *, is_recorded: bool) -> float:
        """Train. Returns the seconds of a step."""
        began, began_wall = self.clock(), time.perf_counter()
        for _ in range(steps):
            drawn = torch.randint(VOCABULARY, (self.tokens // CONTEXT, CONTEXT + 1), generator=self.random)
            drawn = drawn.to(self.device)
            scores = self.model(drawn[:, :-1]).float()
            loss = nn.functional.cross_entropy(scores.flatten(0, 1), drawn[:, 1:].flatten())
            self.optimizer.zero_grad()
            loss.backward()
            if is_recorded:
                jobrecord.log(loss=loss)
            self.optimizer.step()
            if is_recorded:
                jobrecord.step()
            self.losses.append(loss.item())
        self.step_s.append((time.perf_counter() - began_wall) / steps)
        return (self.clock() - began) / steps


def overhead(device: str, every: int, repetitions: int, out: Path) -> dict[str, Any]:
    """Shares of the time of a step that recording added, and what the file has."""
    os.environ |= {"JOBRECORD_DIR": str(out), "JOBRECORD_NODE": "node", "JOBRECORD_RUN": "benchmark"}
    plain, recorded = Run(device), Run(device)
    jobrecord.start()
    # Not the first steps, all of which are recorded.
    jobrecord.resume(1000)
    jobrecord.learn(recorded.model, recorded.optimizer, every=every, budget=1)
    for one in (plain, recorded):
        one.stretch(every, is_recorded=one is recorded)
    shares = []
    for _ in range(repetitions):
        order = (recorded, plain, plain, recorded)
        first, *others, last = (one.stretch(every, is_recorded=one is recorded) for one in order)
        shares.append((first + last) / sum(others) - 1)
    jobrecord.stop()
    lines = (out / "jobrecord/training-00000.jsonl").read_text().splitlines()
    records = [line for line in map(json.loads, lines) if line["kind"] == "record"]
    cost_s = sum(line["cost_us"] for line in records) / 1e6 / len({line["step"] for line in records})
    step_s = statistics.median(plain.step_s)
    return {
        "share": statistics.median(shares),
        "interval": interval(shares),
        "record": cost_s / step_s / every,
        "cost_s": cost_s,
        "step_s": step_s,
        "equal": plain.losses == recorded.losses,
        "records": records,
    }


def interval(values: list[float]) -> tuple[float, float]:
    """Where the median lies in 95 of 100 resamples."""
    draw = random.Random(0)  # noqa: S311 - no secret
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(RESAMPLED))
    return medians[RESAMPLED // 40], medians[-RESAMPLED // 40]


def idle_us(out: Path) -> float:
    """Microseconds of a hook that has nothing to do."""
    os.environ["JOBRECORD_DIR"] = str(out)
    model, data = nn.Sequential(*(nn.ReLU() for _ in range(HOOKS))), torch.zeros(1, requires_grad=True)

    def call_s() -> float:
        began = time.perf_counter()
        model(data)
        return time.perf_counter() - began

    before = min(call_s() for _ in range(CALLS))
    jobrecord.start()
    jobrecord.resume(1001)
    spare = nn.Parameter(torch.zeros(1))
    model.register_parameter("spare", spare)
    jobrecord.learn(model, torch.optim.SGD([spare], lr=0.1), budget=1)
    jobrecord.resume(1003)
    jobrecord.step()
    after = min(call_s() for _ in range(CALLS))
    jobrecord.stop()
    return (after - before) / HOOKS * 1e6


def megabytes_per_hour(records: list[dict[str, Any]], *, histograms: bool) -> tuple[float, float]:
    """Size of the records of an hour, as they are and compressed."""
    left_out = () if histograms else ("hist", "hist_first", "positive", "sampled")
    kept = [{name: one for name, one in line.items() if name not in left_out} for line in records]
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in kept).encode()
    rows = sum(len(line["id"]) for line in records)
    return tuple(size / rows * ROWS_PER_HOUR / 1e6 for size in (len(text), len(gzip.compress(text))))  # type: ignore[return-value]


def measured(repetitions: int) -> str:
    """The table."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        torch.set_num_threads(1)
    layers, width, tokens, _ = SIZES[device]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for every in (100, 10):
            found = overhead(device, every, repetitions, Path(folder, str(every)))
            low, high = found["interval"]
            title = f"one record in {every} steps"
            limit = "≤ 2%" if every == 100 else ""
            rows += [
                (f"{title}: time added to a step", limit, f"{found['share']:.1%} ({low:.1%} to {high:.1%})"),
                (f"{title}: its records' own cost", limit, f"{found['record']:.2%}"),
                (f"{title}: all losses equal, bit by bit", "yes", "yes" if found["equal"] else "no"),
            ]
        rows.append(
            (
                "a record",
                "",
                f"{1000 * found['cost_s']:.0f} ms, {found['cost_s'] / found['step_s']:.1f} steps",
            )
        )
        for name, has_histograms, limit in (("with", True, "11.6 (3.8)"), ("without", False, "6.7 (1.9)")):
            size, packed = megabytes_per_hour(found["records"], histograms=has_histograms)
            text = f"{size:.1f} ({packed:.1f}) MB"
            rows.append((f"an hour of 1.0 B parameters {name} histograms (compressed)", f"{limit} MB", text))
        rows.append(("a hook with nothing to do", "2 µs", f"{idle_us(Path(folder, 'idle')):.1f} µs"))
    head = (
        f"Made by `python -m benchmarks.learning`: PyTorch {torch.__version__.partition('+')[0]}, {device}, GPT of "
        f"{layers} layers and width {width}, {tokens} tokens per step, {found['step_s']:.2f} s per step, "
        f"{repetitions} repetitions; in brackets 95% intervals.\n"
    )
    table = [("quantity", "expected", "measured"), ("---",) * 3, *rows]
    return head + "\n" + "".join(f"| {' | '.join(row)} |\n" for row in table)


def main() -> None:
    """Print the table, or store it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--store", action="store_true", help="write docs/recording.md")
    options = parser.parse_args()
    found = measured(options.repetitions)
    if options.store:
        text = PAGE.read_text("utf-8")
        before, after = text.partition(BEGIN)[0], text.partition(END)[2]
        PAGE.write_text(f"{before}{BEGIN}{found}{END}{after}", "utf-8")
    print(found)


if __name__ == "__main__":
    main()
