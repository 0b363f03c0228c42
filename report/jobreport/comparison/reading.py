"""The arguments of ``compare-reports``: labels, and the reports they name."""

from __future__ import annotations

import difflib
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import asdict, astuple

from jobreport import document
from jobreport.cost.facts import LABELS, NUMBERS
from jobreport.cost.given import as_fact
from jobreport.errors import NothingReadableError, UsageError
from jobreport.files import COMPARISON, FILES
from jobreport.readers.bounds import LATEST_S
from jobrules.analyses.blocks import BINS, BLOCKS
from jobrules.analyses.goodput import PARTS
from jobrules.model import SECOND_US
from jobrules.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from jobreport.document import Report
    from jobrules.model.captures import Capture

_LABEL = re.compile(r"[A-Za-z0-9._-]{1,40}")
_FACT = re.compile(rf"(?:({_LABEL.pattern})\.)?([a-z][a-z0-9_]{{0,39}})=(.+)", re.DOTALL)
#: Facts that follow from others, with these.
_DERIVED = {"gpus": "nodes and gpus_per_node", "samples": "batch_size and steps"}
#: Names of facts that are this similar are one name with a mistake.
_NEAR = 0.85
MAX_LABELS, MAX_RUNS = 12, 64
MAX_BYTES = 64 << 20
LATEST_US = LATEST_S * SECOND_US
#: Larger than any count, time, or number of bytes of a job.
MAX_NUMBER = 1e18
#: Rounding errors of sums.
TOLERANCE_S, TOLERANCE_PERCENT = 1e-3, 0.05


class Argument(Struct, frozen=True, kw_only=True):
    """A run as the user named it."""

    #: Empty if the user gave none.
    label: str
    path: Path

    @property
    def report(self) -> Path | None:
        """File of a report; None for a job that has none yet."""
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
    path = Path(rest)
    if not path.exists():
        name, equals, end = text.partition("=")
        hint = "Name a report folder, a report.json, or a job directory."
        if equals and Path(end).exists():
            hint = f"{escape_name(name, 60)} is no label: 1 to 40 letters, digits, and . _ - are."
        raise UsageError(f"Not found: {escape_name(rest, 200)}. {hint}")
    if path.suffix == ".html":
        raise UsageError(
            f"{escape_name(rest, 200)} is a page. Name its folder, or the {FILES['json']} next to it."
        )
    if path.is_dir() and not any(path.iterdir()):
        raise UsageError(f"{escape_name(rest, 200)} is an empty folder.")
    if path.name == COMPARISON.files["json"]:
        raise UsageError(f"{escape_name(rest, 200)} is a comparison. Name the reports that it compares.")
    return Argument(label=label, path=path)


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


def load(path: Path) -> Report:
    """A report file. Raises ``NothingReadableError`` if it is none, or if its numbers are impossible."""
    if path.stat().st_size > MAX_BYTES:
        raise NothingReadableError(f"{path} is larger than 64 MB.")
    report = document.load(path)
    if fault := next(_faults(report), ""):
        raise NothingReadableError(f"{path} is no report that can be compared: {fault}.")
    return report


def _faults(report: Report) -> Iterator[str]:
    """What is impossible in the fields that are compared, by their names; make-report writes none of it."""
    job, use = report.job, report.verdict.use
    spans = {"job": (job.start_us, job.end_us)}
    spans |= {f"phase {phase.key}": (phase.start_us, phase.end_us) for phase in report.phases.phases}
    yield from (f"the end of {name} is before its start" for name, (a, b) in spans.items() if b < a)
    yield from (
        f"{name} is at an impossible time"
        for name, span in spans.items()
        if not 0 <= min(span) <= max(span) <= LATEST_US
    )
    rows: dict[str, list[Sequence[float]]] = {
        "utilization": [(row.p50, row.p95, row.n or 0) for row in report.utilization]
    }
    rows["job"] = [(job.steps,)]
    rows["job.nodes"] = [(node.gpus, node.cores, node.interval_s or 0) for node in job.nodes]
    rows["power"] = [(row.energy_wh or 0,) for row in report.power or ()]
    rows["verdict.use"] = [(use.count,), *((part.hours, part.percent) for part in use.parts)] if use else []
    rows["phases"] = [(phase.percent,) for phase in report.phases.phases]
    blocks, goodput, demand = report.blocks or None, report.goodput or None, report.demand or None
    if blocks:
        lengths = {len(blocks.n), len(blocks.sum_s), len(blocks.fetch_s) or len(blocks.n)}
        if len(lengths) > 1 or not all(blocks.n) or len(blocks.quantiles_s) != 101:
            yield "blocks do not fit together"
        times = (blocks.sum_s, blocks.fetch_s, blocks.quantiles_s, blocks.p50_s, blocks.p95_s)
        rows["blocks"] = [*times, blocks.n, (blocks.steps, blocks.loop_s, blocks.outside_s)]
    for one in report.time_blocks or ():
        if (len(one.covered_s), len(one.mean), len(one.histogram)) != (
            BLOCKS,
            BLOCKS,
            BINS,
        ) or not one.devices:
            yield "time_blocks do not fit together"
        if any(
            (mean is None) != (not covered) for mean, covered in zip(one.mean, one.covered_s, strict=False)
        ):
            yield "time_blocks have means without samples"
        rows[one.metric] = [one.covered_s, [mean or 0 for mean in one.mean], one.histogram, (one.devices,)]
    if goodput:
        if [part.key for part in goodput.parts] != list(PARTS):
            yield "goodput lacks a part"
        if goodput.lost_steps > max(0, blocks.steps if blocks else 0):
            yield "goodput has more lost steps than there were"
        rows["goodput"] = [(part.seconds + 1e-6, part.percent + 1e-6) for part in goodput.parts]
        rows["goodput"] += [(goodput.lost_steps,)]
    if demand:
        rows["demand"] = [[number or 0 for number in astuple(demand)]]
    for capture in report.captures or ():
        yield from _faults_of_capture(capture, rows.setdefault("captures", []))
    rows["across_ranks"] = (
        [[one.caused_ns for one in report.across_ranks.waiting]] if report.across_ranks else []
    )
    for name, found in rows.items():
        if not all(0 <= number < MAX_NUMBER for row in found for number in row):
            yield f"{name} has a number that is below 0 or too large"
    yield from _faults_of_shares(report)
    yield from _faults_of_sums(report)


def _faults_of_shares(report: Report) -> Iterator[str]:
    """Shares of more than all, by the names of their fields."""
    demand, use = report.demand or None, report.verdict.use
    blocks = report.time_blocks or ()
    shares = {
        "utilization": [n for row in report.utilization if row.unit == "%" for n in (row.p50, row.p95)],
        "verdict.use": [part.percent for part in use.parts] if use else [],
        "phases": [phase.percent for phase in report.phases.phases],
        "goodput": [part.percent for part in report.goodput.parts] if report.goodput else [],
        "time_blocks.mean": [n or 0 for one in blocks if one.metric.unit == "%" for n in one.mean],
        "time_blocks.histogram": [math.fsum(one.histogram) for one in blocks],
        "demand": [n or 0 for key, n in asdict(demand).items() if key.endswith("_percent")] if demand else [],
    }
    for name, found in shares.items():
        if max(found, default=0.0) > 100 + TOLERANCE_PERCENT:
            yield f"{name} has a percentage above 100"


def _faults_of_sums(report: Report) -> Iterator[str]:
    """Parts that are more than their whole, by the names of their fields."""
    if blocks := report.blocks or None:
        if not math.fsum(blocks.sum_s):
            yield "blocks.sum_s holds no time"
        if sum(blocks.n) > blocks.steps:
            yield "blocks.n has more steps than blocks.steps"
        if blocks.outside_s > blocks.loop_s + TOLERANCE_S:
            yield "blocks.outside_s is longer than blocks.loop_s"
    goodput = report.goodput or None
    if goodput and abs(math.fsum(part.seconds for part in goodput.parts) - goodput.seconds) > TOLERANCE_S:
        yield "goodput.parts do not add up to goodput.seconds"
    if demand := report.demand or None:
        nodes = report.job.nodes
        for name, used, there in (
            ("used_gpus", demand.used_gpus, demand.all_gpus),
            ("gpus", demand.gpus, sum(node.gpus for node in nodes)),
            ("cores", demand.cores, sum(node.cores for node in nodes)),
        ):
            if (used or 0) > there + TOLERANCE_PERCENT:
                yield f"demand.{name} is more than the job has"


def _faults_of_capture(capture: Capture, rows: list[Sequence[float]]) -> Iterator[str]:
    """What does not fit together in a capture; its numbers are added to ``rows``."""
    for device in capture.devices:
        parts = (device.compute_ns, device.exposed_communication_ns, device.exposed_copies_ns, device.idle_ns)
        waiting = device.exposed_waiting_ns or 0
        causes = device.idle_by_cause_ns.values()
        rows += [parts, (waiting, *causes), [step.events for step in device.steps]]
        rows += [(one.calls, one.total_ns) for one in device.kernels]
        fit = sum(parts) == device.window_ns and waiting <= device.exposed_communication_ns
        if not fit or (device.complete and sum(causes) != device.idle_ns):
            yield "captures have a device whose time does not add up"
    rows += [[capture.steps, *(step.host_ns for step in capture.step_times)]]
    rows += [(one.calls, one.self_ns, one.total_ns) for one in (*capture.operators, *capture.marks)]


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


def check_facts(given: Mapping[str, object], labels: Sequence[str]) -> None:
    """Raise ``UsageError`` for facts of a label that no run has."""
    for label in given:
        if label and label not in labels:
            known = ", ".join(dict.fromkeys(labels))
            raise UsageError(f"--set {label}…: there is no run of that label, only {known}.")
