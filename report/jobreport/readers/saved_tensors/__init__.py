"""Tensors that SageMaker Debugger saved."""
