"""The command ``compare-reports``: a thin layer over ``compare.compare_reports``."""

from __future__ import annotations

import contextlib
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jobreport import __version__, cli
from jobreport.errors import UsageError
from jobreport.files import DEFAULT
from jobreport.options import Options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobreport.storage.urls import Url


@click.command(
    options_metavar="[OPTIONS]",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit status: 0 comparison written; 1 something failed, comparison written as far as possible; "
    "2 usage error or a run that cannot be read; 3 a budget of level error is broken, or its measure was not measured.",
)
@click.argument("runs", nargs=-1, metavar="[LABEL=]BASE [LABEL=]RUN...")
@click.option(
    "--out",
    callback=cli.place,
    metavar="DIR",
    help="Output directory, also at s3://, gs://, az://.  [default: ./comparison]",
)
@cli.price_options
@click.option(
    "--per-month", type=click.FloatRange(min=0), metavar="N", help="Show what N runs save, or cost more."
)
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="[LABEL.]KEY=VALUE",
    help=f"Give a fact of the runs of a label, or of all: {cli.FACTS}, steps, tokens_per_step, finished, or any other. Stands over what was "
    "recorded. Repeatable.",
)
@click.option(
    "--budget",
    "budgets",
    multiple=True,
    metavar="FILE.toml|MEASURE<=LIMIT",
    help="Check limits: of a value (step_s<=0.5), or of the change from the base (step_s<=+5%); a broken one of level error gives exit status 3. Repeatable.",
)
@click.option(
    "--inconclusive",
    type=click.Choice(["pass", "error"]),
    default="pass",
    show_default=True,
    help="What a budget is that neither holds nor is broken for sure.",
)
@click.option(
    "--min-effect",
    "min_effects",
    multiple=True,
    metavar="PERCENT|MEASURE=AMOUNT",
    help="Smaller changes are the same.  [default: 2%, percentages 1 point]",
)
@click.option(
    "--run-noise",
    default="3%",
    show_default=True,
    metavar="PERCENT",
    help="Standard deviation between runs of the same code, which one run cannot show.",
)
@click.option(
    "--co2", type=click.FloatRange(min=0), metavar="G_PER_KWH", help="Show CO₂ of the GPUs' energy."
)
@click.option(
    "--pue",
    type=click.FloatRange(min=1),
    default=1.0,
    show_default=True,
    help="Energy of the site per energy of the machines, for --co2.",
)
@click.option(
    "--formats",
    default=",".join(DEFAULT),
    callback=cli.formats,
    show_default=True,
    metavar="LIST",
    help="Files to write; comparison.json is always written. Also junit and github, for CI.",
)
@cli.storage_options
@click.option("--static", is_flag=True, help="Write a smaller page without scripts; figures are static.")
@click.option(
    "--redact",
    is_flag=True,
    help="Leave out names of jobs, labels that record-job was given, names in traces, and links to reports.",
)
@click.option("--strict", is_flag=True, help="Stop at the first part that fails, and show its traceback.")
@click.option("--quiet", is_flag=True, help="Print only the path of the page.")
@click.option(
    "--force", is_flag=True, help="Overwrite an existing comparison, and compare a run with itself."
)
@click.version_option(__version__, message="jobreport %(version)s", help="Show the version and exit.")
def command(
    runs: tuple[str, ...],
    out: Path | Url | None,
    prices: Path | None,
    prices_date: str | None,
    billing: str,
    per_month: float | None,
    assignments: tuple[str, ...],
    budgets: tuple[str, ...],
    inconclusive: str,
    min_effects: tuple[str, ...],
    run_noise: str,
    co2: float | None,
    pue: float,
    formats: tuple[str, ...],
    static: bool,
    redact: bool,
    strict: bool,
    quiet: bool,
    force: bool,
    **of_storage: Any,
) -> int:
    """Compare two or more runs of a job: time, utilization, cost, and what to run next.

    A run is a report folder, a report.json, or a job directory or archive; also at s3://, gs://, az://. Runs of one label are repeats of one variant;
    without a label, a run has the name of its job. All variants are compared with the first. Writes comparison.html, .ipynb, .json, and .md. Prints the path of the page
    to standard output, and the verdict to standard error.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    from jobreport.output import kernel  # noqa: PLC0415 - numpy is not needed for --help

    if not runs:
        raise UsageError("No runs given. Use `compare-reports BASE OTHER`; see `compare-reports --help`.")
    with contextlib.ExitStack() as stack:
        running = stack.enter_context(kernel.started()) if {"html", "ipynb"} & set(formats) else None
        from jobreport import compare  # noqa: PLC0415 - nor for --version
        from jobreport.comparison import markdown, reading  # noqa: PLC0415
        from jobreport.comparison.budgets import limits_of  # noqa: PLC0415
        from jobreport.comparison.comparing import Options as Limits  # noqa: PLC0415
        from jobreport.comparison.comparing import Settings  # noqa: PLC0415
        from jobreport.output import github  # noqa: PLC0415

        settings = Settings(
            options=Limits(
                min_effect=_min_effects(min_effects), run_noise=_percent("--run-noise", run_noise)
            ),
            prices=cli.price_list(prices, prices_date, redact=redact),
            billing=billing,
            limits=limits_of(budgets),
            runs_per_month=per_month,
            co2_g=co2,
            pue=pue,
        )
        outcome = compare.compare_reports(
            runs,
            out,
            settings=settings,
            given=reading.facts(assignments),
            command=_again(
                runs,
                assignments,
                cli.price_words(prices, prices_date, billing, redact=redact),
                {
                    "--budget": budgets,
                    "--min-effect": min_effects,
                    "--run-noise": [run_noise] if run_noise != "3%" else [],
                    "--per-month": [] if per_month is None else [f"{per_month:g}"],
                    "--co2": [] if co2 is None else [f"{co2:g}"],
                    "--pue": [f"{pue:g}"] if pue != 1 else [],
                },
                redact=redact,
            ),
            options=Options(
                formats=formats, static=static, force=force, strict=strict, redact=redact, **of_storage
            ),
            engine=stack.enter_context(cli.open_engine()),
            progress=cli.open_progress(quiet=quiet),
            kernel=running,
        )
    said = [] if quiet else markdown.terminal(outcome.comparison)
    if "github" in formats and github.has_summary():
        said = github.tell(github.of_comparison(outcome.comparison, str(outcome.main_file)), said)
    if said:
        cli.print_error("\n".join(said))
    cli.print_path(outcome.main_file)
    if outcome.failure:
        raise outcome.failure
    states = {"broken", "inconclusive"} if inconclusive == "error" else {"broken"}
    judged = [one for one in outcome.comparison.budgets if one.level == "error"]
    # Without a value, nothing was checked.
    return 3 if any(one.state in states or one.value is None for one in judged) else 0


def _percent(option: str, text: str) -> float:
    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        value = -1.0
    if not 0 <= value < 1000:
        raise UsageError(f"{option} {text[:80]}: expected a percentage such as 3%.")
    return value


def _min_effects(texts: Sequence[str]) -> dict[str, float]:
    """By measure; for all others under the empty name."""
    from jobreport.comparison.measures import BY_KEY  # noqa: PLC0415 - as above

    found = {}
    for text in texts:
        name, equals, amount = text.rpartition("=")
        if equals and name not in BY_KEY:
            raise UsageError(f"--min-effect {text[:80]}: unknown measure {name[:40]}.")
        found[name] = _percent("--min-effect", amount)
    return found


def _again(
    runs: Sequence[str],
    assignments: Sequence[str],
    price_words: Sequence[str],
    options: Mapping[str, Sequence[str]],
    *,
    redact: bool,
) -> str:
    """The command that makes the comparison again, with the last part of each path; without paths if redacted."""
    from jobreport.comparison.budgets import is_file  # noqa: PLC0415 - as above
    from jobreport.comparison.reading import argument  # noqa: PLC0415
    from jobreport.cost.facts import PUBLIC  # noqa: PLC0415

    words = ["compare-reports"]
    for run in map(argument, runs):
        name = "RUN" if redact else str(run.path)
        if isinstance(run.path, Path) and not redact:
            name = run.path.name or name
        words.append(f"{run.label}={name}" if run.label else name)
    # With --redact, as the facts themselves.
    kept = [one for one in assignments if not redact or one.partition("=")[0].rpartition(".")[2] in PUBLIC]
    words += [word for one in kept for word in ("--set", one)]
    words += price_words
    for option, values in options.items():
        for value in values:
            short = "BUDGETS" if redact and is_file(value) else Path(value).name
            words += [option, short if option == "--budget" else value]
    return shlex.join(words)


def main() -> None:
    """Run the command; errors become a sentence and an exit status."""
    cli.run(command, "compare-reports")


if __name__ == "__main__":
    main()
