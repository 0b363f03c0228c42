"""The list of identifying information at the end of the page."""

from __future__ import annotations

import pytest

from jobreport.document import Report
from jobreport.page import sections
from jobreport.page.sections.identifiers import MAX_NAMES
from jobreport.remarks import Quality, Remark
from tests.copies import replace
from tests.report.page.sections import examples
from tests.report.page.sections.html import Cells, read


def with_lines(report: Report, *lines: str) -> Report:
    return replace(report, job=replace(report.job, recorded=lines))


def rows(report: Report) -> dict[str, tuple[str, str]]:
    """Names and places of each kind, as printed."""
    cells = Cells.of(sections.identifiers(report).html, "th", "td")[3:]
    return {kind: (names, where) for kind, names, where in zip(*[iter(cells)] * 3, strict=True)}


def test_the_names_of_job_and_nodes_are_listed_with_their_places() -> None:
    node = examples.gpu_job().job.nodes[0].name
    report = replace(examples.gpu_job(), version=f"run on ({node}), and x{node}")

    found = rows(report)

    assert found["Job name"] == (report.job.name, "command, job")
    assert {node.name for node in report.job.nodes} <= set(found["Node"][0].split(", "))
    # In sentences too.
    assert {"job", "utilization", "version"} <= set(found["Node"][1].split(", "))


def test_forms_of_addresses_are_listed_and_many_of_them_cut() -> None:
    mails = [f"a{i}@example.org" for i in range(MAX_NAMES + 1)]

    found = rows(with_lines(examples.gpu_job(), f"from {' '.join(mails)} on 10.0.0.3"))

    assert found["E-mail address"] == (", ".join(mails[:MAX_NAMES]) + " and others", "job")
    assert found["IP address"] == ("10.0.0.3", "job")


def test_names_are_text_and_cut() -> None:
    found = rows(replace(examples.gpu_job(), job=replace(examples.gpu_job().job, name="<b>" + "x" * 100)))

    assert found["Job name"][0].startswith("<b>xxx")
    assert "…" in found["Job name"][0]


@pytest.mark.parametrize("name", ["job", "--redact", "a --redact"])
def test_a_report_is_redacted_by_its_option_not_by_a_name(name: str) -> None:
    report = examples.gpu_job()
    for words in (["--job-dir", name], ["--job-dir", name, "--ignore", "BatchSize"]):
        command = " ".join(["make-report", *(f"'{word}'" for word in words)])

        text = read(sections.identifiers(replace(report, command=command))).text

        assert "replaced by placeholders" not in text
        text = read(sections.identifiers(replace(report, command=f"{command} --redact"))).text
        assert "replaced by placeholders" in text


def test_without_names_a_line_says_so() -> None:
    report = examples.gpu_job()
    redacted = replace(report, command="make-report --job-dir job --redact")

    assert "None found" in read(sections.identifiers(redacted)).text
    assert rows(redacted) == {}
    # A form that is left is listed all the same.
    left = with_lines(redacted, "see /home/ann")
    assert "None found" not in read(sections.identifiers(left)).text
    assert rows(left) == {"Path with a user name": ("/home/ann", "job")}


def test_names_in_remarks_are_listed() -> None:
    fields: dict[str, str | int | float] = {"name": "acme", "file": "a/b.json", "error": "at 10.0.0.3"}
    remark = Remark(code="debugger.value", count=1, fields=fields)
    report = replace(examples.gpu_job(), quality=Quality(remarks=(remark,)))

    found = rows(report)

    assert found["Name from a program"][0].startswith("acme, ")
    assert found["File of the job"] == ("a/b.json", "quality")
    assert found["IP address"] == ("10.0.0.3", "quality")
