"""The text of a system metrics file: a JSON object a line, one per sensor and tick."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from generator.record import Samples


def format_minute(recorded: Sequence[Samples], node: int) -> str:
    """Return the lines of one node and minute: tick after tick, in each the families in order."""
    by_family = [format_ticks(samples, node) for samples in recorded]
    return "".join(text for tick in zip(*by_family, strict=True) for text in tick)


def format_ticks(samples: Samples, node: int) -> Iterator[str]:
    """Yield the lines of one family, one string per tick, empty where it has no sample."""
    lines = [
        f'{{"Type":"{kind}","Name":"{name}","Dimension":"{dimension}","Value":%.2f,'
        f'"NodeId":"algo-{node}","Timestamp":%s}}\n'
        for kind, name, dimension in samples.family.sensors
    ]
    rows, stamps = samples.values.tolist(), samples.timestamp_us.tolist()
    for row, stamp_us, present in zip(rows, stamps, samples.present.tolist(), strict=True):
        stamp = f"{stamp_us // 1_000_000}.{stamp_us % 1_000_000:06}"
        yield (
            "".join([line % (value, stamp) for line, value in zip(lines, row, strict=True)])
            if present
            else ""
        )
