"""The numbers behind the page, for notebooks: ``open_job`` and the frames of a job.

pandas is imported by the first frame.
"""
