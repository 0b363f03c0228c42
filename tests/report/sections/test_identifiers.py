"""The list of what identifies someone, at the end of the page."""

from __future__ import annotations

import pytest

from jobreport import sections
from jobreport.document import Report
from jobreport.sections.identifiers import MOST_NAMES
from tests.copies import replace
from tests.report.sections import examples
from tests.report.sections.html import Cells, read


def with_lines(report: Report, *lines: str) -> Report:
    return replace(report, job=replace(report.job, recorded=lines))


def rows(report: Report) -> dict[str, tuple[str, str]]:
    """Names and places of each kind, as printed."""
    cells = Cells.of(sections.identifiers(report).html, "th", "td")[3:]
    return {kind: (names, where) for kind, names, where in zip(*[iter(cells)] * 3, strict=True)}


def test_the_names_of_job_and_nodes_are_told_with_their_places() -> None:
    node = examples.gpu_job().job.nodes[0].name
    report = replace(examples.gpu_job(), version=f"told ({node}), and x{node}")

    told = rows(report)

    assert told["Job name"] == (report.job.name, "command, job")
    assert told["Node"][0] == ", ".join(node.name for node in report.job.nodes)
    # In sentences too.
    assert {"job", "utilization", "version"} <= set(told["Node"][1].split(", "))


def test_forms_of_addresses_are_told_and_many_of_them_cut() -> None:
    mails = [f"a{i}@example.org" for i in range(MOST_NAMES + 1)]

    told = rows(with_lines(examples.gpu_job(), f"from {' '.join(mails)} on 10.0.0.3"))

    assert told["E-mail address"] == (", ".join(mails[:MOST_NAMES]) + " and others", "job")
    assert told["IP address"] == ("10.0.0.3", "job")


def test_names_are_text_and_cut() -> None:
    told = rows(replace(examples.gpu_job(), job=replace(examples.gpu_job().job, name="<b>" + "x" * 100)))

    assert told["Job name"][0].startswith("<b>xxx")
    assert "…" in told["Job name"][0]


@pytest.mark.parametrize("name", ["job", "--redact", "a --redact"])
def test_a_report_is_redacted_by_its_option_not_by_a_name(name: str) -> None:
    report = examples.gpu_job()
    for words in (["--job-dir", name], ["--job-dir", name, "--ignore", "BatchSize"]):
        command = " ".join(["make-report", *(f"'{word}'" for word in words)])

        text = read(sections.identifiers(replace(report, command=command))).text

        assert "replaced by stand-ins" not in text
        text = read(sections.identifiers(replace(report, command=f"{command} --redact"))).text
        assert "replaced by stand-ins" in text


def test_without_names_a_line_says_so() -> None:
    report = examples.gpu_job()
    redacted = replace(report, command="make-report --job-dir job --redact")

    assert "None found" in read(sections.identifiers(redacted)).text
    assert rows(redacted) == {}
    # A form that is left is told all the same.
    left = with_lines(redacted, "see /home/ann")
    assert "None found" not in read(sections.identifiers(left)).text
    assert rows(left) == {"Path with a user name": ("/home/ann", "job")}
