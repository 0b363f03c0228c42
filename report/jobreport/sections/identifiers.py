"""What in the report identifies someone, for whoever hands it on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport.redaction import identifiers as names
from jobreport.sections.error_boundary import error_boundary
from jobreport.sections.fragment import Fragment, render
from jobreport.sections.outline import heading

if TYPE_CHECKING:
    from jobreport.document import Report

#: Names of a kind that are shown.
MOST_NAMES = 5


@error_boundary
def identifiers(report: Report) -> Fragment:
    """Names and addresses in the report, folded away; a line where there is none."""
    html = render(
        "identifiers",
        heading=heading("identifiers", report),
        found=names.identifiers(report),
        redacted=names.is_redacted(report),
        most_names=MOST_NAMES,
    )
    return Fragment(name="identifiers", html=html)
