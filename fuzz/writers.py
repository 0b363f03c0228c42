"""Let two runs write into one folder at once, and check what they leave: ``python -m fuzz.writers --help``."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from jobreport.errors import JobReportError, UsageError
from jobreport.files import COMPARISON, REPORT, Product
from jobreport.output.publish import publish, reserved

#: Seconds between the starts of two runs, and that a run reads its job, at most.
STARTS_S, READS_S = 0.03, 0.004
#: Exit statuses of a writer.
WRITTEN, REFUSED, FAILED = 0, 2, 1


def files(text: str, product: Product) -> dict[str, bytes]:
    """The files of a report, or of a comparison, all with the same text in them; the rules differ from run to run."""
    rules = [f"R{text}", "Energy"] if product is REPORT else []
    found = {name: text.encode() for name in product.files.values()}
    found[product.files["junit"]] = product.junit_head + text.encode()
    found |= {f"rules/more/{rule}.json": text.encode() for rule in rules}
    data = {"schema_version": 1, "variants": [], "rules": [{"name": rule} for rule in rules], "text": text}
    return found | {product.files["json"]: json.dumps(data).encode()}


def _write(folder: Path, text: str, product: Product, begin: float, reads_s: float) -> None:
    found = files(text, product)
    time.sleep(max(0.0, begin - time.monotonic()))
    try:
        with reserved(folder, found, force=True, product=product):
            time.sleep(reads_s)
            publish(folder, found, force=True, product=product)
    except UsageError as error:
        sys.exit(REFUSED if str(error).startswith("Another run writes to ") else FAILED)
    except (JobReportError, OSError):
        sys.exit(FAILED)


def run(pairs: int, scratch: Path, seed: int) -> Counter[str]:
    """How many writers were refused or failed, and how many pairs left a mixture of two runs or no page."""
    at_random, fork = random.Random(seed), multiprocessing.get_context("fork")
    counts: Counter[str] = Counter()
    for number in range(pairs):
        product = REPORT if number % 4 else COMPARISON
        # Every other pair finds an older report; a folder that is missing is made by one of the two.
        folder = scratch / f"{number // 8}-{product.noun}"
        begin = time.monotonic() + 0.01
        texts = [f"{number}a", f"{number}b"]
        both = [
            fork.Process(
                target=_write,
                args=(
                    folder,
                    text,
                    product,
                    begin + at_random.uniform(0, STARTS_S),
                    at_random.uniform(0, READS_S),
                ),
            )
            for text in texts
        ]
        for one in both:
            one.start()
        for one in both:
            one.join()
        counts["refused"] += sum(one.exitcode == REFUSED for one in both)
        counts["failed"] += sum(one.exitcode not in (WRITTEN, REFUSED) for one in both)
        left = {
            str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()
        }
        written = [text for text, one in zip(texts, both, strict=True) if one.exitcode == WRITTEN]
        counts["no page"] += product.files["html"] not in left
        counts["mixture"] += left not in [files(text, product) for text in written]
    return counts


def main() -> None:
    """Print the counts; exit with 1 if a pair left anything but the report of one run."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.writers", description=__doc__)
    parser.add_argument("--pairs", type=int, default=1000, help="number of pairs (default 1000)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the random moments (default 1)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        counts = run(options.pairs, Path(folder), options.seed)
    print(f"{options.pairs} pairs: {dict(counts)}")
    sys.exit(1 if counts["mixture"] or counts["no page"] or counts["failed"] else 0)


if __name__ == "__main__":
    main()
