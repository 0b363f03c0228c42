"""Rules of a user's own."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from jobreport import cli
from jobreport.errors import UsageError
from jobreport.plugins import known_rules
from jobreport.readers.registry import read_directory, read_job
from jobreport.settings import load
from jobreport.tables.engine import LocalEngine
from jobrules import RULES, CPUBottleneck, Rule
from jobrules.model import Metric, Severity
from tests.jobs import make_job, make_panel
from tests.paths import ROOT
from tests.verdicts import verdict_of

GUIDE = (ROOT / "docs" / "adding-a-rule.md").read_text()
SHOWN, CLAIMING = re.findall(r"```python\n(.*?)```", GUIDE, flags=re.S)


@pytest.fixture
def shown(tmp_path: Path) -> Path:
    """The rule of the guide, as a file."""
    path = tmp_path / "full_memory.py"
    path.write_text(SHOWN)
    return path


def reported(rules: Path, out: Path, *options: str, job: Path = ROOT / "sample_data" / "cpu-only") -> Result:
    """What the command with rules of one's own says of a job."""
    arguments = ("--job-dir", str(job), "--rules", str(rules), "--out", str(out), "--formats", "json,md")
    return CliRunner().invoke(cli.command, [*arguments, *options], standalone_mode=False)


def test_the_rule_of_the_guide_is_found_set_and_run(shown: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ("--set", "FullMemory.limit=5", "--fail-on", "warning")

    done = reported(shown, out, *options, job=ROOT / "sample_data" / "healthy-8gpu")

    assert done.exit_code == 0, done.output
    assert done.return_value == 3
    result = json.loads((out / "rules" / "more" / "FullMemory.json").read_bytes())
    assert (result["RuleTriggered"], result["RuleParameters"]) == (1, "limit:5")
    report = json.loads((out / "report.json").read_bytes())
    assert report["rules"][-1]["checks"].startswith("The highest sample of host memory")
    assert report["verdict"]["findings"][0]["key"] == "full-memory"
    assert report["command"].endswith("--rules full_memory.py --set FullMemory.limit=5")


def test_the_guides_rule_is_listed_and_explained(shown: Path) -> None:
    listed = CliRunner().invoke(cli.command, ["--list-rules", "--rules", str(shown)])
    explained = CliRunner().invoke(cli.command, ["--explain", "fullmemory", "--rules", str(shown)])

    assert "FullMemory" in listed.output.splitlines()[-1]
    assert "limit = 90%: memory in use" in explained.output


def claiming_rule(folder: Path, module: str = "checkpoint_writes") -> type[Rule]:
    """The rule of the guide that claims lost time."""
    path = folder / f"{module}.py"
    path.write_text(CLAIMING)
    return known_rules([path]).rules[-1]


def test_the_guides_cause_claims_what_the_causes_before_it_leave(tmp_path: Path) -> None:
    low = np.tile([True, False], 500)
    disk = make_panel(Metric.DISK_WRITE, np.where(low, 2e8, 1e6), interval_s=2, prefix="disk")
    cpu = np.where(np.arange(1000)[:, None] < 400, np.where(low[:, None], [99.0] * 8, 9.0), 9.0)
    job = make_job(gpu=np.where(low, 5.0, 100.0), cpu=cpu, interval_s=2, extra=[disk])

    verdict = verdict_of(job, claiming_rule(tmp_path)(), CPUBottleneck())

    assert {finding.key: finding.share for finding in verdict.findings} == pytest.approx(
        {"checkpoint-writes": 0.3 * 0.95, "cpu-bottleneck": 0.2 * 0.95}, abs=0.002
    )
    assert verdict.findings[0].severity is Severity.CRITICAL
    assert verdict.is_cause(verdict.findings[0])
    assert verdict.explains["CheckpointWrites"] == pytest.approx(0.3 * 0.95, abs=0.002)


def test_a_cause_of_ones_own_runs_where_other_processes_lack_its_module(tmp_path: Path) -> None:
    folder = ROOT / "sample_data" / "cpu-bottleneck-2gpu"
    with LocalEngine(2) as engine:
        # Before the rule is known to any process.
        job = read_directory(folder, engine=engine).job
        rules = (claiming_rule(tmp_path, "loaded_late")(limit=0.0), CPUBottleneck())  # type: ignore[call-arg]
        verdict = verdict_of(job, *rules)
        del job

    assert verdict == verdict_of(read_job(folder)[0], *rules)
    assert verdict.explains["CheckpointWrites"] > 0


def test_without_its_samples_it_is_not_evaluated(shown: Path, tmp_path: Path) -> None:
    line = {"Type": "gpu", "Name": "gpu0", "Dimension": "GPUUtilization", "Value": 5.0, "NodeId": "algo-1"}
    (tmp_path / "1700000040.algo-1.json").write_text(json.dumps(line | {"Timestamp": 1700000041.0}))
    out = tmp_path / "out"

    done = reported(shown, out, job=tmp_path)

    assert done.exit_code == 0, done.output
    assert json.loads((out / "rules" / "more" / "FullMemory.json").read_bytes())["Status"] == "not evaluated"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import nothing_like_it", "own.py: ModuleNotFoundError"),
        ("def f(:", "own.py: SyntaxError"),
        ("from jobrules import BatchSize, Rule", "defines no rule"),
        (SHOWN.replace("class FullMemory", "class batchsize"), "there is already a rule batchsize"),
        (SHOWN.replace("What it checks", "It checks"), "needs the headings"),
        (SHOWN.replace('percent(90.0, "memory in use")', "90.0"), "FullMemory.limit needs a default from"),
        (SHOWN.replace("@dataclass(frozen=True, kw_only=True)", ""), "decorator @dataclass"),
        (re.sub(r"    title: .*", "", SHOWN), "has no title"),
    ],
)
def test_a_file_without_a_usable_rule_is_answered_with_what_is_wrong(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "own.py"
    path.write_text(text)

    with pytest.raises(UsageError) as error:
        known_rules([path])

    assert message in str(error.value)


def test_a_missing_file_and_a_wrong_suffix_are_named_as_they_were_given() -> None:
    with pytest.raises(UsageError, match=r"^Cannot read --rules nothing\.py: No such file or directory\.$"):
        known_rules([Path("nothing.py")])
    with pytest.raises(UsageError, match=r"rule\.txt"):
        known_rules([Path("rule.txt")])


def install(monkeypatch: pytest.MonkeyPatch, folder: Path, target: str) -> None:
    """Make a package findable that offers one rule."""
    package = folder / "own_package-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: own-package\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(f"[jobreport.rules]\nFullMemory = {target}\n")
    monkeypatch.syspath_prepend(folder)


def test_a_package_offers_its_rule(monkeypatch: pytest.MonkeyPatch, shown: Path) -> None:
    install(monkeypatch, shown.parent, "full_memory:FullMemory")

    known = known_rules()

    assert [rule.__name__ for rule in known.rules] == [*(rule.__name__ for rule in RULES), "FullMemory"]
    assert load(assignments=["FullMemory_limit=3"], offered=known).rules[-1].limit == 3.0  # type: ignore[attr-defined]


@pytest.mark.parametrize("target", ["not_there:FullMemory", "full_memory:Nothing", "json:loads"])
def test_a_packages_broken_rule_costs_itself_and_has_a_remark(
    monkeypatch: pytest.MonkeyPatch, shown: Path, target: str
) -> None:
    install(monkeypatch, shown.parent, target)

    known = known_rules()

    assert known.rules == RULES
    (remark,) = known.failed
    assert "the rule FullMemory of own-package (" in remark.reason


ANSWER = re.compile(r"        fullest = .*", re.DOTALL)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("return None", "TypeError: check returned NoneType, not a RuleResult"),
        ("raise SystemExit(0)", "SystemExit: 0"),
        ("return self.passed('found', details={(1, 2): 3})", "TypeError"),
        (
            "return self.passed('found', details={'n': object()})",
            "TypeError: object cannot be written as JSON",
        ),
        ("return self.triggered(self.finding('found', severity='bad'))", "ValidationError"),
        ("return self.passed(3)", "ValidationError"),
    ],
)
def test_an_answer_that_cannot_be_used_costs_its_own_card(
    shown: Path, tmp_path: Path, body: str, reason: str
) -> None:
    shown.write_text(ANSWER.sub(f"        {body}\n", SHOWN))
    out = tmp_path / "out"

    done = reported(shown, out)

    assert "written without FullMemory" in str(done.exception)
    report = json.loads((out / "report.json").read_bytes())
    cards = {card["name"]: card for card in report["rules"]}
    assert cards["FullMemory"]["status"] == "error"
    assert cards["FullMemory"]["reason"]["what"].startswith(reason)
    assert cards["OverallSystemUsage"]["status"] == "passed"


def test_numbers_of_numpy_are_as_good_as_plain_ones(shown: Path, tmp_path: Path) -> None:
    body = (
        "import numpy as np\n"
        "        return self.triggered(self.finding('found', share=np.float32(0.5), start_us=np.int64(7)),"
        " evaluated=np.int64(5), violating=np.int64(2), details={'n': np.float64(3), 'all': np.arange(3)})"
    )
    shown.write_text(ANSWER.sub(f"        {body}\n", SHOWN))
    out = tmp_path / "out"

    done = reported(shown, out)

    assert done.exit_code == 0, done.output
    result = json.loads((out / "rules" / "more" / "FullMemory.json").read_bytes())
    assert (result["Severity"], result["Details"]) == (0.4, {"n": 3.0, "all": [0, 1, 2]})


@pytest.mark.parametrize("code", ["raise SystemExit(0)", "import sys; sys.exit(3)", "open('lookup.csv')"])
def test_a_file_that_ends_the_program_or_misses_another_is_a_wrong_option(tmp_path: Path, code: str) -> None:
    path = tmp_path / "own.py"
    path.write_text(code)

    with pytest.raises(UsageError, match=r"Cannot load .*own\.py: (SystemExit|FileNotFoundError)"):
        known_rules([path])


@pytest.mark.parametrize("option", ["--select", "--ignore"])
def test_an_option_that_names_no_rule_is_refused(option: str) -> None:
    done = CliRunner().invoke(cli.command, ["--list-rules", option, ""])

    assert done.exit_code == 2
    assert "no rule is named" in done.output


def test_without_samples_a_rule_of_ones_own_and_thresholds_are_said_to_have_no_effect(
    shown: Path, tmp_path: Path
) -> None:
    job, out = tmp_path / "job", tmp_path / "out"
    job.mkdir()
    (job / "BatchSize.json").write_text(
        '{"RuleTriggered": 0, "Violations": 0, "Details": {}, "Datapoints": 5}'
    )

    done = reported(shown, out, "--set", "BatchSize.window=7", job=job)

    assert done.exit_code == 0, done.output
    report = json.loads((out / "report.json").read_bytes())
    assert report["rules"][-1]["name"] == "FullMemory"
    assert report["rules"][-1]["status"] == "not evaluated"
    assert report["rules"][-1]["reason"]["kind"] == "not recorded"
    assert json.loads((out / "rules" / "more" / "FullMemory.json").read_bytes())["Status"] == "not evaluated"
    # With those of ours that the vendor does not have.
    assert "samples (" in (out / "summary.md").read_text()
    (remark,) = report["quality"]["remarks"]
    assert remark["count"] == 1
    assert "--set" not in report["command"]
