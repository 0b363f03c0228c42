"""What is trained, and which rules find what is wrong with it. Nothing here needs PyTorch."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_THREE, _TEN = (1, 2, 3), tuple(range(1, 11))


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A way for a training to go."""

    summary: str
    #: Names of the rules that trigger, and of those that do for some seeds.
    triggers: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    #: Those that are tried; the recording of the first one is stored.
    seeds: tuple[int, ...] = _THREE

    #: ``mixture`` of ten Gaussians for a plain network, ``images`` for a convolutional one, ``tokens`` for a GPT, ``trees``.
    task: str = "mixture"
    steps: int = 600
    #: How far the Gaussians are apart; whether each step has new data, or 8,000 points for all, or fewer.
    separation: float = 1.6
    fresh: bool = False
    points: int = 8000
    #: Share of training labels that are wrong, and of the points in the first class (0: as in any other).
    wrong_labels: float = 0.0
    first_class: float = 0.0
    #: Whether the last two classes have the same center.
    twins: bool = False
    #: What inputs are multiplied by; what happens to the batch of a step: ``infinite`` or ``shifted``.
    scale: float = 1.0
    accidents: Mapping[int, str] = field(default_factory=dict)

    #: Hidden layers of the plain network, units of each, and the class of what follows them.
    layers: int = 4
    width: int = 64
    activation: str = "ReLU"
    #: Standard deviation of the first weights, with biases of 0 (None: PyTorch's own); biases of a hidden layer.
    weights_std: float | None = None
    biases: Mapping[int, float] = field(default_factory=dict)
    #: Hidden layers that do not train, and those that the optimizer is not given.
    frozen: tuple[int, ...] = ()
    left_out: tuple[int, ...] = ()

    optimizer: str = "Adam"
    options: Mapping[str, float] = field(default_factory=lambda: {"lr": 1e-3})
    #: Steps of warm-up before the learning rate falls along a cosine (0: it is constant); norm to clip gradients at.
    warm_up: int = 0
    clip: float | None = None
    #: What losses are multiplied by, as for float16 (0: they are not), micro-batches of a step, and the step at which the job was resumed.
    loss_scale: float = 0.0
    accumulation: int = 1
    resumed_at: int | None = None
    compiled: bool = False
    #: Further options of ``jobrecord.learn``.
    recorded: Mapping[str, Any] = field(default_factory=dict)


HEALTHY = Scenario(summary="4 × 64 ReLU, Adam with 1e-3", also=("Overtraining",), seeds=_TEN)

#: Trainings without a fault: infos of a plateau at the end are right, warnings are not.
_HEALTHY = {
    "healthy": HEALTHY,
    "healthy-fresh": replace(
        HEALTHY, summary="new data in each step, nearer classes", fresh=True, separation=0.9
    ),
    "healthy-sgd": replace(
        HEALTHY,
        summary="SGD with 0.1 and momentum",
        also=("Overfit", "Overtraining"),
        optimizer="SGD",
        options={"lr": 0.1, "momentum": 0.9},
    ),
    "healthy-tanh": replace(HEALTHY, summary="tanh", activation="Tanh"),
    "healthy-amp": replace(HEALTHY, summary="losses are scaled as for float16", loss_scale=65536.0),
    "frozen": replace(HEALTHY, summary="a layer does not train", frozen=(1,)),
    "accumulation": replace(HEALTHY, summary="4 micro-batches of each step", accumulation=4, seeds=_THREE),
    "resumed": replace(HEALTHY, summary="resumed at step 300", resumed_at=300, seeds=_THREE),
    "compiled": replace(HEALTHY, summary="a compiled model", compiled=True, seeds=_THREE),
    "healthy-cnn": Scenario(
        summary="a residual CNN", task="images", steps=300, options={"lr": 3e-3}, also=("Overtraining",)
    ),
    "healthy-gpt": Scenario(
        summary="4 layers of 128, a bigram source, AdamW with warm-up, cosine, and clipping",
        task="tokens",
        steps=300,
        optimizer="AdamW",
        warm_up=30,
        clip=1.0,
    ),
}
_SGD = {"lr": 0.1}
#: What is also true of a model that learns nothing: its predictions, a best loss by chance, gradients of 0.
_NOTHING_LEARNED = ("UnchangedTensor", "Overtraining", "Confusion")
#: Trainings with a fault each.
_SICK = {
    "vanishing": Scenario(
        summary="12 × 64 sigmoid, SGD with 0.1",
        triggers=(
            *("VanishingGradient", "WeightUpdateRatio", "PoorWeightInitialization"),
            *("LossNotDecreasing", "LossAtChance"),
        ),
        also=_NOTHING_LEARNED,
        layers=12,
        activation="Sigmoid",
        optimizer="SGD",
        options=_SGD,
    ),
    "exploding": Scenario(
        summary="8 × 64 ReLU, first weights with a deviation of 0.5, SGD with 0.05",
        triggers=("ExplodingTensor", "PoorWeightInitialization"),
        also=("Confusion",),
        layers=8,
        weights_std=0.5,
        optimizer="SGD",
        options={"lr": 0.05},
    ),
    "lr-high": Scenario(
        summary="SGD with 20",
        triggers=("ExplodingTensor",),
        also=("Confusion",),
        optimizer="SGD",
        options={"lr": 20.0},
    ),
    "nan": Scenario(
        summary="an infinite input at step 300",
        triggers=("ExplodingTensor",),
        also=("Overtraining", "Confusion"),
        accidents={300: "infinite"},
    ),
    "spike": Scenario(
        summary="inputs 30 times as large and shifted labels at steps 300 and 450",
        triggers=("LossSpike", "GradientGrowth"),
        also=("Overtraining",),
        accidents={300: "shifted", 450: "shifted"},
    ),
    "dead-relu": Scenario(
        summary="biases of layer 2 are -6",
        triggers=(
            *("DeadRelu", "VanishingGradient", "WeightUpdateRatio", "PoorWeightInitialization"),
            *("LossNotDecreasing", "LossAtChance"),
        ),
        also=_NOTHING_LEARNED,
        biases={2: -6.0},
    ),
    "dead-lr": Scenario(
        summary="Adam with 0.3",
        triggers=("DeadRelu", "VanishingGradient", "WeightUpdateRatio", "LossAtChance"),
        also=("LossNotDecreasing", "LossSpike", "Overtraining", "Confusion"),
        options={"lr": 0.3},
    ),
    "saturated": Scenario(
        summary="tanh, first weights with a deviation of 1, inputs 5 times as large, SGD with 0.01",
        triggers=("SaturatedActivation", "PoorWeightInitialization"),
        activation="Tanh",
        weights_std=1.0,
        scale=5.0,
        optimizer="SGD",
        options={"lr": 0.01},
    ),
    "bad-init-small": Scenario(
        summary="8 × 64, first weights with a deviation of 0.01, SGD with 0.1",
        triggers=(
            *("VanishingGradient", "WeightUpdateRatio", "DeadRelu", "PoorWeightInitialization"),
            *("LossNotDecreasing", "LossAtChance"),
        ),
        also=_NOTHING_LEARNED,
        layers=8,
        weights_std=0.01,
        optimizer="SGD",
        options=_SGD,
    ),
    "bad-init-zero": Scenario(
        summary="all first weights are 0",
        triggers=(
            *("VanishingGradient", "DeadRelu", "PoorWeightInitialization", "LossNotDecreasing"),
            "LossAtChance",
        ),
        also=_NOTHING_LEARNED,
        weights_std=0.0,
    ),
    "bad-init-large": Scenario(
        summary="8 × 64, first weights with a deviation of 1",
        triggers=("PoorWeightInitialization",),
        layers=8,
        weights_std=1.0,
    ),
    "plateau": Scenario(
        summary="SGD with 1e-5",
        triggers=("WeightUpdateRatio", "LossNotDecreasing", "LossAtChance"),
        also=("Confusion",),
        optimizer="SGD",
        options={"lr": 1e-5},
    ),
    "not-in-optimizer": Scenario(
        summary="the optimizer is not given layer 1",
        triggers=("UnchangedTensor",),
        also=("Overtraining",),
        left_out=(1,),
    ),
    "overfit": Scenario(
        summary="3 × 256 on 200 points, of which 20% have wrong labels",
        triggers=("Overfit", "Overtraining"),
        points=200,
        wrong_labels=0.2,
        layers=3,
        width=256,
    ),
    "imbalance": Scenario(
        summary="90% of the points in one class",
        triggers=("ClassImbalance",),
        also=("Overtraining", "Confusion"),
        first_class=0.9,
        separation=0.9,
        layers=3,
        optimizer="SGD",
        options={"lr": 0.02},
    ),
    "underflow": replace(
        HEALTHY,
        summary="losses for float16, made smaller in place of larger",
        triggers=("LowPrecisionUnderflow",),
        seeds=_THREE,
        loss_scale=2.0**-13,
        recorded={"histograms": True},
    ),
    "confused": replace(
        HEALTHY, summary="two classes have the same center", triggers=("Confusion",), seeds=_THREE, twins=True
    ),
    "raw-images": Scenario(
        summary="images of 0 to 255",
        triggers=("CheckInputImages", "PoorWeightInitialization"),
        also=("Overtraining", "Confusion"),
        task="images",
        steps=100,
        scale=60.0,
        recorded={"inputs": True},
    ),
    "padding": Scenario(
        summary="two thirds of the tokens are padding",
        triggers=("NLPSequenceRatio",),
        task="tokens",
        steps=60,
        recorded={"inputs": True, "pad_id": 0},
    ),
    "leak": Scenario(
        summary="boosted trees of depth 2, to which one of 32 features gives the label away",
        triggers=("FeatureImportanceOverweight", "TreeDepth"),
        also=("Overtraining",),
        task="trees",
        separation=0.0,
        steps=60,
    ),
}
#: By the name that the command knows.
SCENARIOS = _HEALTHY | _SICK
