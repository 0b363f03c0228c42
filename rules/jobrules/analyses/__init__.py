"""Analyses: one module per section of the page, named like its anchor."""
