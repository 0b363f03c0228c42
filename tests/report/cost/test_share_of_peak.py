"""The share of the peak, by hand; and that the table of peaks is the one in the docs."""

from __future__ import annotations

import re
from typing import Any

import pytest

from jobreport.cost.peaks import PRECISIONS, peak
from jobreport.cost.share_of_peak import share_of_peak
from jobreport.document import Report
from jobreport.recordings import GPUModel
from jobreport.remarks import Quality, SourceQuality
from tests.copies import replace
from tests.paths import ROOT
from tests.report.comparison.runs import report_of
from tests.report.page.sections.example_steps import step_times, throughput
from tests.report.page.sections.test_recordings import recording

H100 = "NVIDIA H100 80GB HBM3"


def made(*nodes: dict[str, Any], gpus: int = 8, gpu: str = H100, tokens: float | None = None) -> Report:
    """A job whose steps take half a second; a rank for each node unless it says otherwise."""
    known: dict[str, Any] = {
        "precision": "bfloat16",
        "gpus": (GPUModel(name=gpu, count=gpus),),
        "flops_source": "given",
    }
    recordings = tuple(recording(f"n{i}", **known | node) for i, node in enumerate(nodes))
    source = SourceQuality(source="record-job", files=1, rows=1, recordings=recordings)
    sizes = replace(throughput(), tokens_per_step=tokens)
    return replace(report_of([0.5] * 60), quality=Quality(sources=(source,)), throughput=sizes)


@pytest.mark.parametrize(
    ("report", "per_step", "percent"),
    [
        # 1e15 operations in half a second are 2e15 a second, of 8 × 989e12.
        (made({"flops_per_step": (1e15,), "world_size": 1}), 1e15, 25.278),
        (made({"flops_per_step": (1e14,) * 8, "world_size": 8}), 8e14, 20.222),
        # Rank 0 of 8 counted.
        (made({"flops_per_step": (1e14,), "world_size": 8}), 8e14, 20.222),
        (made(*[{"flops_per_step": (1e14,) * 8, "world_size": 16}] * 2), 16e14, 20.222),
        # One node of two.
        (made({"flops_per_step": (1e14,) * 8, "world_size": 16}), 8e14, 20.222),
        # One process for all GPUs.
        (made({"flops_per_step": (1e15,)}), 1e15, 25.278),
        (made({"flops_per_step": (1e15,), "world_size": 1}, gpu="NVIDIA A100-SXM4-80GB"), 1e15, 80.128),
        (made({"flops_per_step": (1e15,), "world_size": 1, "precision": "float32"}), 1e15, 373.13),
        (made({"parameters": 10**9, "world_size": 8}, tokens=100_000.0), 6e14, 15.167),
        # Unknown: a part of a GPU, another one, the precision.
        (made({"flops_per_step": (1e15,), "world_size": 1}, gpu=f"{H100} MIG 1g.10gb"), 1e15, None),
        (made({"flops_per_step": (1e15,), "world_size": 1}, gpu="NVIDIA GeForce RTX 9"), 1e15, None),
        (made({"flops_per_step": (1e15,), "world_size": 1, "precision": "bfloat16+float32"}), 1e15, None),
        (made({"flops_per_step": (1e15,), "world_size": 1, "precision": ""}), 1e15, None),
    ],
)  # fmt: skip
def test_operations_of_steps_over_the_peak_of_all_gpus(
    report: Report, per_step: float, percent: float | None
) -> None:
    found = share_of_peak(report)

    assert found
    assert found.flops_per_step == pytest.approx(per_step)
    assert found.flops_per_second == pytest.approx(2 * per_step, rel=1e-4)
    assert found.mfu_percent == (percent and pytest.approx(percent, rel=1e-3))


def test_rows_that_the_table_of_steps_leaves_out_are_no_ranks() -> None:
    """Evaluation has rows of its own."""
    steps = step_times("TRAIN")
    train = replace(steps.modes[0], ranks=128)
    steps = replace(steps, modes=(train, replace(train, mode="EVAL")), rows_left=128)

    found = share_of_peak(replace(made({"flops_per_step": (1e13,)}, gpus=128), steps=steps))

    assert found
    assert (found.ranks, found.flops_per_step) == (128, 1e13 * 128)


def test_each_source_is_named_once() -> None:
    nodes = [{"flops_per_step": (1e14,) * 8, "flops_source": of} for of in ("counted+given", "counted")]

    found = share_of_peak(made(*[{**one, "world_size": 16} for one in nodes]))

    assert found
    assert found.source == "counted+given"


@pytest.mark.parametrize(
    "report",
    [
        made({"world_size": 8}),
        made({"parameters": 10**9, "world_size": 8}),
        made({"parameters": 10**9}, {"parameters": 10**8}, tokens=100.0),
        replace(made({"flops_per_step": (1e15,)}), blocks=None),
    ],
    ids=["nothing", "no tokens", "models differ", "no time"],
)
def test_what_is_not_known_is_no_number(report: Report) -> None:
    assert share_of_peak(report) is None


NAMES = {
    "A100": [
        "NVIDIA A100-SXM4-40GB",
        "NVIDIA A100-SXM4-80GB",
        "NVIDIA A100-PCIE-40GB",
        "NVIDIA A100 80GB PCIe",
    ],
    "H100 SXM": [H100, "NVIDIA H200", "NVIDIA GH200 480GB"],
    "H100 PCIe": ["NVIDIA H100 PCIe"],
    "H100 NVL": ["NVIDIA H100 NVL", "NVIDIA H200 NVL"],
    "B200": ["NVIDIA B200"],
    "V100 SXM2": ["Tesla V100-SXM2-16GB", "NVIDIA Tesla V100-SXM2-32GB"],
    "V100 PCIe": ["Tesla V100-PCIE-16GB"],
    "T4": ["Tesla T4"],
    "L4": ["NVIDIA L4"],
    "L40S": ["NVIDIA L40S"],
    "L40": ["NVIDIA L40"],
    "A10": ["NVIDIA A10"],
    "A30": ["NVIDIA A30"],
    "A40": ["NVIDIA A40"],
    "MI300X": ["AMD Instinct MI300X OAM", "AMD Instinct MI325X"],
}


def test_the_docs_list_the_peaks_that_are_used() -> None:
    text = (ROOT / "docs/peaks.md").read_text()
    rows = re.findall(r"^\| (\S[^|]*) \|" + 4 * r" ([\d,.]*) ?\|" + r" \S.*\|$", text, re.M)
    assert len(rows) == len(NAMES)
    for what, *numbers in rows:
        names = next(NAMES[key] for key in sorted(NAMES, key=len, reverse=True) if what.startswith(key))
        for precision, number in zip(PRECISIONS, numbers, strict=True):
            wanted = float(number.replace(",", "")) * 1e12 if number else None
            assert {peak(name, precision) for name in names} == {wanted}, (what, precision)
