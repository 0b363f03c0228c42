"""Rules on traces of PyTorch's profiler."""
