"""Placeholders for the names in a job, put in place before any rule runs.

Rules, sections, and messages never see the names. Placeholders are numbers in the natural order of the names: nothing
leads back from them, and the same job gets the same ones every time. Names that frameworks give stay
(``identifiers.is_common``), and so do times, numbers, and what was typed on the command line: rules and thresholds. A
mode given as ``StepOutlier.mode`` is a name, too, and gets a placeholder that the same modes end with.
"""

from __future__ import annotations

import dataclasses
import errno
import itertools
import os
import re
import sys
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from jobreport.readers.debugger_results.rule_results import decoded
from jobreport.readers.names import as_name
from jobreport.readers.tally import Tally
from jobreport.redaction import captures
from jobreport.redaction.identifiers import OPTION, is_common
from jobreport.remarks import NAMES, Quality
from jobrules.model import EventSource, Job, JobInMemory, Metric, natural_sorted
from jobrules.rules.step_outlier import StepOutlier

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from jobreport.readers.debugger_results.rule_results import RuleResults
    from jobreport.readers.registry import Reading
    from jobreport.recordings import Recording
    from jobreport.remarks import Remark, SourceQuality
    from jobreport.settings import Settings
    from jobrules.model import Events, Function, Lane, PartFacts, Profile, Steps

#: Placeholder of the job's name, from the moment it is read.
JOB = "job"
#: Parts of names that rules look for: at the beginning, and anywhere, in any case or as they stand.
_HEADS = ("Forward", "Backward", "IteratorGetNext")
_ANY_CASE, _INSIDE = ("cpu", "gpu"), ("Step", "GetNext", "Prefetch", "SingleProcess")
#: Devices and ranks are in the order of their names, so either all of them change or none.
_TOGETHER = ("device", "rank")
#: Kind of the names in fields of the tables.
_FIELDS = {"node": "node", "rank": "rank", "devices": "device", "iterator": "iterator"}
#: Of devices that are none: mount points, and ranks or process numbers.
_OTHER_DEVICES = {
    Metric.FREE_SPACE: "mount",
    Metric.PROCESS_CPU: "process",
    Metric.PROCESS_MEMORY: "process",
    Metric.PROCESS_THREADS: "process",
}
#: Messages of the system, which name nothing.
_SYSTEM_MESSAGES = frozenset(map(os.strerror, errno.errorcode))
#: What the recorder says of its own limit.
_LIMIT = re.compile(r"--max-bytes [0-9]{1,20} reached")
#: End of the modes that StepOutlier checks. No name that is kept ends so.
_CHOSEN = "chosen"
#: Packages whose files and functions are public.
_LIBRARIES = frozenset(
    re.findall(
        r"\w+",
        """
    accelerate apex cv2 datasets deepspeed diffusers flash_attn fsspec horovod jax keras lightning matplotlib mxnet
    numba numpy packaging pandas PIL pytorch_lightning sagemaker sagemaker_training scipy sklearn smdebug smdistributed
    tensorflow tensorflow_estimator timm tokenizers torch torchaudio torchtext torchvision tqdm transformers triton xgboost
    """,
    )
)
_PACKAGE = re.compile(r".*/(?:site|dist)-packages/((\w+?)(?:\.py|/.*))", re.DOTALL)
_STANDARD = re.compile(r".*/lib(?:64)?/python[0-9.]+/((\w+?)(?:\.py|/.*))", re.DOTALL)
#: ``<built-in method torch._C._nn.linear>``, ``<method 'run_backward' of 'torch._C._EngineBase' objects>``
_BUILT_IN = re.compile(r"[<{]built-in method (\w+)[\w.]*[>}]|[<{]method '\w+' of '(\w+)[\w.]*' objects[>}]")
_TYPES = {
    "builtins",
    "bytes",
    "dict",
    "float",
    "frozenset",
    "int",
    "list",
    "object",
    "set",
    "str",
    "tuple",
    "type",
}
#: Digits of a process id.
_MAX_PROCESS_DIGITS = 7
_RECORDER = re.compile(r"jobrecord [0-9.]{1,20}")
_NUMBER = re.compile(r"-?[0-9]{1,11}(\.[0-9]{1,12})?|[0-9]{16}")


T = TypeVar("T", bound=Struct)


class Pseudonyms(Struct, frozen=True, kw_only=True):
    """The placeholder of each name, by kind and name."""

    names: dict[tuple[str, str], str]
    #: The mode that StepOutlier checks, if it is given.
    mode: str | None = None

    @classmethod
    def of(cls, names: Iterable[tuple[str, str]], mode: str | None = None) -> Pseudonyms:
        """Make placeholders for names, given with their kinds, and for ``StepOutlier.mode``.

        Kinds: node, device, mount, process, rank, event (an event type or a mode), tensor, iterator, operator, kernel,
        group, type (of elements), stream, model (of a device), capture, file, function.
        """
        kinds: dict[str, set[str]] = {}
        for kind, name in names:
            kinds.setdefault(kind, set()).add(name)
        made: dict[tuple[str, str], str] = {}
        given = seen = StepOutlier(mode=mode)
        kept = (name for name in kinds.get("event", ()) if is_common(name))
        if mode and not is_common(mode) and not any(map(given.looks_at, kept)):
            seen = StepOutlier(mode=_CHOSEN)
        for kind in sorted(kinds):  # iterators come before operators, which may begin with one
            every = natural_sorted(kinds[kind])
            own = tuple(name for name in every if not _stays(kind, name))
            if own and kind in _TOGETHER:
                own = every
            taken = set(every) - set(own)
            numbers = itertools.count(1)
            for name in own:
                placeholders = (_placeholder(kind, name, number, made) for number in numbers)
                if kind == "event" and mode:
                    is_seen = given.looks_at(name)
                    placeholders = (f"{one} {seen.mode}" if is_seen else one for one in placeholders)
                    # "event-1" would match a mode "1".
                    placeholders = (one for one in placeholders if seen.looks_at(one) == is_seen)
                made[kind, name] = next(one for one in placeholders if one not in taken)
        return cls(names=made, mode=seen.mode)

    def __call__(self, kind: str, name: str) -> str:
        """Placeholder of a name; the name itself if it has none."""
        return self.names.get((kind, name), name)

    def only(self, names: Iterable[tuple[str, str]]) -> Pseudonyms:
        """The placeholders of some names: of a node, so that what travels to it does not grow with their number."""
        return replace(self, names={one: self.names[one] for one in names if one in self.names})

    def part(self, part: JobInMemory) -> JobInMemory:
        """The tables of a node, with placeholders."""
        return dataclasses.replace(
            part,
            panels=tuple(map(self._struct, part.panels)),
            steps=self._steps(part.steps),
            events=self._events(part.events),
        )

    def facts(self, known: PartFacts) -> PartFacts:
        """What is known of a node."""
        return replace(self._struct(known), panels=tuple(map(self._struct, known.panels)))

    def profile(self, one: Profile) -> Profile:
        """A profile of Python code."""
        return replace(self._struct(one), functions=tuple(map(self._function, one.functions)))

    def quality(self, quality: Quality) -> Quality:
        """What became of the files, without their names."""
        return replace(
            quality,
            sources=tuple(map(self.source, quality.sources)),
            remarks=self._remarks(quality.remarks),
        )

    def settings(self, chosen: Settings) -> Settings:
        """The settings of the report with placeholders."""
        before = f"--set {StepOutlier.__name__}.mode="
        options = (f"{before}{self.mode}" if one.startswith(before) else one for one in chosen.options)
        rules = (
            dataclasses.replace(one, mode=self.mode) if isinstance(one, StepOutlier) else one
            for one in chosen.rules
        )
        return replace(chosen, rules=tuple(rules), options=(*options, OPTION))

    def source(self, source: SourceQuality) -> SourceQuality:
        """What became of files of one kind, without their names."""
        logs = (
            replace(self._struct(log), file=f"file-{number}")
            for number, log in enumerate(source.logs, start=1)
        )
        return replace(
            source,
            remarks=self._remarks(source.remarks),
            logs=tuple(logs),
            recordings=tuple(map(self._recording, source.recordings)),
        )

    def _recording(self, one: Recording) -> Recording:
        """What record-job noted, without names: its texts are those of the system, or left out."""

        def public(text: str) -> str:
            is_public = text in _SYSTEM_MESSAGES or _LIMIT.fullmatch(text) or is_common(text)
            return text if is_public else "…"

        return replace(
            one,
            node=self("node", one.node),
            recorder=one.recorder if _RECORDER.fullmatch(one.recorder) else "…",
            gpus=tuple(replace(gpu, name=public(gpu.name)) for gpu in one.gpus),
            gpu_reason=public(one.gpu_reason),
            shared_gpus=tuple(
                replace(gpu, device=self.names.get(("device", gpu.device), public(gpu.device)))
                for gpu in one.shared_gpus
            ),
            left_out=tuple(
                replace(left, sensor=public(left.sensor), reason=public(left.reason)) for left in one.left_out
            ),
            runs=tuple(replace(run, dropped_reason=public(run.dropped_reason)) for run in one.runs),
            no_steps=public(one.no_steps),
            less_written=tuple(
                replace(less, rank=public(less.rank), written=public(less.written))
                for less in one.less_written
            ),
            labels=tuple(
                replace(label, key=public(label.key), value=public(label.value)) for label in one.labels
            ),
            command="…" if one.command else "",
        )

    def _remarks(self, remarks: Iterable[Remark]) -> tuple[Remark, ...]:
        """The remarks without places and names; those that differed in a name only become one."""
        tally = Tally()
        tally.take(
            replace(
                one,
                place=None,
                fields={key: self._field(key, value) for key, value in one.fields.items()},
            )
            for one in remarks
        )
        return tally.remarks()

    def _field(self, key: str, value: str | int | float) -> str | int | float:
        """The field of a remark: its placeholder, or an ellipsis for a name that has none."""
        if key not in NAMES or (key == "name" and is_common(str(value))):
            return value
        return self.names.get((key, str(value)), "…")

    def _struct(self, one: T) -> T:
        """A struct with placeholders in the fields of ``_FIELDS`` that it has."""
        there = {field: getattr(one, field) for field in _FIELDS if hasattr(one, field)}
        return replace(
            one,
            **{
                field: tuple(self(_device_kind(one), name) for name in value)
                if isinstance(value, tuple)
                else self(_FIELDS[field], value)
                for field, value in there.items()
            },
        )

    def _steps(self, steps: Steps) -> Steps:
        series = tuple(
            (self("node", node), self("rank", rank), self("event", mode)) for node, rank, mode in steps.series
        )
        return replace(steps, series=series)

    def _events(self, events: Events) -> Events:
        return replace(
            events,
            lanes=tuple(
                replace(self._struct(lane), event_type=self(_kind(lane), lane.event_type))
                for lane in events.lanes
            ),
            names=tuple(self("operator", name) for name in events.names),
            loaders=tuple(map(self._struct, events.loaders)),
        )

    def _function(self, one: Function) -> Function:
        if (place := _library(one)) is not None:
            return replace(one, file=place)
        file = self("file", one.file)
        return replace(one, file=file if file == one.file else f"{file}.py", name=self("function", one.name))


def redacted(reading: Reading, quality: Quality, chosen: Settings) -> tuple[Reading, Quality, Settings]:
    """What was read, what became of its files, and the settings, with placeholders for all names."""
    mode = next((rule.mode for rule in chosen.rules if isinstance(rule, StepOutlier)), None)
    results = reading.debugger_results
    if results and reading.has_results_alone:
        pseudonyms = Pseudonyms.of(("node", node) for node in _nodes_of(results))
        changed = replace(reading, debugger_results=_results(results, pseudonyms))
        return changed, pseudonyms.quality(quality), pseudonyms.settings(chosen)
    job = reading.job
    of_nodes = job.each(_names_of)
    names = set[tuple[str, str]]().union(*of_nodes)
    for source in quality.sources:
        names |= {("node", log.node) for log in source.logs}
        names |= {("node", one.node) for one in source.recordings}
    for profile in job.profiles:
        names |= {("node", profile.node), ("rank", profile.rank)}
        for function in profile.functions:
            if _library(function) is None:
                names |= {("file", function.file), ("function", function.name)}
    names |= {("node", node) for node in _nodes_of(results)} if results else set()
    names |= set(captures.names_in(job.captures, job.across_ranks))
    pseudonyms = Pseudonyms.of(names, mode)
    renamed = dataclasses.replace(
        job,
        kept=tuple(
            replace(one, facts=pseudonyms.facts(one.facts), change=pseudonyms.only(own).part)
            for one, own in zip(job.kept, of_nodes, strict=True)
        ),
        profiles=tuple(map(pseudonyms.profile, job.profiles)),
        captures=captures.renamed(job.captures, pseudonyms),
        across_ranks=job.across_ranks and captures.renamed_across(job.across_ranks, pseudonyms),
    )
    beside = _results(results, pseudonyms) if results else None
    changed = replace(reading, job=renamed, debugger_results=beside)
    return changed, pseudonyms.quality(quality), pseudonyms.settings(chosen)


def _names_of(part: Job) -> set[tuple[str, str]]:
    """Every name in a part of a job, with its kind."""
    found = {("node", node) for node in part.nodes}
    found |= {(_device_kind(panel), device) for panel in part.panels for device in panel.devices}
    for lane in part.events.lanes:
        found |= {("rank", lane.rank), (_kind(lane), lane.event_type)}
    found |= {("operator", name) for name in part.events.names if not is_common(name)}
    found |= {("iterator", one.iterator) for one in part.events.loaders}
    for _, rank, mode in part.steps.series:
        found |= {("rank", rank), ("event", mode)}
    return found


def _device_kind(panel: Struct) -> str:
    """Kind of the names in ``devices``."""
    metric = getattr(panel, "metric", None)
    return _OTHER_DEVICES.get(metric, "device") if isinstance(metric, Metric) else "device"


def _kind(lane: Lane) -> str:
    return "tensor" if lane.source is EventSource.HOROVOD else "event"


def _stays(kind: str, name: str) -> bool:
    if kind == "rank":
        return not name or _is_process(name)
    return kind not in ("node", "capture") and is_common(name)


def _placeholder(kind: str, name: str, number: int, others: dict[tuple[str, str], str]) -> str:
    """``node-1``, ``cpu event-2``, ``aten::operator-3``: parts of names that rules look for are kept."""
    if kind not in ("event", "iterator", "operator"):
        return f"{kind}-{number}"
    # The class of an iterator, by which fetches are given to their loaders, or a framework's name space.
    head, colons, _ = name.partition("::")
    head = others.get(("iterator", head)) or (head if is_common(head) else "")
    space = f"{head}::" if colons and head else ""
    traits = [] if space else [head for head in _HEADS if name.startswith(head)]
    traits += [trait for trait in _ANY_CASE if trait in name.lower()]
    traits += [trait for trait in _INSIDE if trait in name]
    kept = [trait for i, trait in enumerate(traits) if trait not in space + "".join(traits[:i])]
    return space + " ".join([*kept, f"{kind}-{number}"])


def _library(one: Function) -> str | None:
    """File of a library's function, from its package on; empty if it is built in, None if it is the user's own."""
    if not one.file:
        match = _BUILT_IN.fullmatch(one.name)
        package = (match[1] or match[2]) if match else ""
        known = package in _LIBRARIES or package in _TYPES or package in sys.stdlib_module_names
        return "" if known or is_common(one.name) else None
    for form, packages in ((_PACKAGE, _LIBRARIES), (_STANDARD, sys.stdlib_module_names)):
        if (match := form.fullmatch(one.file)) and match[2] in packages:
            return match[1]
    return None


# Results of SageMaker Debugger


def _results(found: RuleResults, pseudonyms: Pseudonyms) -> RuleResults:
    """The results of SageMaker Debugger, decoded again from documents without names."""
    texts = {text for one in found.documents for text in (*_texts(one.raw), *_texts(one.parameters))}
    nodes = {node: placeholder for (_, node), placeholder in pseudonyms.names.items()}
    known = {text: nodes[as_name(text)] for text in texts if as_name(text) in nodes}
    taken = set(texts)
    numbers = itertools.count(1)
    for text in natural_sorted({one for one in texts if one not in known and not _is_plain(one)}):
        node, _, process = text.rpartition("-")
        if as_name(node) in nodes and _is_process(process):
            known[text] = f"{nodes[as_name(node)]}-{process}"
        else:
            known[text] = next(one for number in numbers if (one := f"name-{number}") not in taken)
    documents = []
    for document in found.documents:
        raw, parameters = _renamed(document.raw, known), _renamed(document.parameters, known)
        if isinstance(raw.get("RuleParameters"), str):
            raw["RuleParameters"] = "\n".join(f"{name}:{value}" for name, value in parameters.items())
        documents.append(replace(document, file=f"{document.rule}.json", raw=raw, parameters=parameters))
    return replace(decoded(tuple(documents), Tally()), quality=pseudonyms.source(found.quality))


def _nodes_of(found: RuleResults) -> set[str]:
    """The nodes that the results name, alone or in the name of a rank, which is ``<node>-<process>``."""
    nodes = {node for gpus in (found.low_gpu, found.memory, found.workloads) for node, _ in gpus}
    nodes |= {node for node, _ in found.small_batch} | {
        node for some in found.usage.values() for node in some
    }
    ranks = (rank.rpartition("-") for rank in found.steps)
    return nodes | {as_name(node) for node, _, process in ranks if node and _is_process(process)}


#: Keys of a bottleneck, which are no words of a framework.
_COUNTS = ("GPUs", "CPUs")


def _is_process(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _MAX_PROCESS_DIGITS


def _is_plain(text: str) -> bool:
    """Whether a text is a number, or made of the words of SageMaker Debugger."""
    return is_common(text) or text in _COUNTS or bool(_NUMBER.fullmatch(text))


def _texts(value: Any) -> Iterator[str]:
    """Every text in a JSON value, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield key
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)


def _renamed(value: Any, known: Mapping[str, str]) -> Any:
    """The same with other keys and texts."""
    if isinstance(value, str):
        return known.get(value, value)
    if isinstance(value, dict):
        return {known.get(key, key): _renamed(one, known) for key, one in value.items()}
    if isinstance(value, list):
        return [_renamed(one, known) for one in value]
    return value
