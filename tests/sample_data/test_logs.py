"""Generated nvidia-smi logs: what they hold is plausible, and the same options give the same bytes."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import generate
from generator.smi_log import DIALECTS

SAMPLE_DATA = Path(__file__).resolve().parents[2] / "sample_data"


def test_both_forms_carry_the_same_values_at_the_same_milliseconds(tmp_path: Path) -> None:
    options = ["--scenario=throttled", "--duration=5m", "--form=both", "--dialect=epoch", f"--out={tmp_path}"]
    assert generate.main(options) == 0

    samples = {
        (m[3], m[1]): float(m[2])
        for path in tmp_path.rglob("*.json")
        for m in re.finditer(
            r'"Name":"gpu(\d)","Dimension":"GPUUtilization","Value":([\d.]+),.*"Timestamp":(\d+\.\d{3})000\}',
            path.read_text(),
        )
    }
    rows = list(csv.DictReader((tmp_path / "nvidia-smi.csv").read_text().splitlines()))
    log = {(row["timestamp"], row["gpu_index"]): float(row["utilization_gpu_percent"]) for row in rows}

    assert len(log) == 4 * 150
    assert log == samples


def test_the_readme_lists_the_dialects() -> None:
    text = (SAMPLE_DATA / "README.md").read_text(encoding="utf-8")

    table = "".join(f"| `{name}` | {one.summary} |\n" for name, one in DIALECTS.items())
    assert f"|---|---|\n{table}\n" in text
