"""Profiles of Python code: cProfile and Pyinstrument."""
