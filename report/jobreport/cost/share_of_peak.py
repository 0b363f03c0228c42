"""Which part of the peak of its GPUs a job used for the operations of its model (MFU)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from jobreport.cost.document import ShareOfPeak
from jobreport.cost.peaks import PRECISIONS, peak

if TYPE_CHECKING:
    from jobreport.document import Report

#: Operations for each parameter that a token goes through: two forward, four backward.
PER_PARAMETER = 6


def share_of_peak(report: Report) -> ShareOfPeak | None:
    """None if the operations of a step, or its time, are not known."""
    recordings = [one for source in report.quality.sources for one in source.recordings]
    blocks, throughput = report.blocks or None, report.throughput or None
    if not blocks or not recordings:
        return None
    given = [flops for one in recordings for flops in one.flops_per_step]
    sources = {word for one in recordings if one.flops_per_step for word in one.flops_source.split("+")}
    sizes = {one.parameters for one in recordings}
    modes = report.steps.modes if report.steps else ()
    trained = sum(one.ranks for one in modes if one.mode == blocks.phase)
    gpus = sum(gpu.count for one in recordings for gpu in one.gpus)
    world = max(one.world_size or 0 for one in recordings)
    # Of a job of which a node was not recorded, the ranks are those of the GPUs that were.
    ranks = max(trained, min(world, gpus) if gpus else world)
    known, parameters = min(len(given), ranks), None
    if given and ranks:
        per_step, source = math.fsum(given) / len(given) * ranks, "+".join(sorted(sources))
    elif len(sizes) == 1 and (parameters := sizes.pop()) and throughput and throughput.tokens_per_step:
        known, ranks, source = throughput.ranks_known, throughput.ranks, "estimated"
        per_step = PER_PARAMETER * float(parameters) * throughput.tokens_per_step
        if known < ranks:
            return None
    else:
        return None
    per_second = per_step * math.fsum(blocks.n) / math.fsum(blocks.sum_s)
    precisions = {one.precision for one in recordings}
    precision = precisions.pop() if len(precisions) == 1 else ""
    peaks = [(peak(gpu.name, precision), gpu.count) for one in recordings for gpu in one.gpus]
    most = math.fsum(one * count for one, count in peaks if one) if all(one for one, _ in peaks) else 0.0
    return ShareOfPeak(
        mfu_percent=float(f"{100 * per_second / most:.6g}") if most else None,
        flops_per_step=per_step,
        flops_per_second=float(f"{per_second:.6g}"),
        source=source,
        parameters=parameters,
        ranks=ranks,
        ranks_known=known,
        gpus=gpus,
        precision=precision if precision in PRECISIONS else "",
        peak_flops_per_second=most or None,
    )
