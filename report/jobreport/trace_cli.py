"""The command ``make-report trace``: a thin layer over ``open_job(…).trace``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from jobreport import cli
from jobreport.errors import UsageError
from jobreport.timeline import LIMIT, METRICS

if TYPE_CHECKING:
    from pathlib import Path

    from jobreport.storage.urls import Url

NAME = "make-report trace"


def _steps(_context: click.Context, option: click.Parameter, value: str | None) -> int | slice | None:
    """Read a number of a step, or two with a colon between them."""
    if value is None:
        return None
    first, colon, stop = value.partition(":")
    if not all(one.isdecimal() for one in (first, stop) if one) or not (first or stop):
        raise click.BadParameter("not a step such as 17, nor steps such as 40:45.", param=option)
    return slice(int(first or 0), int(stop) if stop else None) if colon else int(first)


@click.command(
    options_metavar="--job-dir DIR -o FILE [OPTIONS]",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit status: 0 trace written; 1 something failed; 2 usage error or no readable input.",
)
@click.option(
    "--job-dir",
    required=True,
    callback=cli.place,
    metavar="DIR",
    help="Directory with the job's logs, an archive of it, one log, or a URL of object storage.",
)
@click.option(
    "--out", "-o", required=True, callback=cli.path, metavar="FILE", help="File to write: .json, or .json.gz."
)
@click.option(
    "--start", metavar="TIME", help="First moment: 2026-03-07T08:00, in UTC, or 90s after the start."
)
@click.option("--end", metavar="TIME", help="The moment after the last.")
@click.option(
    "--steps",
    callback=_steps,
    metavar="N|N:N",
    help="Training steps of each process, the last one not included.",
)
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    default=METRICS,
    show_default=True,
    metavar="NAME",
    help="Metric of the samples. Repeatable.",
)
@click.option(
    "--source",
    "sources",
    multiple=True,
    metavar="NAME",
    help="Source of events, such as python or horovod. Repeatable; all by default.",
)
@click.option("--every", metavar="TIME", help="A mean of the samples for each such time, such as 10s.")
@click.option(
    "--captures/--no-captures", default=True, show_default=True, help="Events of PyTorch's profiler."
)
@click.option("--absolute", is_flag=True, help="Count times from 1970 instead of from the first record.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=LIMIT, show_default=True, help="Rows to write at most."
)
@click.option("--force", is_flag=True, help="Overwrite the file.")
@cli.storage_options
def command(
    job_dir: Path | Url,
    out: Path,
    steps: int | slice | None,
    sources: tuple[str, ...],
    force: bool,
    storage_option: dict[str, str],
    cache: Path | None,
    max_download: int,
    **chosen: Any,
) -> int:
    """Write a job as a trace for viewers such as Perfetto: steps, events, samples, and findings on one clock."""
    from jobreport.library.opening import open_job  # noqa: PLC0415 - not for --help

    if out.exists() and not force:
        raise UsageError(f"{out} exists. Use --force to replace it.")
    with open_job(str(job_dir), storage_option=storage_option, cache=cache, max_download=max_download) as job:
        try:
            made = job.trace(out, step=steps, sources=sources or None, **chosen)
        except (KeyError, ValueError) as error:
            raise UsageError(f"{error.args[0]}.") from None
    cli.print_error(
        f"{made.events:,} steps and events in {made.lanes:,} lanes, {made.counters:,} samples and scalars. "
        "Open it in https://ui.perfetto.dev or chrome://tracing; nothing is uploaded."
    )
    if not made.events + made.counters:
        cli.print_error("The trace is empty: no step, event, or sample was found.")
    for one in made.left_out:
        cli.print_error(f"Left out: {one}.")
    cli.print_path(out)
    return 0


def main() -> None:
    """Run the command; errors become a sentence and an exit status."""
    cli.run(command, NAME)
