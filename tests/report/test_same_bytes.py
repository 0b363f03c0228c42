"""The same job gives the same bytes: on another day, in another place, to another user, in another order."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.report.readers.samples import write
from tests.report.redaction.test_pseudonyms import files, read_all

#: Read by every Python that is started, the notebook's kernel too: another day, another number of cores, and
#: directories whose entries come in another order.
SITE = """
import datetime, os, random, time

open(os.path.join(os.environ["HOME"], "seen"), "a").write("x")
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
os.cpu_count = lambda: 7
now, seconds = time.time, 86400 * 500.3
time.time = lambda: now() + seconds
time.localtime = lambda at=None, true=time.localtime: true(time.time() if at is None else at)

class datetime_(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return super().now(tz) + datetime.timedelta(seconds=seconds)

    @classmethod
    def utcnow(cls):
        return cls.now(datetime.timezone.utc).replace(tzinfo=None)

datetime.datetime = datetime_
chance = random.Random(SEED)
scandir, listdir = os.scandir, os.listdir

class Shuffled:
    def __init__(self, path="."):
        with scandir(path) as entries:
            found = list(entries)
        chance.shuffle(found)
        self.entries = iter(found)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __iter__(self):
        return self.entries

    def __next__(self):
        return next(self.entries)

    def close(self):
        pass

os.scandir = Shuffled
os.listdir = lambda path=".": chance.sample(found := listdir(path), len(found))
"""


def begin(folder: Path, seed: int, *options: str, **surroundings: str) -> subprocess.Popen[str]:
    """Start the command in a folder, on a copy of the job whose files were made in the order of the seed."""
    made = list(files().items())
    random.Random(seed).shuffle(made)
    job = folder / "somewhere" / "resnet"
    write(job, dict(made))
    for path in job.rglob("*"):
        os.utime(path, (1e9 + seed, 1.1e9 + seed))
    paths = sys.path
    if seed:
        (folder / "site").mkdir()
        (folder / "site" / "sitecustomize.py").write_text(SITE.replace("SEED", str(seed)))
        paths = [str(folder / "site"), *sys.path]
    (folder / "home").mkdir()
    name = f"user{seed}"
    user = {"HOME": str(folder / "home"), "USER": name, "LOGNAME": name, "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.Popen(
        [sys.executable, *options, "-m", "jobreport.cli", "--job-dir", "somewhere/resnet", "--out", "out"],
        cwd=folder,
        env=os.environ | user | {"PYTHONHASHSEED": str(seed)} | surroundings,
        umask=0o077 if seed else 0o022,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has no such surroundings")
def test_day_place_user_and_order_change_no_byte(tmp_path: Path) -> None:
    here, elsewhere = folders = tmp_path / "here", tmp_path / "o/ver the/sea ü"
    for folder in folders:
        folder.mkdir(parents=True)
    far = {"TZ": "Asia/Kathmandu", "LC_ALL": "de_DE.UTF-8", "LANG": "tr_TR.UTF-8", "COLUMNS": "300"}
    runs = [
        begin(here, 0, TZ="UTC", LC_ALL="C", COLUMNS="80"),
        begin(elsewhere, 1, "-O", **far, TMPDIR=str(elsewhere)),
    ]

    for run in runs:
        _, errors = run.communicate(timeout=600)
        assert run.returncode == 0, errors

    # The command and the notebook's kernel.
    assert (elsewhere / "home" / "seen").read_text() >= "xx"
    first, other = [read_all(folder / "out") for folder in folders]
    assert {
        "report.html",
        "report.ipynb",
        "report.json",
        "summary.md",
        "rules/CPUBottleneck.json",
    } <= first.keys()
    assert other.keys() == first.keys()
    assert [name for name, content in other.items() if content != first[name]] == []
