"""How often each class was a label, was predicted, and was taken for another, counted on the device."""

from __future__ import annotations

from typing import Any

import torch

from jobrecord.traces import warn

#: Classes up to which all pairs are counted, beyond it only the right ones; classes at all; pairs of a line.
MAX_EXACT, MAX_CLASSES, _MAX_PAIRS = 200, 100_000, 1000


class Classes:
    """Counts of one evaluation."""

    def __init__(self, count: int = 0) -> None:
        self.count = 0
        #: (classes, classes) pairs; of many classes (3, classes): labels, predictions, and right ones.
        self._counts: Any = None
        self._least = count
        self._is_over = False

    def add(self, labels: Any, predictions: Any) -> None:
        """Add a batch of numbers of classes; predictions may have a score of each class in their last axis.

        Raises TypeError for anything else. A label that is no class, such as that of padding, does not count.
        """
        labels, predictions = _numbers(labels), _numbers(predictions)
        has_scores = predictions.dim() == labels.dim() + 1 and predictions.shape[:-1] == labels.shape
        if has_scores:
            least, predictions = predictions.shape[-1], predictions.argmax(-1)
        if predictions.shape != labels.shape or predictions.is_floating_point() or labels.is_floating_point():
            raise TypeError("classes() needs numbers of classes; predictions may have a score of each class")
        if not labels.numel():
            return
        predictions = predictions.reshape(-1).long()
        if self._counts is not None:
            predictions = predictions.to(self._counts.device)
        labels = labels.reshape(-1).long().to(predictions.device)
        if not has_scores:
            # Only here the device is waited for.
            least = int(torch.maximum(labels, predictions).max()) + 1
        if max(least, self._least) > MAX_CLASSES:
            # It is seen at the first evaluation, which is no time to end a training.
            if not self._is_over:
                warn(f"classes: at most {MAX_CLASSES:,} classes are counted")
            self._is_over = True
            return
        self._grow(max(least, self._least, self.count), labels.device)
        is_class = (labels >= 0) & (labels < self.count) & (predictions >= 0)
        counts, size = self._counts.view(-1), self.count
        if size <= MAX_EXACT:
            found = labels * size + predictions
            counts.scatter_add_(0, torch.where(is_class, found, 0), is_class.long())
            return
        for row, place, counted in (
            (0, labels, is_class),
            (1, predictions, is_class),
            (2, labels, is_class & (labels == predictions)),
        ):
            counts.scatter_add_(0, torch.where(counted, row * size + place, 0), counted.long())

    def line(self) -> dict[str, Any]:
        """What is written of it."""
        counts = self._counts.cpu()
        if self.count <= MAX_EXACT:
            labels, predicted = counts.sum(1), counts.sum(0)
            places = counts.nonzero()
            pairs = torch.cat([places, counts[places[:, 0], places[:, 1]].unsqueeze(1)], 1)
        else:
            labels, predicted, right = counts
            places = right.nonzero()
            pairs = torch.cat([places, places, right[places]], 1)
        largest = pairs[:, 2].argsort(descending=True, stable=True)[:_MAX_PAIRS]
        return {"labels": labels.tolist(), "predicted": predicted.tolist(), "pairs": pairs[largest].tolist()}

    def _grow(self, count: int, device: Any) -> None:
        if count == self.count:
            return
        before, self.count = self._counts, count
        rows = count if count <= MAX_EXACT else 3
        # Tensors of inference mode cannot be changed outside of it.
        with torch.inference_mode(mode=False):
            self._counts = torch.zeros((rows, count), dtype=torch.int64, device=device)
        if before is None:
            return
        if before.shape[1] <= MAX_EXACT < count:
            before = torch.stack([before.sum(1), before.sum(0), before.diagonal()])
        self._counts[: before.shape[0], : before.shape[1]] = before


def _numbers(values: Any) -> Any:
    held = torch.as_tensor(values).detach()
    return held.to_local() if hasattr(held, "to_local") else held
