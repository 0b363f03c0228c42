"""Options of a recording. Each is text in the environment, ``JOBRECORD_<NAME>``; the command's options overlay it.

``record-job`` hands all of them to the sampler and to its child by the environment.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from jobrecord import names

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "JOBRECORD_"
#: Of all labels together, and of the name of a run: facts hold them, and those of earlier runs.
MAX_LABELS, MAX_LABELS_BYTES, MAX_RUN = 100, 64 << 10, 100
MAX_STACKS = 50
_UNITS = {"ms": 0.001, "s": 1.0, "min": 60.0}
_SIZES = {
    "": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
}


class SettingError(ValueError):
    """An option that cannot be used; the text is one sentence for the user."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What to record, and where."""

    out: Path
    node: str
    #: Random; a process that has it in its environment belongs to this recording.
    run: str
    interval_s: float = 0.5
    #: ``auto``, ``all``, ``none``, or indices and UUIDs with commas between.
    gpus: str = "auto"
    #: A row for each core of the machine, also where the job may use some only.
    all_cores: bool = False
    #: ``auto``, or ``script``: nothing that the script does not ask for.
    steps: str = "auto"
    #: Samples of the stack of a process that trains, a second; 0 for none.
    stacks: float = 10.0
    #: First and last step of the Python profile.
    profile_steps: tuple[int, int] | None = None
    profiler: str = "cprofile"
    #: Steps whose operators are recorded.
    operators: tuple[int, ...] = ()
    #: Of the samples of this node.
    max_bytes: int = 2 << 30
    labels: Mapping[str, str] = field(default_factory=dict)
    #: Write into a folder that holds a recording.
    force: bool = False
    quiet: bool = False
    #: Make the report when the job has ended, and show how it goes until then.
    report: bool = False
    progress: bool = False
    #: URL for findings, rules that may stop the job, and a file with actions; all are for ``make-report --watch``.
    notify: str = field(default="", repr=False)
    stop_on: str = ""
    config: str = ""
    #: Object storage that the folder is copied to, and every how many seconds; 0 for the end only. Empty for none.
    url: str = ""
    upload_every_s: float = 300.0
    #: Leave the folder when all of it was copied.
    keep_local: bool = False
    #: Write the command line into the facts, without values that look secret.
    record_command: bool = False

    @property
    def report_folder(self) -> Path:
        """Where a report is made, beside the recording."""
        return self.out.with_name(f"{self.out.name}-report")


def read(environment: Mapping[str, str]) -> Settings:
    """Options from the environment. Raises SettingError."""

    def text(name: str, default: str = "") -> str:
        return environment.get(PREFIX + name, "") or default

    def flag(name: str) -> bool:
        return text(name) not in {"", "0"}

    return Settings(
        out=_folder(text("DIR") or names.folder_name()),
        node=names.node_name(text("NODE") or _vendor_name(environment)),
        run=_run(text("RUN")) or names.run_id(),
        interval_s=_interval(text("INTERVAL", "500ms")),
        gpus=text("GPUS", "auto"),
        all_cores=flag("ALL_CORES"),
        steps=_choice("--steps", text("STEPS", "auto"), ("auto", "script")),
        stacks=_rate(text("STACKS", "10")),
        profile_steps=_stretch(text("PROFILE_STEPS")),
        profiler=_choice("--profiler", text("PROFILER", "cprofile"), ("cprofile", "pyinstrument")),
        operators=_numbers(text("OPERATORS")),
        max_bytes=_size(text("MAX_BYTES", "2GiB")),
        labels=_labels(text("LABEL")),
        force=flag("FORCE"),
        quiet=flag("QUIET"),
        report=flag("REPORT"),
        progress=flag("PROGRESS"),
        notify=text("NOTIFY"),
        stop_on=text("STOP_ON"),
        config=text("CONFIG"),
        url=text("URL"),
        upload_every_s=_pause(text("UPLOAD_EVERY", "5min")),
        keep_local=flag("KEEP_LOCAL"),
        record_command=flag("RECORD_COMMAND"),
    )


def for_processes(settings: Settings) -> dict[str, str]:
    """Variables by which sampler and training processes find this recording."""
    return {PREFIX + "DIR": str(settings.out), PREFIX + "NODE": settings.node, PREFIX + "RUN": settings.run}


def _folder(text: str) -> Path:
    if "://" in text:
        raise SettingError(
            "Only record-job records into a URL, such as: record-job --out s3://bucket/job -- python train.py"
        )
    try:
        return Path(text).absolute()
    except FileNotFoundError:
        raise SettingError(
            f"The working directory was removed; give the full path of the folder {text}."
        ) from None


def _vendor_name(environment: Mapping[str, str]) -> str:
    """``algo-<number>``, from 1, as SageMaker calls nodes; empty unless asked for."""
    if environment.get(PREFIX + "VENDOR_NAMES", "") in {"", "0"}:
        return ""
    return f"algo-{(names.node_rank(environment) or 0) + 1}"


def _run(text: str) -> str:
    if len(text) > MAX_RUN:
        raise SettingError(f"{PREFIX}RUN: use at most {MAX_RUN} characters, not {len(text):,}.")
    return text


def _interval(text: str) -> float:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?(ms|s|min)", text)
    seconds = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if not 0.1 <= seconds <= 60:
        raise SettingError(f"--interval {text}: use a time from 100ms to 1min, such as 500ms.")
    return seconds


def _pause(text: str) -> float:
    match = re.fullmatch(r"0|([0-9]{1,5}) ?(s|min)", text)
    seconds = float(match[1] or 0) * _UNITS[match[2] or "s"] if match else -1.0
    if seconds and not 10 <= seconds <= 86400:
        raise SettingError(f"--upload-every {text}: use 0, or a time from 10s to 1440min, such as 5min.")
    return seconds


def _rate(text: str) -> float:
    rate = float(text) if re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,3})?", text) else -1.0
    if rate and not 0.1 <= rate <= MAX_STACKS:
        raise SettingError(
            f"--stacks {text}: use 0, or a number of samples a second from 0.1 to {MAX_STACKS}."
        )
    return rate


def _size(text: str) -> int:
    match = re.fullmatch(r"([0-9]+) ?([KMGT]?i?B?)", text, re.IGNORECASE)
    unit = match[2].upper() if match else "?"
    if match is None or unit not in _SIZES:
        raise SettingError(f"--max-bytes {text}: use a number of bytes, such as 500MB or 2GiB.")
    return int(match[1]) * _SIZES[unit]


def _choice(option: str, text: str, choices: tuple[str, ...]) -> str:
    if text not in choices:
        raise SettingError(f"{option} {text}: choose from {', '.join(choices)}.")
    return text


def _stretch(text: str) -> tuple[int, int] | None:
    if not text:
        return None
    match = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", text)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if last < first:
        raise SettingError(f"--profile-steps {text}: use a range of steps, such as 9-11.")
    return first, last


def _numbers(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"([0-9]{1,9}(,[0-9]{1,9})*)?", text):
        raise SettingError(f"--operators {text}: use numbers of steps, such as 5 or 5,6.")
    return tuple(int(part) for part in text.split(",") if part)


def _labels(text: str) -> dict[str, str]:
    """Labels, one ``KEY=VALUE`` on a line."""
    labels = {}
    for line in filter(None, text.split("\n")):
        key, equals, value = line.partition("=")
        if not equals or not re.fullmatch(r"[a-z0-9_.-]{1,64}", key) or len(value) > 1024:
            raise SettingError(
                f"--label {line[:80]!r}: use KEY=VALUE, a key of a-z, 0-9, '_', '.', '-' (at most 64 characters), "
                "and a value of at most 1,024 characters."
            )
        labels[key] = value
    if len(labels) > MAX_LABELS:
        raise SettingError(f"--label: at most {MAX_LABELS} labels, not {len(labels)}.")
    size = len(text.encode("utf-8", "surrogateescape"))
    if size > MAX_LABELS_BYTES:
        raise SettingError(f"--label: at most {MAX_LABELS_BYTES:,} bytes for all labels, not {size:,}.")
    return labels
