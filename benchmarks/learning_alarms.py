"""How often rules on training trigger where nothing is wrong, and where something is, next to SageMaker Debugger's.

    PYTHONPATH=sample_data python -m benchmarks.learning_alarms [--store]

Trains the scenarios of ``sample_data/generator/learning`` with PyTorch: healthy ones with ten seeds, a GPT and those
with a fault with three. SageMaker Debugger's rules are not public; they are computed from the descriptions of their
documentation, and where those leave a choice, in the way that triggers least on healthy trainings. ``--store`` writes
the table into the page of differences.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from itertools import starmap
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
from generator.learning.recording import record
from generator.learning.scenarios import SCENARIOS
from generator.learning.training import train

from jobreport.readers.registry import read_job
from jobrules.model import Severity, Status
from jobrules.rule import run_rules
from jobrules.rules.learning import LEARNING_RULES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from generator.learning.scenarios import Scenario

PAGE = Path(__file__).parents[1] / "report" / "jobreport" / "debugger_report" / "differences.md"
MARKS = "<!-- made by python -m benchmarks.learning_alarms --store -->", "<!-- end -->"
#: In the order of the report, those that a scenario is made for.
RULES = tuple(
    rule.__name__
    for rule in LEARNING_RULES
    if any(rule.__name__ in one.triggers for one in SCENARIOS.values())
)
HEAD = """\
| | {} runs without a fault | | runs with the fault | |
|---|---|---|---|---|
| rule | SageMaker Debugger | jobreport | SageMaker Debugger | jobreport |"""
#: Formulas of SageMaker Debugger that are computed here; its other rules have no default that could trigger.
FORMULAS = (
    *("ExplodingTensor", "LossNotDecreasing", "VanishingGradient", "WeightUpdateRatio", "UnchangedTensor"),
    *("PoorWeightInitialization", "DeadRelu", "SaturatedActivation", "Overfit", "Overtraining"),
    *("ClassImbalance", "Confusion"),
)


class Formulas:
    """Collects which formulas trigger; tensors are saved in steps 0 to 9, then in each tenth."""

    def __init__(self) -> None:
        self.triggered: set[str] = set()
        self._evaluates = False
        self._step = 0
        self._losses: list[float] = []
        self._saved_losses: list[float] = []
        self._validation: list[float] = []
        self._weights: dict[str, list[Any]] = {}
        self._variances: dict[str, float] = {}

    def learn(self, model: Any, optimizer: Any, *, step: int, scaler: Any = None, **_: Any) -> None:
        """Hook the model and the optimizer."""
        if step:
            return
        self._model, self._scaler = model, scaler
        for name, module in model.named_modules():
            if isinstance(module, torch.nn.ReLU | torch.nn.Tanh | torch.nn.Sigmoid):
                module.register_forward_hook(
                    lambda module, given, output, name=name: self._activation(name, module, given[0], output)
                )
        optimizer.register_step_pre_hook(lambda *_: self._before_step())
        optimizer.register_step_post_hook(lambda *_: self._after_step())

    @contextmanager
    def eval(self) -> Iterator[None]:
        """Take what is logged for that of an evaluation."""
        self._evaluates = True
        yield
        self._evaluates = False

    def log(self, **values: Any) -> None:
        """Take the loss of a step, or of an evaluation."""
        if "loss" not in values:
            return
        loss = float(values["loss"])
        if self._evaluates:
            self._evaluated(loss)
            return
        self._losses.append(loss)
        if self._saves:
            self._saved_losses.append(loss)
            self._loss_rules()
        self._step += 1

    def classes(self, labels: Any, predictions: Any) -> None:
        """Count labels and predictions of an evaluation."""
        # Of the last evaluation alone: in the first ones, hardly any class is predicted well.
        self.triggered -= {"ClassImbalance", "Confusion"}
        known = int(labels.max()) + 1
        pairs = torch.zeros(known, max(known, int(predictions.max()) + 1))
        pairs.index_put_((labels, predictions), torch.ones(len(labels)), accumulate=True)
        counts = pairs.sum(1)
        right = pairs.diagonal() / counts
        seen = counts > 0
        self._if("ClassImbalance", counts[seen].max() > 10 * counts[seen].min() or (right[seen] < 0.3).any())
        wrong = (pairs / counts[:, None])[seen].fill_diagonal_(0.0)
        self._if("Confusion", (right[seen] < 0.9).any() or (wrong > 0.1).any())

    @property
    def _saves(self) -> bool:
        return self._step < 10 or self._step % 10 == 0

    def _if(self, rule: str, condition: Any) -> None:
        if bool(condition):
            self.triggered.add(rule)

    def _activation(self, name: str, module: Any, given: Any, output: Any) -> None:
        if self._evaluates or not self._saves:
            return
        given, output = given.detach(), output.detach()
        if isinstance(module, torch.nn.ReLU):
            self._variances[name] = float(given.var())
            rows = output.transpose(0, 1).flatten(1)
            self._if("DeadRelu", ((rows > 0).float().mean(1) < 0.01).float().mean() > 0.5)
        else:
            low, high = (-9.4999, 9.4999) if isinstance(module, torch.nn.Tanh) else (-23.0, 16.99999)
            active = ((given > low) & (given < high)).float().mean(0)
            self._if("SaturatedActivation", (active < 0.01).float().mean() > 0.5)

    def _before_step(self) -> None:
        if not self._saves:
            return
        scale = self._scaler.get_scale() if self._scaler else 1.0
        gradients = [one.grad * scale for one in self._model.parameters() if one.grad is not None]
        for one in gradients:
            self._if("ExplodingTensor", not one.isfinite().all())
            self._if("VanishingGradient", one.abs().mean() < 1e-7)
        if self._step < 10:
            every = torch.cat([one.flatten() for one in gradients])
            low, high = every.sort().values[[int(0.05 * len(every)), int(0.95 * len(every))]]
            self._if("PoorWeightInitialization", high - low < 0.001)
            spread = self._variances.values()
            if len(spread) > 1:
                self._if("PoorWeightInitialization", max(spread) > 10 * min(spread))
        for name, one in self._model.named_parameters():
            if name.endswith("weight"):
                self._weights.setdefault(name, []).append(one.detach().clone())

    def _after_step(self) -> None:
        if not self._saves:
            return
        for name, one in self._model.named_parameters():
            if name.endswith("weight"):
                saved = self._weights[name]
                ratio = ((one.detach() - saved[-1]).abs() / (saved[-1].abs() + 1e-9)).mean()
                self._if("WeightUpdateRatio", ratio > 10 or ratio < 1e-8)
                same = len(saved) == 3 and all(torch.allclose(saved[-1], older) for older in saved[:-1])
                self._if("UnchangedTensor", same)
                del saved[:-2]

    def _loss_rules(self) -> None:
        losses, saved = self._losses, self._saved_losses
        self._if("ExplodingTensor", not torch.tensor(losses[-1]).isfinite())
        self._if("LossNotDecreasing", len(losses) > 10 and losses[-1] >= losses[-11])
        if self._step < 10 and len(losses) > 5:
            falls = [after < before for before, after in zip(losses[-6:], losses[-5:], strict=False)]
            self._if("PoorWeightInitialization", not any(falls))
        stalled = len(saved) > 5 and min(saved[-5:]) > min(saved[:-5]) - 0.1
        validation = self._validation
        stalled &= len(validation) > 10 and min(validation[-10:]) > min(validation[:-10]) - 0.1
        self._if("Overtraining", stalled)

    def _evaluated(self, loss: float) -> None:
        self._validation.append(loss)
        mean = sum(self._losses[-20:]) / 20
        self._if("Overfit", mean > 0 and (loss - mean) / mean > 0.1)


def judged(scenario: Scenario, seed: int) -> dict[str, bool]:
    """Rules of jobreport that trigger, and whether with more than an info."""
    with TemporaryDirectory() as folder:
        record(scenario, seed, Path(folder))
        job, _ = read_job(Path(folder), strict=True)
    results = run_rules([rule() for rule in LEARNING_RULES], job, strict=True)
    return {
        one.rule: any(found.severity is not Severity.INFO for found in one.findings)
        for one in results
        if one.status is Status.TRIGGERED
    }


def table() -> str:
    """How many runs each rule triggers in, of those without a fault and of those with the fault that it looks for."""
    counts = {rule: Counter[str]() for rule in RULES}
    for name, scenario in SCENARIOS.items():
        for seed in scenario.seeds:
            formulas = Formulas()
            # Its hooks see the same numbers, and would break the graph of a compiled model.
            train(replace(scenario, compiled=False), seed, formulas)
            ours = judged(scenario, seed)
            print(f"{name} {seed}: {sorted(formulas.triggered)}, {ours}", file=sys.stderr, flush=True)
            for rule, found in counts.items():
                if not scenario.triggers:
                    alarm = "info" if ours.get(rule) is False else "alarm"
                    found.update(
                        {"healthy": 1, "their alarm": rule in formulas.triggered, alarm: rule in ours}
                    )
                elif rule in scenario.triggers:
                    found.update(
                        {"faulty": 1, "their find": rule in formulas.triggered, "find": rule in ours}
                    )
    return "\n".join([HEAD.format(next(iter(counts.values()))["healthy"]), *starmap(_row, counts.items())])


def _row(rule: str, found: Counter[str]) -> str:
    infos = f", {found['info']} infos" if found["info"] else ""
    of_faulty = f"of {found['faulty']}"
    alarm, find = f"{found['their alarm']}", f"{found['their find']} {of_faulty}"
    theirs = (alarm, find) if rule in FORMULAS else ("–", "–")
    return f"| {rule} | {theirs[0]} | {found['alarm']}{infos} | {theirs[1]} | {found['find']} {of_faulty} |"


def main() -> None:
    """Print the table, or store it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", action="store_true", help="write the table into the page of differences")
    options = parser.parse_args()
    found = table()
    if options.store:
        before, mark, rest = PAGE.read_text("utf-8").partition(MARKS[0])
        PAGE.write_text(f"{before}{mark}\n\n{found}\n\n{MARKS[1]}{rest.partition(MARKS[1])[2]}", "utf-8")
    print(found)


if __name__ == "__main__":
    main()
