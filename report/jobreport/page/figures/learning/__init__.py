"""Figures of the training itself."""
