"""What ``open_job`` opens, and that its numbers are those of ``report.json``."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pytest

import jobreport
from jobreport import JobFrames, JobReportError, open_job
from jobreport.library import results
from jobreport.library.tables import SAMPLES
from jobrules.model import Metric, RuleResult
from jobrules.rule import Rule
from tests.jobs import make_job
from tests.once import slow_but
from tests.paths import ROOT
from tests.paths import SAMPLES as JOBS
from tests.report.debugger_report.written_results import built, card, steps
from tests.report.library.frames import opened

BUSY = ROOT / "sample_data" / "cpu-bottleneck-2gpu"
GOLDEN = ROOT / "tests" / "golden"


@pytest.fixture(scope="module")
def busy() -> JobFrames:
    return open_job(BUSY)


def rows(found: Any) -> list[dict[str, Any]]:
    return [dict(zip(found, row, strict=True)) for row in found.itertuples(index=False)]


@pytest.mark.parametrize("sample", slow_but({JOBS[0], JOBS[1]}, JOBS), ids=lambda path: path.name)
def test_numbers_are_those_of_the_page(sample: Path) -> None:
    page = json.loads((GOLDEN / f"{sample.name}.json").read_bytes())
    job = open_job(sample)

    use = page["verdict"]["use"]
    assert [(one["part"], one["share"], one["device_s"], one["finding"]) for one in rows(job.time_use())] == [
        (part["key"], part["percent"] / 100, part["amount"] * 3600, part.get("finding", ""))
        for part in (use["parts"] if use else ())
    ]
    assert job.time_use().attrs["device"] == (use["device"] if use else "")
    assert job.time_use()["share"].sum() == pytest.approx(1 if use else 0)
    assert [(one["key"], one["severity"], one["title"]) for one in rows(job.findings())] == [
        (one["key"], one["severity"], one["title"]) for one in page["verdict"]["findings"]
    ]
    assert [(one["start_us"], one["end_us"], one["share"]) for one in rows(job.phases())] == [
        (one["start_us"], one["end_us"], one["percent"] / 100) for one in page["phases"]["phases"]
    ]
    counts = ("triggered", "violations", "datapoints", "evaluated", "violating")
    made = json.loads(job.report().json)
    assert [
        (one["rule"], one["status"], one["headline"], *(one[name] for name in counts))
        for one in rows(job.rules())
    ] == [
        (one["name"], one["status"], one["headline"], *(one[name] for name in counts))
        for one in made["rules"]
    ]
    assert job.rules()["rule"].tolist() == [one["name"] for one in page["rules"]]
    assert job.span_us == (page["job"]["start_us"], page["job"]["end_us"])
    assert job.nodes == tuple(one["name"] for one in page["job"]["nodes"])
    assert job.sources["kind"].tolist() == page["job"]["sources"]
    assert len(job.steps()) == page["job"]["steps"]
    if page["steps"]:
        assert int(job.steps()["outlier"].sum()) == sum(one["outliers"] or 0 for one in page["steps"]["rows"])
    by_label = {Metric(one["metric"]).label: one["metric"] for one in rows(job.metrics)}
    for row in page["utilization"]:
        if metric := by_label.get(row["label"]):
            found = job.samples(metric, node=row["node"])
            means = found.groupby("time_us")["value"].mean()
            assert len(means) == row["n"]
            assert means.mean() == pytest.approx(row["mean"])
    same = {"version": jobreport.__version__, "rules": made["rules"]}
    assert made == page | same


def test_a_report_has_its_numbers_and_no_samples(busy: JobFrames, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_bytes(busy.report().json)

    job = open_job(str(file))

    assert job.time_use().equals(busy.time_use())
    assert job.findings().equals(busy.findings())
    assert (job.name, job.nodes, job.gpu_count, job.span_us) == (busy.name, busy.nodes, 2, busy.span_us)
    assert job.quality.equals(busy.quality)
    for empty in (job.samples(), job.steps(), job.events(), job.metrics):
        assert empty.empty
        assert "open the job itself" in empty.attrs["reason"]
    assert {str(name): str(kind) for name, kind in job.samples().dtypes.items()} == dict(SAMPLES)
    with pytest.raises(JobReportError, match="Open the job itself"):
        job.rule("CPUBottleneck")
    file.write_bytes(busy.report().json.replace(b'"schema_version": 3', b'"schema_version": 99'))
    with pytest.raises(JobReportError, match="schema 99"):
        open_job(file)


def test_rule_results_of_sagemaker_debugger_are_opened(tmp_path: Path) -> None:
    expected = built(tmp_path / "job", StepOutlier=steps(0.5, 0.6, 1000))

    job = open_job(tmp_path / "job")

    assert job.span_us == (expected.job.start_us, expected.job.end_us)
    assert job.nodes == tuple(one.name for one in expected.job.nodes)
    assert job.rules("StepOutlier")["headline"].tolist() == [card(expected, "StepOutlier").headline]
    assert (job.rule("StepOutlier").status, job.rule("UnusedGPU").status) == (
        "not evaluated",
        "not evaluated",
    )
    assert (len(job.samples()), len(job.steps()), len(job.events()), len(job.framework_time())) == (
        0,
        0,
        0,
        0,
    )


def test_an_archive_is_opened_and_leaves_nothing(
    busy: JobFrames, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(own))
    packed = tmp_path / "packed.tar.gz"
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(BUSY, "job")
        archive.add(BUSY / "system", "../outside")
    with open_job(packed, memory=0) as job:
        assert job.name == "packed"
        assert (
            job.samples().drop(columns=["since_start"]).equals(busy.samples().drop(columns=["since_start"]))
        )
        assert "archive.outside" in job.quality["code"].tolist()
        assert len([*own.iterdir()]) == 1  # tables on disk
        kept = job.steps()

    assert not [*own.iterdir()]
    assert len(kept) == 762
    job.close()
    for ask in (job.samples, job.steps, job.findings, job.code_lines, job.verdict):
        with pytest.raises(JobReportError, match="was closed"):
            ask()
    assert repr(job).startswith("<job 'packed'")
    forgotten = open_job(BUSY, memory=0)
    del forgotten
    gc.collect()
    assert not [*own.iterdir()]


def test_a_single_log_is_opened(tmp_path: Path) -> None:
    log = tmp_path / "gpu.csv"
    log.write_text(
        "timestamp, index, utilization.gpu [%]\n"
        + "".join(f"2025/03/07 08:00:0{i}, 0, {10 * i} %\n" for i in range(5))
    )

    job = open_job(log, timezone="Europe/Berlin")

    assert job.samples()["value"].tolist() == [0, 10, 20, 30, 40]
    assert job.start is not None
    assert job.start.isoformat() == "2025-03-07T07:00:00+00:00"
    assert open_job(log).samples()["time_us"][0] - job.samples()["time_us"][0] == 3600 * 10**6
    assert open_job(log).report().report.command == "make-report --job-dir gpu.csv"


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("http://host/job.zip", "http:// is not supported"),
        ("s3://bucket/job?X-Amz-Signature=secret", "signed URL"),
        ("/nonexistent/job", "nonexistent"),
        (str(ROOT / "docs"), "No readable input"),
    ],
)
def test_what_cannot_be_opened_is_said_in_a_sentence(where: str, message: str) -> None:
    with pytest.raises(JobReportError, match=message) as raised:
        open_job(where)

    assert "secret" not in str(raised.value)


def test_a_job_that_grew_is_another_job(tmp_path: Path) -> None:
    log = tmp_path / "gpu.csv"
    log.write_text(
        "timestamp, index, utilization.gpu [%]\n2025/03/07 08:00:00, 0, 1 %\n2025/03/07 08:00:01, 0, 2 %\n"
    )
    job = open_job(log)
    before = job.samples()
    with log.open("a") as file:
        file.write("2025/03/07 08:00:02, 0, 3 %\n")

    assert job.samples().equals(before)
    assert job.reload().samples()["value"].tolist() == [1, 2, 3]


class _Own(Rule):
    """One of a user's own.

    What it checks
        The number of nodes.
    Why it matters
        It does not.
    What to do
        * Nothing.
    """

    title = "There are nodes"

    def check(self, job: Any) -> RuleResult:
        if len(job.nodes) > 1:
            raise ValueError("too many")
        return self.triggered(f"{len(job.nodes)} node", details={"samples": len(job.panels)})


def test_rules_run_again_with_other_thresholds(busy: JobFrames) -> None:
    (known,) = rows(busy.rules("StepOutlier"))
    (changed,) = rows(busy.rules("StepOutlier", StepOutlier__n_outliers=0))
    (same,) = rows(busy.rules("StepOutlier", settings={"StepOutlier": {"n_outliers": 0}}))

    assert (known["status"], changed["status"], same["status"]) == ("passed", "triggered", "triggered")
    assert busy.rule("StepOutlier", n_outliers=0).findings
    assert busy.rule("StepOutlier").status == "passed"
    assert busy.judge(_Own()).details == {"samples": 12}
    with pytest.raises(JobReportError, match="expected"):
        busy.rule("StepOutlier", n_outliers=-1)


def test_what_a_rule_of_ones_own_raises_is_raised() -> None:
    with pytest.raises(ValueError, match="too many"):
        opened(make_job(gpu=[1, 2]), make_job(gpu=[1, 2], node="algo-2")).judge(_Own())


def test_a_report_is_written_from_what_was_read(busy: JobFrames, tmp_path: Path) -> None:
    made = busy.report(tmp_path / "out", formats=("md",))

    assert made.path == tmp_path / "out" / "summary.md"
    assert (tmp_path / "out" / "report.json").read_bytes() == made.json == busy.report().json
    assert "CPU" in busy.report().figure("cpu-bottlenecks")._repr_html_()[0]
    with pytest.raises(TypeError):  # it would do nothing
        busy.report(tmp_path / "other", redact=True)  # type: ignore[call-arg]
    with pytest.raises(KeyError, match="did you mean cpu-bottlenecks"):
        busy.report().figure("cpu-bottleneck")


def test_columns_of_judgements_stay(busy: JobFrames) -> None:
    tables = {
        "sources": busy.sources,
        "quality": busy.quality,
        "metrics": busy.metrics,
        "findings": busy.findings(),
        "time_use": busy.time_use(),
        "phases": busy.phases(),
        "rules": busy.rules(),
    }

    for name, found in tables.items():
        columns = getattr(results, name.upper())
        assert {str(one): str(kind) for one, kind in found.dtypes.items()} == {
            one: kind for one, (kind, _) in columns.items()
        }, name
    assert {name: " ".join(map(str, found)) for name, found in tables.items()} == {
        "sources": "kind files rows",
        "quality": "source code action count unit reason place",
        "metrics": "metric label unit nodes devices snapshots interval",
        "findings": "key severity title evidence advice share share_of gpu_s devices start end",
        "time_use": "part label role share device_s finding",
        "phases": "name start start_us end end_us duration share",
        "rules": "rule status reason headline triggered violations datapoints evaluated violating share first last",
    }


def test_importing_costs_nothing_and_pandas_comes_with_the_first_frame() -> None:
    code = (
        "import sys; before = {*sys.modules}; import jobreport\n"
        "assert not {one for one in {*sys.modules} - before if one.startswith(('numpy', 'msgspec', 'jobrules'))}\n"
        f"job = jobreport.open_job({str(BUSY)!r}); job.span_us, job.verdict()\n"
        "assert not {'pandas', 'bokeh', 'papermill', 'nbconvert.exporters'} & {*sys.modules}, sys.modules\n"
        "job.steps(); assert 'pandas' in sys.modules and 'bokeh' not in sys.modules\n"
    )
    subprocess.run(
        [sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    assert jobreport.__all__ == ["JobFrames", "JobReportError", "TraceSummary", "__version__", "open_job"]
    assert all(getattr(jobreport, name) for name in jobreport.__all__)
