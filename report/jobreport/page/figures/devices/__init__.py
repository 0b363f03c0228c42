"""Figures of single GPUs and cores."""
