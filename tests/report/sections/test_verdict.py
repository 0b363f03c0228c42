"""The verdict and its findings, read back from their HTML."""

from __future__ import annotations

from jobreport import sections
from jobrules.model import Severity
from tests.copies import replace
from tests.report.sections import examples
from tests.report.sections.html import read


def test_the_legend_leads_to_the_finding_of_each_cause() -> None:
    report = examples.gpu_job()
    legend, found = read(sections.verdict(report)), read(sections.findings(report))

    assert [link for link in legend.links if link.startswith("#f-")] == [
        "#f-batch-size",
        "#f-late-first-work",
        "#f-batch-size",
    ]
    assert {"f-batch-size", "f-late-first-work"} <= set(found.ids)


def test_findings_of_one_key_have_anchors_of_their_own() -> None:
    report = examples.gpu_job()
    keys = ("two words", "two-words", "two words", "two-words-2")
    many = tuple(replace(examples.LATE, key=key) for key in keys)
    page = read(sections.findings(replace(report, verdict=replace(report.verdict, findings=many))))

    anchors = [one for one in page.ids if one.startswith("f-")]
    assert len(set(anchors)) == 4
    assert anchors[0] == "f-two-words"
    assert all(" " not in anchor for anchor in anchors)


def test_a_main_finding_that_explains_no_time_is_no_cause() -> None:
    report = examples.gpu_job()
    alone = replace(examples.LATE, key="clocks-differ", gpu_s=None, share=None, severity=Severity.INFO)
    text = read(
        sections.verdict(replace(report, verdict=replace(report.verdict, findings=(alone,), main="")))
    ).text

    assert "Main finding" in text
    assert "Main cause" not in text
    assert "Possible gain" not in text


def test_unexplained_time_is_no_cause() -> None:
    report = examples.gpu_job()
    use = report.verdict.use
    assert use is not None
    low = replace(examples.LOW, key="low-gpu-utilization")
    parts = tuple(
        replace(part, finding="low-gpu-utilization" if part.key in ("idle", "partly") else "")
        for part in use.parts
    )
    verdict = replace(
        report.verdict, use=replace(use, parts=parts), findings=(low,), main="low-gpu-utilization"
    )
    text = read(sections.verdict(replace(report, verdict=verdict))).text

    assert "Main finding" in text
    assert "Possible gain" not in text


def test_the_main_cause_need_not_be_the_worst_finding() -> None:
    report = examples.gpu_job()
    worst = replace(examples.LATE, key="other", severity=Severity.CRITICAL, title="Worst of all", gpu_s=None)
    verdict = replace(report.verdict, findings=(worst, *report.verdict.findings))
    text = read(sections.verdict(replace(report, verdict=verdict))).text

    assert "Main cause CPU, GPU and GPU memory are all little used" in text
    assert "Worst of all" not in text


def test_every_kind_of_part_has_a_fill_of_its_own_in_every_report() -> None:
    report = examples.gpu_job()
    use = report.verdict.use
    assert use is not None
    kinds = ("cpu-bottleneck", "before-first-step", "idle", "partly")

    def fills(keys: tuple[str, ...]) -> list[str]:
        lost = tuple(replace(use.parts[1], key=key, percent=5.0, finding="") for key in keys)
        many = replace(use, parts=(use.parts[0], *lost))
        page = read(sections.verdict(replace(report, verdict=replace(report.verdict, use=many))))
        return [str(r["class"]) for r in page.all("rect") if str(r.get("height")) == "100%"][1:]

    told = dict(zip(kinds, fills(kinds), strict=True))
    assert len(set(told.values())) == len(kinds)
    assert fills(kinds[::-1]) == [told[kind] for kind in kinds[::-1]]
    assert fills(("partly", "gpu-never-used", "idle-before", "idle-after")) == [
        told["partly"],
        told["cpu-bottleneck"],
        told["before-first-step"],
        told["before-first-step"],
    ]
