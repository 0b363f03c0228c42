"""The loop that trains every scenario."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.nn import functional

from generator.learning.nets import network
from generator.learning.tasks import Task, Tokens

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from generator.learning.scenarios import Scenario

EVERY, EVALUATED = 10, 20


class Recorder(Protocol):
    """What the loop calls: functions of ``jobrecord``."""

    def learn(self, model: Any, optimizer: Any, *, step: int, **options: Any) -> None:
        """Begin to record, at a step."""

    def log(self, **values: Any) -> None:
        """Take numbers of a step, or of an evaluation."""

    def eval(self) -> AbstractContextManager[None]:
        """Evaluate."""

    def classes(self, labels: Any, predictions: Any) -> None:
        """Count labels and predictions."""


def train(scenario: Scenario, seed: int, recorder: Recorder, **options: Any) -> None:
    """Train a scenario from its first to its last step, with ``options`` of ``learn``."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    task = (Tokens if scenario.task == "tokens" else Task)(scenario)
    model = network(scenario)
    skipped = {id(one) for layer in scenario.left_out for one in model[2 * layer].parameters()}
    given = [one for one in model.parameters() if id(one) not in skipped]
    optimizer = getattr(torch.optim, scenario.optimizer)(given, **scenario.options)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _share(scenario, step))
    scaled = scenario.loss_scale > 0
    scaler = torch.amp.GradScaler("cpu", init_scale=scenario.loss_scale or 1.0, enabled=scaled)
    if scenario.compiled:
        model = torch.compile(model, backend="eager")
    # A step of so small a network takes no longer than a record of it.
    known = {"every": EVERY, "classes": task.classes, "budget": 1e9} | ({"scaler": scaler} if scaled else {})
    for step in range(scenario.steps):
        if step in (0, scenario.resumed_at):
            recorder.learn(model, optimizer, step=step, **known | options | dict(scenario.recorded))
        optimizer.zero_grad()
        losses = []
        for _ in range(scenario.accumulation):
            inputs, labels = task.batch(step)
            losses.append(_loss(model(inputs), labels))
            scaler.scale(losses[-1] / scenario.accumulation).backward()
        # Of the step that has begun: the optimizer ends it.
        recorder.log(loss=torch.stack(losses).mean().detach(), lr=schedule.get_last_lr()[0])
        if scaled:
            recorder.log(loss_scale=scaler.get_scale())
        if scenario.clip is not None:
            recorder.log(grad_norm=torch.nn.utils.clip_grad_norm_(model.parameters(), scenario.clip))
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
        if (step + 1) % EVALUATED == 0:
            _evaluate(scenario, model, task, recorder)


def _share(scenario: Scenario, step: int) -> float:
    """The learning rate of a step, as a share of the highest."""
    if not scenario.warm_up:
        return 1.0
    if step < scenario.warm_up:
        return (step + 1) / scenario.warm_up
    return 0.5 * (1 + math.cos(math.pi * (step - scenario.warm_up) / (scenario.steps - scenario.warm_up)))


def _loss(predicted: Any, labels: Any) -> Any:
    return functional.cross_entropy(predicted.flatten(0, -2), labels.flatten())


def _evaluate(scenario: Scenario, model: Any, task: Task | Tokens, recorder: Recorder) -> None:
    inputs, labels = task.validation
    model.eval()
    with torch.no_grad(), recorder.eval():
        predicted = model(inputs)
        counted = labels.flatten() >= 0
        chosen = predicted.argmax(-1).flatten()[counted]
        right = (chosen == labels.flatten()[counted]).float().mean()
        recorder.log(loss=_loss(predicted, labels), accuracy=right)
        if scenario.task != "tokens":
            recorder.classes(labels, chosen)
    model.train()
