"""Kill ``make-report`` at random moments, and check the files it leaves: ``python -m fuzz.kills --help``."""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
JOB = ROOT / "sample_data" / "cpu-bottleneck-2gpu"
#: Two runs with reports that differ in these files.
DIFFERENT = ("report.html", "report.ipynb", "report.json")
OPTIONS = ("LowGPUUtilization.threshold_p95=60", "LowGPUUtilization.threshold_p95=61")
#: A run is killed at most this many of its usual durations after its start.
MAX_DURATIONS = 1.3
#: Seconds in which a kernel notices that the process that started it has ended.
GRACE_S = 5.0


def start(out: Path, scratch: Path, option: str) -> subprocess.Popen[bytes]:
    """A run that replaces the report, in a session of its own."""
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "jobreport.cli",
            "--job-dir",
            str(JOB),
            "--out",
            str(out),
            "--force",
            "--quiet",
            "--set",
            option,
        ],
        env={**os.environ, "TMPDIR": str(scratch)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def files(out: Path) -> dict[str, bytes]:
    """Files in a folder, without those that were not yet in their places."""
    return {
        str(path.relative_to(out)): path.read_bytes()
        for path in out.rglob("*")
        if path.is_file() and path.suffix != ".part"
    }


def outcome(left: dict[str, bytes], old: dict[str, bytes], new: dict[str, bytes]) -> str:
    """State of the folder after a kill; "mixture" is a fault."""
    if "report.html" not in left and (left.items() <= old.items() or left.items() <= new.items()):
        return "no page"
    return "old, complete" if left == old else "new, complete" if left == new else "mixture"


def living(scratch: Path) -> int:
    """Number of processes that were started with this folder for temporary files."""
    variable = f"TMPDIR={scratch}".encode()
    found = 0
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            found += variable in path.read_bytes().split(b"\0")
        except OSError:
            continue
    return found


def main() -> None:
    """Count the outcomes; exit with 1 if a kill left a page next to other data, or a process."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="number of runs to kill (default 200)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the random moments (default 1)")
    options = parser.parse_args()
    at_random = random.Random(options.seed)
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        out, scratch = Path(folder) / "out", Path(folder) / "scratch"
        scratch.mkdir()
        sets = []
        for option in OPTIONS:
            begin = time.monotonic()
            if start(out, scratch, option).wait():
                sys.exit("make-report failed")
            usual_s = time.monotonic() - begin
            sets.append(files(out))
        if sets[0].keys() != sets[1].keys() or any(sets[0][name] == sets[1][name] for name in DIFFERENT):
            sys.exit("the two reports have the same files")
        old, new = 1, 0
        for number in range(options.kills):
            run = start(out, scratch, OPTIONS[new])
            time.sleep(at_random.uniform(0, MAX_DURATIONS * usual_s))
            ended = run.poll() is not None
            run.kill()
            run.wait()
            state = outcome(files(out), sets[old], sets[new])
            found[state] += 1
            found["after its end"] += ended
            if state == "new, complete":
                old, new = new, old
            elif state != "old, complete" and start(out, scratch, OPTIONS[old]).wait():
                sys.exit("make-report failed after a kill")
            print(f"\r{number + 1} of {options.kills}", end="", file=sys.stderr, flush=True)
        time.sleep(GRACE_S)
        print(f"\n{options.kills} kills within {MAX_DURATIONS * usual_s:.1f} s of the start: {dict(found)}")
        print(f"processes that still run: {living(scratch)}")
        sys.exit(1 if found["mixture"] or living(scratch) else 0)


if __name__ == "__main__":
    main()
