"""What a step of GitHub Actions gets: read as its runner reads it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from fuzz.hostile import NAMES, of_markdown
from jobreport import cli, document
from jobreport.comparison.budgets import limits_of
from jobreport.output import github, summary
from jobreport.output.github import Annotation, Step
from jobrules.model import Severity
from jobrules.text import escape_name
from tests.copies import replace
from tests.paths import ROOT
from tests.report.comparison.runs import compared, run, steady

SAMPLE = ROOT / "sample_data" / "late-rank-4gpu"
REPORT = document.load(ROOT / "tests" / "golden" / "late-rank-4gpu.json")
STEP = github.of_report(REPORT, "/out/report.html")


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with the files ``summary`` and ``output`` of a step."""
    for name in ("summary", "output"):
        (tmp_path / name).write_text("")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "output"))
    return tmp_path


def commands(lines: list[str]) -> list[tuple[str, dict[str, str], str]]:
    """The commands among lines of a log, as the runner finds them: name, properties, and value."""
    found, stopped = [], ""
    for line in "\n".join(lines).split("\n"):
        command = re.match(r"\s*::([^ :]+)(?: (.*?))?::(.*)", line)
        if stopped:
            stopped = "" if line == f"::{stopped}::" else stopped
        elif command and command[1] == "stop-commands":
            stopped = command[3]
        elif command:
            pairs = dict(pair.split("=", 1) for pair in (command[2] or "").split(",") if pair)
            found.append(
                (
                    command[1],
                    {key: unescaped(value) for key, value in pairs.items()},
                    unescaped(command[3]),
                )
            )
        else:
            assert "##[" not in line, line
    assert not stopped
    return found


def unescaped(text: str) -> str:
    for code, character in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(code, character)
    return text


def outputs(file: Path) -> dict[str, str]:
    """The outputs of a step, as the runner reads its file."""
    found, lines = {}, iter(file.read_bytes().decode().split("\n"))
    for line in lines:
        if line:
            name, end = line.split("<<")
            value = []
            while (line := next(lines)) != end:
                value.append(line)
            found[name] = "\n".join(value)
    return found


def test_each_finding_is_an_annotation_and_the_verdict_an_output(runner: Path) -> None:
    told = commands(github.tell(STEP, ["Training waits."]))

    assert [(kind, about["title"]) for kind, about, _ in told] == [
        ("warning", REPORT.verdict.findings[0].title),
        ("notice", REPORT.verdict.findings[1].title),
    ]
    assert (runner / "summary").read_text("utf-8") == summary.markdown(REPORT)
    assert outputs(runner / "output") == STEP.outputs
    assert STEP.outputs["worst"] == "warning"


@pytest.mark.parametrize("kind", sorted(NAMES))
def test_a_name_is_no_command(kind: str, runner: Path) -> None:
    raw, text = NAMES[kind], f"{escape_name(NAMES[kind])} of a machine"
    step = Step(
        summary=STEP.summary,
        annotations=(Annotation(kind="error", title=raw, text=raw),) * 12,
        outputs={"report": raw.encode("utf-8", "replace").decode(), "verdict": text},
    )

    lines = github.tell(step, [text, f"##[add-mask]{text}"])

    told = commands(lines)
    assert [(name, [*about]) for name, about, _ in told] == [("error", ["title"])] * github.MAX_OF_A_KIND
    "\n".join(lines).encode()
    assert outputs(runner / "output") == step.outputs


@pytest.mark.parametrize(
    ("size", "lines"),
    [(0, None), (1_000_000, None), (1_048_000, 3), (1_046_600, 10), (1_048_570, 0), (1_048_576, 0)],
)
def test_a_summary_that_does_not_fit_is_short_or_left_out(size: int, lines: int | None, runner: Path) -> None:
    before = b"x" * size
    (runner / "summary").write_bytes(before)
    text = "# Job\n\n**Verdict of the job.**\n" + f"\n{'A line of it. ' * 20}\n" * 20

    said = github.tell(replace(STEP, summary=text, annotations=()), [])

    after = (runner / "summary").read_bytes()
    added = after.removeprefix(before).decode().removeprefix("\n\n" if size else "")
    assert len(after) <= 1 << 20
    assert added == (text if lines is None else "".join(text.splitlines(keepends=True)[:lines]))
    assert bool(said) == (lines == 0)


def test_files_that_cannot_be_written_are_a_warning(runner: Path) -> None:
    for name in ("summary", "output"):
        (runner / name).unlink()
        (runner / name).mkdir()

    said = github.tell(replace(STEP, annotations=()), [])

    assert [line.partition(":")[0] for line in said] == [
        "Cannot write to GITHUB_STEP_SUMMARY",
        "Cannot write to GITHUB_OUTPUT",
    ]


def made(folder: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[object, str, str]:
    """Exit status, output, and errors of make-report."""
    with pytest.MonkeyPatch.context() as patch:
        words = ["--job-dir", str(SAMPLE), "--out", str(folder), "--formats", "json,md,github", *options]
        patch.setattr(sys, "argv", ["make-report", *words])
        with pytest.raises(SystemExit) as left:
            cli.main()
    return left.value.code, *capsys.readouterr()


def test_the_command_writes_a_file_elsewhere_and_for_a_step_none(
    runner: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, said = made(tmp_path / "step", capsys, "--quiet", "--fail-on", "warning")
    assert (status, out) == (3, f"{tmp_path / 'step' / 'summary.md'}\n")
    assert [kind for kind, _, _ in commands(said.splitlines())] == ["warning", "notice"]
    assert not (tmp_path / "step" / "github.md").exists()
    assert outputs(runner / "output")["report"] == out.strip()

    (runner / "summary").chmod(0o400)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))
    assert made(tmp_path / "step", capsys, "--force", "--fail-on", "critical")[0] == 0

    monkeypatch.delenv("GITHUB_STEP_SUMMARY")
    status, _, said = made(tmp_path / "elsewhere", capsys)
    assert (status, commands(said.splitlines())) == (0, [])
    folder = tmp_path / "elsewhere"
    assert (folder / "github.md").read_bytes() == (folder / "summary.md").read_bytes()


def test_budgets_that_are_broken_or_inconclusive_are_annotations(runner: Path) -> None:
    runs = [run("A", steady()), run("::B", steady(1.2, 2))]
    limits = limits_of(["step_s<=+5%", "gpu_use_percent>=1", "cost<=5"])
    warning = [replace(one, level="warn") for one in limits[:1]]
    comparison = compared(*runs, limits=(*limits, *warning))

    step = github.of_comparison(comparison, "comparison.html")

    assert [kind for kind, _, _ in commands(github.tell(step, ["::error::B"]))] == [
        "error",
        "warning",
        "notice",
    ]
    assert step.outputs["worst"] == "broken"
    assert of_markdown(step.summary.partition("|")[0]) == []
    assert {one.severity for one in REPORT.verdict.findings} == {Severity.WARNING, Severity.INFO}
