"""Readers of job directories: one folder per input format."""
