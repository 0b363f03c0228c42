"""``junit.xml``: a test case for each rule of a report, or for each budget of a comparison.

There is no one standard. Elements and attributes are those that Jenkins, GitLab, and GitHub's actions agree on:
https://github.com/jenkinsci/xunit-plugin has the strictest schema.
"""

from __future__ import annotations

import re
from collections import Counter
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from jobreport.comparison import words
from jobreport.comparison.budgets import BROKEN, INCONCLUSIVE
from jobreport.files import COMPARISON, REPORT, Product
from jobreport.markdown import CODE
from jobreport.output.summary import reaches
from jobrules.model import SECOND_US, Severity, Status, in_words
from jobrules.text import NBSP, count, dated, escape_name, utc

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobreport.comparison.document import Budget, Comparison
    from jobreport.document import Report, RuleCard
    from jobrules.model import Finding

#: Characters of a text, and test cases of a file.
MAX_TEXT, MAX_CASES = 4000, 1000
#: In an attribute each would be read as a blank.
_BLANKS = {ord(blank): f"&#{ord(blank)};" for blank in "\t\n\r"}
#: What XML 1.0 cannot hold, not even escaped.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Case(NamedTuple):
    """A test case."""

    classname: str
    name: str
    #: The element that says how it went: ``failure``, ``error``, ``skipped``; ``system-out`` has a text alone. Empty if
    #: the test passed.
    went: str = ""
    type: str = ""
    message: str = ""
    text: str = ""


def plain(text: str) -> str:
    """A sentence of the report as a text of another format."""
    return bounded(CODE.sub(r"\g<code>", text).replace(NBSP, " "))


def bounded(text: str) -> str:
    """A text that XML can hold, and that is not too long."""
    if len(text) > MAX_TEXT:
        text = f"{text[: MAX_TEXT - 1]}…"
    return _FORBIDDEN.sub("\ufffd", text)


def told(finding: Finding) -> str:
    """What shows a finding, and what to try, a line each."""
    advice = f"Try: {' '.join(finding.advice)}" if finding.advice else ""
    return "\n".join(filter(None, [in_words(finding.evidence), advice]))


def of_report(report: Report, main_file: str, limit: str | None) -> bytes:
    """The file of a report; a finding of the severity ``limit`` or worse, or of a warning, is a failure."""
    job, use = report.job, report.verdict.use
    limit = limit or Severity.WARNING
    cards = [
        *report.judging,
        *(one for one in report.rules if one.status is Status.ERROR and not one.can_trigger),
    ]
    known = {card.name for card in cards if card.status is Status.TRIGGERED}
    classname = f"{REPORT.suites}.{escape_name(job.name)}"
    cases = [_of_rule(report, card, classname, limit) for card in cards]
    cases += [
        _judged(classname, f"finding: {one.key}", one.severity, limit, one.title, told(one))
        for one in report.verdict.findings
        if known.isdisjoint(one.rules)
    ]
    properties = {
        **({"gpu_time_used_percent": use.of("used")[1]} if use and use.device == "GPU" else {}),
        "nodes": len(job.nodes),
        "gpus": sum(one.gpus for one in job.nodes),
        "version": report.version,
        "report": main_file,
    }
    attributes = {"time": f"{max(0, job.end_us - job.start_us) / SECOND_US:.3f}"}
    if dated(job.start_us):
        attributes["timestamp"] = f"{utc(job.start_us):%Y-%m-%dT%H:%M:%S}"
    if job.nodes:
        attributes["hostname"] = escape_name(job.nodes[0].name)
    return _suites(REPORT, escape_name(job.name), cases, attributes, properties)


def _of_rule(report: Report, card: RuleCard, classname: str, limit: str) -> Case:
    # What a cause raises is an error of its rule, too.
    failed = {one.rule: one.reason for one in report.verdict.not_evaluated if one.status is Status.ERROR}
    sign = Status.ERROR if card.name in failed else report.sign(card)
    if sign is Status.ERROR:
        reason = failed.get(card.name, card.reason)
        what = reason.what if reason else card.headline
        return Case(classname, card.name, "error", what.partition(":")[0], what)
    if isinstance(sign, Severity):
        findings = [one for one in report.verdict.findings if card.name in one.rules]
        text = "\n\n".join(f"{one.title}.\n{told(one)}" for one in findings)
        advice = f"Try: {' '.join(card.advice)}"
        return _judged(classname, card.name, sign, limit, card.headline, text or advice)
    if sign is Status.NOT_EVALUATED:
        why = card.reason.sentence if card.reason else card.headline
        return Case(classname, card.name, "skipped", str(sign), why)
    return Case(classname, card.name)


def _judged(classname: str, name: str, severity: Severity, limit: str, headline: str, text: str) -> Case:
    """The case of a finding, which fails from the limit on."""
    if not reaches(severity, limit):
        return Case(classname, name, "system-out", text=f"{headline}\n{text}")
    return Case(classname, name, "failure", severity, headline, text)


def of_comparison(comparison: Comparison, main_file: str) -> bytes:
    """The file of a comparison: its budgets."""
    often = Counter((one.label, one.measure) for one in comparison.budgets)
    went = {BROKEN: "failure", INCONCLUSIVE: "skipped"}
    cases = []
    for one in comparison.budgets:
        several = often[one.label, one.measure] > 1
        classname = f"{COMPARISON.suites}.{escape_name(one.label)}"
        measure = plain(f"{one.measure}: {one.limit}") if several else one.measure
        kind = one.state if one.state == INCONCLUSIVE else one.level
        cases.append(Case(classname, measure, went.get(one.state, ""), kind, of_budget(comparison, one)))
    name = " against ".join((", ".join(map(escape_name, comparison.others)), escape_name(comparison.base)))
    properties = {"version": comparison.version, "report": main_file}
    return _suites(COMPARISON, name, cases, {}, properties)


def of_budget(comparison: Comparison, budget: Budget) -> str:
    """``Step time: 0.600 s, +20.0%; budget: at most 5% more``; without a value why there is none."""
    measure = comparison.find(budget.measure)
    if measure is None or budget.value is None:
        found = measure.label if measure else budget.measure
    else:
        change = words.change(measure.against[budget.label])
        found = f"{measure.label}: {words.value(budget.value, measure.unit, comparison.cost)}, {change}"
    return "; ".join(filter(None, [found, budget.reason, f"budget: {budget.limit}"]))


def _suites(
    product: Product,
    name: str,
    cases: Sequence[Case],
    attributes: Mapping[str, str],
    properties: Mapping[str, object],
) -> bytes:
    """The file: one suite of so many cases."""
    left, cases = len(cases) - MAX_CASES, cases[:MAX_CASES]
    went = Counter(one.went for one in cases)
    counts = {"tests": len(cases), "failures": went["failure"], "errors": went["error"]}
    time = {key: value for key, value in attributes.items() if key == "time"}
    suite = {"name": name, **counts, "skipped": went["skipped"], **attributes}
    lines = [
        f"{product.junit_head.decode()}{_attributes({**counts, **time})}>",
        f"<testsuite{_attributes(suite)}>",
        "<properties>",
        *(f"<property{_attributes({'name': key, 'value': value})}/>" for key, value in properties.items()),
        "</properties>",
        *map(_element, cases),
        *([f"<system-out>{count(left, 'more test case')} left out.</system-out>"] if left > 0 else []),
        "</testsuite>",
        "</testsuites>",
    ]
    return ("\n".join(lines) + "\n").encode()


def _element(case: Case) -> str:
    head = f"<testcase{_attributes({'classname': case.classname, 'name': case.name, 'time': '0'})}"
    if not case.went:
        return f"{head}/>"
    about = {key: value for key, value in (("type", case.type), ("message", plain(case.message))) if value}
    return f"{head}><{case.went}{_attributes(about)}>{escape(plain(case.text))}</{case.went}></testcase>"


def _attributes(values: Mapping[str, object]) -> str:
    return "".join(
        f' {key}="{escape(bounded(str(value))).translate(_BLANKS)}"' for key, value in values.items()
    )
