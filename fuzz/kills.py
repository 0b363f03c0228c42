"""Kill ``make-report`` at random moments, and look at what is left: ``python -m fuzz.kills --help``."""

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
#: A run is killed up to so many of its usual durations after its start.
LATEST = 1.3
#: Seconds in which a kernel finds that the process that started it is gone.
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
    """What lies in a folder."""
    return {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}


def living(scratch: Path) -> int:
    """How many processes were started with this folder for temporary files."""
    told = f"TMPDIR={scratch}".encode()
    found = 0
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            found += told in path.read_bytes().split(b"\0")
        except OSError:
            continue
    return found


def main() -> None:
    """Count what was found; exit with 1 where it was neither the old nor the new set of files."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="how many runs are killed (default 200)")
    parser.add_argument("--seed", type=int, default=1, help="of the random moments (default 1)")
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
            sys.exit("the two reports cannot be told apart")
        now = 1
        for number in range(options.kills):
            new = 1 - now
            run = start(out, scratch, OPTIONS[new])
            time.sleep(at_random.uniform(0, LATEST * usual_s))
            ended = run.poll() is not None
            run.kill()
            run.wait()
            left = files(out)
            if left not in sets:
                found["neither"] += 1
            else:
                found["new, complete" if left == sets[new] else "old, complete"] += 1
                found["after its end"] += ended
                now = sets.index(left)
            print(f"\r{number + 1} of {options.kills}", end="", file=sys.stderr, flush=True)
        time.sleep(GRACE_S)
        print(f"\n{options.kills} kills within {LATEST * usual_s:.1f} s of the start: {dict(found)}")
        print(f"processes that still live: {living(scratch)}")
        print(f"folders beside the report: {len(list(Path(folder).iterdir())) - 2}")
        print(f"folders for temporary files: {len(list(scratch.iterdir()))}")
        sys.exit(1 if found["neither"] or living(scratch) else 0)


if __name__ == "__main__":
    main()
