"""Small models, and how they train while they are recorded. PyTorch has to be there."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import jobrecord


def net(*activations: Any) -> Any:
    torch.manual_seed(0)
    layers = [layer for one in activations or (nn.ReLU(),) for layer in (nn.Linear(8, 8), one)]
    return nn.Sequential(*layers, nn.Linear(8, 4))


def train(model: Any, optimizer: Any, steps: int, batches: int = 1) -> list[float]:
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        for _ in range(batches):
            loss = nn.functional.cross_entropy(model(torch.randn(16, 8)), torch.randint(0, 4, (16,)))
            loss.backward()
        losses.append(loss.item())
        optimizer.step()
    return losses


def learned(model: Any, count: int = 1, batches: int = 1, **options: Any) -> Any:
    """Train a model while it is recorded. Returns its optimizer."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    jobrecord.start()
    jobrecord.learn(model, optimizer, **{"budget": 1} | options)
    train(model, optimizer, count, batches)
    jobrecord.stop()
    return optimizer
