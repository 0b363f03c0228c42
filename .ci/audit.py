"""Ask pip-audit which of the pinned packages have known vulnerabilities, and print the answer.

pip-audit ends with the same status where a package is vulnerable and where nobody can be asked, and well where the
index knows none of the packages. So its JSON is read: status 1 is for vulnerabilities alone, and packages of
which nothing was learnt are counted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any

#: Of the versions as they are pinned; nothing is installed or resolved.
OPTIONS = ("--no-deps", "--disable-pip", "--progress-spinner=off", "--format=json", "--desc=off")


def asked(requirements: str, seconds: float) -> dict[str, Any] | None:
    """What pip-audit answers; none where it cannot be run, or cannot ask."""
    command = [sys.executable, "-m", "pip_audit", *OPTIONS, f"--requirement={requirements}"]
    try:
        done = subprocess.run(command, capture_output=True, check=False, encoding="utf-8", timeout=seconds)  # noqa: S603 - ours
        found = json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("dependencies"), list) else None


def reported(answer: dict[str, Any] | None) -> tuple[list[str], int]:
    """The answer in lines, and an exit status: 1 where a package is vulnerable."""
    if answer is None:
        return ["audit: the source could not be asked; nothing is known of any package."], 0
    packages = answer["dependencies"]
    known = [one for one in packages if "skip_reason" not in one]
    vulnerable = [one for one in known if one["vulns"]]
    if not known:
        return [f"audit: none of {len(packages)} packages could be looked up; nothing is known of them."], 0
    lines = [
        f"audit: {len(known)} of {len(packages)} packages were looked up; of these {len(vulnerable)} "
        "have known vulnerabilities."
    ]
    for one in vulnerable:
        for flaw in one["vulns"]:
            mended = ", ".join(flaw["fix_versions"]) or "no version"
            lines.append(f"audit: {one['name']} {one['version']}: {flaw['id']}, mended in {mended}")
    return lines, 1 if vulnerable else 0


def main() -> int:
    """Ask and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("requirements")
    parser.add_argument("--seconds", type=float, default=100.0, help="how long the answer may take")
    given = parser.parse_args()
    lines, status = reported(asked(given.requirements, given.seconds))
    sys.stdout.write("\n".join(lines) + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
