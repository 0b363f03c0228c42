"""The command compare-reports: what it prints and writes, how it exits, and input that is wrong."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from jobreport import compare_cli, document
from jobreport.comparison import document as comparison
from jobreport.comparison.document import Comparison
from jobreport.cost.one_job import job_cost
from jobreport.cost.prices import Pricing
from jobreport.options import Options
from jobreport.page.sections.comparison import head
from jobreport.pipeline import make_report
from jobreport.remarks import Quality, Remark, SourceQuality
from tests.captured_jobs import training
from tests.copies import replace
from tests.paths import SAMPLES
from tests.report.comparison.runs import PUBLISHED, of_traces, steady
from tests.report.comparison.test_facts import labeled
from tests.report.page.sections.test_recordings import recording


def compare(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """What the command prints and how it exits, in this process."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["compare-reports", *map(str, arguments)])
        patch.chdir(cwd)
        with pytest.raises(SystemExit) as left:
            compare_cli.main()
    return subprocess.CompletedProcess(sys.argv, left.value.code, out.getvalue(), err.getvalue())  # type: ignore[arg-type]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Folders with reports ``a``, ``b``, and ``c``."""
    for name, scale in (("a", 1.0), ("b", 1.2), ("c", 0.9)):
        report = steady(scale, ord(name))
        (tmp_path / name).mkdir()
        named = replace(report, job=replace(report.job, name=f"job {name}"))
        (tmp_path / name / "report.json").write_bytes(document.to_json(named))
    return tmp_path


FAST = ("--formats", "json,md")


def compared(runs: Path, *arguments: str | Path) -> Comparison:
    """What the command writes of the first two runs; it ends well."""
    done = compare("a", "b", *FAST, "--quiet", "--force", *arguments, cwd=runs)
    assert done.returncode == 0, done.stderr
    return written(runs)


def written(runs: Path) -> Comparison:
    return comparison.from_json((runs / "comparison" / "comparison.json").read_bytes())


def text_of(runs: Path) -> str:
    """All that was written."""
    return "".join(path.read_text("utf-8") for path in (runs / "comparison").iterdir())


def sets(*facts: str) -> list[str]:
    return [word for one in facts for word in ("--set", one)]


def rewritten(runs: Path, name: str, **fields: Any) -> None:
    """The report of a run with other values in these fields."""
    path = runs / name / "report.json"
    path.write_bytes(document.to_json(replace(document.load(path), **fields)))


def test_two_reports_are_compared_and_the_path_is_printed(runs: Path) -> None:
    done = compare("old=a", "new=b/report.json", *FAST, cwd=runs)

    folder = runs / "comparison"
    assert (done.returncode, done.stdout) == (0, f"{folder / 'comparison.md'}\n")
    assert "new is slower than\u00a0old: 17.4% fewer steps per second" in done.stderr
    assert len(done.stderr.splitlines()) <= 7
    assert sorted(path.name for path in folder.iterdir()) == ["comparison.json", "comparison.md"]
    found = written(runs)
    assert (found.base, found.labels) == ("old", ["old", "new"])
    again = compare("old=a", "new=b", *FAST, cwd=runs)
    assert again.returncode == 2
    assert "already contains a comparison" in again.stderr
    before = (folder / "comparison.json").read_bytes()
    forced = compare("old=a", "new=b/report.json", *FAST, "--force", "--quiet", cwd=runs)
    assert (forced.returncode, forced.stderr) == (0, "")
    assert (folder / "comparison.json").read_bytes() == before


def test_names_of_jobs_are_labels_and_jobs_get_a_report_in_memory(runs: Path) -> None:
    sample = next(path for path in SAMPLES if path.name.startswith("cpu-bottleneck"))
    done = compare("a", "b", "c", sample, *FAST, "--quiet", cwd=runs)

    assert done.returncode == 0
    found = written(runs)
    assert found.labels == ["job-a", "job-b", "job-c", sample.name]
    assert sorted(path.name for path in runs.iterdir()) == ["a", "b", "c", "comparison"]


def test_redaction_leaves_names_out(runs: Path) -> None:
    (runs / "a" / "report.html").write_text("page")
    (runs / "acme=x").mkdir()
    (runs / "b").rename(runs / "acme=x" / "b")
    (runs / "acme.toml").write_text('[[budget]]\nmeasure = "step_s"\nmax = 10\n')
    names = ("a", runs / "acme=x" / "b", "--budget", "acme.toml", *FAST)
    assert compare(*names, cwd=runs).returncode == 0
    shown = written(runs)
    assert compare(*names, "--force", "--redact", cwd=runs).returncode == 0

    assert shown.variants[0].runs[0].page == "../a/report.html"
    assert shown.variants[0].runs[0].name == "job a"
    assert shown.command == "compare-reports a b --budget acme.toml"
    assert not re.search("job.a|report.html|acme", text_of(runs))


def test_redaction_leaves_out_labels_and_names_in_traces(runs: Path) -> None:
    for name, length in (("a", 50_000.0), ("b", 40_000.0)):
        trace = training(length=length)
        trace.operator("acme::attention", 1000, 1000 + length / 10, thread=2)
        trace.operator("aten::sort", 1000, 1000 + length / 10, thread=3)
        labels = {"project": "acme", "batch_size": "64", "acme": "1"}
        report = labeled(replace(steady(), captures=of_traces(trace).captures), labels, gpu="acme")
        (runs / name / "report.json").write_bytes(document.to_json(report))
    compared(runs)
    assert "acme::attention" in text_of(runs)
    # The name of a node is in no comparison.
    assert "algo-1" in (runs / "a" / "report.json").read_text()
    assert "algo-1" not in text_of(runs)

    found = compared(runs, "--redact")
    assert "acme" not in text_of(runs)
    assert found.profiled
    assert "aten::sort" in [row.name for row in found.profiled.work]
    assert found.variants[0].facts["batch_size"] == 64


@pytest.mark.parametrize(
    ("options", "status"),
    [
        (("step_s<=0.1",), 3),
        (("step_s<=10",), 0),
        (("warn.toml",), 0),
        (("open.toml",), 0),
        (("open.toml", "--inconclusive", "error"), 3),
        # Against the base; b takes 20% longer.
        (("step_s<=+5%",), 3),
        (("step_s<=+45%",), 0),
        (("steps_per_s>=-3%",), 3),
        # What was not measured does not pass.
        (("energy_kwh<=10",), 3),
        (("unknown.toml",), 0),
    ],
)
def test_a_broken_budget_of_level_error_gives_status_3(
    options: tuple[str, ...], status: int, runs: Path
) -> None:
    for name, limit in (
        ("warn", 'step_s"\nmax = 0.1\nlevel = "warn"'),
        ("open", 'step_s"\nmax_increase = "20%"'),
        ("unknown", 'energy_kwh"\nmax = 10\nlevel = "warn"'),
    ):
        (runs / f"{name}.toml").write_text(f'[[budget]]\nmeasure = "{limit}\n')

    done = compare("a", "b", *FAST, "--budget", *options, cwd=runs)
    assert done.returncode == status
    not_measured = "1\u00a0budget is inconclusive: energy_kwh of job-b (not measured)."
    assert (not_measured in done.stderr) is (options[0] in ("energy_kwh<=10", "unknown.toml"))


def test_a_fact_without_a_label_is_one_of_all_runs(runs: Path) -> None:
    found = compared(runs, *sets("batch_size=64", "job-b.batch_size=32"))

    assert [one.facts["batch_size"] for one in found.variants] == [64, 32]


def test_a_price_of_a_gpu_hour_is_a_price(runs: Path) -> None:
    cost = compared(runs, *sets("price_per_gpu_hour=2", "job-b.nodes=3", "job-b.gpus_per_node=4")).cost

    assert cost
    assert [row.per_hour for row in cost.rows] == [2, 8]


def test_the_prices_of_reports_are_used_unless_others_are_given(runs: Path) -> None:
    for name, machine in (("a", "p3.8xlarge"), ("b", "p3.2xlarge")):
        pricing = Pricing(prices=PUBLISHED, facts={"instance_type": machine})
        rewritten(runs, name, cost=job_cost(document.load(runs / name / "report.json"), pricing))

    cost = compared(runs).cost
    assert cost
    assert [row.per_hour for row in cost.rows] == pytest.approx([14.688, 3.825])
    assert (cost.currency, cost.source, cost.as_of) == ("USD", "published", "2021-02-01")
    text = text_of(runs)
    assert re.search(r"\$3\.825 \| \$0\.\d+ \| −6\d\.\d%", text), text
    compared(runs, "--redact")
    assert "a list of prices" in text_of(runs)
    assert "published" not in text_of(runs)
    given = compared(runs, "--set", "price_per_node_hour=7").cost
    assert given
    assert [row.per_hour for row in given.rows] == [7, 7]


def test_redaction_leaves_out_facts_that_may_name_somebody(runs: Path) -> None:
    found = compared(
        runs, "--redact", *sets("run-1.owner=acme", "site=acme", "command=acme", "batch_size=64")
    )

    assert not re.search("acme|owner|site=", text_of(runs))
    assert found.variants[0].facts["batch_size"] == 64
    assert found.command.endswith("--set batch_size=64")


def test_the_command_of_a_recording_is_a_fact(runs: Path) -> None:
    for name, lr in (("a", "0.1"), ("b", "0.01")):
        one = recording("n0", command=f"python train.py --lr {lr}")
        source = SourceQuality(source="record-job", files=1, rows=1, recordings=(one,))
        rewritten(runs, name, quality=Quality(sources=(source,)))

    fact = next(one for one in compared(runs).differences if one.key == "command")
    assert fact.kind == "different"
    assert fact.values["job-b"] == "python train.py --lr 0.01"
    compared(runs, "--redact")
    assert "train.py" not in text_of(runs)


def test_prices_and_facts_are_those_of_the_command_line(runs: Path) -> None:
    facts = sets("job-a.price_per_node_hour=2", "job-b.price_per_node_hour=1", "job-a.workers=4")
    found = compared(runs, *facts, "--per-month", "10", "--co2", "400", "--run-noise", "4%")

    assert found.cost
    hours = [row.node_hours for row in found.cost.rows]
    assert [row.cost for row in found.cost.rows] == pytest.approx([2 * hours[0], hours[1]])
    assert found.cost.monthly["job-b"] == pytest.approx(10 * (2 * hours[0] - hours[1]))
    assert any(fact.key == "workers" and fact.kind == "unknown" for fact in found.differences)
    assert found.command.endswith("--run-noise 4% --per-month 10 --co2 400")
    assert "co2" in [note.kind for note in found.notes]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "No runs given"),
        (("a",), "at least two runs"),
        (("a", "a"), "the same run"),
        (("x=a", "x=b"), "one label"),
        (("a", "nope"), "Not found: nope"),
        (("a", "c.txt"), "No readable input|is no job"),
        (("a", "bad.json"), "is not a report"),
        (("a", "turned.json"), "end of job is before its start"),
        (("a", "b", "--set", "c.nodes=2"), "no run of that label"),
        (("a", "b", "--set", "job-a.nodes=none"), "expected a number"),
        (("a", "b", "--set", "Nodes=2"), "expected LABEL.KEY=VALUE, .* or KEY=VALUE for all runs"),
        (("a", "b", "--set", "node=2"), "unknown fact node. Did you mean nodes?"),
        (("a", "b", "--prices", "p.toml", "--prices", "q.toml"), "it is given twice"),
        (("a", "b/report.html"), "report.html is a page. Name its folder, or the report.json next to it"),
        (("a", "empty"), "empty is an empty folder"),
        (("a", "pipe.json"), "pipe.json is neither a folder nor a file"),
        (("a", "comparison.json"), "comparison.json is a comparison. Name the reports that it compares"),
        (("a", "new[1]=b"), r"new\[1\] is no label: 1 to 40 letters, digits, and . _ - are"),
        (("a", "b", "--budget", "step_s<=5%"), r"a change is <=\+5%, against the base"),
        (("a", "b", "--budget", "step_s>=+5%"), "a change is >=-5%, against the base"),
        (("a", "b", "--set", "job-a.nodes=2.5"), "expected a whole number"),
        (("a", "b", "--set", "job-a.gpus=8"), "gpus follows from nodes and gpus_per_node"),
        (("a", "b", "--set", "job-a.batchsize=8"), "unknown fact batchsize. Did you mean batch_size?"),
        (("a", "b", "--set", "job-a.costs=8"), "unknown fact costs. Did you mean cost?"),
        (("a", "b", "--set", f"job-a.owner={'x' * 201}"), "--set owner: expected at most 200 characters"),
        (("a", "b", "--prices", "nope.toml"), "Cannot read nope.toml"),
        (("a", "b", "--budget", "nope<=1"), "unknown measure nope"),
        (("a", "b", "--budget", "cost=1"), "neither a file nor"),
        (("a", "b", "--min-effect", "nope=2%"), "unknown measure nope"),
        (("a", "b", "--run-noise", "much"), "expected a percentage"),
        ([f"l{i}=a" for i in range(13)], "at most 12"),
    ],
)
def test_wrong_input_is_one_sentence_and_status_2(
    arguments: tuple[str, ...], message: str, runs: Path
) -> None:
    (runs / "c.txt").write_text("no report")
    (runs / "empty").mkdir()
    os.mkfifo(runs / "pipe.json")
    (runs / "comparison.json").write_text("{}")
    (runs / "b" / "report.html").write_text("page")
    (runs / "bad.json").write_text('{"schema_version": 2}')
    report = steady()
    turned = replace(report, job=replace(report.job, start_us=report.job.end_us + 1))
    (runs / "turned.json").write_bytes(document.to_json(turned))

    done = compare(*arguments, *FAST, cwd=runs)

    assert (done.returncode, done.stdout) == (2, "")
    assert re.search(message, done.stderr), done.stderr
    assert "Traceback" not in done.stderr
    assert not (runs / "comparison").exists()


def test_a_run_against_itself_is_the_same_run(runs: Path) -> None:
    assert compare("a", "a", *FAST, "--force", "--quiet", cwd=runs).returncode == 0
    assert written(runs).labels == ["job-a", "job-a-2"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("x=a", "x=a", "y=b"), "A copy is no repeat."),
        (("x=a", "x=a", "y=b", "--force"), "A copy is no repeat."),
        (("x=a", "x=d", "y=b"), "A copy is no repeat."),
        (("x=a", "x=d", "y=b", "--force"), "A copy is no repeat."),
        (("x=a", "y=d", "y=a", "--force"), "A copy is no repeat."),
        (("x=a", "y=d"), "Compare two runs."),
        (("x=a", "y=d", "--force"), ""),
    ],
)
def test_a_copy_of_a_report_is_no_repeat(arguments: tuple[str, ...], said: str, runs: Path) -> None:
    """The same run by its content: in another folder, under another name of the job, with the names left out."""
    (runs / "a").rename(runs / "d")
    job = document.load(runs / "d" / "report.json").job
    (runs / "a").mkdir()
    (runs / "a" / "report.json").write_bytes((runs / "d" / "report.json").read_bytes())
    rewritten(runs, "d", job=replace(job, name="copy", nodes=(replace(job.nodes[0], name="x"),)))

    done = compare(*arguments, *FAST, cwd=runs)
    assert done.returncode == (2 if said else 0)
    assert said in done.stderr


def test_a_report_and_its_job_are_one_run(runs: Path) -> None:
    sample = next(path for path in SAMPLES if path.name.startswith("cpu-only"))
    make_report(sample, runs / "made", Options(formats=("json",)))

    done = compare("A=made", f"B={sample}", *FAST, cwd=runs)

    assert done.returncode == 2
    assert re.search("made and .*cpu-only.* are the same run", done.stderr)


def test_the_head_of_a_comparison_says_what_its_reports_lost(runs: Path) -> None:
    """Lines that could not be read are said; flow events, which are left out on purpose, are not."""
    remarks = (
        Remark(code="traces.not_json", count=2352, place="x.json:7"),
        Remark(code="traces.flow", count=9999),
        Remark(code="samples.no_value", count=3, fields={"key": "V"}),
    )
    source = SourceQuality(source="system samples", files=4, rows=81_234, remarks=remarks)
    damaged = Remark(code="file.damaged", count=1)
    rewritten(runs, "b", quality=Quality(sources=(source,), remarks=(damaged,)))

    said = "job-b lacks data that its recording has: 2,352 lines, not complete JSON; 1 file, compressed data is damaged."
    assert said in head(compared(runs)).html.replace("\u00a0", " ")
    assert "2,352 lines, not complete JSON" in (runs / "comparison" / "comparison.md").read_text("utf-8")


def test_files_of_others_are_never_replaced(runs: Path) -> None:
    (runs / "comparison").mkdir()
    (runs / "comparison" / "comparison.md").write_text("mine")

    done = compare("a", "b", *FAST, "--force", cwd=runs)

    assert done.returncode == 2
    assert "compare-reports did not write" in done.stderr
    assert (runs / "comparison" / "comparison.md").read_text() == "mine"


@pytest.mark.slow
def test_the_page_and_the_notebook_are_made_from_the_data_alone(runs: Path) -> None:
    done = compare("a", "b", "--strict", cwd=runs)

    folder = runs / "comparison"
    assert (done.returncode, done.stdout) == (0, f"{folder / 'comparison.html'}\n")
    page = (folder / "comparison.html").read_text("utf-8")
    assert "Its data: comparison.json." in page
    assert page.count('class="jr-figures"') == 3
    assert "default-src 'none'" in page
    cells = json.loads((folder / "comparison.ipynb").read_text())["cells"]
    assert sum(bool(cell.get("outputs")) for cell in cells) >= 12
    static = compare("a", "b", "--strict", "--static", "--force", "--quiet", "--formats", "html", cwd=runs)
    assert static.returncode == 0
    assert "<script" not in (folder / "comparison.html").read_text("utf-8")
