"""Samples of the stacks of Python code that record-job takes."""
