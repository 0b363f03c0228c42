"""Identifying information in the report, for whoever shares it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from jobreport.page.kit.table import Table, as_code
from jobreport.page.sections.outline import heading, section
from jobreport.redaction import identifiers as names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.document import Report
    from jobreport.page.kit.fragment import Fragment

#: Names shown per kind.
MAX_NAMES = 5


@section
def identifiers(report: Report) -> Fragment:
    """Table of names and addresses in the report, in a fold; a sentence if there are none."""
    found = names.identifiers(report)
    table = Table(
        label="Identifying information",
        fold="identifying information",
        caption="Identifying information, and the fields of report.json that hold it.",
        style="words",
        heads=(":Kind", ":Names", ":Found in"),
        rows=[(one.kind, _shown(one.names), ", ".join(one.where)) for one in found],
    )
    place = heading("identifiers", report)
    return place.section(found=found, redacted=names.is_redacted(report), table=table)


def _shown(names: Sequence[str]) -> Markup:
    others = " and others" if len(names) > MAX_NAMES else ""
    return Markup(", ").join(map(as_code, names[:MAX_NAMES])) + others
