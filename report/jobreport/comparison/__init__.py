"""Comparison of runs: from the reports of several jobs to ``comparison.json``."""
