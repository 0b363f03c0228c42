"""What lies outside of these bounds is damage or malice, whatever the format."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta

from jobrules.model import SECOND_US

#: 1990-01-01 and 2100-01-01, since the epoch.
EARLIEST_S, LATEST_S = 631_152_000.0, 4_102_444_800.0
EARLIEST_US, LATEST_US = int(EARLIEST_S) * SECOND_US, int(LATEST_S) * SECOND_US
#: Times in JSON.
Seconds: TypeAlias = Annotated[float, Meta(ge=EARLIEST_S, le=LATEST_S)]
Microseconds: TypeAlias = Annotated[int, Meta(ge=EARLIEST_US, le=LATEST_US)]
#: GPUs of a node, each pair of which is compared.
MAX_GPUS = 512
