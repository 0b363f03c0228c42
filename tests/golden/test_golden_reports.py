"""``report.json`` of each sample job, whole. Only the version is scrubbed; see README.md beside this file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobreport import pipeline
from jobreport.options import Options
from tests.golden.accepted import hold
from tests.paths import SAMPLES

GOLDEN = Path(__file__).parent


def test_there_are_sample_jobs() -> None:
    assert len(SAMPLES) >= 3


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name)
def test_report_of_a_sample_job_is_the_golden_one(
    sample: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    pipeline.make_report(sample, tmp_path / "out", Options(formats=["json"]))

    report = json.loads((tmp_path / "out" / "report.json").read_bytes())
    report["version"] = "scrubbed"
    hold({GOLDEN / f"{sample.name}.json": readable(report)}, request)


def readable(value: object) -> str:
    """JSON with a line for each list of numbers, so that a diff shows which series changed, and for a rule that does not
    apply.
    """
    text = json.dumps(value, indent=1, ensure_ascii=False)
    decoder = json.JSONDecoder()
    lines: list[str] = []
    at = 0
    while at < len(text):
        if text[at] in "[{":
            inner, end = decoder.raw_decode(text, at)
            if does_not_apply(inner) or are_numbers(inner):
                lines.append(json.dumps(inner))
                at = end
                continue
        if text[at] == '"':
            _, end = decoder.raw_decode(text, at)
            lines.append(text[at:end])
            at = end
            continue
        lines.append(text[at])
        at += 1
    return "".join(lines) + "\n"


def does_not_apply(value: Any) -> bool:
    if not isinstance(value, dict) or "headline" not in value:
        return False
    return (value["reason"] or {}).get("kind") == "not applicable"


def are_numbers(value: Any) -> bool:
    return (
        isinstance(value, list)
        and value != []
        and all(isinstance(v, (int, float, type(None))) for v in value)
    )
