"""Measure ``make-report`` beside its peers: ``python -m benchmarks --help``."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import document
from benchmarks.jobs import JOBS, Job, made
from benchmarks.machine import machine
from benchmarks.processes import FailedError
from benchmarks.recording import Recording
from benchmarks.results import STORED, LeftOut, Results, Run, Session
from benchmarks.stages import STAGES, missing, run

ROOT = Path(__file__).parents[1]
RUNS = 5
LIBRARIES = ("bokeh", "duckdb", "jobreport", "msgspec", "nbconvert", "numpy", "papermill", "polars")


def parser() -> argparse.ArgumentParser:
    """Describe the options."""
    jobs = "\n".join(
        f"  {job.name:9} {job.title}: {job.gigabytes:g} GB, {job.minutes:g} min" for job in JOBS.values()
    )
    made = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Run make-report and its peers on jobs made for it, as whole processes, and print what they cost.",
        epilog=f"jobs, with about what each takes of the disk and of a machine of two cores:\n{jobs}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "--only", action="append", choices=JOBS, metavar="NAME", help="only this job; may be repeated"
    )
    made.add_argument("--quick", action="store_true", help="leave the large jobs out")
    made.add_argument(
        "--runs", type=int, default=RUNS, help=f"runs of each stage; large jobs: one (default {RUNS})"
    )
    made.add_argument(
        "--folder",
        type=Path,
        default=ROOT / "build" / "bench",
        help="where the jobs are made and kept between runs (default build/bench)",
    )
    made.add_argument(
        "--store",
        action="store_true",
        help="write benchmarks/results.json, where other jobs keep their rows, and docs/performance.md",
    )
    made.add_argument("--render", action="store_true", help="print the stored results again; measure nothing")
    return made


def main() -> None:
    """Make the jobs, run every stage in turn, print the document."""
    options = parser().parse_args()
    if options.render:
        results = Results.load()
    else:
        jobs = [job for job in JOBS.values() if job.name in (options.only or JOBS)]
        jobs = [job for job in jobs if not (options.quick and job.large)]
        if not jobs:
            parser().error("--quick leaves out the jobs that --only names")
        results = measured(jobs, options.folder.resolve(), options.runs, _command(options))
        if options.store:
            results = results.with_older(Results.load(), list(JOBS))
    text = document.render(results, Recording.load())
    if options.store:
        STORED.write_bytes(results.to_json())
        document.PAGE.write_text(text, "utf-8")
    print(text)


def measured(jobs: list[Job], folder: Path, runs: int, command: str) -> Results:
    """Run the stages of all jobs, the kinds in turn so that a busy moment does not fall on one of them."""
    # Libraries that pip installed have their byte code; a checkout has it from the second run on, if it may.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    folder.mkdir(parents=True, exist_ok=True)
    facts = [made(job, folder) for job in jobs]
    # Its load is that of others.
    at_start = machine(LIBRARIES)
    left_out = {stage: why for stage in STAGES if (why := missing(stage))}
    taken: list[Run] = []
    failed: dict[tuple[str, str], str] = {}
    for turn in range(runs):
        for job in jobs:
            for stage in job.stages if turn == 0 or not job.large else ():
                if stage in left_out or (job.name, stage) in failed:
                    continue
                tell(f"{job.name}, {STAGES[stage].title}, run {turn + 1}")
                try:
                    # Beside the jobs, so that what is written lands on the disk that is read.
                    with tempfile.TemporaryDirectory(prefix="run-", dir=folder) as scratch:
                        taken.append(run(job.name, stage, folder / job.name, Path(scratch)))
                except FailedError as error:
                    tell(f"  {error}: {error.last_line}")
                    failed[job.name, stage] = str(error)
                else:
                    tell(f"  CPU {taken[-1].cpu_s:.2f} s, wall {taken[-1].wall_s:.2f} s")
    here = Session(
        command=command,
        date=datetime.now(UTC).date().isoformat(),
        machine=at_start,
        jobs=[job.name for job in jobs],
    )
    return Results(
        sessions=[here],
        jobs=facts,
        runs=taken,
        left_out=[
            LeftOut(job=job.name, stage=stage, reason=reason)
            for job in jobs
            for stage in job.stages
            if (reason := left_out.get(stage) or failed.get((job.name, stage)))
        ],
    )


def _command(options: argparse.Namespace) -> str:
    if not (options.only or options.quick) and options.runs == RUNS:
        return "make bench"
    only = "".join(f" --only {name}" for name in options.only or ())
    store = " --store" * options.store
    return f"python -m benchmarks{' --quick' * options.quick}{only} --runs {options.runs}{store}"


def tell(line: str) -> None:
    """Progress goes to standard error."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
