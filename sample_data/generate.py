"""Write the job directory that an imaginary training job would have left behind."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from generator.job import JobSpec
from generator.pytorch import trace_files
from generator.scenarios import SCENARIOS
from generator.smi_log import DIALECTS
from generator.writer import LOG, LogSpec, write_files, write_job

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from generator.job import Scenario
    from generator.writer import Written

INTERVALS_MS = (100, 200, 500, 1000, 2000, 5000, 60000)

#: The committed sample directories and the options that make them.
SAMPLES: dict[str, tuple[str, ...]] = {
    "healthy-8gpu": (
        "--scenario=healthy",
        "--seed=11",
        "--start=2025-03-04T09:21:17.500Z",
        "--gzip",
        "--no-steps",
    ),
    "fluctuating-1gpu": ("--scenario=fluctuating", "--seed=12", "--start=2025-03-05T13:48:42.180Z", "--gzip"),
    "cpu-bottleneck-2gpu": (
        "--scenario=cpu-bottleneck",
        "--seed=14",
        "--start=2025-03-07T07:54:08.640Z",
        "--gzip",
    ),
    "cpu-only": ("--scenario=cpu", "--seed=13", "--start=2025-03-06T20:05:33.310Z", "--gzip"),
    "throttled-4gpu": (
        "--scenario=throttled",
        "--seed=15",
        "--start=2025-03-08T16:02:11.420Z",
        "--duration=40m",
    ),
    "late-rank-4gpu": ("--form=pytorch", "--seed=16", "--start=2025-03-09T09:03:20.125Z", "--gzip"),
}
DEFAULT_START = "2025-03-04T09:21:17.500Z"
#: Ranks of PyTorch traces, one GPU each.
RANKS = 4
UNIT_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def duration_us(text: str) -> int:
    """Read ``90``, ``90s``, ``30m`` or ``12h``."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip())
    if match is None or float(match[1]) * UNIT_S[match[2]] < 0.1:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration; try 900, 30m or 12h")
    return round(float(match[1]) * UNIT_S[match[2]] * 1e6)


def start_us(text: str) -> int:
    """Read a time of day in UTC as microseconds since the epoch."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no time; try {DEFAULT_START}") from None
    if not 1990 <= moment.year < 2100:
        raise argparse.ArgumentTypeError(f"{text!r} is not between 1990 and 2100")
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)


def count(least: int) -> Callable[[str], int]:
    """Return a reader for whole numbers that are not below ``least``."""

    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
        return int(text)

    return read


def seconds_us(text: str) -> int:
    """Read seconds, which may be below zero."""
    match = re.fullmatch(r"[-+]?\d{1,6}(?:\.\d{1,6})?", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds; try 2.5 or -40")
    return round(float(text) * 1e6)


def machine(scenario: Scenario) -> str:
    """Describe what a scenario is typically run on."""
    nodes = f"{scenario.nodes} nodes of " if scenario.nodes > 1 else ""
    traced = ", with steps" if scenario.steps else ", as an nvidia-smi log" if scenario.logged else ""
    gpus = {0: "no GPU", 1: "1 GPU"}.get(scenario.gpus, f"{scenario.gpus} GPUs")
    return f"{nodes}{gpus}, {scenario.cores} cores, {scenario.duration_s / 60:g} min{traced}"


def build_parser() -> argparse.ArgumentParser:
    """Describe the options."""
    scenarios = "\n".join(
        f"  {name:14} {one.summary}\n  {'':14} ({machine(one)})" for name, one in SCENARIOS.items()
    )
    dialects = "\n".join(f"  {name:14} {one.summary}" for name, one in DIALECTS.items())
    parser = argparse.ArgumentParser(
        prog="generate.py",
        description="Write the job directory of an imaginary training job.",
        epilog=f"scenarios, with the machine and duration they take unless options say otherwise:\n{scenarios}\n\n"
        f"dialects of nvidia-smi logs:\n{dialects}\n\n"
        "example:\n  python sample_data/generate.py --scenario healthy --duration 2h --out /tmp/job",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="where to write the job; required, except with --samples and --learning",
    )
    parser.add_argument(
        "--scenario",
        choices=SCENARIOS,
        default="healthy",
        help="what the machine does (default: %(default)s)",
    )
    parser.add_argument(
        "--nodes", type=count(1), metavar="N", help="number of machines (default: the scenario's)"
    )
    parser.add_argument(
        "--gpus", type=count(0), metavar="N", help="GPUs of each node (default: the scenario's)"
    )
    parser.add_argument(
        "--cores", type=count(1), metavar="N", help="cores of each node (default: the scenario's)"
    )
    parser.add_argument(
        "--duration", type=duration_us, metavar="TIME", help="900, 30m or 12h (default: the scenario's)"
    )
    parser.add_argument(
        "--interval",
        type=int,
        choices=INTERVALS_MS,
        help="milliseconds between samples (default: the scenario's)",
    )
    parser.add_argument(
        "--seed",
        type=count(0),
        default=1,
        metavar="N",
        help="another seed, another noise (default: %(default)s)",
    )
    parser.add_argument(
        "--start",
        type=start_us,
        default=DEFAULT_START,
        metavar="TIME",
        help="first sample, in UTC (default: %(default)s)",
    )
    parser.add_argument(
        "--form",
        choices=("samples", "nvidia-smi", "both", "pytorch"),
        help="SageMaker samples, a log of nvidia-smi, both of the same moments, or, in place of any scenario, PyTorch "
        "traces of some steps with a late rank (default: the scenario's)",
    )
    parser.add_argument(
        "--dialect", choices=DIALECTS, default="csv", help="how logs are written (default: %(default)s)"
    )
    parser.add_argument("--log-each-gpu", action="store_true", help="a log for each GPU, not for each node")
    parser.add_argument(
        "--log-ahead",
        type=seconds_us,
        default=0,
        metavar="SECONDS",
        help="how far the clock of logs is ahead of that of samples (default: %(default)s)",
    )
    parser.add_argument(
        "--log-zone",
        default="UTC",
        metavar="NAME",
        help="zone of the times in logs that name none, as Europe/Berlin (default: %(default)s)",
    )
    parser.add_argument("--no-steps", action="store_true", help="samples only, no trace of the training loop")
    parser.add_argument("--gzip", action="store_true", help="compress every file, as .gz")
    parser.add_argument(
        "--samples",
        action="store_true",
        help="write the committed samples anew, into DIR or beside this program; takes no option but --out",
    )
    parser.add_argument(
        "--learning",
        action="store_true",
        help="train small networks and write the committed recordings of them anew, as --samples does; needs PyTorch",
    )
    return parser


def spec_from(parser: argparse.ArgumentParser, options: argparse.Namespace) -> JobSpec:
    """Fill what the options leave open from the scenario."""
    name, scenario = options.scenario, SCENARIOS[options.scenario]
    gpus = scenario.gpus if options.gpus is None else options.gpus
    if gpus and not scenario.gpus:
        parser.error(f"scenario {name} has no GPU: leave --gpus out")
    if not gpus and scenario.gpus:
        parser.error(f"scenario {name} needs a GPU: leave --gpus out, or choose --scenario cpu")
    return JobSpec(
        scenario=scenario,
        steps=None if options.no_steps else scenario.steps,
        nodes=options.nodes or scenario.nodes,
        gpus=gpus,
        cores=options.cores or scenario.cores,
        duration_us=options.duration or round(scenario.duration_s * 1e6),
        interval_us=1000 * (options.interval or scenario.interval_ms),
        start_us=options.start,
        seed=options.seed,
        # The tool writes milliseconds.
        resolution_us=1 if form_from(options) == "samples" else 1000,
    )


def form_from(options: argparse.Namespace) -> str:
    """What to write, by default the scenario's."""
    return options.form or ("nvidia-smi" if SCENARIOS[options.scenario].logged else "samples")


def log_from(parser: argparse.ArgumentParser, options: argparse.Namespace) -> LogSpec | None:
    """What logs to write, if any."""
    if form_from(options) == "samples":
        for name in ("dialect", "log_each_gpu", "log_ahead", "log_zone"):
            if getattr(options, name) != parser.get_default(name):
                parser.error(f"--{name.replace('_', '-')} is for logs: add --form nvidia-smi or --form both")
        return None
    if not SCENARIOS[options.scenario].gpus:
        parser.error(f"scenario {options.scenario} has no GPU, so nvidia-smi has nothing to log")
    try:
        ZoneInfo(options.log_zone)
    except (LookupError, OSError, ValueError):
        parser.error(f"{options.log_zone!r} is no time zone; try Europe/Berlin")
    return LogSpec(
        dialect=DIALECTS[options.dialect],
        each_gpu=options.log_each_gpu,
        ahead_us=options.log_ahead,
        zone=options.log_zone,
    )


def write(parser: argparse.ArgumentParser, options: argparse.Namespace, job_dir: Path) -> Written:
    """Write the job that the options describe."""
    if options.form == "pytorch":
        files = trace_files(options.gpus or RANKS, options.seed, options.start)
        return write_files(files, job_dir, gzipped=options.gzip)
    spec, log = spec_from(parser, options), log_from(parser, options)
    samples = form_from(options) != "nvidia-smi"
    return write_job(spec, job_dir, gzipped=options.gzip, samples=samples, log=log)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    parser = build_parser()
    options = parser.parse_args(argv)
    jobs: dict[Path, argparse.Namespace] = {}
    if options.learning:
        from generator.learning.recording import record_all  # noqa: PLC0415 - needs PyTorch

        record_all(options.out or Path(__file__).parent / "learning")
        return 0
    if options.samples:
        allowed = parser.parse_args(["--samples"])
        allowed.out = options.out
        if options != allowed:
            parser.error("--samples takes no option but --out")
        root = options.out or Path(__file__).parent
        for name, arguments in SAMPLES.items():
            jobs[root / name] = parser.parse_args(arguments)
            for part in ("system", "framework"):
                shutil.rmtree(root / name / part, ignore_errors=True)
            for stale in [*(root / name).glob(f"{LOG}*"), *(root / name).glob("*.pt.trace.json*")]:
                stale.unlink()
    elif options.out is None:
        parser.error("say where to write the job: --out DIR")
    else:
        jobs[options.out] = options

    for job_dir, job_options in jobs.items():
        begin_s = time.perf_counter()
        try:
            written = write(parser, job_options, job_dir)
        except OSError as error:
            print(f"generate.py: {error}", file=sys.stderr)
            return 1
        seconds = time.perf_counter() - begin_s
        print(
            f"{job_dir}: {written.lines:,} lines in {written.files} files, {written.size_bytes / 1e6:.2f} MB,"
            f" {seconds:.1f} s ({written.lines / seconds:,.0f} lines/s)"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
