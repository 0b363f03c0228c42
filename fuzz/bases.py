"""The jobs that are damaged: small cuts of the samples, of real jobs where there are any, and jobs made for it."""

from __future__ import annotations

import gzip
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from generator.events import trace_files
from generator.job import JobSpec
from generator.scenarios import SCENARIOS
from generator.smi_log import DIALECTS
from generator.writer import LogSpec, compress, logs, minute_files

from tests.paths import CORPUS, SAMPLES

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from random import Random

    from fuzz.mutations import Job

#: Of a base: files of a folder, bytes of text of a file, and of all.
_FILES, _TEXT, _ALL = 4, 60_000, 400_000
#: Two minutes.
_SHORT = {"duration_us": 130_000_000, "interval_us": 2_000_000}


@cache
def bases() -> dict[str, dict[str, Job]]:
    """All bases by kind and name. There are real ones only where their files are found."""
    made = {name: _made(name) for name in SCENARIOS}
    found = {
        "sample": {path.name: _cut(path) for path in SAMPLES},
        "made": made,
        "log": {name: _logged(name) for name, one in SCENARIOS.items() if one.logged},
        "nameless": {name: _nameless(job) for name, job in made.items()},
        "real": {path.parents[1].name: _cut(path.parents[1]) for path in CORPUS.glob("sagemaker/*/*/system")},
        "rules": {path.parent.name: _cut(path) for path in CORPUS.glob("sagemaker/*/vendor-rules")},
        "fixture": {path.name: _cut(path) for path in CORPUS.glob("sagemaker-fixtures/*/")},
        "trace": {path.name: _cut(path) for path in CORPUS.glob("kineto/*/")},
    }
    return {kind: dict(sorted(jobs.items())) for kind, jobs in found.items() if jobs}


def base(random: Random) -> tuple[str, Job]:
    """One of them, each kind as often as the others."""
    kind, jobs = random.choice(list(bases().items()))
    name = random.choice(list(jobs))
    return f"{kind} {name}", jobs[name]


def _cut(directory: Path) -> Job:
    """The first files of each folder, and the first lines of each file."""
    job: Job = {}
    folders: dict[Path, int] = {}
    left = _ALL
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        number = folders[path.parent] = folders.get(path.parent, 0) + 1
        content = path.read_bytes()
        is_packed = content.startswith(b"\x1f\x8b")
        text = gzip.decompress(content) if is_packed else content
        if number > (12 if path.parent.name == "vendor-rules" else _FILES):
            continue
        if len(text) > _TEXT:
            text = text[: text.rfind(b"\n", 0, _TEXT) + 1]
        left -= len(text)
        if text and left >= 0:
            job[path.relative_to(directory).as_posix()] = compress(text) if is_packed else text
    return job


def _made(name: str) -> Job:
    """Two minutes of a scenario on a small machine, or on two."""
    scenario = SCENARIOS[name]
    steps = scenario.steps
    if steps:
        steps = replace(steps, horovod_of=range(13, 20) if name == "horovod" else range(0))
    spec = JobSpec.of(scenario, steps=steps, gpus=min(2, scenario.gpus), cores=2, **_SHORT)
    system = ((f"system/incremental/{path}", text) for path, text in minute_files(spec))
    traces = ((f"framework/pevents/{path}", text) for path, text in trace_files(spec))
    return _files(system) | _files(traces) | {"system/training_job_end.ts": b""}


def _logged(name: str) -> Job:
    """Two minutes of a scenario as logs of nvidia-smi in one of its dialects, next to samples or alone."""
    number = list(SCENARIOS).index(name)
    dialect = list(DIALECTS.values())[number % len(DIALECTS)]
    spec = JobSpec.of(SCENARIOS[name], steps=None, nodes=1 + number % 2, gpus=2, cores=2, **_SHORT)
    found = dict(logs(spec, LogSpec(dialect=dialect, each_gpu=number % 3 == 0)))
    if number % 3 == 1:
        found |= _files((f"system/incremental/{path}", text) for path, text in minute_files(spec))
    return found


def _nameless(job: Job) -> Job:
    """The same in files of which only the first rows show what they hold."""
    renamed: Job = {}
    for name, content in job.items():
        own = name.rpartition("/")[2].replace("_pythontimeline", "_mine")
        renamed[f"samples-{len(renamed)}.json" if "/incremental/" in name else own] = content
    return renamed


def _files(found: Iterable[tuple[str, str]]) -> Job:
    return {path: text.encode() for path, text in found}
