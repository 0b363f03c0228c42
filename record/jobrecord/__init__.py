"""Records a training job: samples of the machine, and steps of the training script."""

__version__ = "0.1.0"
