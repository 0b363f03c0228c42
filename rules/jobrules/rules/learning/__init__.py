"""Rules on the training itself: whether the model learns."""

from jobrules.rule import Rule
from jobrules.rules.learning.dead_relu import DeadRelu
from jobrules.rules.learning.exploding_tensor import ExplodingTensor
from jobrules.rules.learning.gradient_growth import GradientGrowth
from jobrules.rules.learning.low_precision_underflow import LowPrecisionUnderflow
from jobrules.rules.learning.poor_weight_initialization import PoorWeightInitialization
from jobrules.rules.learning.saturated_activation import SaturatedActivation
from jobrules.rules.learning.unchanged_tensor import UnchangedTensor
from jobrules.rules.learning.vanishing_gradient import VanishingGradient
from jobrules.rules.learning.weight_update_ratio import WeightUpdateRatio

#: In the order of the report: what explains the others comes first.
LEARNING_RULES: tuple[type[Rule], ...] = (
    ExplodingTensor,
    VanishingGradient,
    GradientGrowth,
    WeightUpdateRatio,
    UnchangedTensor,
    PoorWeightInitialization,
    DeadRelu,
    SaturatedActivation,
    LowPrecisionUnderflow,
)
