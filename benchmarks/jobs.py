"""The jobs that are measured, made once with ``sample_data/generate.py`` and kept."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.logs import HOSTILE
from benchmarks.results import Facts

GENERATOR = Path(__file__).parents[1] / "sample_data" / "generate.py"
LOGS, CAPTURES = Path(__file__).with_name("logs.py"), Path(__file__).with_name("captures.py")
HOURS = (1, 4, 12, 24)
#: Bytes of a file that are counted at a time: at their borders few events are missed.
_PIECE = 1 << 24


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job and what is run on it."""

    name: str
    title: str
    #: Of the program that makes it.
    options: str
    #: Names in ``stages.STAGES``, the first one reads the files into the cache.
    stages: tuple[str, ...]
    #: The stage that the others are compared with.
    reference: str
    #: About what it takes of the disk, and of the time on two cores with the making, for ``--help``.
    gigabytes: float
    minutes: float
    #: Run once, and not with ``--quick``.
    large: bool = False
    #: Makes it.
    program: Path = GENERATOR


def _hours(hours: int) -> Job:
    return Job(
        name=f"hours-{hours}",
        title=f"{hours} h × 8 GPUs × 32 cores at 500 ms",
        options=f"--gpus 8 --cores 32 --duration {hours}h --no-steps",
        stages=("cat", "duckdb", "polars", "json"),
        reference="duckdb",
        gigabytes=round(0.075 * hours, 1),
        minutes=round(0.12 * hours, 1),
    )


JOBS = {
    job.name: job
    for job in (
        Job(
            name="minutes",
            title="30 min × 1 GPU at 500 ms, with steps",
            options="--gpus 1 --cores 8 --duration 30m",
            stages=("cat", "help", "papermill", "notebook", "json", "all", "static", "compare"),
            reference="notebook",
            gigabytes=0.01,
            minutes=2,
        ),
        *map(_hours, HOURS),
        Job(
            name="traces",
            title="5 million trace events of 8 GPUs, a sample a minute",
            options="--gpus 8 --cores 32 --duration 29h --interval 60000",
            stages=("cat", "duckdb", "json"),
            reference="duckdb",
            gigabytes=0.6,
            minutes=2,
        ),
        Job(
            name="log",
            title="GPU log: 2 GB, 8 GPUs at 1 s",
            options="make honest",
            stages=("cat", "pandas", "panels", "json"),
            reference="pandas",
            gigabytes=2,
            minutes=15,
            program=LOGS,
        ),
        Job(
            name="hostile",
            title="GPU logs that are made to hurt",
            options="make hostile",
            stages=tuple(HOSTILE),
            reference="sparse",
            gigabytes=2,
            minutes=5,
            program=LOGS,
        ),
        Job(
            name="capture-200",
            title="PyTorch trace of 200 MB",
            options="--megabytes 200",
            stages=("cat", "hta", "json-load", "json"),
            reference="hta",
            gigabytes=0.2,
            minutes=3,
            program=CAPTURES,
        ),
        Job(
            name="capture-2000",
            title="PyTorch trace of 2 GB",
            options="--megabytes 2000",
            # HolisticTraceAnalysis takes 12 GB of memory for it.
            stages=("cat", "json-load", "json"),
            reference="json-load",
            gigabytes=2,
            minutes=8,
            large=True,
            program=CAPTURES,
        ),
        Job(
            name="ranks-64",
            title="PyTorch traces of 64 ranks, 50 MB each, as .gz",
            options="--ranks 64 --megabytes 50 --gzip",
            stages=("cat", "json", "all"),
            reference="json",
            gigabytes=0.2,
            minutes=5,
            large=True,
            program=CAPTURES,
        ),
        Job(
            name="ranks-1024",
            title="PyTorch traces of 1,024 ranks, 2 MB each, as .gz",
            options="--ranks 1024 --megabytes 2 --layers 40 --gzip",
            stages=("cat", "json", "all", "static"),
            reference="json",
            gigabytes=0.2,
            minutes=5,
            large=True,
            program=CAPTURES,
        ),
        Job(
            name="nodes-16",
            title="16 nodes × 8 GPUs × 24 h at 1 s, with steps",
            options="--nodes 16 --gpus 8 --cores 32 --duration 24h --interval 1000",
            stages=("cat", "duckdb", "polars", "json", "all", "static", "compare", "dask-1", "dask-2"),
            reference="duckdb",
            gigabytes=25,
            minutes=40,
            large=True,
        ),
    )
}


def generator(job: Job) -> str:
    """A digest of the program that makes a job."""
    programs = [] if job.program == LOGS else sorted(GENERATOR.parent.rglob("*.py"))
    digest = hashlib.sha256()
    for path in programs if job.program == GENERATOR else [*programs, job.program]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def made(job: Job, folder: Path) -> Facts:
    """What the job holds; it is made where the folder does not have it yet.

    ``<name>.json`` beside the job says that it is complete, what made it and what it holds.
    """
    complete = folder / f"{job.name}.json"
    if complete.exists():
        facts = msgspec.json.decode(complete.read_bytes(), type=Facts)
        if (facts.options, facts.generator) == (job.options, generator(job)):
            return facts
        complete.unlink()
        shutil.rmtree(folder / job.name)
    free = shutil.disk_usage(folder).free
    if free < 1.1e9 * job.gigabytes:
        sys.exit(f"{job.name} takes about {job.gigabytes:g} GB and {folder} has {free / 1e9:.1f} GB left.")
    part = folder / f"{job.name}.part"
    shutil.rmtree(part, ignore_errors=True)
    subprocess.run(
        [sys.executable, str(job.program), *job.options.split(), "--out", str(part)],
        env=os.environ | {"PYTHONPATH": str(GENERATOR.parent)},
        check=True,
    )
    part.rename(folder / job.name)
    facts = counted(job, folder / job.name)
    complete.write_bytes(msgspec.json.encode(facts))
    return facts


def counted(job: Job, directory: Path) -> Facts:
    """What the files of a job hold."""
    files = samples = sample_bytes = events = trace_bytes = 0
    logs = [*directory.rglob("*.csv*")]
    captures = [*directory.glob("*.pt.trace.json*")]
    for path in {*directory.rglob("*.json")} - {*captures}:
        content = path.read_bytes()
        files += 1
        if path.is_relative_to(directory / "framework"):
            trace_bytes += len(content)
            events += content.count(b'"ph": "X"')
        else:
            sample_bytes += len(content)
            samples += content.count(b"\n")
    for path in captures:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as text:
            while piece := text.read(_PIECE):
                trace_bytes += len(piece)
                events += piece.count(b'"ph": "')
    return Facts(
        job=job.name,
        options=job.options,
        generator=generator(job),
        files=files + len(logs) + len(captures),
        samples=samples,
        sample_bytes=sample_bytes,
        events=events,
        trace_bytes=trace_bytes,
        log_bytes=sum(path.stat().st_size for path in logs) if job.name == "log" else 0,
    )
