from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from jobreport import build, cli, pipeline
from jobreport.document import Report, to_json
from jobreport.errors import JobReportError
from jobreport.options import Options
from jobreport.output import notebook
from jobreport.page import sections
from jobreport.readers.base import Found, SourceFile
from jobreport.readers.system_samples.reader import SystemSamples
from jobrules import CPUBottleneck
from jobrules.model import Job, RuleResult
from jobrules.model.claims import Cause
from tests.paths import SAMPLES

(SAMPLE,) = (path for path in SAMPLES if path.name == "fluctuating-1gpu")


def fail(*_: object) -> None:
    raise JobReportError("the kernel did not start")


def broken(*_: object, **__: object) -> None:
    raise ValueError("by hand")


@pytest.mark.parametrize(
    ("page", "message"),
    [(fail, "the kernel did not start"), (broken, "Report written without the page (ValueError: by hand)")],
)
def test_a_page_that_fails_costs_no_other_file_and_the_exit_status(
    page: Callable[..., None],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(notebook, "run_notebook", page)
    monkeypatch.setattr("sys.argv", ["make-report", "--job-dir", str(SAMPLE), "--out", str(tmp_path / "out")])

    with pytest.raises(SystemExit) as stopped:
        cli.main()

    printed = capsys.readouterr()
    assert stopped.value.code == 1
    assert printed.out == f"{tmp_path / 'out' / 'summary.md'}\n"
    assert message in printed.err
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["report.json", "rules", "summary.md"]


def test_strict_stops_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook, "run_notebook", fail)

    with pytest.raises(JobReportError):
        pipeline.make_report(SAMPLE, tmp_path / "out", Options(strict=True))

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("part", ["causes", "claim", "finding"])
def test_strict_raises_what_a_cause_of_a_rule_raises(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    causes = CPUBottleneck.causes

    def with_one_broken(rule: CPUBottleneck, job: Job, result: RuleResult) -> list[Cause]:
        return [replace(cause, **{part: broken}) for cause in causes(rule, job, result)]

    monkeypatch.setattr(CPUBottleneck, "causes", broken if part == "causes" else with_one_broken)
    pipeline.make_report(SAMPLES[0], tmp_path / "out", Options(formats=["json"]))
    with pytest.raises((ValueError, RuntimeError), match="by hand"):
        pipeline.make_report(SAMPLES[0], tmp_path / "strict", Options(formats=["json"], strict=True))


def test_a_bug_is_a_sentence_and_status_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pipeline, "make_report", broken)
    monkeypatch.setattr("sys.argv", ["make-report", "--job-dir", str(SAMPLE)])

    with pytest.raises(SystemExit) as stopped:
        cli.main()

    assert stopped.value.code == 1
    assert "Internal error: ValueError: by hand. This is a bug" in capsys.readouterr().err


def test_the_name_of_the_job_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(SAMPLE, tmp_path / "my-job" / "profiler-output")
    monkeypatch.chdir(tmp_path)

    outcome = pipeline.make_report(Path("my-job/profiler-output"), options=Options(formats=["json"]))

    assert outcome.folder == tmp_path / "my-job-report"
    report = json.loads((outcome.folder / "report.json").read_bytes())
    assert report["job"]["name"] == "my-job"
    assert report["command"] == "make-report --job-dir my-job"


def test_a_reader_that_stops_costs_its_files_and_the_exit_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(SystemSamples):
        source = "broken samples"

        def matches_name(self, file: SourceFile) -> bool:
            return file.name.endswith("0.algo-1.json.gz") and "1741080" in file.name

        def read(self, files: object) -> Found:
            raise ZeroDivisionError("by hand")

    monkeypatch.setattr("jobreport.readers.registry.READERS", (Broken(), SystemSamples()))
    healthy = next(path for path in SAMPLES if path.name.startswith("healthy"))

    outcome = pipeline.make_report(healthy, tmp_path / "out", Options(formats=["json"]))

    assert "broken samples stopped: ZeroDivisionError: by hand" in outcome.report.quality.remarks[0].reason
    assert "broken samples" in str(outcome.failure)
    with pytest.raises(ZeroDivisionError):
        pipeline.make_report(healthy, tmp_path / "strict", Options(formats=["json"], strict=True))


@pytest.mark.parametrize("inside", ["report", "."])
def test_a_report_in_the_job_directory_is_no_part_of_the_job(inside: str, tmp_path: Path) -> None:
    job = tmp_path / "job"
    shutil.copytree(SAMPLE, job)
    made = []
    for _ in range(2):
        pipeline.make_report(job, job / inside, Options(formats=("json", "md"), force=True))
        made.append((job / inside / "report.json").read_bytes())
    before, after = made
    assert before == after
    outside = pipeline.make_report(SAMPLE, tmp_path / "out", Options(formats=("json",))).report
    assert json.loads(after)["quality"] == json.loads(to_json(outside))["quality"]


def test_the_file_that_is_named_was_made_now(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "report.html").write_text("of another maker")

    outcome = pipeline.make_report(SAMPLE, out, Options(formats=["json"], force=True))

    assert outcome.main_file == out / "report.json"


@pytest.mark.parametrize(
    ("analysis", "section"), [("steps", sections.steps), ("bottlenecks", sections.cpu_bottlenecks)]
)
def test_an_analysis_that_fails_costs_its_section_alone(
    analysis: str,
    section: Callable[[Report], sections.Fragment],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stop(*_: object) -> None:
        raise ValueError("odd <b>steps</b>")

    monkeypatch.setattr(build, analysis, stop)

    outcome = pipeline.make_report(SAMPLE, tmp_path / "out", Options(formats=("json",)))

    assert "which failed" in str(outcome.failure)
    html = section(outcome.report).html
    assert "Error" in html
    assert "stopped: ValueError: odd &lt;b&gt;steps" in html
    assert "<figure" in sections.balance(outcome.report).html
    with pytest.raises(ValueError, match="odd"):
        pipeline.make_report(SAMPLE, tmp_path / "strict", Options(formats=("json",), strict=True))
