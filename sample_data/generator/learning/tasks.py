"""The data of each task, and its batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from generator.learning.nets import CLASSES, CONTEXT, TOKENS, VALUES

if TYPE_CHECKING:
    from generator.learning.scenarios import Scenario

#: The same centers, images, and source for every seed.
_TASK_SEED = 0
_VALIDATION, _BATCH, _SEQUENCES = 2000, 128, 16
_SIDE = 12


class Task:
    """Points or images of ten classes."""

    classes = CLASSES

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        fixed = torch.Generator().manual_seed(_TASK_SEED)
        shape = (3, _SIDE, _SIDE) if scenario.task == "images" else (VALUES,)
        self._centers = 0.5 * scenario.separation * torch.randn(CLASSES, *shape, generator=fixed)
        if scenario.twins:
            self._centers[-1] = self._centers[-2]
        self.validation = self._points(_VALIDATION)
        self.points = self._points(scenario.points)
        #: Points of this epoch that are left.
        self._order = torch.arange(0)
        wrong = torch.rand(scenario.points) < scenario.wrong_labels
        self.points[1][wrong] = torch.randint(CLASSES, (int(wrong.sum()),))

    def _points(self, count: int) -> tuple[Any, Any]:
        labels = torch.randint(CLASSES, (count,))
        labels[torch.rand(count) < self._scenario.first_class] = 0
        centers = self._centers[labels]
        points = centers + torch.randn_like(centers)
        if self._scenario.task == "images" and self._scenario.scale != 1.0:
            return (127.0 + self._scenario.scale * points).clamp(0, 255), labels
        return self._scenario.scale * points, labels

    def batch(self, step: int) -> tuple[Any, Any]:
        """Inputs and labels of a step, or of one of its micro-batches."""
        size = _BATCH // self._scenario.accumulation
        if self._scenario.fresh:
            return self._points(size)
        if len(self._order) < size:
            self._order = torch.randperm(self._scenario.points)
        chosen, self._order = self._order[:size], self._order[size:]
        inputs, labels = (one[chosen] for one in self.points)
        accident = self._scenario.accidents.get(step)
        if accident == "infinite":
            inputs[0, 0] = torch.inf
        if accident == "shifted":
            return 30.0 * inputs, (labels + 1) % CLASSES
        return inputs, labels


class Tokens:
    """Sequences in which each token depends on the one before; the label of a token is the next one."""

    classes = TOKENS

    def __init__(self, scenario: Scenario) -> None:
        self._padded = "pad_id" in scenario.recorded
        fixed = torch.Generator().manual_seed(_TASK_SEED)
        self._next = torch.softmax(2.5 * torch.randn(TOKENS, TOKENS, generator=fixed), 1)
        self.validation = self._sequences(4 * _SEQUENCES)

    def _sequences(self, count: int) -> tuple[Any, Any]:
        tokens = [torch.randint(TOKENS, (count,))]
        for _ in range(CONTEXT):
            tokens.append(torch.multinomial(self._next[tokens[-1]], 1).flatten())
        both = torch.stack(tokens, 1)
        inputs, labels = both[:, :-1], both[:, 1:].clone()
        if self._padded:
            inputs = torch.where(torch.arange(CONTEXT) >= CONTEXT // 3, 0, inputs)
            labels[:, CONTEXT // 3 :] = -100
        return inputs, labels

    def batch(self, _step: int) -> tuple[Any, Any]:
        """Inputs and labels of a step."""
        return self._sequences(_SEQUENCES)
