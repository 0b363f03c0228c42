"""Samples and tokens in a second, and their course."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport import formats
from jobreport.cost.share_of_peak import PER_PARAMETER
from jobreport.page.figures import steps as figures
from jobreport.page.kit import Drawing, Figure

if TYPE_CHECKING:
    from jobreport.document import Report
    from jobrules.analyses.throughput import Throughput

#: Columns that a course needs.
MIN_COLUMNS = 10


def in_short(found: Throughput) -> str:
    """``1,024 samples/s, 524,288 tokens/s``, and whether that is all of it, and sure."""
    rates = (found.samples_per_second, "samples"), (found.tokens_per_second, "tokens")
    words = [formats.rate(rate, unit) for rate, unit in rates if rate]
    of = "" if found.ranks_known == found.ranks else f" on {found.ranks_known} of {found.ranks} ranks"
    return f"{', '.join(words)}{of}{' (inferred)' if found.inferred else ''}"


def in_words(report: Report) -> str:
    """The throughput, the batch, and what they are of; empty if they are not known."""
    found = report.throughput or None
    if found is None:
        return ""
    per_step = (found.samples_per_step, "sample"), (found.tokens_per_step, "token")
    batch = " and ".join(formats.count(round(size), unit) for size, unit in per_step if size)
    shared = f", the sum over {found.ranks_known} ranks: what ranks share counts more than once"
    guess = " Sizes are inferred from what data loaders gave." if found.inferred else ""
    return f"Throughput: {in_short(found)}; {batch} per step{shared if found.ranks_known > 1 else ''}.{guess}"


def of_peak(report: Report) -> str:
    """The operations of the model in a second, and their share of the peak; empty if they are not known."""
    found = report.share_of_peak or None
    if found is None:
        return ""
    made = {"estimated": f"estimated: {PER_PARAMETER} × {found.parameters or 0:,} parameters × tokens"}
    alike = (
        ""
        if found.ranks_known == found.ranks
        else f", of {found.ranks_known} of {found.ranks} ranks, the others taken as alike"
    )
    amount = f"{_flop(found.flops_per_step)} per step ({made.get(found.source, found.source)}{alike})"
    rate = f"{_flop(found.flops_per_second)}/s"
    if found.mfu_percent is None or found.peak_flops_per_second is None:
        lacks = "the peak of the GPUs" if found.precision else "the precision"
        return f"The model: {amount}, {rate}. MFU is not known: {lacks} is not." if found.gpus else ""
    peak = f"{_flop(found.peak_flops_per_second)}/s, the dense peak of {formats.count(found.gpus, 'GPU')}"
    return f"MFU {formats.percent(found.mfu_percent)}: {amount}, {rate} of {peak} in {found.precision}."


def _flop(operations: float) -> str:
    """``1.5 PFLOP``."""
    units = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"))
    factor, prefix = next((one for one in units if operations >= one[0]), (1e6, "M"))
    return f"{formats.plain_number(float(f'{operations / factor:.3g}'))}{formats.NBSP}{prefix}FLOP"


def over_time(report: Report) -> Figure | None:
    """None without enough steps."""
    found, times = report.throughput or None, report.steps
    known = [rate for rate in found.course if rate is not None] if found else []
    if found is None or times is None or len(known) < MIN_COLUMNS:
        return None
    unit = "samples" if found.samples_per_second else "tokens"
    lowest, _, _ = formats.rate(min(known), unit).partition(formats.NBSP)
    return Figure(
        name="steps-throughput",
        title="Throughput over time",
        finding=f"Throughput: {lowest} to {formats.rate(max(known), unit)}.",
        aid=f"Mean of {formats.duration(found.width_us)}, without evaluation and checkpoints.",
        drawings=[Drawing(figure=figures.throughput(times, found, report.phases, f"{unit}/s"))],
        zoom="the throughput",
    )
