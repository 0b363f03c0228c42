"""The section on lines of code, of jobs whose stacks were sampled."""

from __future__ import annotations

from functools import cache, partial

import pytest
from msgspec import UNSET

from jobreport import document
from jobreport.build import build_report
from jobreport.document import Report
from jobreport.page.sections.order import page
from jobreport.page.sections.python_code.code_waits import code_waits
from jobreport.page.sections.python_code.icicle import icicle
from jobreport.remarks import Quality
from jobrules import RULES
from jobrules.analyses.code_lines import StackPart
from jobrules.model import CodeFrame, Job, in_words
from jobrules.rule import run_rules
from tests.copies import replace
from tests.report.page.sections.examples import HOSTILE
from tests.rules.code_jobs import IMAGES, MAIN, Act, code_job
from tests.rules.verdict.test_code_lines import ITSELF, LOADED, LOG, OTHER, SAVE, WORK

FORWARD: Act = (4.0, (*MAIN, "library:torch/nn/modules/module.py:9 _call_impl"), 95.0, "Forward")
NAMED: Act = (3.0, (*MAIN, f"{HOSTILE}.py:7 {HOSTILE}", "python:json/__init__.py:120 dump"), 0.0, "")


@cache
def report_of(*ranks: tuple[Act, ...], **how: object) -> Report:
    return _report(code_job(*ranks, repeat=30, **how))  # type: ignore[arg-type]


def _report(job: Job) -> Report:
    rules = tuple(rule() for rule in RULES)
    results = run_rules(rules, job, strict=True)
    return build_report(job, Quality(sources=(), remarks=()), rules, results, "make-report", strict=True)


def _said(report: Report) -> str:
    return "\n".join(f"{one.title}. {in_words(one.evidence)}" for one in report.verdict.findings)


JOBS = {
    "idle GPU": partial(report_of, (FORWARD, LOG, OTHER)),
    "two ranks": partial(report_of, (FORWARD, LOG), (FORWARD, LOG)),
    "fetches": partial(report_of, (WORK, ITSELF, OTHER), gpus=0),
    "loader processes": partial(report_of, (WORK, LOADED), loaders=(IMAGES,)),
    "checkpoints": partial(report_of, (WORK, SAVE)),
    "nothing known": partial(report_of, (WORK, OTHER), gpus=0),
    "hostile names": partial(report_of, (WORK, NAMED)),
}
VARIANTS = {name: lambda made=made: code_waits(made()) for name, made in JOBS.items()} | {
    f"findings: {name}": lambda made=made: f"Findings\n{_said(made())}" for name, made in JOBS.items()
}


@pytest.mark.parametrize("name", JOBS)
def test_a_report_with_lines_can_be_read_again(name: str) -> None:
    report = JOBS[name]()
    assert document.from_json(document.to_json(report)) == report


def test_names_are_text() -> None:
    html = code_waits(JOBS["hostile names"]()).html
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert" in html


def test_a_job_without_stacks_has_no_section() -> None:
    report = replace(JOBS["idle GPU"](), code_lines=UNSET)
    assert "code-waits" not in page(report)
    assert not any("icicle" in one.html for one in page(report).values())


def test_the_icicle_is_the_evidence_of_the_line() -> None:
    pieces = page(JOBS["idle GPU"]())
    assert 'class="icicle' in pieces["evidence"].html
    assert 'class="icicle' not in pieces["code-waits"].html


def part(parent: int, line: int, place: str = "own") -> StackPart:
    frame = CodeFrame(place=place, file="a.py", line=line, function="f")  # type: ignore[arg-type]
    return StackPart(parent=parent, frame=frame, idle=0, busy=0)


def test_parts_stand_below_their_callers_side_by_side() -> None:
    parts = [part(-1, 1), part(0, 2), part(0, 3, "library"), part(2, 4), part(-1, 5), part(4, 6)]
    bars = icicle(parts, [150, 50, 90, 80, 50, 1], 200, "own")
    assert [(one.x, one.width, one.row, one.style) for one in bars] == [
        (0.0, 75.0, 0, "own"),
        (0.0, 25.0, 1, "own"),
        (25.0, 45.0, 1, "f3"),
        (25.0, 40.0, 2, "own"),
        (75.0, 25.0, 0, "own"),
        (75.0, 0.5, 1, "own"),
    ]
    assert len(icicle(parts, [150, 50, 90, 0, 50, 0], 200, "own")) == 4
