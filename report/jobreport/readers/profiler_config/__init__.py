"""Profiler configuration of SageMaker jobs."""
