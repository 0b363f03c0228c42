"""Captures of PyTorch's profiler: what one process and its devices did during a few steps."""
