"""Sections on traces of PyTorch's profiler."""
