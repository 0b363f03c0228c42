"""Sections on the training itself."""
