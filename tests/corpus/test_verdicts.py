"""What the first line says about each real job, in a table that is read as a diff: verdicts.md.

The last column is written by hand: what the raw files say. ``--accept-golden`` rewrites the others.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from jobreport import pipeline
from jobreport.errors import NothingReadableError
from jobreport.options import Options
from jobreport.output.summary import terminal
from jobrules.model import in_words
from tests.paths import CORPUS, needs_corpus

pytestmark = [needs_corpus, pytest.mark.slow]

TABLE = Path(__file__).parent / "verdicts.md"
HEAD = """# What the report says first about real jobs

One row a job of the corpus, by its folder: the verdict, the evidence of the main finding, and what the raw files say.
`tests/corpus/test_verdicts.py` makes the first three columns; the last is written by hand.

| job | verdict | evidence | raw files |
|---|---|---|---|
"""


def _jobs() -> list[Path]:
    jobs = sorted((CORPUS / "sagemaker").glob("job-*"))
    traces = sorted(path for path in (CORPUS / "kineto").iterdir() if path.is_dir())
    return [*jobs, CORPUS / "nvidia-smi", *traces]


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _row(job: Path, tmp_path: Path, by_hand: str) -> str:
    try:
        report = pipeline.make_report(job, tmp_path / job.name, Options(formats=["json"], force=True)).report
    except NothingReadableError as error:
        why = str(error).replace(f"{job.parent}/", "").split(": ")
        verdict, evidence = f"refused: {': '.join(why[:2])}", ""
    else:
        lines = terminal(report)
        verdict = " / ".join(line for line in lines if not line.startswith("Not checked"))
        main = report.verdict.main_finding
        evidence = in_words(main.evidence) if main else ""
    return f"| {job.name} | {_cell(verdict)} | {_cell(evidence)} | {by_hand} |"


def test_the_verdicts_are_those_of_the_table(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    known = TABLE.read_text("utf-8") if TABLE.exists() else ""
    by_hand = {}
    for line in known.splitlines():
        cells = line.replace("\\|", "\0").split("|")
        if len(cells) == 6:
            by_hand[cells[1].strip()] = cells[4].strip().replace("\0", "\\|")
    made = HEAD + "".join(f"{_row(job, tmp_path, by_hand.get(job.name, ''))}\n" for job in _jobs())
    if request.config.getoption("--accept-golden"):
        TABLE.write_text(made, "utf-8")
        known = made

    changed = [line for line in made.splitlines() if line not in known.splitlines()]
    assert not changed, "\n".join(
        [*changed, "accept them with: pytest tests/corpus/test_verdicts.py --accept-golden"]
    )
