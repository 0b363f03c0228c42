"""The command ``record-job``: runs a command, and samples the machine while it runs."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib.util
import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psutil

from jobrecord import __version__, facts, names, settings, what_ran
from jobrecord.hooks import auto_steps
from jobrecord.job import Job, JobStartError
from jobrecord.progress import Progress
from jobrecord.sampler_process import SamplerProcess
from jobrecord.settings import PREFIX, SettingError
from jobrecord.uploader_process import UploaderProcess
from jobrecord.watcher import RefusedError, Watcher, is_wanted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrecord.settings import Settings

USAGE, _INTERRUPTED = 2, 130
#: Exit status of a job that was stopped by a rule.
STOPPED = 4


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status of the job, or 2, 126, 127 if it could not be started."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    end = given.index("--") if "--" in given else len(given)
    parser, command = _parser(), given[end + 1 :]
    options, unknown = parser.parse_known_args(given[:end])
    try:
        _check(parser, options, unknown, command)
        texts = _texts(options)
        environment = {**os.environ, **{PREFIX + name: text for name, text in texts.items()}}
        _choose_folder(environment)
        chosen, uploader = _claimed(options, command, environment)
        environment |= settings.for_processes(chosen)
        beside = _Beside(_watcher(chosen, environment), uploader)
    except SettingError as error:
        _say(str(error))
        return USAGE
    except RefusedError:
        return USAGE
    except KeyboardInterrupt:
        return _INTERRUPTED
    if options.pid:
        return _attach(chosen, environment, options.pid, beside)
    return _run(chosen, environment, command, beside)


class _Beside(NamedTuple):
    """Processes that a job may have beside it."""

    watcher: Watcher | None
    uploader: UploaderProcess | None

    def hurry(self) -> None:
        """Tell them that little time is left."""
        for one in self:
            if one:
                one.hurry()


def _say(text: str) -> None:
    """Print a line for the user. A log that is full, or a reader of it that is gone, changes no exit status."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            # Not by the stream, which fails again at the end for what it could not write.
            os.write(2, f"record-job: {names.shown(text)}\n".encode())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="record-job",
        usage="record-job [OPTIONS] -- COMMAND [ARGUMENT ...]",
        description="Record what the machine does while a training job runs. Then: make-report --job-dir DIR.",
        epilog="Each option can be set by the environment: JOBRECORD_INTERVAL=1s; the folder is JOBRECORD_DIR. "
        "Exit status: that of the command, 128 + n if signal n killed it; 2 usage error; 4 stopped by a rule; 126, 127 "
        "command not executable, not found.",
        allow_abbrev=False,
    )
    option, flag = parser.add_argument, "store_const"
    option(
        "--out",
        metavar="DIR|URL",
        help="folder of the recording, or s3://, gs://, az:// [default: ./job-<UTC time>]",
    )
    option("--upload-every", metavar="TIME", help="to a URL; 0: only at the end [default: 5min]")
    option("--keep-local", action=flag, const="1", help="keep the local copy of what is at a URL")
    option("--interval", metavar="TIME", help="sampling interval, 100ms to 1min [default: 500ms]")
    option(
        "--gpus",
        metavar="GPUS",
        help="auto, all, none, or indices and UUIDs [default: auto: the visible ones]",
    )
    option("--node", metavar="NAME", help="name of this node [default: host name]")
    option("--all-cores", action=flag, const="1", help="sample cores that the job may not use as well")
    option("--vendor-names", action=flag, const="1", help="name nodes algo-1, algo-2, as SageMaker does")
    option(
        "--steps",
        metavar="WHEN",
        help="auto: steps, without a change of the script; script: only if it calls jobrecord [default: auto]",
    )
    option(
        "--stacks",
        metavar="RATE",
        help="looks at the line of code that runs, a second in each training process; 0: none [default: 10]",
    )
    option("--profile-steps", metavar="FIRST-LAST", help="Python profile of these steps")
    option("--profiler", metavar="NAME", help="cprofile or pyinstrument [default: cprofile]")
    option("--operators", metavar="STEPS", help="operators of these steps, such as 5,6")
    option("--max-bytes", metavar="SIZE", help="size of the samples of a node [default: 2GiB]")
    option(
        "--label",
        metavar="KEY=VALUE",
        action="append",
        help="a fact for comparisons and cost, such as batch_size=512; repeatable",
    )
    option("--record-command", action=flag, const="1", help="keep the command line, without secret values")
    option("--pid", type=int, metavar="PID", help="record a running process instead of a command")
    option(
        "--report", action=flag, const="1", help="make the report at the end, where jobreport is installed"
    )
    option("--notify", metavar="URL", help="post findings while the job runs, where jobreport is installed")
    option("--stop-on", metavar="RULE", help="stop the job if this rule triggers, not before 30 minutes")
    option("--config", metavar="FILE", help="actions and parameters of rules for the two options above")
    option("--progress", action=flag, const="1", help="on a terminal, show step, step time, wait, and GPU")
    option("--quiet", action=flag, const="1", help="print nothing but errors")
    option("--force", action=flag, const="1", help="write into a folder that has a recording of this node")
    parser.add_argument("--version", action="version", version=f"record-job {__version__}")
    return parser


def _check(
    parser: argparse.ArgumentParser, options: argparse.Namespace, unknown: list[str], command: list[str]
) -> None:
    if unknown and unknown[0].startswith("-"):
        name = unknown[0].partition("=")[0]
        near = difflib.get_close_matches(name, re.findall(r"--[a-z-]+", parser.format_help()), 1)
        raise SettingError(
            f"Unknown option {name}. {f'Did you mean {near[0]}?' if near else 'See record-job --help.'}"
        )
    if unknown or bool(command) == bool(options.pid):
        raise SettingError("Give a command after --, such as: record-job -- python train.py (or --pid PID).")
    if not (options.out or os.environ.get(PREFIX + "DIR")) and (names.node_count(os.environ) or 1) > 1:
        raise SettingError("This job has several nodes: use --out with the same folder for all of them.")


def _texts(options: argparse.Namespace) -> dict[str, str]:
    """Options that were given, by their names in the environment."""
    texts = {
        "DIR" if name == "out" else name.upper(): "\n".join(value) if isinstance(value, list) else str(value)
        for name, value in vars(options).items()
        if value is not None
    }
    texts.pop("PID", None)
    return texts


def _choose_folder(environment: dict[str, str]) -> None:
    """Have what is for a URL recorded into a new folder of this machine, which is copied there."""
    # That of a recorder around this one.
    environment.pop(PREFIX + "URL", None)
    text = environment.get(PREFIX + "DIR", "")
    if "://" not in text:
        return
    import tempfile  # noqa: PLC0415 - only for a URL

    from jobrecord.storage.urls import UrlError, parse  # noqa: PLC0415

    try:
        place = parse(text)
    except UrlError as error:
        raise SettingError(f"--out: {error}") from None
    if isinstance(place, str):
        environment[PREFIX + "DIR"] = place
        return
    folder = Path(tempfile.gettempdir()) / f"{names.folder_name()}-{names.run_id()}"
    environment |= {PREFIX + "DIR": str(folder), PREFIX + "URL": str(place)}


def _claimed(
    options: argparse.Namespace, command: Sequence[str], environment: dict[str, str]
) -> tuple[Settings, UploaderProcess | None]:
    """The settings, checked as far as that is possible before the job starts, and the folder, made."""
    from jobrecord.sensors import drivers  # noqa: PLC0415 - only for this check

    chosen = settings.read(environment)
    if options.pid and not psutil.pid_exists(options.pid):
        raise SettingError(f"--pid {options.pid}: no such process.")
    drivers.check(chosen.gpus)
    no_steps = auto_steps.obstacle(command) if chosen.steps == "auto" else ""
    # A process that runs already is recorded without steps, unless somebody asks for them.
    if no_steps and (command or PREFIX + "STEPS" in environment):
        _say(f"--steps auto: {no_steps}")
    for option, is_given in (("--operators", chosen.operators), ("--profile-steps", chosen.profile_steps)):
        if is_given and (no_steps or chosen.steps == "script"):
            _say(f"{option}: only if the script calls jobrecord.start()")
    if options.pid and chosen.stop_on:
        raise SettingError("--stop-on: only for a job that record-job starts.")
    if (chosen.report or is_wanted(chosen)) and not _has_jobreport():
        _say("--report, --notify, --stop-on: jobreport is not installed here.")
    commit = what_ran.commit() if command else None
    if not chosen.url:
        return facts.claim(chosen, environment, command, no_steps, commit), None
    if chosen.report and chosen.url.count("/") == 2:
        raise SettingError(f"--report: it lies beside the recording, so use --out {chosen.url}/my-job.")
    try:
        chosen.out.mkdir(0o700)
        uploader = UploaderProcess(chosen, environment)
        return facts.claim(chosen, environment, command, no_steps, commit), uploader
    except OSError as error:
        raise SettingError(f"--out: {error}.") from error
    except (SettingError, KeyboardInterrupt) as error:
        _remove(chosen)
        raise type(error)(str(error).replace(str(chosen.out), chosen.url)) from None


def _remove(chosen: Settings) -> None:
    """Remove what is on this machine of a recording into a URL, with what a watch wrote beside it."""
    import shutil  # noqa: PLC0415 - only for a URL

    for folder in (chosen.out, chosen.report_folder):
        shutil.rmtree(folder, ignore_errors=True)


def _run(chosen: Settings, environment: dict[str, str], command: list[str], beside: _Beside) -> int:
    watcher, uploader = beside
    hooks = auto_steps.variables(environment) if chosen.steps == "auto" else {}
    try:
        job = Job(command, environment | hooks)
    except JobStartError as error:
        if watcher:
            watcher.finish(0)
        _withdraw(chosen, error.exit_status)
        _say(str(error))
        return error.exit_status
    if uploader:
        uploader.tell(chosen.node)
    job.on_term = beside.hurry
    sampler = _sampler(environment, job.pid)
    progress = Progress(chosen)
    status = job.wait(watcher.asked_to_stop) if watcher else job.wait()
    progress.stop()
    ended_by, shown = ("exit", status) if status >= 0 else (f"signal:{-status}", 128 - status)
    _end(chosen, sampler, ended_by, shown, beside)
    return STOPPED if watcher and watcher.stopped_by else shown


def _attach(chosen: Settings, environment: dict[str, str], pid: int, beside: _Beside) -> int:
    """Sample until the process ends, or until this one is asked to end."""
    if beside.uploader:
        beside.uploader.tell(chosen.node)
    sampler, ended_by = None, "detached"
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):
        sampler = _sampler(environment, pid)
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            # One that has ended stays a zombie until its parent asks for its exit status.
            while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                # Not for longer: a signal that comes just before the wait is seen after it.
                with contextlib.suppress(psutil.TimeoutExpired):
                    process.wait(timeout=1)
        ended_by = "exit"
    if ended_by == "detached":
        beside.hurry()
    _end(chosen, sampler, ended_by, None, beside)
    return 0


def _sampler(environment: dict[str, str], pid: int) -> SamplerProcess | None:
    try:
        return SamplerProcess(environment, pid)
    except OSError as error:
        _say(f"no samples: {error}")
        return None


def _watcher(chosen: Settings, environment: dict[str, str]) -> Watcher | None:
    """What looks at findings while the job runs, of several nodes on the first one. Raises RefusedError."""
    if not is_wanted(chosen) or names.node_rank(environment) or not _has_jobreport():
        return None
    try:
        return Watcher(chosen, environment)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        _say(f"findings are not watched: {error}.")
        return None
    except (RefusedError, KeyboardInterrupt):
        _withdraw(chosen, USAGE)
        raise


def _has_jobreport() -> bool:
    return importlib.util.find_spec("jobreport") is not None


def _withdraw(chosen: Settings, exit_status: int) -> None:
    """Leave nothing of a job that could not be started."""
    facts.withdraw(chosen, exit_status)
    if chosen.url:
        _remove(chosen)


def _end(
    chosen: Settings, sampler: SamplerProcess | None, ended_by: str, exit_status: int | None, beside: _Beside
) -> None:
    watcher, uploader = beside
    sampler_ended_by = sampler.stop() if sampler else None
    stopped_by = (watcher and watcher.stopped_by) or None
    left = facts.end(chosen, ended_by, exit_status, sampler_ended_by, stopped_by)
    if stopped_by:
        _say(f"stopped by rule {stopped_by}.")
    if uploader:
        uploader.tell("end")
    if watcher and watcher.finish():
        _say("findings were not watched to the end of the job.")
    if sampler_ended_by:
        _say(f"the sampler ended before the job: {sampler_ended_by}.")
    reason = (left.get("dropped") or {}).get("reason")
    if reason:
        _say(f"samples are missing: {reason}.")
    place = _uploaded(chosen, uploader) if uploader else str(chosen.out)
    # Of several nodes the first one reports.
    has_report = chosen.report and not left.get("node_rank") and _report(chosen, place)
    if not (chosen.quiet or has_report):
        _say(f"next: make-report --job-dir {names.word(place)}")


def _uploaded(chosen: Settings, uploader: UploaderProcess) -> str:
    """Where all of the recording is: at the URL, or if that has not all of it, in the folder."""
    if missing := uploader.finish():
        _say(f"not all is in {chosen.url}: {missing} All is in {chosen.out}.")
        return str(chosen.out)
    if not chosen.keep_local:
        _remove(chosen)
    return chosen.url


def _report(chosen: Settings, place: str) -> bool:
    """Make the report beside the recording. Returns whether it was made."""
    if not _has_jobreport():
        return False
    command = [sys.executable, "-m", "jobreport", "--job-dir", place, "--out", f"{place}-report"]
    # The signals of the job are blocked here: this is no part of it, and may be interrupted.
    unblock = partial(signal.pthread_sigmask, signal.SIG_SETMASK, ()) if os.name == "posix" else None
    try:
        made = subprocess.run(
            [*command, "--force", *(["--quiet"] if chosen.quiet else [])],
            # Not modules of the job's in the working directory.
            env={**os.environ, "PYTHONSAFEPATH": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if chosen.quiet else None,
            preexec_fn=unblock,
            check=False,
        )
    except OSError as error:
        _say(f"--report: {error}")
        return False
    if made.returncode:
        _say(f"--report: make-report ended with exit status {made.returncode}.")
        return False
    if not chosen.quiet:
        _say(f"report: {place}-report/report.html")
    return True
