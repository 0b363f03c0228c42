"""The times that samples and events may have."""

from __future__ import annotations

#: 1990-01-01 and 2100-01-01, in seconds since the epoch: times outside are damage.
EARLIEST_S, LATEST_S = 631_152_000.0, 4_102_444_800.0
