"""Errors that a user can act on.

The message of each is one or two sentences: what happened, with which file, and what to do. ``cli.main`` prints it and
exits with ``exit_status``; any other exception is a bug.
"""

from __future__ import annotations

#: Exit status of a round of a watch that found nothing readable.
NOTHING_YET = 75


class JobReportError(Exception):
    """Base of all errors that are printed as a sentence, without a traceback."""

    exit_status = 1


class UsageError(JobReportError):
    """An error in the command line or the configuration."""

    exit_status = 2


class NothingReadableError(JobReportError):
    """The job directory has no readable input."""

    exit_status = 2
