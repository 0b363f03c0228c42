"""CPU time from trace files to columns: ``python -m benchmarks.traces JOB``; other work on the machine lengthens it."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from jobreport.readers.listing import listing
from jobreport.readers.tally import Tally
from jobreport.readers.traces.reader import Traces

RUNS = 5


def main() -> None:
    """Print the shortest of some runs."""
    reader = Traces()
    files = [file for file in listing(Path(sys.argv[1]), Tally()) if reader.matches_name(file)]
    size = sum(file.size for file in files)
    runs = []
    for _ in range(RUNS):
        begin = time.process_time()
        events = reader.read(files).quality.rows
        runs.append(time.process_time() - begin)
    per_size = min(runs) / size * 1e8
    print(f"{len(files)} files, {size / 1e6:.0f} MB, {events} events: {per_size:.2f} s of CPU per 100 MB")


if __name__ == "__main__":
    main()
