"""From the arguments of ``compare-reports`` to runs: labels, reports, and given facts."""

from __future__ import annotations

import contextlib
import difflib
import math
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from jobreport import document, pipeline
from jobreport.comparison.runs import run_of
from jobreport.cost.facts import LABELS, NUMBERS, PUBLIC, as_fact
from jobreport.cost.prices import ANY_PRICES
from jobreport.errors import NothingReadableError, UsageError
from jobreport.files import COMPARISON, FILES
from jobreport.options import Options
from jobreport.readers.bounds import LATEST_US
from jobreport.redaction.identifiers import is_common
from jobreport.redaction.names import renamed
from jobreport.redaction.pseudonyms import Pseudonyms
from jobreport.scratch import Scratch
from jobreport.storage.urls import UrlError, is_url, parse
from jobrules.analyses.goodput import PARTS
from jobrules.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from jobreport.comparison.runs import RunOf
    from jobreport.document import Report
    from jobreport.storage.urls import Url
    from jobreport.tables.engine import Engine
    from jobrules.model.captures import DeviceCapture

_LABEL = re.compile(r"[A-Za-z0-9._-]{1,40}")
_FACT = re.compile(rf"(?:({_LABEL.pattern})\.)?([a-z][a-z0-9_]{{0,39}})=(.+)", re.DOTALL)
#: Facts that follow from others, with these.
_DERIVED = {"gpus": "nodes and gpus_per_node", "samples": "batch_size and steps"}
#: Names of facts that are this similar are one name with a mistake.
_NEAR = 0.85
MAX_LABELS, MAX_RUNS = 12, 64
MAX_BYTES = 64 << 20
#: Of amounts and of shares.
MAX_NUMBER, MAX_PERCENT = 1e18, 100.05
#: Rounding errors of sums: of seconds, and of devices.
TOLERANCE_S, TOLERANCE = 1e-3, 0.05


class Argument(Struct, frozen=True, kw_only=True):
    """A run as the user named it."""

    #: Empty if the user gave none.
    label: str
    path: Path | Url

    @property
    def report(self) -> Path | None:
        """File of a report on this machine; None for a job that has none yet."""
        if not isinstance(self.path, Path):
            return None
        if self.path.is_dir():
            file = self.path / FILES["json"]
            return file if file.is_file() else None
        return self.path if self.path.suffix == ".json" else None


def arguments(texts: Sequence[str]) -> list[Argument]:
    """``[LABEL=]PATH`` of each run. Raises ``UsageError`` for too few and too many."""
    found = [argument(text) for text in texts]
    if len(found) < 2:
        raise UsageError("Name at least two runs: compare-reports BASE OTHER; see compare-reports --help.")
    if len(found) > MAX_RUNS:
        raise UsageError(f"{len(found)} runs; compare-reports takes at most {MAX_RUNS}.")
    return found


def argument(text: str) -> Argument:
    """``[LABEL=]PATH`` of a run. Raises ``UsageError`` if there is no such file or folder."""
    label, equals, rest = text.partition("=")
    if not equals or not rest or not _LABEL.fullmatch(label) or Path(text).exists():
        label, rest = "", text
    if is_url(rest):
        try:
            found = parse(rest)
        except UrlError as error:
            raise UsageError(str(error)) from None
        if not isinstance(found, str):
            return Argument(label=label, path=found)
        rest = found
    path = Path(rest)
    if not path.exists():
        name, equals, end = text.partition("=")
        hint = "Name a report folder, a report.json, or a job directory."
        if equals and Path(end).exists():
            hint = f"{escape_name(name, 60)} is no label: 1 to 40 letters, digits, and . _ - are."
        raise UsageError(f"Not found: {escape_name(rest, 200)}. {hint}")
    if not (path.is_file() or path.is_dir()):
        raise UsageError(f"{escape_name(rest, 200)} is neither a folder nor a file.")
    if path.suffix == ".html":
        raise UsageError(
            f"{escape_name(rest, 200)} is a page. Name its folder, or the {FILES['json']} next to it."
        )
    if path.is_dir() and not any(path.iterdir()):
        raise UsageError(f"{escape_name(rest, 200)} is an empty folder.")
    if path.name == COMPARISON.files["json"]:
        raise UsageError(f"{escape_name(rest, 200)} is a comparison. Name the reports that it compares.")
    return Argument(label=label, path=path)


def read(
    arguments: Sequence[Argument],
    given: Mapping[str, Mapping[str, str | float]],
    out: Path | None,
    options: Options,
    engine: Engine | None,
) -> list[RunOf]:
    """The runs of the arguments, with the facts ``given`` by label, those of all runs under the empty one.

    Raises ``UsageError`` for runs or facts that cannot be.
    """
    reports = [_report(one, engine, options) for one in arguments]
    names = [f"run-{i}" if options.redact else report.job.name for i, report in enumerate(reports, start=1)]
    all_labels = labels([one.label for one in arguments], names)
    check_runs(arguments, all_labels, reports, force=options.force)
    if options.redact:  # others may name anything
        given = {label: {key: own[key] for key in own if key in PUBLIC} for label, own in given.items()}
    if unknown := next((label for label in given if label and label not in all_labels), ""):
        known = ", ".join(dict.fromkeys(all_labels))
        raise UsageError(f"--set {unknown}…: there is no run of that label, only {known}.")
    return [
        run_of(
            label,
            name,
            report,
            {**given.get("", {}), **given.get(label, {})},
            page="" if options.redact else _page(argument, out),
        )
        for label, name, report, argument in zip(all_labels, names, reports, arguments, strict=True)
    ]


def _report(argument: Argument, engine: Engine | None, options: Options) -> Report:
    """The report of an argument; one is made for a job that has none."""
    with contextlib.ExitStack() as stack:
        file = argument.report
        if not isinstance(argument.path, Path):
            from jobreport.storage.fetching import report as fetched  # noqa: PLC0415 - few runs need it

            file = stack.enter_context(fetched(argument.path, options))
        if file:
            report = load(file, argument.path)
            return without_names(report) if options.redact else report
    try:
        with Scratch() as folder:
            of_run = Options(
                formats=("json",),
                strict=options.strict,
                redact=options.redact,
                storage_option=options.storage_option,
                cache=options.cache,
                max_download=options.max_download,
            )
            outcome = pipeline.make_report(argument.path, Path(folder) / "report", of_run, engine=engine)
            return outcome.report
    except NothingReadableError as error:
        raise NothingReadableError(
            f"{argument.path} has no {FILES['json']}, and is no job: {error}"
        ) from error


def load(path: Path, shown: Path | Url | None = None) -> Report:
    """A report file, which messages call ``shown``. Raises ``NothingReadableError`` if it is none, or if its numbers are impossible."""
    if path.stat().st_size > MAX_BYTES:
        raise NothingReadableError(f"{path} is larger than 64 MB.")
    try:
        report = document.load(path)
    except NothingReadableError as error:
        raise NothingReadableError(str(error).replace(str(path), str(shown or path))) from error
    if fault := next((place for place, holds in _checks(report) if not holds), ""):
        raise NothingReadableError(f"{shown or path} is no report that can be compared: {fault}.")
    return report


def _checks(report: Report) -> Iterator[tuple[str, bool]]:
    """What has to hold between the fields that are compared, with what it is otherwise; make-report writes none of that."""
    job = report.job
    spans = {"job": job} | {f"phase {phase.key}": phase for phase in report.phases.phases}
    for name, span in spans.items():
        yield f"the end of {name} is before its start", span.start_us <= span.end_us
        yield f"{name} is at an impossible time", span.start_us >= 0 and span.end_us <= LATEST_US
    for row in report.utilization:
        most = MAX_PERCENT if row.unit == "%" else MAX_NUMBER
        yield f"utilization is below 0 or above {most:g}", min(row.p50, row.p95, row.n or 0) >= 0
        yield f"utilization is below 0 or above {most:g}", max(row.p50, row.p95) <= most
    if blocks := report.blocks or None:
        lengths = {len(blocks.n), len(blocks.sum_s), len(blocks.fetch_s) or len(blocks.n)}
        yield "blocks.n, blocks.sum_s, and blocks.fetch_s are not of one length", len(lengths) == 1
        yield "blocks.sum_s holds no time", math.fsum(blocks.sum_s) > 0
        yield "blocks.n has more steps than blocks.steps", sum(blocks.n) <= blocks.steps
        yield "blocks.outside_s is longer than blocks.loop_s", blocks.outside_s <= blocks.loop_s + TOLERANCE_S
    for one in report.time_blocks or ():
        of_samples = all((m is not None) == bool(s) for m, s in zip(one.mean, one.covered_s, strict=True))
        yield "time_blocks.mean is not that of time_blocks.covered_s", of_samples
        most = max((mean or 0 for mean in one.mean), default=0) if one.metric.unit == "%" else 0
        yield "time_blocks.mean has a percentage above 100", most <= MAX_PERCENT
        yield "time_blocks.histogram has a percentage above 100", math.fsum(one.histogram) <= MAX_PERCENT
    if goodput := report.goodput or None:
        whole = math.fsum(part.amount for part in goodput.parts)
        yield "goodput.parts lacks a part", [part.key for part in goodput.parts] == [*PARTS]
        yield "goodput.parts do not add up to goodput.seconds", abs(whole - goodput.seconds) <= TOLERANCE_S
        steps = report.blocks.steps if report.blocks else 0
        yield "goodput.lost_steps is more steps than there were", goodput.lost_steps <= steps
    if demand := report.demand or None:
        gpus, cores = (sum(getattr(node, key) for node in job.nodes) for key in ("gpus", "cores"))
        yield "demand.used_gpus is more than the job has", demand.used_gpus <= demand.all_gpus
        yield "demand.gpus is more than the job has", (demand.gpus or 0) <= gpus + TOLERANCE
        yield "demand.cores is more than the job has", (demand.cores or 0) <= cores + TOLERANCE
    for capture in report.captures or ():
        yield (
            "captures have a step of impossible length",
            all(0 <= s.host_ns < MAX_NUMBER for s in capture.step_times),
        )
        yield "captures have a device whose time does not add up", all(map(_adds_up, capture.devices))


def _adds_up(device: DeviceCapture) -> bool:
    parts = (device.compute_ns, device.exposed_communication_ns, device.exposed_copies_ns, device.idle_ns)
    causes = sum(device.idle_by_cause_ns.values())
    waits = (device.exposed_waiting_ns or 0) <= device.exposed_communication_ns
    return waits and sum(parts) == device.window_ns and (not device.complete or causes == device.idle_ns)


def without_names(report: Report) -> Report:
    """The report without labels and names in traces that may identify somebody, whatever it was made with."""
    captures = report.captures and renamed(
        report.captures, lambda kind, name: name if not kind or is_common(name) else f"{kind}-1"
    )
    cost = report.cost and replace(report.cost, source=report.cost.source and ANY_PRICES)
    return replace(report, captures=captures, cost=cost, quality=Pseudonyms(names={}).quality(report.quality))


def labels(given: Sequence[str], names: Sequence[str]) -> list[str]:
    """Labels of all runs: those given, or names of jobs, made distinct. Raises ``UsageError`` for too few or too many."""
    found: list[str] = []
    for label, name in zip(given, names, strict=True):
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:36].strip("-") or "run"
        taken = {*found, *given}
        numbered = (plain if i == 1 else f"{plain}-{i}" for i in range(1, MAX_RUNS + 2))
        found.append(label or next(one for one in numbered if one not in taken))
    distinct = dict.fromkeys(found)
    if len(distinct) < 2:
        raise UsageError("All runs have one label, so there is nothing to compare.")
    if len(distinct) > MAX_LABELS:
        raise UsageError(f"{len(distinct)} labels; compare-reports takes at most {MAX_LABELS}.")
    return found


def check_runs(
    arguments: Sequence[Argument], labels: Sequence[str], reports: Sequence[Report], *, force: bool
) -> None:
    """Raise ``UsageError`` for a run that is named twice, whatever its path is: by its time, devices, and samples.

    With ``force`` it can be compared with itself, but it is never a repeat of itself.
    """
    seen: dict[object, dict[str, Argument]] = {}
    for argument, label, report in zip(arguments, labels, reports, strict=True):
        job = report.job
        nodes = [(node.gpus, node.cores, node.first_us, node.last_us) for node in job.nodes]
        use = [(row.label, row.n or 0, row.p50, row.p95) for row in report.utilization]
        traces = [
            (device.window_ns, device.compute_ns) for one in report.captures or () for device in one.devices
        ]
        content = (job.start_us, job.end_us, job.steps, str([sorted(nodes), sorted(use), sorted(traces)]))
        named = seen.setdefault(content, {})
        if named and (label in named or not force):
            first = named.get(label) or next(iter(named.values()))
            paths = " and ".join(escape_name(str(one.path), 200) for one in (first, argument))
            why = "A copy is no repeat" if label in named else "Compare two runs"
            raise UsageError(f"{paths} are the same run (equal times, devices, and samples). {why}.")
        named[label] = argument


def _page(argument: Argument, out: Path | None) -> str:
    """The report page of a run, relative to the folder of the comparison; empty if there is none."""
    file = argument.report if out else None
    page = file.with_name(FILES["html"]) if file else None
    if page is None or out is None or not page.is_file():
        return ""
    with contextlib.suppress(ValueError):  # on another drive
        return Path(os.path.relpath(page, out)).as_posix()
    return ""


def facts(texts: Sequence[str]) -> dict[str, dict[str, str | float]]:
    """``LABEL.KEY=VALUE`` of ``--set``, by label; those of all runs, ``KEY=VALUE``, under the empty one. Raises ``UsageError``."""
    found: dict[str, dict[str, str | float]] = {}
    for text in texts:
        parts = _FACT.fullmatch(text)
        if parts is None:
            raise UsageError(
                f"--set {escape_name(text)}: expected LABEL.KEY=VALUE, such as new.batch_size=512, or KEY=VALUE for all runs."
            )
        label, key, value = parts.groups()
        if key in _DERIVED:
            raise UsageError(f"--set {escape_name(text)}: {key} follows from {_DERIVED[key]}; give these.")
        known = sorted({*LABELS, *NUMBERS})
        near = difflib.get_close_matches(key, known, 1, _NEAR)
        if near and key not in known:
            raise UsageError(f"--set {escape_name(text)}: unknown fact {key}. Did you mean {near[0]}?")
        found.setdefault(label or "", {})[key] = as_fact(text, key, value)
    return found
