"""What in the report identifies someone, for whoever hands it on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport.redaction.identifiers import identifiers, is_redacted
from jobreport.sections.error_boundary import guarded
from jobreport.sections.fragment import Fragment, render
from jobreport.sections.outline import heading

if TYPE_CHECKING:
    from jobreport.document import Report

#: Names of a kind that are shown.
MOST_NAMES = 5


@guarded
def identity(report: Report) -> Fragment:
    """Names and addresses in the report, folded away; a line where there is none."""
    html = render(
        "identity",
        heading=heading("identity", report),
        found=identifiers(report),
        redacted=is_redacted(report),
        most_names=MOST_NAMES,
    )
    return Fragment(name="identity", html=html)
