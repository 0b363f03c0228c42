"""The verdict and its findings, read back from their HTML."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jobreport.page import sections
from jobrules.model import Finding, Reason, ReasonKind, Severity, Status
from jobrules.verdict.not_evaluated import NotEvaluated
from tests.copies import replace
from tests.report.page.sections import examples
from tests.report.page.sections.html import read


def test_the_legend_leads_to_the_finding_of_each_cause() -> None:
    report = examples.gpu_job()
    legend, found = read(sections.verdict(report)), read(sections.findings(report))

    assert [link for link in legend.links if link.startswith("#f-")] == [
        *("#f-batch-size", "#f-start-up"),
        # The evidence of the headline.
        "#f-batch-size",
    ]
    assert {"f-batch-size", "f-start-up"} <= set(found.ids)


def test_findings_of_one_key_have_anchors_of_their_own() -> None:
    report = examples.gpu_job()
    keys = ("two words", "two-words", "two words", "two-words-2")
    many = tuple(replace(examples.LATE, key=key) for key in keys)
    page = read(sections.findings(replace(report, verdict=replace(report.verdict, findings=many))))

    anchors = [one for one in page.ids if one.startswith("f-")]
    assert len(set(anchors)) == 4
    assert anchors[0] == "f-two-words"
    assert all(" " not in anchor for anchor in anchors)


def judged(*found: Finding, **changes: Any) -> sections.Fragment:
    report = examples.gpu_job()
    return sections.verdict(replace(report, verdict=replace(report.verdict, findings=found, **changes)))


def unexplained() -> sections.Fragment:
    use = examples.gpu_job().verdict.use
    assert use is not None
    parts = tuple(
        replace(part, finding="unexplained" if part.key in ("idle", "low") else "") for part in use.parts
    )
    return judged(replace(examples.LOW, key="unexplained"), use=replace(use, parts=parts))


FIRST = examples.gpu_job().verdict.findings[0]
FOREIGN = tuple(
    NotEvaluated(
        rule=f"Rule{i}",
        status=Status.NOT_EVALUATED,
        reason=Reason(kind=ReasonKind.NOT_APPLICABLE, what="no PyTorch trace was found"),
    )
    for i in range(10)
)
VARIANTS: dict[str, Callable[[], sections.Fragment]] = {
    "two causes": lambda: judged(
        FIRST,
        replace(examples.LATE, key="other", title="Seen by itself", gpu_s=None),
        replace(examples.LATE, title="No GPU worked"),
    ),
    "no time is explained": lambda: judged(
        replace(examples.LATE, key="clocks-differ", gpu_s=None, share=None, severity=Severity.INFO)
    ),
    "unexplained": unexplained,
    "no finding": lambda: judged(not_evaluated=(*examples.gpu_job().verdict.not_evaluated, *FOREIGN)),
}
