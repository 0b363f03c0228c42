"""Identifying information in the report, for whoever shares it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport.redaction import identifiers as names
from jobreport.sections.error_boundary import error_boundary
from jobreport.sections.fragment import Fragment, render
from jobreport.sections.outline import heading

if TYPE_CHECKING:
    from jobreport.document import Report

#: Names shown per kind.
MAX_NAMES = 5


@error_boundary
def identifiers(report: Report) -> Fragment:
    """Table of names and addresses in the report, in a fold; a sentence if there are none."""
    html = render(
        "identifiers",
        heading=heading("identifiers", report),
        found=names.identifiers(report),
        redacted=names.is_redacted(report),
        max_names=MAX_NAMES,
    )
    return Fragment(name="identifiers", html=html)
