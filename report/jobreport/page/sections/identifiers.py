"""Identifying information in the report, for whoever shares it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from jobreport.page.kit import Table
from jobreport.page.kit.marks import unbroken
from jobreport.page.kit.table import as_code
from jobreport.page.sections.outline import section
from jobreport.redaction import identifiers as names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.document import Report
    from jobreport.page.kit.section import Content

#: Names shown per kind.
MAX_NAMES = 5


@section
def identifiers(report: Report) -> Content:
    """Table of names and addresses in the report, in a fold; a sentence if there are none."""
    found = names.identifiers(report)
    return [
        _lead(is_redacted=names.is_redacted(report), is_empty=not found),
        Table(
            label="Identifying information",
            fold="identifying information",
            caption="Identifying information, and the fields of report.json that hold it.",
            style="words",
            heads=(":Kind", ":Names", ":Found in"),
            rows=[(one.kind, _shown(one.names), ", ".join(one.where)) for one in found],
        ),
    ]


def _lead(*, is_redacted: bool, is_empty: bool) -> str:
    if is_redacted:
        none = " None found: no text looks like an address, an account, or a path with a user name."
        return (
            "The names of the job, nodes, files, and programs were replaced by placeholders. Times and numbers are those "
            f"of the job.{none if is_empty else ''}"
        )
    return Markup(
        "Check this list before you share the report. <code>{}</code> replaces these names by placeholders in all files.{}"
    ).format(unbroken("make-report --redact"), " None found." if is_empty else "")


def _shown(names: Sequence[str]) -> Markup:
    others = " and others" if len(names) > MAX_NAMES else ""
    return Markup(", ").join(map(as_code, names[:MAX_NAMES])) + others
