"""Rules on the training itself: whether the model learns."""

from jobrules.rule import Rule
from jobrules.rules.learning.check_input_images import CheckInputImages
from jobrules.rules.learning.class_imbalance import ClassImbalance
from jobrules.rules.learning.confusion import Confusion
from jobrules.rules.learning.dead_relu import DeadRelu
from jobrules.rules.learning.exploding_tensor import ExplodingTensor
from jobrules.rules.learning.feature_importance_overweight import FeatureImportanceOverweight
from jobrules.rules.learning.gradient_growth import GradientGrowth
from jobrules.rules.learning.loss_at_chance import LossAtChance
from jobrules.rules.learning.loss_not_decreasing import LossNotDecreasing
from jobrules.rules.learning.loss_spike import LossSpike
from jobrules.rules.learning.low_precision_underflow import LowPrecisionUnderflow
from jobrules.rules.learning.nlp_sequence_ratio import NLPSequenceRatio
from jobrules.rules.learning.overfit import Overfit
from jobrules.rules.learning.overtraining import Overtraining
from jobrules.rules.learning.poor_weight_initialization import PoorWeightInitialization
from jobrules.rules.learning.saturated_activation import SaturatedActivation
from jobrules.rules.learning.stalled_training import StalledTraining
from jobrules.rules.learning.tree_depth import TreeDepth
from jobrules.rules.learning.unchanged_tensor import UnchangedTensor
from jobrules.rules.learning.vanishing_gradient import VanishingGradient
from jobrules.rules.learning.weight_update_ratio import WeightUpdateRatio

#: In the order of the report: what explains the others comes first.
LEARNING_RULES: tuple[type[Rule], ...] = (
    ExplodingTensor,
    StalledTraining,
    LossNotDecreasing,
    LossAtChance,
    VanishingGradient,
    GradientGrowth,
    WeightUpdateRatio,
    UnchangedTensor,
    PoorWeightInitialization,
    DeadRelu,
    SaturatedActivation,
    LowPrecisionUnderflow,
    LossSpike,
    Overfit,
    Overtraining,
    ClassImbalance,
    Confusion,
    CheckInputImages,
    NLPSequenceRatio,
    FeatureImportanceOverweight,
    TreeDepth,
)
