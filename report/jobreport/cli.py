"""The command ``make-report``: a thin layer over ``pipeline.make_report``."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import re
import signal
import sys
from typing import TYPE_CHECKING, Any

import click

from jobreport import __version__
from jobreport.errors import NOTHING_YET, JobReportError, NothingReadableError, UsageError
from jobreport.files import DEFAULT, FILES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from jobreport.cost.prices import Prices
    from jobreport.options import Choice, Options
    from jobreport.pipeline import Outcome
    from jobreport.progress import Progress
    from jobreport.storage.urls import Url
    from jobreport.tables.engine import Engine

_SEVERITIES = ("warning", "critical")
_DATE_ORDERS = ("day-first", "month-first")
#: Characters of an argument in a message.
_MAX_NAME = 200
#: Control characters, and those that reverse the direction of text.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def formats(_context: click.Context, _option: click.Parameter, value: str | None) -> tuple[str, ...]:
    """Read a list of formats; of an option that is not given, none."""
    if value is None:
        return ()
    chosen = tuple(part.strip() for part in value.split(",") if part.strip())
    unknown = [part for part in chosen if part not in FILES]
    if unknown or not chosen:
        raise click.BadParameter(f"{', '.join(unknown) or 'no format'}; choose from {', '.join(FILES)}.")
    return chosen


def path(_context: click.Context, option: click.Parameter, value: str | None) -> Path | None:
    """Read a path."""
    if value == "":
        # An unset variable in a script, which would silently mean the working directory.
        raise click.BadParameter("the name is empty.", param=option)
    from pathlib import Path  # noqa: PLC0415 - not needed for --help

    return None if value is None else Path(value)


def place(context: click.Context, option: click.Parameter, value: str | None) -> Path | Url | None:
    """Read a path, or a URL of object storage."""
    if value is None or "://" not in value:
        return path(context, option, value)
    from jobreport.storage.urls import UrlError, is_url, parse  # noqa: PLC0415 - as above

    try:
        found = parse(value) if is_url(value) else value
    except UrlError as error:
        raise click.BadParameter(str(error), param=option) from None
    return path(context, option, found) if isinstance(found, str) else found


def _storage_options(
    _context: click.Context, option: click.Parameter, value: tuple[str, ...]
) -> dict[str, str]:
    from jobreport.storage.urls import UrlError, storage_option  # noqa: PLC0415 - as above

    try:
        return dict(map(storage_option, value))
    except UrlError as error:
        raise click.BadParameter(str(error), param=option) from None


def _scalars(_context: click.Context, option: click.Parameter, value: tuple[str, ...]) -> dict[str, str]:
    """Read what logged numbers are."""
    found = {name: logged for name, _, logged in (one.partition("=") for one in value)}
    if not all(found.values()):
        raise click.BadParameter(
            "needs a name and what is logged under it, such as loss=train/total.", param=option
        )
    return found


def _size(_context: click.Context, option: click.Parameter, value: str) -> int:
    """Read a number of bytes."""
    found = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,6})?) *([KMGT]?)(?:i?B)?", value.strip(), re.IGNORECASE)
    if found is None:
        raise click.BadParameter("not a size such as 20GiB.", param=option)
    return int(float(found[1]) * 1024 ** " KMGT".index(found[2].upper() or " "))


def storage_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options on object storage."""
    for option in (
        click.option(
            "--max-download",
            default="20GiB",
            show_default=True,
            callback=_size,
            metavar="SIZE",
            help="Bytes of a job in object storage to copy at most.",
        ),
        click.option(
            "--cache", callback=path, metavar="DIR", help="Keep what is copied of a job in object storage."
        ),
        click.option(
            "--storage-option",
            multiple=True,
            callback=_storage_options,
            metavar="KEY=VALUE",
            help="Setting of object storage: endpoint_url, profile, region, anon, requester_pays, account_name, "
            "project, insecure. Repeatable.",
        ),
    ):
        command = option(command)
    return command


def _once(context: click.Context, option: click.Parameter, value: tuple[str, ...]) -> Path | None:
    """Read a path of an option of which click would take the last."""
    if len(value) > 1:
        raise click.BadParameter("it is given twice.", param=option)
    return path(context, option, value[0] if value else None)


def _paths(context: click.Context, option: click.Parameter, value: tuple[str, ...]) -> tuple[Path, ...]:
    return tuple(found for one in value if (found := path(context, option, one)))


def _names(_context: click.Context, option: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(name.strip() for part in value for name in part.split(",") if name.strip())
    if value and not names:
        # As above: it would silently mean all rules.
        raise click.BadParameter("no rule is named.", param=option)
    return names


def _run(_context: click.Context, _option: click.Parameter, value: str | None) -> Choice:
    if value is None or value == "all":
        return value  # type: ignore[return-value]
    if not value.isdecimal() or int(value) < 1:
        raise click.BadParameter("neither all nor the number of a run, which counts from 1.")
    return int(value)


#: Facts of a job that ``--set`` takes, for its help.
FACTS = "instance_type, region, spot, nodes, gpus_per_node, price_per_node_hour, price_per_gpu_hour, cost, batch_size, parallelism"


def price_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options on prices."""
    for option in (
        click.option(
            "--billing",
            type=click.Choice(["1s", "1min", "1h"]),
            default="1s",
            show_default=True,
            help="Unit that a duration is rounded up to.",
        ),
        click.option(
            "--prices-date", metavar="DATE", help="Date of a CSV of prices.  [default: that of the file]"
        ),
        click.option(
            "--prices",
            multiple=True,
            callback=_once,
            metavar="FILE",
            help="Prices of machines: TOML, or CSV in the columns of SkyPilot's catalog.",
        ),
    ):
        command = option(command)
    return command


def watch_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options on a job that runs; the last three are of record-job, and of the processes that a watch starts."""
    for option in (
        click.option("--round", "refresh_s", type=float, hidden=True),
        click.option("--recorder", "of_recorder", is_flag=True, hidden=True),
        click.option("--stop-on", hidden=True),
        click.option("--dry-run-actions", is_flag=True, help="With --watch, print which actions would fire."),
        click.option(
            "--notify",
            metavar="URL",
            help="With --watch, post findings of severity warning or worse to this URL. The variable JOBREPORT_NOTIFY "
            "keeps it out of the list of processes.",
        ),
        click.option(
            "--watch-idle-exit",
            metavar="TIME",
            help="End the watch if no data came for so long.  [default: never]",
        ),
        click.option(
            "--watch-timeout",
            metavar="TIME",
            help="Wait at most so long for the first data.  [default: for ever]",
        ),
        click.option(
            "--watch-formats",
            callback=formats,
            metavar="LIST",
            help="Files to write while the job runs.  [default: those of --formats]",
        ),
        click.option(
            "--watch",
            is_flag=False,
            flag_value="60s",
            metavar="[TIME]",
            help="While the job runs, make the report again and again, with at least this time between (60s, if none is "
            "given); a large job has longer pauses. Ends with the job.",
        ),
    ):
        command = option(command)
    return command


def price_list(prices: Path | None, date: str | None, *, redact: bool) -> Prices | None:
    """The list of ``--prices``; its source is a name, which ``redact`` replaces."""
    from msgspec.structs import replace  # noqa: PLC0415 - not needed for --help

    from jobreport.cost.prices import ANY_PRICES, read_prices  # noqa: PLC0415

    found = read_prices(prices, date) if prices else None
    return replace(found, source=ANY_PRICES) if found and redact else found


def price_words(prices: Path | None, date: str | None, billing: str, *, redact: bool) -> list[str]:
    """The options on prices of a command line that gives the same."""
    return [
        *(["--prices", "PRICES" if redact else prices.name] if prices else []),
        *(["--prices-date", date] if date else []),
        *(["--billing", billing] if billing != "1s" else []),
    ]


@click.command(
    options_metavar="--job-dir DIR [OPTIONS]",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit status: 0 report written; 1 something failed, report written as far as possible; "
    "2 usage error or no readable input; 3 finding at or above --fail-on.",
)
@click.option(
    "--job-dir",
    callback=place,
    metavar="DIR",
    help="Directory with the job's logs, an archive of it (.tar, .tar.gz, .tar.xz, .tar.bz2, .zip), or one log; "
    "also at s3://, gs://, az://.",
)
@click.option(
    "--out",
    callback=place,
    metavar="DIR",
    help="Output directory, also at s3://, gs://, az://.  [default: ./<job directory>-report]",
)
@click.option(
    "--config", callback=path, metavar="FILE.toml", help="Read rule parameters and selection from a file."
)
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="RULE.PARAMETER=VALUE|FACT=VALUE",
    help="Set one rule parameter; overrides --config. SageMaker Debugger's form RULE_PARAMETER=VALUE also works. "
    f"Or add a fact of the job: {FACTS}. Repeatable.",
)
@click.option("--select", multiple=True, callback=_names, metavar="RULE[,RULE]", help="Run only these rules.")
@click.option("--ignore", multiple=True, callback=_names, metavar="RULE[,RULE]", help="Skip these rules.")
@click.option(
    "--rules",
    "rule_files",
    multiple=True,
    callback=_paths,
    metavar="FILE.py",
    help="Add your own rules from a Python file. The file is executed. Repeatable.",
)
@click.option(
    "--formats",
    default=",".join(DEFAULT),
    callback=formats,
    show_default=True,
    metavar="LIST",
    help="Files to write; report.json is always written. Also junit and github, for CI.",
)
@click.option("--static", is_flag=True, help="Write a smaller page without scripts; figures are static.")
@click.option(
    "--redact",
    is_flag=True,
    help="Replace the names of the job, nodes, files, and your own code by placeholders.",
)
@click.option(
    "--timezone",
    metavar="ZONE",
    help="Time zone of timestamps that have none, such as Europe/Berlin or +02:00.  [default: UTC]",
)
@click.option(
    "--columns",
    metavar="NAME[,NAME]",
    help="Names of the columns of an nvidia-smi log without a header line, such as timestamp,index,utilization.gpu.",
)
@click.option(
    "--date-order",
    type=click.Choice(_DATE_ORDERS),
    help="Order of dates such as 03/04/2026 in an nvidia-smi log in which none shows it.",
)
@click.option(
    "--run",
    callback=_run,
    metavar="N|all",
    help="Run to report, if a log holds several with long pauses between them.  [default: the newest]",
)
@click.option(
    "--scalar",
    multiple=True,
    callback=_scalars,
    metavar="NAME=LOGGED",
    help="Which logged number is loss, val_loss, accuracy, val_accuracy, lr, grad_norm, or loss_scale, such as loss=train/total. Repeatable.",
)
@price_options
@storage_options
@watch_options
@click.option("--list-rules", is_flag=True, help="List all rules and exit.")
@click.option(
    "--explain",
    metavar="RULE",
    help="Show what a rule checks, its advice, and its parameters, and exit.",
)
@click.option(
    "--fail-on",
    type=click.Choice(_SEVERITIES),
    help="Exit with status 3 if there is a finding of this severity or worse.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Stop at the first rule or reader that fails, and show its traceback.",
)
@click.option(
    "--dask",
    metavar="ADDRESS",
    help="Read files and run rules on the Dask cluster with this scheduler address.",
)
@click.option("--quiet", is_flag=True, help="Print only the path of the page.")
@click.option("--force", is_flag=True, help="Overwrite an existing report.")
@click.argument("others", nargs=-1, metavar="")
@click.version_option(__version__, message="jobreport %(version)s", help="Show the version and exit.")
def command(
    job_dir: Path | Url | None,
    out: Path | Url | None,
    config: Path | None,
    assignments: tuple[str, ...],
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    rule_files: tuple[Path, ...],
    formats: tuple[str, ...],
    redact: bool,
    prices: Path | None,
    prices_date: str | None,
    billing: str,
    watch: str | None,
    watch_formats: tuple[str, ...],
    watch_timeout: str | None,
    watch_idle_exit: str | None,
    notify: str | None,
    dry_run_actions: bool,
    stop_on: str | None,
    of_recorder: bool,
    refresh_s: float | None,
    list_rules: bool,
    explain: str | None,
    fail_on: str | None,
    dask: str | None,
    quiet: bool,
    others: tuple[str, ...],
    **chosen: Any,
) -> int:
    """Report where the GPU time of a training job went, why, and what to do, as one HTML page.

    Writes report.html, report.ipynb, report.json, summary.md, and the folder rules. Prints the path of the page to
    standard output, and the verdict and progress to standard error.
    """
    if list_rules or explain:
        from jobreport import describe, plugins  # noqa: PLC0415 - numpy is not needed for --help

        known = plugins.known_rules(rule_files).rules
        click.echo(describe.rule(explain, known) if explain else describe.rules(known))
        return 0
    if others:
        raise UsageError(_misplaced(others[0], job_dir))
    if watch is None and (notify or dry_run_actions or watch_formats or watch_timeout or watch_idle_exit):
        raise UsageError("--notify, --dry-run-actions, and options that begin with --watch- need --watch.")
    if job_dir is None:
        raise UsageError("No job given. Use `make-report --job-dir DIR`; see `make-report --help`.")

    if dask and not isinstance(job_dir, os.PathLike):
        raise UsageError("--dask needs a folder that all of its machines see, and --job-dir is a URL.")
    # numpy would start threads for large matrices; there are none here.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Processes that are started must not find modules in the working directory.
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    from jobreport.output import kernel  # noqa: PLC0415 - as above

    with contextlib.ExitStack() as stack:
        is_watch = watch is not None and refresh_s is None
        if refresh_s:
            formats, quiet = watch_formats or formats, True
        # It starts during the slow imports and the reading.
        has_page = not is_watch and {"html", "ipynb"} & set(formats)
        running = stack.enter_context(kernel.started()) if has_page else None
        from jobreport import plugins, settings  # noqa: PLC0415 - nor for --version
        from jobreport.cost.facts import given_facts, is_fact  # noqa: PLC0415 - nor for --version
        from jobreport.cost.prices import Pricing  # noqa: PLC0415
        from jobreport.options import Options  # noqa: PLC0415

        facts = given_facts(assignments)
        words = price_words(prices, prices_date, billing, redact=redact)
        words += [word for one in assignments if is_fact(one) for word in ("--set", one)]
        options = Options(
            formats=formats,
            redact=redact,
            fail_on=fail_on,
            refresh_s=refresh_s,
            settings=settings.load(
                config,
                [one for one in assignments if not is_fact(one)],
                select,
                ignore,
                plugins.known_rules(rule_files),
            ),
            pricing=Pricing(
                prices=price_list(prices, prices_date, redact=redact),
                billing=billing,
                facts=facts,
                options=tuple(words),
            ),
            **chosen,
        )
        if is_watch:
            return _watched(
                job_dir,
                out,
                options,
                {"--watch": watch, "--watch-timeout": watch_timeout, "--watch-idle-exit": watch_idle_exit},
                {"notify": notify or os.environ.get("JOBREPORT_NOTIFY"), "stop_on": stop_on},
                is_dry=dry_run_actions,
                of_recorder=of_recorder,
                quiet=quiet,
            )
        from jobreport import pipeline  # noqa: PLC0415 - nor for a watch, which starts other processes

        try:
            outcome = pipeline.make_report(
                job_dir,
                out,
                options,
                engine=stack.enter_context(open_engine(dask)),
                progress=open_progress(quiet=quiet),
                kernel=running,
            )
        except NothingReadableError:
            if refresh_s:
                return NOTHING_YET
            raise
    if refresh_s:
        return 1 if outcome.failure else 0
    return _told(outcome, options, quiet=quiet)


def _told(outcome: Outcome, options: Options, *, quiet: bool) -> int:
    """Print what was written; returns the exit status."""
    from jobreport.output import github, summary  # noqa: PLC0415 - as above

    said = [] if quiet else summary.terminal(outcome.report)
    if "github" in options.formats and github.has_summary():
        said = github.tell(github.of_report(outcome.report, str(outcome.main_file)), said)
    if said:
        click.echo("\n".join(said), err=True)
    print_path(outcome.main_file)
    if outcome.failure:
        raise outcome.failure
    worst = summary.worst_severity(outcome.report)
    return 3 if options.fail_on and worst and summary.reaches(worst, options.fail_on) else 0


def _watched(
    job_dir: Path | Url,
    out: Path | Url | None,
    options: Options,
    times: Mapping[str, str | None],
    short_forms: Mapping[str, str | None],
    *,
    is_dry: bool,
    of_recorder: bool,
    quiet: bool,
) -> int:
    """Make reports of a job that runs; each is made by a process with the options of this one."""
    from jobreport import settings  # noqa: PLC0415 - as above
    from jobreport.actions.acting import Acting  # noqa: PLC0415
    from jobreport.actions.configured import STOP, actions_of  # noqa: PLC0415
    from jobreport.watching import watch  # noqa: PLC0415

    for name, text in times.items():
        if text is not None and (settings.seconds(text) or 0) < watch.MIN_S:
            raise UsageError(
                f"{name} {text[:80]}: expected a time of at least {watch.MIN_S:g}s, such as 2min."
            )
    every_s, timeout_s, idle_exit_s = (settings.seconds(text) if text else None for text in times.values())
    chosen = options.settings or settings.load()
    actions = actions_of(chosen.actions, chosen.rules, **short_forms)
    if any(one.do == STOP for one in actions) and not of_recorder:
        raise UsageError(
            "An action that stops the job needs record-job, which started it: record-job --stop-on RULE."
        )
    folder = watch.folder_of(job_dir, out, redact=options.redact)

    def say(line: str) -> None:
        print_error(f"make-report: {line}")

    if of_recorder:
        # All options are right: record-job starts the job.
        os.write(1, b"ready\n")
    return watch.watch(
        watch.Watching(
            job_dir=job_dir,
            folder=folder,
            arguments=tuple(sys.argv[1:]),
            every_s=every_s or watch.MIN_S,
            timeout_s=timeout_s,
            idle_exit_s=idle_exit_s,
            of_recorder=of_recorder,
        ),
        Acting(actions, folder, say, is_redacted=options.redact, is_dry=is_dry),
        say,
        (lambda _: None) if quiet else say,
    )


def _misplaced(argument: str, job_dir: object) -> str:
    """What to do about an argument without an option."""
    known = f"{argument[:_MAX_NAME]} stands without an option."
    if job_dir is None:
        import shlex  # noqa: PLC0415 - as above

        return f"{known} Use `make-report --job-dir {shlex.quote(argument)[:_MAX_NAME]}`."
    return f"{known} --job-dir takes one directory: put all files of the job into it."


def open_engine(dask: str | None = None) -> AbstractContextManager[Engine]:
    """What reads files and runs rules: this machine, or a Dask cluster."""
    if dask is not None:
        from jobreport.tables.cluster import DaskEngine  # noqa: PLC0415 - an extra

        return DaskEngine(dask)
    from jobreport.tables.engine import LocalEngine  # noqa: PLC0415 - not for --help

    return LocalEngine()


def open_progress(*, quiet: bool) -> Progress:
    """What shows how far a command is: a bar on a terminal, lines elsewhere."""
    from jobreport import progress  # noqa: PLC0415 - as above

    if quiet or sys.stderr is None:
        return progress.Progress()
    if sys.stderr.isatty():
        return progress.Bar(sys.stderr)
    return progress.Lines(lambda line: click.echo(line, err=True))


def _escaped(text: str) -> str:
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def print_error(text: str) -> None:
    """Print to standard error; any name may stand in the text."""
    click.echo(_escaped(text), err=True)


def print_path(path: Path | Url) -> None:
    """Print to standard output."""
    try:
        if not isinstance(path, os.PathLike) or (sys.stdout and sys.stdout.isatty()):
            click.echo(_escaped(str(path)))
        elif hasattr(sys.stdout, "buffer"):
            # The bytes of the name: of text, click would remove what looks like a color.
            click.echo(os.fsencode(path))
        else:
            click.echo(str(path))
    except OSError as error:
        # At the end Python writes once more what is left, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise OSError(error.errno, error.strerror, "standard output") from error


def _interrupt(*_: object) -> None:
    """Act as for Ctrl-C, so that all temporary files are removed."""
    raise KeyboardInterrupt


def main() -> None:
    """Run ``make-report``."""
    run(command, "make-report")


def run(command: click.Command, name: str) -> None:
    """Run a command; errors become a sentence and an exit status, never a traceback without ``--strict``."""
    signal.signal(signal.SIGTERM, _interrupt)
    # Nearly all that is made lives to the end: looking for garbage would take a twentieth of the time.
    gc.disable()
    try:
        status = command.main(prog_name=name, standalone_mode=False)
    except JobReportError as error:
        print_error(f"{name}: {error}")
        status = error.exit_status
    except click.ClickException as error:
        message = io.StringIO()
        error.show(message)
        print_error(message.getvalue().rstrip())
        status = error.exit_code
    except OSError as error:
        if "--strict" in sys.argv:
            raise
        place = f"Cannot use {error.filename!r}: " if error.filename else ""
        print_error(f"{name}: {place}{error.strerror or error}.")
        status = 2
    except click.Abort:
        click.echo(f"{name}: stopped.", err=True)
        status = 130
    except Exception as error:
        if "--strict" in sys.argv:
            raise
        print_error(
            f"{name}: Internal error: {type(error).__name__}: {error}. This is a bug in jobreport. "
            "Run with --strict and report the traceback."
        )
        status = 1
    # Nor is there anything to find at the end.
    gc.freeze()
    sys.exit(status)


if __name__ == "__main__":
    main()
