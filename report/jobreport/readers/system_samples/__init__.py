"""System samples of SageMaker's profiler."""
