"""The benchmark's own arithmetic and its document; nothing is timed here."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import captures, document, false_alarms
from benchmarks.jobs import JOBS, counted
from benchmarks.recording import Quantity, Recording, lateness_ms
from benchmarks.results import Facts, LeftOut, Results, Run, Session
from benchmarks.stages import STAGES
from jobreport.comparison.build import compare
from jobreport.comparison.comparing import Settings
from jobreport.readers.kineto.reader import Kineto
from jobreport.readers.listing import listing
from jobreport.readers.tally import Tally
from tests.paths import ROOT


def run(job: str, stage: str, cpu_s: float, **columns: Any) -> Run:
    empty: dict[str, Any] = {"wall_s": cpu_s, "peak_bytes": 5e8, "read_bytes": 0, "written_bytes": 0}
    return Run(job=job, stage=stage, cpu_s=cpu_s, **{**empty, **columns})


def results(
    *runs: Run, jobs: tuple[Facts, ...] = (), left_out: tuple[LeftOut, ...] = (), date: str = "2026-01-02"
) -> Results:
    session = Session(
        command="make bench",
        date=date,
        machine={"cores": "2", "memory": "8 GB", "Python": "3.11"},
        jobs=sorted({one.job for one in jobs} | {one.job for one in runs}),
    )
    return Results(
        sessions=[session],
        jobs=list(jobs),
        runs=list(runs),
        left_out=list(left_out),
    )


def recording(*quantities: Quantity, **options: Any) -> Recording:
    empty: dict[str, Any] = {"monitors": [], "machine": {"cores": "2"}, "seconds": 60, "date": "2026-01-03"}
    return Recording(command="make bench", quantities=list(quantities), **{**empty, **options})


def outcomes(found: Results) -> dict[str, str]:
    return {goal.text: goal.outcome for goal in document.goals(found)}


@pytest.mark.parametrize("power", [0.0, 1.0, 1.3])
def test_the_fitted_exponent_is_the_power_of_the_growth(power: float) -> None:
    assert document.exponent((1, 4, 12, 24), [3 * n**power for n in (1, 4, 12, 24)]) == pytest.approx(power)


@pytest.mark.parametrize(
    ("ours", "theirs", "outcome"),
    [(2.8, 2.0, "met"), (3.08, 2.0, "missed by 10.0%")],
)
def test_a_goal_is_met_up_to_its_bound(ours: float, theirs: float, outcome: str) -> None:
    found = outcomes(results(run("hours-1", "json", ours), run("hours-1", "duckdb", theirs)))

    assert found["samples → `report.json`, 1 h: CPU time over DuckDB's"] == outcome
    assert found["samples → `report.json`, 4 h: CPU time over DuckDB's"] == "not measured"


def test_pytorch_traces_that_are_measured_are_read_whole(tmp_path: Path) -> None:
    captures.make(tmp_path / "job", ranks=2, size=100_000, layers=4, gzipped=True)

    found = Kineto().read(listing(tmp_path / "job", Tally()))

    assert [one.rank for one in found.captures] == [0, 1]
    assert all(one.steps > 1 and one.memory and one.python_calls for one in found.captures)
    assert {one.code for one in found.quality.remarks} == {
        "kineto.flow",
        "kineto.naming",
        "kineto.python_call",
    }
    assert counted(JOBS["ranks-64"], tmp_path / "job").events == found.quality.rows + sum(
        one.count for one in found.quality.remarks
    )


def test_the_stored_document_is_made_of_the_stored_results() -> None:
    found = (ROOT / "docs" / "performance.md").read_text("utf-8")

    assert found == document.render(Results.load(), Recording.load()), (
        "stale: run python -m benchmarks --render --store"
    )


def test_lateness_is_that_of_the_grid_of_ticks() -> None:
    times = [100 + number * 0.1 for number in range(200)]
    times[50:55] = [time + 0.03 for time in times[50:55]]

    assert lateness_ms(times, 0.1) == pytest.approx(30)


def test_a_note_belongs_to_a_goal() -> None:
    assert document.NOTES.keys() <= outcomes(results()).keys()


def test_every_job_names_stages_that_exist() -> None:
    for job in JOBS.values():
        assert set(job.stages) <= STAGES.keys()
        assert job.reference in job.stages


def cost(program: str) -> subprocess.CompletedProcess[str]:
    """Cost of a Python program as JSON, taken in a process that may adopt its orphans."""
    taken = """
import dataclasses, json, pathlib, sys
from benchmarks.processes import FailedError, cost
try:
    print(json.dumps(dataclasses.asdict(cost([sys.executable, "-c", sys.argv[1]], pathlib.Path.cwd()))))
except FailedError as error:
    print(json.dumps([str(error), error.last_line]))
"""
    return subprocess.run(
        [sys.executable, "-c", taken, program], cwd=ROOT, check=True, capture_output=True, text=True
    )


def test_a_child_that_nobody_waits_for_is_counted_too() -> None:
    work = "import time\nheld = b'1' * 60_000_000\nwhile time.process_time() < 0.4: pass"
    leave = (
        f"import subprocess, sys, time\nsubprocess.Popen([sys.executable, '-c', {work!r}])\ntime.sleep(0.3)"
    )

    found = json.loads(cost(leave).stdout)

    assert found["cpu_s"] >= 0.4
    assert found["peak_bytes"] > 60_000_000


def test_a_process_that_fails_says_so() -> None:
    said = json.loads(cost("import sys; print('first', file=sys.stderr); sys.exit('no such job')").stdout)

    assert said == ["failed with exit status 1", "no such job"]


def test_pairs_that_are_filled_in_are_compared_like_whole_jobs() -> None:
    generator = np.random.default_rng(11)
    shapes = [false_alarms.SHAPES[name] for name in ("noisy", "other numbers of steps", "heavy tail")]
    lasts_s = [0.5 * shape(generator) for shape in shapes]
    whole, quick = (
        compare(
            [false_alarms.run_of(f"v{i}", report(one)) for i, one in enumerate(lasts_s)],
            Settings(),
            "",
        )
        for report in (false_alarms.whole_report, lambda one: false_alarms.report(false_alarms.blocks(one)))
    )

    assert whole.headline == quick.headline == "samples_per_s"
    for measure in quick.measures:
        slow = whole.measure(measure.key)
        exact = not any(measure.key.startswith(key) for key in ("cost", "duration", "gpu_hours", "winddown"))
        # Times of jobs are whole microseconds, and samples end up to a second after the steps.
        near = pytest.approx(measure.values, rel=1e-5) if exact else pytest.approx(measure.values, rel=0.15)
        assert slow.values == (near if "percent" not in measure.key else pytest.approx(measure.values, abs=1))
        assert {label: one.word for label, one in slow.against.items()} == {
            label: one.word for label, one in measure.against.items()
        }


def rows(text: str) -> dict[str, list[float]]:
    """Numbers of the rows of Markdown tables, by their first cells; without the number of pairs."""
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"
    ]
    return {
        re.sub(r", [\d,]+ pairs$", "", first): [float(cell.rstrip("%").replace("–", "0")) for cell in others]
        for first, *others in cells
        if all(re.fullmatch(r"[\d.]+%?|–", cell) for cell in others)
    }


@pytest.mark.slow
def test_the_document_has_the_tables_of_false_alarms_and_they_keep_what_it_claims() -> None:
    found = rows(false_alarms.stored())

    assert found.keys() == rows(false_alarms.tables(1, 5)).keys()
    (*one, one_worst), (*two, _), (*three, three_worst), (*mixed, _) = (
        found[name] for name in false_alarms.RUNS
    )
    # 3%, and what is left of chance: 0.5% in 1,440 pairs, 0.9% in 360 of one shape, of which there are twelve.
    assert max(*one[:3], *two, *three) <= 3 + 2 * 0.5
    assert max(one_worst, three_worst) <= 3 + 2.5 * 0.9
    assert max(mixed) <= 10
    for name in false_alarms.STALLS:
        single, _, repeated, _ = found[f"Rare long stalls, {name}, 0% between runs"]
        assert max(single, repeated) <= 5
    assert max(found["Any measure but goodput better or worse"]) <= 5
    assert max(found["Any of 11 equal variants better or worse"][:3]) <= 5
    assert found["Price 3% lower: a change of the cost without its test"] == [0, 0, 0, 0]
    # Two runs find less than one.
    assert found["20% slower: found"][1] < min(found["20% slower: found"][0], found["20% slower: found"][2])


@pytest.mark.parametrize(
    ("runs", "shape", "spread", "codes", "draws"),
    [
        ((1, 1), "steady", 3, 10, 40),
        ((3, 3), "steady", 3, 10, 20),
        ((3, 3), "0.2% of steps × 100", 0, 40, 1),
    ],
)
def test_pairs_of_equal_code_are_rarely_found_to_differ(
    runs: tuple[int, int], shape: str, spread: float, codes: int, draws: int
) -> None:
    made = [false_alarms.Code((8, i), false_alarms.SHAPES[shape], runs) for i in range(codes)]
    found = [false_alarms.differs(code.runs(spread)) for code in made for _ in range(draws)]

    assert np.mean(found) <= 0.04
    assert any(false_alarms.differs(code.runs(spread, 30)) for code in made)


def test_throughput_is_judged_as_by_the_command() -> None:
    for seed in range(6):
        code = false_alarms.Code((seed,), false_alarms.SHAPES["noisy"], [(1, 1), (3, 3), (1, 3)][seed % 3])
        runs = code.runs(3, 20)
        command = false_alarms.by_command(runs)

        assert command.headline == false_alarms.THROUGHPUT
        assert false_alarms.found_in(command) is false_alarms.differs(runs)
