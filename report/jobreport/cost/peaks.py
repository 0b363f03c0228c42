"""Peak operations per second of GPUs, of dense matrices, as their makers state them; docs/peaks.md has the sources."""

from __future__ import annotations

import re

#: By the driver's name of the GPU: 10^12 operations per second in bfloat16, float16, TF32, and float32; None where the GPU
#: does not have it. A name must match as a whole: an instance of a divided GPU, or an unknown kind, has no peak.
_PEAKS: tuple[tuple[str, tuple[float | None, float | None, float | None, float | None]], ...] = (
    (r"NVIDIA A100(-SXM4|-PCIE|-PG509-20\d)?[- ](40|80)GB( PCIe)?", (312, 312, 156, 19.5)),
    (r"NVIDIA (H100 80GB HBM3|H200|GH200 480GB)", (989, 989, 494, 67)),
    (r"NVIDIA H100 PCIe", (756, 756, 378, 51)),
    (r"NVIDIA (H100|H200) NVL", (835, 835, 417, 60)),
    (r"NVIDIA B200", (2250, 2250, 1125, 75)),
    (r"(NVIDIA )?(Tesla )?V100-SXM2-(16|32)GB", (None, 125, None, 15.7)),
    (r"(NVIDIA )?(Tesla )?V100-PCIE-(16|32)GB", (None, 112, None, 14)),
    (r"(NVIDIA )?(Tesla )?T4", (None, 65, None, 8.1)),
    (r"NVIDIA L4", (121, 121, 60, 30.3)),
    (r"NVIDIA L40S", (362, 362, 183, 91.6)),
    (r"NVIDIA L40", (181, 181, 90.5, 90.5)),
    (r"NVIDIA A10", (125, 125, 62.5, 31.2)),
    (r"NVIDIA A30", (165, 165, 82, 10.3)),
    (r"NVIDIA A40", (149.7, 149.7, 74.8, 37.4)),
    (r"AMD Instinct (MI300X|MI325X)( OAM)?", (1307.4, 1307.4, 653.7, 163.4)),
)
PRECISIONS = ("bfloat16", "float16", "tf32", "float32")


def peak(gpu: str, precision: str) -> float | None:
    """Of one GPU, in operations per second; None if it is not known."""
    row = next((row for name, row in _PEAKS if re.fullmatch(name, gpu.strip())), None)
    tera = row[PRECISIONS.index(precision)] if row and precision in PRECISIONS else None
    return None if tera is None else tera * 1e12
