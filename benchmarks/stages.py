"""What is run on a job: ``make-report`` in its forms, and its peers."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.logs import HOSTILE
from benchmarks.processes import FailedError, cost
from benchmarks.results import Run

if TYPE_CHECKING:
    from collections.abc import Iterator

LOGS = str(Path(__file__).with_name("logs.py"))
PEERS = str(Path(__file__).with_name("peers.py"))
#: An environment of its own: its versions of other libraries are not ours.
HTA = Path(__file__).parents[1] / ".venv" / "hta"
REPORT = (sys.executable, "-m", "jobreport.cli")
#: Seconds for a scheduler and its workers to find each other.
PATIENCE_S = 60


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A command; ``JOB`` at the beginning of a word stands for the job directory."""

    title: str
    command: tuple[str, ...]
    #: Run first, and not measured.
    before: tuple[str, ...] = ()
    #: A library that it needs.
    needs: str = ""
    #: Dask workers that it is given.
    workers: int = 0


def _report(title: str, *options: str, workers: int = 0, job: str = "JOB") -> Stage:
    command = (*REPORT, "--job-dir", job, "--out", "report", "--quiet", *options)
    return Stage(title=title, command=command, needs="distributed" if workers else "", workers=workers)


def _peer(title: str, *arguments: str, needs: str = "") -> Stage:
    return Stage(title=title, command=(sys.executable, PEERS, *arguments), needs=needs)


STAGES = {
    "cat": Stage(
        title="cat all files to nowhere",
        command=("find", "JOB", "-type", "f", "-exec", "cat", "{}", "+"),
    ),
    "duckdb": _peer("DuckDB, bare aggregate", "duckdb", "JOB"),
    "polars": _peer("polars, bare aggregate of the samples", "polars", "JOB", needs="polars"),
    "pandas": _peer("pandas, read_csv and to_datetime", "pandas", "JOB", needs="pandas"),
    "hta": Stage(
        title="HolisticTraceAnalysis, load and temporal breakdown",
        command=(str(HTA / "bin" / "python"), PEERS, "hta", "JOB"),
        needs="HolisticTraceAnalysis",
    ),
    "json-load": _peer("Python's json.load", "json_load", "JOB"),
    "panels": Stage(title="GPU log → panels", command=(sys.executable, str(LOGS), "read", "JOB")),
    **{
        kind: _report(
            f"make-report, {title}",
            "--formats",
            "json",
            job={"tar-archive": "JOB/tar-archive/job.tgz", "zip-archive": "JOB/zip-archive/job.zip"}.get(
                kind, f"JOB/{kind}"
            ),
        )
        for kind, title in HOSTILE.items()
    },
    "papermill": _peer("papermill, a kernel that imports Bokeh and pandas", "papermill"),
    "notebook": _peer("the same, and one nbconvert export", "notebook"),
    "help": Stage(title="make-report --help", command=(*REPORT, "--help")),
    "json": _report("make-report, report.json only", "--formats", "json"),
    "all": _report("make-report, all four files"),
    "static": _report("make-report --static, all four files", "--static"),
    "compare": Stage(
        title="compare-reports of two of its reports, all four files",
        command=(
            *(sys.executable, "-m", "jobreport.compare_cli", "a=made", "b=made"),
            *("--force", "--quiet", "--out", "report"),
        ),
        before=(*REPORT, "--job-dir", "JOB", "--out", "made", "--formats", "json", "--quiet"),
    ),
    "dask-1": _report("make-report --dask, one worker; the client alone", "--formats", "json", workers=1),
    "dask-2": _report("make-report --dask, two workers; the client alone", "--formats", "json", workers=2),
}


def missing(name: str) -> str:
    """Why a stage cannot be run here, or nothing."""
    stage = STAGES[name]
    if name == "hta":
        found = any(HTA.glob("lib/*/site-packages/hta"))
    else:
        found = not stage.needs or importlib.util.find_spec(stage.needs) is not None
    return "" if found else f"{stage.needs} is not installed"


def run(job: str, name: str, directory: Path, scratch: Path) -> Run:
    """Run a stage on a job directory, in an empty folder; raises ``FailedError``."""
    stage = STAGES[name]
    before, command = (
        [str(directory) + word[3:] if word.partition("/")[0] == "JOB" else word for word in words]
        for words in (stage.before, stage.command)
    )
    if before:
        cost(before, scratch)
    if stage.workers:
        with _cluster(stage.workers, scratch) as address:
            spent = cost([*command, "--dask", address], scratch)
    else:
        spent = cost(command, scratch)
    files = {path.name: path.stat().st_size for path in (scratch / "report").glob("*") if path.is_file()}
    return Run(job=job, stage=name, files=files, **dataclasses.asdict(spent))


@contextlib.contextmanager
def _cluster(workers: int, scratch: Path) -> Iterator[str]:
    """A Dask scheduler on this machine and its workers of one thread, running before anything is measured.

    Their CPU time and memory are no part of the costs: only the wall time of these stages is compared.
    """
    found = scratch / "scheduler.json"
    dask = (sys.executable, "-m", "dask")
    with contextlib.ExitStack() as stack:

        def start(*arguments: str) -> None:
            process = subprocess.Popen(
                [*dask, *arguments, "--host", "127.0.0.1", "--no-dashboard"],
                cwd=scratch,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)

        start("scheduler", "--port", "0", "--scheduler-file", str(found))
        for _ in range(workers):
            start("worker", "--nthreads", "1", "--scheduler-file", str(found))
        deadline = time.monotonic() + PATIENCE_S
        address = ""
        while not address:
            if time.monotonic() > deadline:
                raise FailedError("the Dask scheduler did not start")
            # It may be there and not be written to its end.
            with contextlib.suppress(OSError, ValueError):
                address = str(json.loads(found.read_text("utf-8"))["address"])
            time.sleep(0.1)
        wait = (
            f"import distributed; distributed.Client({address!r}).wait_for_workers({workers}, {PATIENCE_S})"
        )
        if subprocess.run([sys.executable, "-c", wait], check=False).returncode:
            raise FailedError("the Dask workers did not start")
        yield address
