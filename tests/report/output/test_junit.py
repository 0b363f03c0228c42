"""``junit.xml``: valid for whoever reads it, and its counts are those of the report, whatever the names."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest
import xmlschema

from fuzz.hostile import NAMES, of_junit
from jobreport import document, files
from jobreport.comparison.budgets import limits_of
from jobreport.comparison.document import Comparison
from jobreport.errors import UsageError
from jobreport.markdown import CODE
from jobreport.options import Options
from jobreport.output import junit
from jobreport.output.publish import own_files
from jobreport.pipeline import make_report
from jobrules.model import Reason, ReasonKind, Status
from jobrules.model.finding import Note, Where
from jobrules.text import NBSP, escape_name
from jobrules.verdict.not_evaluated import NotEvaluated
from tests.copies import replace
from tests.paths import ROOT, SAMPLES
from tests.report.comparison.runs import compared, run, steady

GOLDEN = {path.name: ROOT / "tests/golden" / f"{path.name}.json" for path in SAMPLES}
SCHEMA = xmlschema.XMLSchema(str(Path(__file__).with_name("junit.xsd")))
ORDER = ["critical", "warning", "info"]


def parsed(data: bytes) -> ElementTree.Element:
    """The one suite of a valid file, whose sums agree."""
    SCHEMA.validate(data.decode())
    assert of_junit(data) == []
    top = ElementTree.fromstring(data)
    (suite,) = top
    went = Counter(child.tag for case in suite.iter("testcase") for child in case)
    for one in (top, suite):
        assert int(one.attrib["tests"]) == len(suite.findall("testcase"))
        assert (int(one.attrib["failures"]), int(one.attrib["errors"])) == (went["failure"], went["error"])
    assert int(suite.attrib["skipped"]) == went["skipped"]
    return suite


def of(report: document.Report, limit: str | None = None) -> ElementTree.Element:
    return parsed(junit.of_report(report, "report.html", limit))


def cases(suite: ElementTree.Element) -> dict[str, ElementTree.Element | None]:
    """What each test case holds, by its name."""
    found = {case.attrib["name"]: next(iter(case), None) for case in suite.iter("testcase")}
    assert len(found) == len(suite.findall("testcase"))
    return found


@pytest.mark.parametrize("limit", [None, "critical"])
@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_failures_are_what_triggered_at_the_limit_and_skipped_what_was_not_evaluated(
    name: str, limit: str | None
) -> None:
    report = json.loads(GOLDEN[name].read_text("utf-8"))
    bad = ORDER[: ORDER.index(limit or "warning") + 1]
    findings, judging = report["verdict"]["findings"], [one for one in report["rules"] if one["can_trigger"]]
    rules = {one["name"]: one["status"] for one in judging}
    fails = {rule for one in findings if one["severity"] in bad for rule in one["rules"]}
    alone = {f"finding: {one['key']}": one["severity"] in bad for one in findings if not one["rules"]}

    suite = of(document.load(GOLDEN[name]), limit)

    found = cases(suite)
    tags = {case: None if child is None else child.tag for case, child in found.items()}
    assert {case for case, tag in tags.items() if tag == "failure"} == fails | {
        case for case, failed in alone.items() if failed
    }
    assert {case for case, tag in tags.items() if tag == "skipped"} == {
        rule for rule, status in rules.items() if status == "not evaluated"
    }
    assert found.keys() == rules.keys() | alone.keys()
    quiet = {rule for rule, status in rules.items() if status == "triggered"} - fails
    assert {case for case, tag in tags.items() if tag == "system-out"} == quiet | {
        case for case, failed in alone.items() if not failed
    }
    assert float(suite.attrib["time"]) == pytest.approx(
        (report["job"]["end_us"] - report["job"]["start_us"]) / 1e6, abs=1e-3
    )


def test_a_report_without_findings_is_a_suite_without_failures() -> None:
    report = document.load(GOLDEN["healthy-8gpu"])
    assert not report.verdict.findings

    suite = of(report)

    assert suite.attrib["failures"] == "0"
    assert None in cases(suite).values()


def test_properties_are_the_numbers_of_the_report() -> None:
    suite = of(document.load(GOLDEN["throttled-4gpu"]))

    use = json.loads(GOLDEN["throttled-4gpu"].read_text("utf-8"))["verdict"]["use"]
    (used,) = [one["percent"] for one in use["roles"] if one["role"] == "used"]
    properties = {one.attrib["name"]: one.attrib["value"] for one in suite.iter("property")}
    assert properties == {
        "gpu_time_used_percent": str(used),
        "nodes": "1",
        "gpus": "4",
        "version": "scrubbed",
        "report": "report.html",
    }


def test_what_failed_is_an_error_also_in_a_summary_and_in_a_cause() -> None:
    report = document.load(GOLDEN["cpu-bottleneck-2gpu"])
    reason = Reason(kind=ReasonKind.ERROR, what="ValueError: no such thing")
    summary = next(one for one in report.rules if not one.can_trigger)
    rules = [
        replace(one, status=Status.ERROR, reason=reason) if one.name in (summary.name, "BatchSize") else one
        for one in report.rules
    ]
    cause = NotEvaluated(rule="CPUBottleneck", status=Status.ERROR, reason=reason)
    missing = (*report.verdict.not_evaluated, cause)
    broken = replace(report, rules=rules, verdict=replace(report.verdict, not_evaluated=missing))

    found = cases(of(broken))

    errors = {name for name, one in found.items() if one is not None and one.tag == "error"}
    assert errors == {summary.name, "BatchSize", "CPUBottleneck"}
    assert found["BatchSize"].attrib == {"type": "ValueError", "message": "ValueError: no such thing"}  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", sorted(NAMES))
def test_a_name_is_text_in_every_field(kind: str) -> None:
    report, name = document.load(GOLDEN["fluctuating-1gpu"]), NAMES[kind]
    # A text that holds a name holds it escaped; names of rules are those of classes.
    text = f"{escape_name(name, 5000)} of a machine"
    changed = replace(
        report,
        job=replace(report.job, name=name, nodes=[replace(one, name=name) for one in report.job.nodes]),
        rules=[
            replace(one, headline=text, reason=one.reason and replace(one.reason, what=text))
            for one in report.rules
        ],
        verdict=replace(
            report.verdict,
            findings=[
                replace(one, title=text, advice=(text,), evidence=(Where((name,)), Note(text)))
                for one in report.verdict.findings
            ],
        ),
    )

    before, suite = of(report), of(changed)

    assert suite.attrib["hostname"] == suite.attrib["name"] == escape_name(name)
    assert [one.tag for one in suite.iter()] == [one.tag for one in before.iter()]
    assert cases(suite).keys() == cases(before).keys()
    shown = CODE.sub(r"\g<code>", text).replace(NBSP, " ")[:3000]
    assert [one.tag for one in suite.iter() if one.attrib.get("message", "").startswith(shown)] != []


def test_what_xml_cannot_hold_is_replaced_and_what_it_can_is_kept() -> None:
    report = document.load(GOLDEN["fluctuating-1gpu"])
    bad = "a\x1bb\x00c\ud800d\udfffe\ufffef\uffffg\x0b"
    cards = [replace(one, headline=f"{bad}\t\r\n<&>\"'\U0001f600") for one in report.rules]

    data = junit.of_report(replace(report, rules=cards), "report.html", None)

    SCHEMA.validate(data.decode())
    failure = next(ElementTree.fromstring(data).iter("failure"))
    assert failure.attrib["message"] == "a�b�c�d�e�f�g�\t\r\n<&>\"'\U0001f600"


def test_texts_and_test_cases_are_bounded() -> None:
    report = document.load(GOLDEN["fluctuating-1gpu"])
    (lead, *others), passed = report.verdict.findings, report.card("BatchSize")
    assert passed is not None
    long = replace(report.verdict, findings=(replace(lead, title="x" * 9000), *others))
    many = [*report.rules, *(replace(passed, name=f"Rule{i}") for i in range(2000))]

    suite = of(replace(report, verdict=long, rules=many))

    assert len(suite.findall("testcase")) == 1000
    assert suite.findtext("system-out", "").startswith("1,0")
    # What triggered comes first.
    assert [one is not None and one.tag for one in cases(suite).values()][:3] == ["failure"] * 3


def of_budgets(*budgets: str) -> tuple[Comparison, dict[tuple[str, str], ElementTree.Element | None]]:
    """The comparison of three runs, and what the test case of each class and name holds."""
    runs = [run(label, steady(scale, ord(label))) for label, scale in (("A", 1.0), ("B", 1.2), ("C", 0.9))]
    comparison = compared(*runs, limits=limits_of(budgets))
    suite = parsed(junit.of_comparison(comparison, "comparison.html"))
    found = {
        (one.attrib["classname"], one.attrib["name"]): next(iter(one), None) for one in suite.iter("testcase")
    }
    return comparison, found


def test_each_budget_is_a_test_case_and_says_what_was_not_measured() -> None:
    comparison, found = of_budgets("step_s<=+5%", "gpu_use_percent>=90", "gpu_use_percent>=1", "cost<=5")

    tags = {name: None if one is None else one.tag for name, one in found.items()}
    b, c = "jobreport.compare.B", "jobreport.compare.C"
    assert tags[b, "step_s"] == "failure"
    assert tags[c, "step_s"] is None
    assert len(tags) == 8
    assert [tags[b, name] for _, name in sorted(tags) if (b, name) in tags and "gpu" in name]
    skipped = {name: one for name, one in found.items() if one is not None and one.tag == "skipped"}
    assert skipped.keys() == {(b, "cost"), (c, "cost")}
    assert all("not measured" in one.attrib["message"] for one in skipped.values())
    assert [one.state for one in comparison.budgets].count("broken") == [*tags.values()].count("failure")


def test_a_label_is_text() -> None:
    label = "".join(name[:40] for name in NAMES.values())
    comparison = compared(run("A", steady()), run(label, steady(1.2, 2)), limits=limits_of(["step_s<=+5%"]))

    (case,) = parsed(junit.of_comparison(comparison, "comparison.html")).iter("testcase")

    assert case.attrib["classname"] == f"jobreport.compare.{escape_name(label)}"


def test_a_comparison_without_budgets_has_no_test_case() -> None:
    assert of_budgets()[1] == {}


def test_a_junit_file_of_ours_is_replaced_and_one_of_another_program_never(tmp_path: Path) -> None:
    (sample,) = [path for path in SAMPLES if path.name == "cpu-only"]
    with_it, without = Options(formats=["json", "junit"], force=True), Options(formats=["json"], force=True)

    def made(options: Options) -> bytes | None:
        make_report(sample, tmp_path / "out", options)
        return file.read_bytes() if file.exists() else None

    file = tmp_path / "out" / "junit.xml"
    first = made(with_it)
    assert first is not None
    assert first.startswith(files.REPORT.junit_head)
    file.write_bytes(first.replace(b"cpu-only", b"older"))
    assert made(with_it) == first
    assert made(without) is None

    for foreign in (b"<testsuites/>", files.COMPARISON.junit_head, b""):
        file.write_bytes(foreign)
        assert made(without) == foreign
        with pytest.raises(UsageError, match=r"contains junit\.xml, which make-report did not write"):
            made(with_it)
    file.unlink()
    file.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_bytes(first)
    assert "junit.xml" not in own_files(tmp_path / "out")


def test_a_report_limit_is_that_of_fail_on(tmp_path: Path) -> None:
    (sample,) = [path for path in SAMPLES if path.name == "late-rank-4gpu"]
    make_report(sample, tmp_path / "out", Options(formats=["junit"], fail_on="critical"))

    suite = parsed((tmp_path / "out" / "junit.xml").read_bytes())

    assert suite.attrib["failures"] == "0"
    assert suite.find("properties/property[@name='report']").attrib["value"] == "report.json"  # type: ignore[union-attr]
