from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from jobreport import document
from jobreport.errors import NothingReadableError
from jobrules import LowGPUUtilization
from tests.jobs import make_job
from tests.report.output.test_summary import LOW, report_of


def test_a_report_survives_its_file() -> None:
    report = report_of(LOW)

    assert document.from_json(document.to_json(report)) == report


def test_the_file_fits_its_schema() -> None:
    schema = document.json_schema()
    validator = jsonschema.validators.validator_for(schema)(schema)
    for job in (LOW, make_job(), make_job(gpu=[1.0])):
        validator.validate(json.loads(document.to_json(report_of(job))))


def test_a_file_that_is_no_report_is_answered_with_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    for text in ("{", "[]", '{"schema_version": 1}'):
        path.write_text(text)
        with pytest.raises(NothingReadableError, match="not a report"):
            document.load(path)
    with pytest.raises(NothingReadableError, match="Cannot read"):
        document.load(tmp_path / "none.json")


def test_the_vendors_file_has_its_keys_first_and_its_parameter_text() -> None:
    rule = LowGPUUtilization()
    result = rule.check(LOW)

    file = json.loads(document.rule_json(rule, result, {}))

    assert list(file)[:5] == ["RuleTriggered", "Violations", "Details", "Datapoints", "RuleParameters"]
    assert file["RuleParameters"] == "threshold_p95:70\nthreshold_p5:10\nwindow:500\npatience:1000"
    assert (file["Status"], file["Severity"], file["Datapoints"]) == ("triggered", 1.0, 1500)
