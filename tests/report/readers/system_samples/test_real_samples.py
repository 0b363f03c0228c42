"""The reader against a plain one, on what real jobs left behind."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from fuzz.sample_rows_reference import unpacked
from jobreport.readers.registry import read_job
from tests.once import slow_but
from tests.paths import CORPUS, SYSTEM_SAMPLES, needs_corpus
from tests.report.readers.samples import remarks, slow_tables, tables

MADE = slow_but(
    min(SYSTEM_SAMPLES, key=lambda p: sum(one.stat().st_size for one in p.rglob("*"))), SYSTEM_SAMPLES
)
REAL = [pytest.param(CORPUS / "sagemaker" / name, marks=needs_corpus) for name in ("job-40", "job-41")]


@pytest.mark.parametrize("root", [*MADE, *REAL], ids=lambda path: path.name)
def test_a_job_is_read_completely(root: Path) -> None:
    paths = [path for ending in ("json", "json.gz") for path in sorted(root.rglob(f"system/**/*.{ending}"))]
    lines = [line for path in paths for line in unpacked(path.read_bytes()).decode().splitlines()]

    job, quality = read_job(root)

    assert tables(job) == slow_tables(lines)
    (source,) = (one for one in quality.sources if one.source == "system samples")
    assert source.rows == sum(len(row) for table in tables(job).values() for row in table.values())
    left_out = sum(r.count for r in source.remarks if r.action != "corrected")
    assert source.rows + left_out == sum(bool(line.strip()) for line in lines)
    assert source.files == len(paths)


@needs_corpus
def test_a_corrupt_file_costs_its_bad_lines(tmp_path: Path) -> None:
    (corrupt,) = (CORPUS / "sagemaker-fixtures").glob("*.corrupt")
    shutil.copy(corrupt, tmp_path / corrupt.stem)
    lines = corrupt.read_text().splitlines()

    job, quality = read_job(tmp_path)

    assert tables(job) == slow_tables(lines)
    skipped = [r for r in remarks(quality).values() if r.action == "skipped"]
    assert sum(r.count for r in skipped) == sum(not is_json(line) for line in lines) > 0


def is_json(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True
