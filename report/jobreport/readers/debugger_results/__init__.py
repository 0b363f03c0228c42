"""Rule results of SageMaker Debugger."""
