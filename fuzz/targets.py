"""Each reader against inputs that atheris finds: ``python -m fuzz.targets NAME --seconds N``, or ``--all``.

Prints how often each check of ``fuzz.checks`` was called and what it found. The status is 1 where anything was. Where
atheris is not installed, numbered damage is done to the seeds instead, and that is said.
"""

from __future__ import annotations

import argparse
import faulthandler
import hashlib
import itertools
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, NoReturn

try:
    import atheris
except ImportError:
    atheris = None

#: MiB of memory.
_MEMORY_MB = 4096
#: What libFuzzer writes: at its end, and now and then.
_DONE = re.compile(r"^Done ([0-9]+) runs in ([0-9]+) second", re.MULTILINE)
_SO_FAR = re.compile(r"^#([0-9]+)", re.MULTILINE)
_FOUND = re.compile(r"=+ Uncaught Python exception: =+\n(.*)", re.DOTALL)
#: Where an input is kept while it is checked without atheris.
_RUNNING = "{}-running"


class Outcome(NamedTuple):
    """What became of a target."""

    name: str
    executions: int
    #: Nothing, or what was found, at length.
    finding: str


def main() -> int:
    """Fuzz the targets that are asked for."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.targets", description="Fuzz the readers.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="the targets; --all for all")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--seconds", type=int, default=60, help="for each target (default 60)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="targets at a time")
    parser.add_argument("--out", type=Path, default=Path("reports/fuzz"), help="folder for what is found")
    parser.add_argument("--in-this-process", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--inputs", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.in_this_process:
        _fuzz(given.names[0], given.inputs, seconds=given.seconds, seed=given.seed, out=given.out)
    from fuzz.checks import TARGETS  # noqa: PLC0415 - the process that fuzzes instruments it first

    names = list(TARGETS) if given.all else given.names
    if not names or (unknown := [name for name in names if name not in TARGETS]):
        parser.error(
            f"name some of {', '.join(TARGETS)}" + (f", not {unknown[0]}" if names else ", or --all")
        )
    given.out.mkdir(parents=True, exist_ok=True)
    if atheris is None:
        print(
            "atheris is not installed: seeds with numbered damage instead of inputs that it finds", flush=True
        )
    findings = 0
    with ThreadPoolExecutor(given.processes) as pool:
        for one in pool.map(lambda name: _outcome(name, given.seconds, given.seed, given.out), names):
            result = f"a finding, see {given.out}:\n{one.finding}" if one.finding else "nothing found"
            print(f"{one.name}: {one.executions:,} executions in {given.seconds} s, {result}", flush=True)
            findings += bool(one.finding)
    return 1 if findings else 0


def _outcome(name: str, seconds: int, seed: int, out: Path) -> Outcome:
    """Fuzz in a process of its own, which ends at the first finding."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        command = [sys.executable, "-m", "fuzz.targets", name, "--in-this-process", f"--seconds={seconds}"]
        command += [f"--seed={seed}", f"--out={out}", f"--inputs={folder}"]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    log = done.stderr
    end = _DONE.search(log)
    executions = int(end[1]) if end else max((int(number) for number in _SO_FAR.findall(log)), default=0)
    if not done.returncode:
        return Outcome(name, executions, "")
    running = out / _RUNNING.format(name)
    if running.exists():
        running.rename(out / f"{name}-crash-{hashlib.sha256(running.read_bytes()).hexdigest()[:16]}")
    found = _FOUND.search(log + done.stdout)
    return Outcome(name, executions, found[1] if found else (log + done.stdout)[-3000:])


def _fuzz(name: str, folder: Path, *, seconds: int, seed: int, out: Path) -> None:
    """Fuzz one target in this process, and end it."""
    if atheris is None:
        _damage(name, seconds=seconds, seed=seed, out=out)
    with atheris.instrument_imports(include=["jobreport", "jobrules"]):
        from fuzz import checks  # noqa: PLC0415 - instrumented
    from fuzz.mutations import applied  # noqa: PLC0415 - not instrumented, and behind what is

    for number, data in enumerate(checks.inputs(name)):
        (folder / f"seed{number}").write_bytes(data)

    def mutate(data: bytes, longest: int, number: int) -> bytes:
        """As often damage to lines and values as to bytes."""
        if number % 2:
            return bytes(atheris.Mutate(data, longest))
        return next(iter(applied({"file": data}, number).values()), b"")[:longest]

    atheris.Setup(
        [
            name,
            f"-max_total_time={seconds}",
            f"-max_len={checks.LONGEST}",
            f"-seed={seed}",
            f"-timeout={checks.TIMEOUT_S}",
            f"-rss_limit_mb={_MEMORY_MB}",
            f"-artifact_prefix={out}/{name}-",
            str(folder),
        ],
        lambda data: checks.check(name, data),
        custom_mutator=mutate,
    )
    atheris.Fuzz()


def _damage(name: str, *, seconds: int, seed: int, out: Path) -> NoReturn:
    """Check seeds with damage, and end this process as libFuzzer does."""
    from fuzz import checks  # noqa: PLC0415 - as where they are instrumented

    begin, runs = time.monotonic(), 0
    # Before each check, because after some there is no more of this process.
    running = out / _RUNNING.format(name)
    for data in checks.damaged(name, itertools.count(seed << 32)):
        runs += 1
        if runs.bit_count() == 1:
            print(f"#{runs}", file=sys.stderr)
        running.write_bytes(data)
        faulthandler.dump_traceback_later(checks.TIMEOUT_S, exit=True)
        checks.check(name, data)
        faulthandler.cancel_dump_traceback_later()
        if time.monotonic() - begin > seconds:
            break
    running.unlink()
    print(f"Done {runs} runs in {seconds} second(s)", file=sys.stderr)
    sys.exit(0)


if __name__ == "__main__":
    sys.exit(main())
