"""Wall time of ``make-report`` on the sample jobs beside what papermill and nbconvert cost by themselves.

The bare run is one process that runs an empty notebook (one cell that imports Bokeh and pandas, as a
report's kernel would) with papermill and exports it once with nbconvert's own template. Each is run
as a process of its own, the two kinds in turn, and the median of ``--runs`` counts.

    python benchmarks/wall_time.py --runs 5
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]

BARE = """
import sys, nbformat, papermill
from nbconvert import HTMLExporter
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell({source!r})])
notebook.metadata.kernelspec = {{"name": "python3", "language": "python", "display_name": "Python 3"}}
nbformat.write(notebook, "empty.ipynb")
papermill.execute_notebook("empty.ipynb", "run.ipynb", progress_bar=False)
html, _ = HTMLExporter().from_filename("run.ipynb")
open("run.html", "w").write(html)
"""


def seconds(command: list[str], folder: Path) -> float:
    """Wall time of a process that must succeed."""
    start = time.perf_counter()
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5, help="runs of each kind (default 5)")
    runs = parser.parse_args().runs
    samples = sorted(path.parent for path in (ROOT / "sample_data").glob("*/system"))
    kinds = {
        "bare papermill + nbconvert": [sys.executable, "-c", BARE.format(source="pass")],
        "the same, kernel imports Bokeh and pandas": [
            sys.executable,
            "-c",
            BARE.format(source="import bokeh.plotting, pandas"),
        ],
    } | {
        f"make-report, {path.name}": [
            sys.executable,
            "-m",
            "jobreport.cli",
            "--job-dir",
            str(path),
            "--out",
            "out",
            "--force",
            "--quiet",
        ]
        for path in samples
    }
    times: dict[str, list[float]] = {name: [] for name in kinds}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(runs):
            for name, command in kinds.items():
                times[name].append(seconds(command, Path(folder)))
    empty, imports = (statistics.median(times[name]) for name in list(kinds)[:2])
    print(f"median of {runs} runs, seconds of wall time; ratio to each of the two bare runs")
    for name, taken in times.items():
        middle = statistics.median(taken)
        print(f"{name:44} {middle:6.2f}  {middle / empty:5.2f}  {middle / imports:5.2f}")


if __name__ == "__main__":
    main()
