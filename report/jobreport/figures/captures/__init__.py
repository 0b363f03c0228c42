"""Figures of captures."""
