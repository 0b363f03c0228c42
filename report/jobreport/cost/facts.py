"""Facts of a job, from its report and from ``--set``."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from msgspec import Struct

from jobreport.document import Origin
from jobreport.errors import UsageError
from jobrules.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from jobreport.document import Report
    from jobreport.recordings import Recording

#: Facts with names; any other that ``--set`` gives is shown as it is.
LABELS = {
    "instance_type": "Machine type",
    "nodes": "Nodes",
    "gpus_per_node": "GPUs per node",
    "gpus": "GPUs",
    "cores": "CPU cores",
    "gpu_model": "GPU model",
    "gpu_memory_gib": "GPU memory size (GiB)",
    "batch_size": "Batch size",
    "batch_size_from": "Batch size told by",
    "precision": "Precision",
    "parallelism": "Parallelism",
    "world_size": "Ranks of the job",
    "steps": "Training steps",
    "samples": "Training samples",
    "tokens_per_step": "Tokens per step",
    "interval_s": "Sampling interval (s)",
    "commit": "Git commit",
    "system": "Operating system",
    "cpu_model": "CPU model",
    "finished": "Recorded from start to end",
    "sources": "Sources",
    "version": "jobreport version",
    "region": "Region",
    "spot": "Spot",
    "price_per_node_hour": "Price of a node hour",
    "price_per_gpu_hour": "Price of a GPU hour",
    "cost": "Cost",
    "command": "Command",
    "profiled_ranks": "Profiled ranks",
    "profiled_steps": "Profiled steps of a trace",
    "profiled_gpus": "Profiled GPUs",
    "profiler_settings": "Settings of the profiler",
    "trace_versions": "Versions in traces",
    "unknown_waits": "Waits for an event that the trace lacks",
}
#: Begin of the keys of versions, and of what the script gave to ``jobrecord.config`` and ``log``.
VERSION, CONFIG, LOG = "version ", "config ", "log "
#: Facts that need no mention where they are the same, or not known.
OF_WHAT_RAN = ("commit", "system", "cpu_model", VERSION, CONFIG, LOG)
#: Given facts that are numbers.
NUMBERS = frozenset(
    {
        "nodes",
        "gpus_per_node",
        "cores",
        "batch_size",
        "steps",
        "world_size",
        "tokens_per_step",
        "price_per_node_hour",
        "price_per_gpu_hour",
        "cost",
    }
)
#: Facts that matter for a job alone.
OF_ONE_JOB = frozenset(
    {
        "batch_size",
        "cost",
        "gpus_per_node",
        "instance_type",
        "nodes",
        "parallelism",
        "price_per_gpu_hour",
        "price_per_node_hour",
        "region",
        "spot",
    }
)
#: Facts that are whole numbers.
WHOLE = ("nodes", "gpus_per_node", "steps")
#: Characters of a text.
MAX_VALUE = 200
#: Facts that are a price, or that of which it follows; one stands over those behind it.
PRICES = ("cost", "price_per_node_hour", "price_per_gpu_hour")
#: Facts of ``--set`` that name nobody, whatever they are.
PUBLIC = LABELS.keys() - {"command"}
GIB = 1024.0**3
#: What ``--redact`` leaves of a label that is no word of a framework.
HIDDEN = "…"
#: Larger than any number of machines, samples, or amount of money.
MAX_GIVEN = 1e15


class KnownJob(Struct, frozen=True, kw_only=True):
    """A job with its facts."""

    report: Report
    facts: dict[str, str | float | None]

    def number(self, key: str) -> float | None:
        """A fact that is a number, if it is known."""
        value = self.facts.get(key)
        return value if isinstance(value, int | float) else None

    def per_work(self, amount: float | None, key: str, size: float) -> float | None:
        """An amount of the whole job for so many ``steps`` or ``samples``; None if their number is not known."""
        work = self.number(key)
        return size * amount / work if amount is not None and work else None

    @property
    def finished(self) -> bool | None:
        """False if the job was stopped, or its end was not recorded; None if its start is not known, or its end."""
        return {"true": True, "false": False}.get(str(self.facts.get("finished")))

    @property
    def seconds(self) -> float:
        """Duration of the job, as far as it was recorded."""
        return (self.report.job.end_us - self.report.job.start_us) / 1e6


def facts_of(
    report: Report,
    given: Mapping[str, str | float],
    of_traces: Mapping[str, str | float | None] | None = None,
) -> dict[str, str | float | None]:
    """What is known of a job: what the user gave, what the report measured, labels of the recording, in this order.

    A label with the key of something measured is a fact of its own.
    """
    nodes = report.job.nodes
    blocks = report.blocks or None
    demand = report.demand or None
    # What ran again after a restart is the same work.
    lost = report.goodput.lost_steps if report.goodput else 0
    sampled = any(node.gpus or node.cores for node in nodes)
    counts = {node.gpus for node in nodes} if sampled else set()
    recordings = [one for source in report.quality.sources for one in source.recordings]
    found: dict[str, str | float | None] = dict.fromkeys(LABELS)
    found |= {
        "nodes": len(nodes) or None,
        "gpus_per_node": counts.pop() if len(counts) == 1 else None,
        "gpus": sum(node.gpus for node in nodes) if sampled else None,
        "cores": sum(node.cores for node in nodes) or None,
        "gpu_model": joined(gpu.name for one in recordings for gpu in one.gpus),
        "gpu_memory_gib": demand.gpu_memory_total / GIB if demand and demand.gpu_memory_total else None,
        "steps": blocks.steps - lost if blocks else None,
        # Samplers are late by milliseconds.
        "interval_s": min((round(node.interval_s, 2) for node in nodes if node.interval_s), default=None),
        "command": joined(one.command for one in recordings if one.command != HIDDEN),
        "finished": _finished(report, sampled=sampled),
        "sources": ", ".join(report.job.sources),
        "version": report.version,
    }
    found |= {key: value for key, value in (of_traces or {}).items() if value is not None}
    found |= _what_ran(recordings)
    for key, value in _labels(recordings).items():
        found[key if found.get(key) is None else f"label {key}"] = value
    # What is given stands over a label, and over what follows from another one.
    for i, key in enumerate(PRICES):
        if key in given:
            found |= dict.fromkeys(PRICES[:i])
    found |= given
    # A label stands over sizes that may be inferred, or count the same data on several ranks.
    if throughput := report.throughput or None:
        if found["batch_size"] is None and throughput.batch_size:
            found["batch_size"] = throughput.batch_size
            found["batch_size_from"] = "loaders, inferred" if throughput.inferred else "the script"
        if found["tokens_per_step"] is None and throughput.ranks_known == throughput.ranks:
            found["tokens_per_step"] = throughput.tokens_per_step
    gpus = _product(found["gpus_per_node"], found["nodes"])
    samples = _product(samples_per_step(report, found["batch_size"]), found["steps"])
    return found | {
        "gpus": found["gpus"] if gpus is None else gpus,
        "samples": None if samples is None else float(round(samples)),
    }


def samples_per_step(report: Report, batch_size: str | float | None) -> str | float | None:
    """The mean, which the last batch of an epoch makes smaller; where it was not measured, the size of the batch."""
    throughput = report.throughput or None
    is_recorded = throughput and batch_size and throughput.batch_size == batch_size
    return throughput.samples_per_step if throughput and is_recorded else batch_size


def _finished(report: Report, *, sampled: bool) -> str | None:
    """None if the start is not known, or the end; without samples a job seems to begin with its first event."""
    if report.origin is Origin.DEBUGGER_RESULTS:
        return "true"
    if report.job.finished is None or (report.job.finished and not sampled):
        return None
    return "true" if report.job.finished else "false"


def _product(one: str | float | None, other: str | float | None) -> float | None:
    """None unless both are known numbers."""
    return one * other if isinstance(one, int | float) and isinstance(other, int | float) else None


def joined(names: Iterable[str]) -> str | None:
    """``A100 / V100``; None without names."""
    return " / ".join(sorted({name for name in names if name})) or None


def _what_ran(recordings: Sequence[Recording]) -> dict[str, str | float | None]:
    """Commit, versions, and settings; those of all nodes, if they do not agree."""
    texts: dict[str, list[str]] = {}
    for one in recordings:
        state = (
            {True: ", changed", False: "", None: ", perhaps changed"}[one.is_changed] if one.commit else ""
        )
        known = {
            "commit": f"{one.commit[:12]}{state}" if one.commit not in ("", HIDDEN) else "",
            "precision": one.precision,
            "system": one.system,
            "cpu_model": one.cpu_model,
            **{f"{VERSION}{version.what}": version.number for version in one.versions},
            **{f"{CONFIG}{label.key}": label.value for label in one.config},
            **{
                f"{LOG}{value.name} ({value.mode}) at step {value.step}": f"{value.value:.6g}"
                for value in one.logged
                if value.value is not None
            },
        }
        for key, value in known.items():
            texts.setdefault(key, []).append("" if HIDDEN in (value, *key.split(" ")) else value)
    ranks = {one.world_size for one in recordings}
    found: dict[str, str | float | None] = {
        key: text for key, every in texts.items() if (text := joined(every))
    }
    return found | ({"world_size": ranks.pop()} if len(ranks) == 1 and None not in ranks else {})


def _labels(recordings: Sequence[Recording]) -> dict[str, str | float]:
    """What the user gave to record-job; nodes that do not agree have all of their values."""
    values: dict[str, dict[str, None]] = {}
    for label in (label for one in recordings for label in one.labels):
        if HIDDEN in (label.key, label.value):
            continue
        values.setdefault(label.key, {})[label.value] = None
    found: dict[str, str | float] = {key: " / ".join(texts) for key, texts in values.items()}
    numbers = {key: number for key, texts in values.items() if (number := number_of(key, texts)) is not None}
    return found | numbers


def number_of(key: str, texts: Collection[str]) -> float | None:
    """The number that a fact is, if it is one, and if all agree; None for other texts."""
    try:
        (number,) = {float(text) for text in texts}
    except ValueError:
        return None
    return number if key in NUMBERS and 0 < number < MAX_GIVEN else None


# --- what --set gives


def as_fact(text: str, key: str, value: str) -> str | float:
    """The value of a fact that ``--set`` gives as ``text``. Raises ``UsageError`` for none, and for no number."""
    if not value:
        raise UsageError(f"--set {escape_name(text)}: expected a value.")
    if len(value) > MAX_VALUE:
        raise UsageError(f"--set {key}: expected at most {MAX_VALUE} characters.")
    if key == "finished" and value not in ("true", "false"):
        raise UsageError(f"--set {escape_name(text)}: expected true or false.")
    if key not in NUMBERS:
        return value
    number = number_of(key, [value])
    if number is None:
        raise UsageError(f"--set {escape_name(text)}: expected a number above 0 and below 1e15.")
    if key in WHOLE and number != int(number):
        raise UsageError(f"--set {escape_name(text)}: expected a whole number.")
    return number


def given_facts(assignments: Sequence[str]) -> dict[str, str | float]:
    """The facts of a job among the values of ``--set``; the others are thresholds. Raises ``UsageError``."""
    found: dict[str, str | float] = {}
    for text in assignments:
        key, _, value = (part.strip() for part in text.partition("="))
        if is_fact(text):
            found[key] = as_fact(text, key, value)
        elif "." not in key and (near := difflib.get_close_matches(key, OF_ONE_JOB, 1, 0.75)):
            raise UsageError(f"--set {escape_name(text)}: unknown fact. Did you mean {near[0]}?")
    return found


def is_fact(assignment: str) -> bool:
    """Whether a value of ``--set`` is a fact of a job."""
    return assignment.partition("=")[0].strip() in OF_ONE_JOB
