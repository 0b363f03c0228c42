"""The command ``make-report``: a thin layer over ``pipeline.make_report``."""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jobreport import __version__
from jobreport.errors import JobReportError, UsageError
from jobreport.output.files import FILES

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from jobreport.progress import Progress
    from jobreport.tables.engine import Engine

_SEVERITIES = ("warning", "critical")
#: What a terminal obeys, or writes the other way round.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def _formats(_context: click.Context, _option: click.Parameter, value: str) -> tuple[str, ...]:
    chosen = tuple(part.strip() for part in value.split(",") if part.strip())
    unknown = [part for part in chosen if part not in FILES]
    if unknown or not chosen:
        raise click.BadParameter(f"{', '.join(unknown) or 'nothing'}; choose from {', '.join(FILES)}.")
    return chosen


def _path(_context: click.Context, option: click.Parameter, value: str | None) -> Path | None:
    if value == "":
        # An unset variable in a script, which would silently mean the working directory.
        raise click.BadParameter("the name is empty.", param=option)
    return None if value is None else Path(value)


def _paths(context: click.Context, option: click.Parameter, value: tuple[str, ...]) -> tuple[Path, ...]:
    return tuple(path for one in value if (path := _path(context, option, one)))


def _names(_context: click.Context, option: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(name.strip() for part in value for name in part.split(",") if name.strip())
    if value and not names:
        # As above: it would silently mean all rules.
        raise click.BadParameter("it names no rule.", param=option)
    return names


@click.command(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit status: 0 report written; 1 internal error, report written as far as possible; "
    "2 wrong usage or nothing readable; 3 a finding that --fail-on asked for.",
)
@click.option(
    "--job-dir",
    callback=_path,
    metavar="DIR",
    help="What the training job left behind: a directory, or a .tar.gz or .zip of one.",
)
@click.option(
    "--out",
    callback=_path,
    metavar="DIR",
    help="Where to write. [default: ./<name of the job directory>-report]",
)
@click.option("--config", callback=_path, metavar="FILE.toml", help="Thresholds and rule selection.")
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="RULE.PARAMETER=VALUE",
    help="One threshold; may be repeated and wins over --config. The vendor's RULE_PARAMETER=VALUE is read too.",
)
@click.option("--select", multiple=True, callback=_names, metavar="RULE[,RULE]", help="Run only these rules.")
@click.option(
    "--ignore", multiple=True, callback=_names, metavar="RULE[,RULE]", help="Run all rules but these."
)
@click.option(
    "--rules",
    "rule_files",
    multiple=True,
    callback=_paths,
    metavar="FILE.py",
    help="Rules of your own, run beside the others; may be repeated. The file is run as a program.",
)
@click.option(
    "--formats",
    default=",".join(FILES),
    callback=_formats,
    show_default=True,
    metavar="LIST",
    help="Files to write; the JSON is always written.",
)
@click.option("--static", is_flag=True, help="A page without scripts: smaller, figures as drawings only.")
@click.option(
    "--redact",
    is_flag=True,
    help="Put stand-ins in the place of the names of job, nodes, files, and of what your own programs name; "
    "times, numbers and the frameworks' names stay.",
)
@click.option(
    "--timezone",
    metavar="ZONE",
    help="Of times that name none, as Europe/Berlin or +02:00. [default: UTC]",
)
@click.option(
    "--columns",
    metavar="NAME[,NAME]",
    help="Columns of nvidia-smi logs without a header line, e.g. timestamp,index,utilization.gpu.",
)
@click.option("--list-rules", is_flag=True, help="List the rules and exit.")
@click.option(
    "--explain", metavar="RULE", help="Say what a rule checks, why, what to do, its parameters; exit."
)
@click.option(
    "--fail-on",
    type=click.Choice(_SEVERITIES),
    help="Exit with 3 when a finding of this severity or above exists.",
)
@click.option("--strict", is_flag=True, help="Stop at the first rule or reader that fails.")
@click.option(
    "--dask",
    metavar="ADDRESS",
    help="Read and judge on the workers of the Dask cluster whose scheduler is at ADDRESS.",
)
@click.option("--quiet", is_flag=True, help="Print nothing but the path of the report.")
@click.option("--force", is_flag=True, help="Replace a report that is already there.")
@click.version_option(__version__, message="jobreport %(version)s")
def command(
    job_dir: Path | None,
    out: Path | None,
    config: Path | None,
    assignments: tuple[str, ...],
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    rule_files: tuple[Path, ...],
    formats: tuple[str, ...],
    static: bool,
    redact: bool,
    timezone: str | None,
    columns: str | None,
    list_rules: bool,
    explain: str | None,
    fail_on: str | None,
    strict: bool,
    dask: str | None,
    quiet: bool,
    force: bool,
) -> int:
    """Turn what a training job left behind into one HTML page that says where the machine time went.

    Writes report.html, report.ipynb, report.json, rules/*.json and summary.md, and prints the path
    of the page; the verdict and the progress go to standard error.
    """
    if list_rules or explain:
        from jobreport import describe, plugins  # noqa: PLC0415 - numpy is not needed for --help

        known = plugins.known_rules(rule_files).rules
        click.echo(describe.rule(explain, known) if explain else describe.rules(known))
        return 0
    if job_dir is None:
        raise UsageError("Say which job to report: make-report --job-dir DIR. See make-report --help.")

    # Threads for matrices, of which there are none here, would be started with numpy.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Processes that are started must not find modules in the working directory.
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    from jobreport.output import kernel  # noqa: PLC0415 - nor a process

    with contextlib.ExitStack() as stack:
        # It starts beside the slow imports and the reading.
        running = stack.enter_context(kernel.started()) if {"html", "ipynb"} & set(formats) else None
        from jobreport import pipeline, plugins, settings  # noqa: PLC0415 - nor for --version
        from jobreport.output import summary  # noqa: PLC0415 - nor for --version

        chosen = settings.load(config, assignments, select, ignore, plugins.known_rules(rule_files))
        engine = stack.enter_context(_engine(dask))
        outcome = pipeline.make_report(
            job_dir,
            out,
            settings=chosen,
            formats=formats,
            static=static,
            force=force,
            strict=strict,
            redact=redact,
            zone=timezone,
            columns=columns,
            engine=engine,
            progress=_progress(quiet=quiet),
            kernel=running,
        )
    if not quiet:
        click.echo("\n".join(summary.terminal(outcome.report)), err=True)
    path = str(outcome.main_file)
    click.echo(_escaped(path) if sys.stdout and sys.stdout.isatty() else path)
    if outcome.failure:
        raise outcome.failure
    worst = summary.worst_severity(outcome.report)
    return 3 if fail_on and worst and summary.reaches(worst, fail_on) else 0


def _engine(dask: str | None) -> AbstractContextManager[Engine]:
    if dask is not None:
        from jobreport.tables.cluster import Cluster  # noqa: PLC0415 - an extra

        return Cluster(dask)
    from jobreport.tables.engine import Local  # noqa: PLC0415 - not for --help

    return Local()


def _progress(*, quiet: bool) -> Progress:
    from jobreport import progress  # noqa: PLC0415 - as above

    if quiet or sys.stderr is None:
        return progress.Progress()
    if sys.stderr.isatty():
        return progress.Bar(sys.stderr)
    return progress.Lines(lambda line: click.echo(line, err=True))


def _escaped(text: str) -> str:
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _tell(text: str) -> None:
    """Say what may hold any name on standard error."""
    click.echo(_escaped(text), err=True)


def _stopped(*_: object) -> None:
    """As with Ctrl-C: whatever is half made is taken away."""
    raise KeyboardInterrupt


def main() -> None:
    """Run the command; errors become a sentence and an exit status, never a traceback."""
    signal.signal(signal.SIGTERM, _stopped)
    try:
        status = command.main(standalone_mode=False)
    except JobReportError as error:
        _tell(f"make-report: {error}")
        status = error.exit_status
    except click.ClickException as error:
        told = io.StringIO()
        error.show(told)
        _tell(told.getvalue().rstrip())
        status = error.exit_code
    except OSError as error:
        if "--strict" in sys.argv:
            raise
        place = f"Cannot use {error.filename!r}: " if error.filename else ""
        _tell(f"make-report: {place}{error.strerror or error}.")
        status = 2
    except click.Abort:
        click.echo("make-report: stopped.", err=True)
        status = 130
    except Exception as error:
        if "--strict" in sys.argv:
            raise
        _tell(f"make-report: internal error, {type(error).__name__}: {error}")
        _tell("This is a defect of jobreport; --strict shows where.")
        status = 1
    sys.exit(status)


if __name__ == "__main__":
    main()
