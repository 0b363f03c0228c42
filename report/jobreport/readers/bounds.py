"""What lies outside of these bounds is damage or malice, whatever the format."""

from __future__ import annotations

#: 1990-01-01 and 2100-01-01, in seconds since the epoch.
EARLIEST_S, LATEST_S = 631_152_000.0, 4_102_444_800.0
#: GPUs of a node, each pair of which is compared.
MAX_GPUS = 512
