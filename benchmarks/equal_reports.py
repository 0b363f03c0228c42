"""Whether another tree makes the same reports: ``python -m benchmarks.equal_reports OTHER [JOB ...]``.

OTHER is a checkout with an environment of its own in ``.venv``. Both make a ``report.json`` of each job, which are
compared value by value; ``--made`` adds the jobs of ``tests.rules.test_diagnosis`` with all their findings.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HERE = Path(__file__).parents[1]
#: Fields by regular expression, and what they are called now; an empty name drops the field. The parts of a time have one
#: name each since 2026-11-28, and an amount in place of hours or seconds.
_PARTS = r"^(verdict\.use|verdict\.profiled|goodput|cost)\.parts\.(\d+)\."
RENAMED = (
    (r"^(version|schema_version)$", ""),
    (rf"{_PARTS}(hours|seconds|cost)$", r"\1.parts.\2.amount"),
    (rf"{_PARTS}(key|label|role)$", ""),
    (r"^verdict\.use\.roles\.\d+\.role$", ""),
    (r"^steps\.last\.(parts\..*\.(name|label|key|role)|ended)$", ""),
    (r"^framework\.(steps|passes|general)\..*\.key$", ""),
)
#: Values that are left out where they are those by default.
DEFAULTS = (rf"{_PARTS}(finding|when|measured)$", ("", True))
#: Differences of a job that are printed.
SHOWN = 12


def report_of(tree: Path, job: Path) -> dict[str, Any]:
    """The values of ``report.json``, by their place; what the command said where it made none."""
    with tempfile.TemporaryDirectory() as out:
        command = [f"{tree}/.venv/bin/make-report", "--job-dir", f"{job}", "--out", out, "--formats", "json"]
        done = subprocess.run([*command, "--force", "--quiet"], capture_output=True, text=True, check=False)
        made = Path(out) / "report.json"
        return dict(_leaves(json.loads(made.read_bytes()))) if made.is_file() else {"error": done.stderr}


def _leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """All values but null and empty ones; rules, whose order is that of their cards, by name."""
    if isinstance(value, dict | list) and value:
        if place == "rules":
            value = {rule["name"]: rule for rule in value}
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _leaves(inner, f"{place}.{key}" if place else str(key))
    elif value not in (None, [], {}):
        yield place, value


def renamed(report: dict[str, Any]) -> dict[str, Any]:
    """A report of the other tree with the names of this one."""
    found = {}
    for place, value in report.items():
        name = place
        for pattern, new in RENAMED:
            name = re.sub(pattern, new, name)
        is_default = re.search(DEFAULTS[0], name) and value in DEFAULTS[1]
        if name and not is_default:
            found[name] = value
    return found


def differences(other: dict[str, Any], here: dict[str, Any]) -> list[str]:
    """A line for each place whose values differ, or that only one report has."""
    other, here = renamed(other), renamed(here)
    return [
        f"{place}: {other.get(place, 'absent')!r} → {here.get(place, 'absent')!r}"
        for place in dict.fromkeys([*other, *here])
        if other.get(place, "absent") != here.get(place, "absent")
    ]


def findings(tree: Path) -> list[str]:
    """What each made job is said to suffer from."""
    command = [f"{tree}/.venv/bin/python", "-m", "tests.rules.test_diagnosis", "--seeds", "1,2,3", "--all"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tree)
    return done.stdout.splitlines()


def main(arguments: Sequence[str]) -> int:
    """Print what differs, job by job; 1 if anything does."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.equal_reports", description=__doc__)
    parser.add_argument("other", type=Path)
    parser.add_argument("jobs", type=Path, nargs="*")
    parser.add_argument("--made", action="store_true")
    given = parser.parse_args(arguments)
    equal: Counter[bool] = Counter()
    for job in given.jobs:
        lines = differences(report_of(given.other, job), report_of(HERE, job))
        equal[not lines] += 1
        for line in [f"{job}: {len(lines)} differ", *lines[:SHOWN]] if lines else []:
            print(line, flush=True)
    if given.made:
        pairs = set(findings(given.other)) ^ set(findings(HERE))
        equal[not pairs] += 1
        print(*sorted(pairs), sep="\n")
    print(f"{equal[True]} of {equal.total()} equal")
    return 1 if equal[False] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
