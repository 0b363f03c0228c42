"""Errors a user can do something about.

Each carries one sentence or two: what happened, with which file, and what to try. ``cli.main``
prints it and exits with ``exit_status``; everything else that is raised is a defect of ours.
"""

from __future__ import annotations


class JobReportError(Exception):
    """Base of all errors that are told in a sentence and without a traceback."""

    exit_status = 1


class UsageError(JobReportError):
    """The command line or the configuration asks for something impossible."""

    exit_status = 2


class NothingReadableError(JobReportError):
    """The job directory holds nothing that a report can be made from."""

    exit_status = 2
