"""Sections on the Python code of the job."""
