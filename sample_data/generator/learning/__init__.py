"""Trains small networks on a CPU and records them: healthy ones, and a kind for each fault that a rule looks for.

A scenario says what is trained and what is wrong with it, a task has the data, networks are a few lines of PyTorch,
and one loop trains them all. Recordings of the first seed are stored for tests without PyTorch.
"""
