"""Report from rule results of SageMaker Debugger."""
