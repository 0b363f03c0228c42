"""The networks."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional

if TYPE_CHECKING:
    from generator.learning.scenarios import Scenario

#: Of the Gaussians and the images, and tokens of the GPT's source; values of a point, and of a sequence.
CLASSES, TOKENS = 10, 64
VALUES, CONTEXT = 32, 64
_WIDTH, _HEADS, _BLOCKS = 128, 4, 4
_CHANNELS = 16


def network(scenario: Scenario) -> Any:
    """The model of a scenario with its first weights."""
    if scenario.task == "tokens":
        return GPT()
    if scenario.task == "images":
        return cnn()
    model = plain(scenario)
    hidden = model[::2]
    for one in hidden:
        if scenario.weights_std is not None:
            nn.init.normal_(one.weight, std=scenario.weights_std)
            nn.init.zeros_(one.bias)
    for layer, bias in scenario.biases.items():
        nn.init.constant_(hidden[layer].bias, bias)
    for layer in scenario.frozen:
        hidden[layer].requires_grad_(False)
    return model


def plain(scenario: Scenario) -> Any:
    """Layers with an activation each, and one without."""
    widths = [VALUES] + [scenario.width] * scenario.layers
    hidden = [
        part
        for of, to in pairwise(widths)
        for part in (nn.Linear(of, to), getattr(nn, scenario.activation)())
    ]
    return nn.Sequential(*hidden, nn.Linear(scenario.width, CLASSES))


def cnn() -> Any:
    """Three residual blocks."""
    blocks = [Residual() for _ in range(3)]
    first = nn.Conv2d(3, _CHANNELS, 3, padding=1)
    return nn.Sequential(first, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(_CHANNELS, CLASSES))


class Residual(nn.Module):  # type: ignore[misc]
    """Two convolutions, added to what they are given."""

    def __init__(self) -> None:
        super().__init__()
        sizes = {"kernel_size": 3, "padding": 1, "bias": False}
        parts = [
            (nn.Conv2d(_CHANNELS, _CHANNELS, **sizes), nn.BatchNorm2d(_CHANNELS), nn.ReLU()) for _ in range(2)
        ]
        self.added = nn.Sequential(*parts[0], *parts[1])

    def forward(self, x: Any) -> Any:
        """The outputs."""
        return x + self.added(x)


class GPT(nn.Module):  # type: ignore[misc]
    """A small transformer that sees the tokens before each."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Embedding(TOKENS, _WIDTH)
        self.place = nn.Embedding(CONTEXT, _WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(_BLOCKS)))
        self.norm = nn.LayerNorm(_WIDTH)
        self.head = nn.Linear(_WIDTH, TOKENS, bias=False)
        for name, values in self.named_parameters():
            if values.dim() > 1:
                nn.init.normal_(values, std=0.02 / (8**0.5 if name.endswith("out.weight") else 1.0))

    def forward(self, tokens: Any) -> Any:
        """A number for each token that may follow."""
        x = self.token(tokens) + self.place(torch.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(x)))


class Block(nn.Module):  # type: ignore[misc]
    """Attention and two layers, each normalized before and added."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(_WIDTH), nn.LayerNorm(_WIDTH)
        self.attention = nn.Linear(_WIDTH, 3 * _WIDTH)
        self.attention_out = nn.Linear(_WIDTH, _WIDTH)
        self.wide = nn.Linear(_WIDTH, 4 * _WIDTH)
        self.gelu = nn.GELU()
        self.wide_out = nn.Linear(4 * _WIDTH, _WIDTH)

    def forward(self, x: Any) -> Any:
        """The outputs."""
        heads = self.attention(self.norm_1(x)).unflatten(-1, (3, _HEADS, -1)).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.attention_out(seen.transpose(1, 2).flatten(2))
        return x + self.wide_out(self.gelu(self.wide(self.norm_2(x))))
