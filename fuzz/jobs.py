"""Damaged jobs through reading and rules, and some through the page: ``python -m fuzz.jobs --help``.

A job has one of two outcomes: a report without a failure, or the refusal of a directory that holds nothing readable.
Every sample is in use or counted as left out, and none is lost that a careful reader would have kept:
``fuzz.sample_rows_reference`` counts them.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import resource
import shutil
import sys
import tempfile
import time
import traceback
import unicodedata
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from fuzz import sample_rows_reference
from fuzz.bases import base
from fuzz.mutations import applied, steps
from jobreport import pipeline
from jobreport.errors import NothingReadableError
from jobreport.options import Options
from jobreport.readers.debugger_results.rule_results import matches_content
from jobreport.readers.listing import is_end_marker, listing
from jobreport.readers.registry import READERS
from jobreport.readers.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from fuzz.mutations import Job
    from jobreport.remarks import Quality

ALLOWED = {"report", "page", "refused"}
#: Seconds that a job may take, with its page.
_LIMIT_S = 60.0
#: Bytes of address space of a process.
_MEMORY = 8 << 30
#: Jobs of one process, so that what it keeps does not add up.
_JOBS_OF_PROCESS = 500
#: Seconds between lines of progress.
_PROGRESS_S = 10.0

#: Files of samples may be called anything that ends so.
_MAY_BE_SAMPLES = re.compile(r"^(?!.*\.pt\.trace\.json).*\.jsonl?(\.gz)?$", re.DOTALL)


class Outcome(NamedTuple):
    """What became of a job."""

    #: ``report``, ``page`` (a report with its page) or ``refused``; or in a few words what went wrong, the same for jobs with the same fault.
    what: str
    #: What went wrong, at length.
    fault: str = ""


class Found(NamedTuple):
    """The outcome of a numbered job."""

    seed: int
    outcome: Outcome


def job_of(seed: int) -> tuple[str, Job, list[int]]:
    """The name of the base, the base, and the damage to do to it."""
    name, job = base(Random(f"base {seed}"))
    return name, job, steps(seed)


def damaged(job: Job, damage: Sequence[int]) -> Job:
    """The job with all of the damage."""
    for step in damage:
        job = applied(job, step)
    return job


def outcome(job: Mapping[str, bytes], *, page: bool = False) -> Outcome:
    """Make the job's report in a folder of its own, and look at what came out."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
        job_dir, out = Path(scratch, "job"), Path(scratch, "out")
        write(job, job_dir)
        try:
            made = pipeline.make_report(job_dir, out, Options(formats=("html",) if page else ("md",)))
            json.loads((out / "report.json").read_bytes(), parse_constant=_refuse)
        except NothingReadableError as error:
            if any(unicodedata.category(one) in {"Cc", "Cf", "Cs", "Zl", "Zp"} for one in str(error)):
                return Outcome("message with control characters", repr(str(error)))
            return _miscounted(job, job_dir, None) or Outcome("refused")
        except Exception as error:  # noqa: BLE001 - any is a finding
            return Outcome(_place(error), traceback.format_exc())
        if made.failure:
            return Outcome(str(made.failure), "\n".join(map(str, made.report.quality.remarks)))
        return _miscounted(job, job_dir, made.report.quality) or Outcome("page" if page else "report")


def write(job: Mapping[str, bytes], folder: Path) -> None:
    """Write the files of a job below a folder."""
    folder.mkdir(parents=True)
    for name, content in job.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} in report.json")


def _place(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}"


def _miscounted(job: Mapping[str, bytes], job_dir: Path, quality: Quality | None) -> Outcome | None:
    """Samples that are neither in use nor counted, and samples that should be in use; without a report all are lost."""
    files = _files_of_samples(job, job_dir)
    if not files:
        return None
    rows, kept = sample_rows_reference.rows(files)
    sources = {one.source: one for one in quality.sources} if quality else {}
    source = sources.get("system samples")
    used = source.rows if source else 0
    remarks = source.remarks if source else ()
    out = sum(one.count for one in remarks if one.unit in ("lines", "samples") and one.action != "corrected")
    counts = f"{rows} rows, {kept} to keep; {used} in use, {out} left out\n" + "\n".join(map(str, remarks))
    if quality and used + out != rows:
        return Outcome("samples that are not accounted for", counts)
    if used != kept:
        return Outcome("other samples in use than a careful reader keeps", counts)
    return None


def _files_of_samples(job: Mapping[str, bytes], job_dir: Path) -> Job:
    """Those of system samples. If its name says nothing, it is one of which half of the rows or more would be kept."""
    found: Job = {}
    for file in listing(job_dir, Tally()):
        if is_end_marker(file) or matches_content(file):
            continue
        source = next((one.source for one in READERS if one.matches_name(file)), None)
        if source is None and _MAY_BE_SAMPLES.search(file.name):
            rows = sample_rows_reference.rows({file.name: job[file.name]})
            source = "system samples" if rows.rows and 2 * rows.kept >= rows.rows else None
        source = source or next((one.source for one in READERS if one.matches_content(file)), None)
        if source == "system samples":
            found[file.name] = job[file.name]
    return found


# Many jobs


def run(seeds: Sequence[int], *, pages: int, processes: int, folder: Path) -> Iterator[Found]:
    """The outcome of each job in order; so many of them get a page. Faults are written below the folder.

    A job that hangs or kills its process is the last one.
    """
    with_page = set(seeds[:: max(1, len(seeds) // pages)][:pages]) if pages else set()
    with ProcessPoolExecutor(
        processes,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=resource.setrlimit,
        initargs=(resource.RLIMIT_AS, (_MEMORY, _MEMORY)),
        max_tasks_per_child=_JOBS_OF_PROCESS,
    ) as pool:
        running = [(seed, pool.submit(_found, seed, seed in with_page, folder)) for seed in seeds]
        for seed, future in running:
            try:
                yield future.result(2 * _LIMIT_S)
            except (TimeoutError, BrokenProcessPool) as error:
                pool.shutdown(wait=False, cancel_futures=True)
                yield _written(Found(seed, Outcome("the process hangs or died", repr(error))), folder)
                return


def _found(seed: int, page: bool, folder: Path) -> Found:
    _, job, damage = job_of(seed)
    begin = time.monotonic()
    what = outcome(damaged(job, damage), page=page)
    if time.monotonic() - begin > _LIMIT_S:
        what = Outcome(f"took longer than {_LIMIT_S:g} s")
    found = Found(seed, what)
    return found if what.what in ALLOWED else _written(found, folder)


def _written(found: Found, folder: Path) -> Found:
    """The fault and its job below the folder, with as little of the damage as gives the same fault."""
    name, job, damage = job_of(found.seed)
    for step in damage:
        less = [one for one in damage if one != step]
        if outcome(damaged(job, less)).what == found.outcome.what:
            damage = less
    place = folder / str(found.seed)
    shutil.rmtree(place, ignore_errors=True)
    write(damaged(job, damage), place / "job")
    (place / "fault.txt").write_text(
        f"{found.outcome.what}\nbase: {name}; damage: {damage}\n\n{found.outcome.fault}\n", "utf-8"
    )
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 1 where anything was found."""
    parser = argparse.ArgumentParser(
        prog="python -m fuzz.jobs",
        description="Damage jobs and make their reports. Each outcome must be a report or a refusal.",
    )
    parser.add_argument("--jobs", type=int, default=10_000, help="how many (default: %(default)s)")
    parser.add_argument(
        "--pages",
        type=int,
        default=100,
        help="of them with the page, where they are not refused (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=1, help="number of the first job (default: %(default)s)")
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count(), help="at a time (default: one a core)"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("build", "fuzz"),
        help="where faults are written (default: %(default)s)",
    )
    options = parser.parse_args(argv)
    seeds = range(options.seed, options.seed + options.jobs)
    outcomes: Counter[str] = Counter()
    last_line = time.monotonic()
    for one in run(seeds, pages=options.pages, processes=options.processes, folder=options.folder):
        outcomes[one.outcome.what] += 1
        if one.outcome.what not in ALLOWED:
            print(f"job {one.seed}: {one.outcome.what}, see {options.folder / str(one.seed)}", flush=True)
        if time.monotonic() - last_line > _PROGRESS_S:
            last_line = time.monotonic()
            print(f"{outcomes.total()} of {options.jobs} jobs", flush=True)
    for what, many in outcomes.most_common():
        print(f"{many:6} {what}")
    return 0 if set(outcomes) <= ALLOWED else 1


if __name__ == "__main__":
    sys.exit(main())
