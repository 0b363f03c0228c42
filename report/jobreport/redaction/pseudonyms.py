"""Placeholders for the names in a job, put in place before any rule runs.

Rules, sections, and messages never see the names. Placeholders are numbers in the natural order of the names: nothing
leads back from them, and the same job gets the same ones every time. Names that frameworks give stay
(``identifiers.is_common``), and so do times, numbers, and what was typed on the command line: rules and thresholds. A
mode given as ``StepOutlier.mode`` is a name, too, and gets a placeholder that the same modes end with.
"""

from __future__ import annotations

import builtins
import dataclasses
import errno
import itertools
import os
import re
import sys
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from jobreport.readers.debugger_results.rule_results import decoded
from jobreport.readers.names import as_name
from jobreport.readers.tally import Tally
from jobreport.redaction.identifiers import OPTION, is_common
from jobreport.redaction.names import names_in, renamed, texts_in
from jobrules.model import Job, JobInMemory, natural_sorted
from jobrules.model.learning import CANONICAL, block_of
from jobrules.rules.step_outlier import StepOutlier

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jobreport.readers.debugger_results.rule_results import RuleResults
    from jobreport.readers.registry import Reading
    from jobreport.remarks import Quality, Remark, SourceQuality
    from jobreport.settings import Settings
    from jobrules.model import CodeFrame, Function, Profile

#: Placeholder of the job's name, from the moment it is read.
JOB = "job"
#: Parts of names that rules look for: at the beginning, and anywhere, in any case or as they stand.
_HEADS = ("Forward", "Backward", "IteratorGetNext")
_ANY_CASE, _INSIDE = ("cpu", "gpu"), ("Step", "GetNext", "Prefetch", "SingleProcess")
#: Devices and ranks are in the order of their names, so either all of them change or none.
_TOGETHER = ("device", "rank")
#: Messages of the system, which name nothing.
_SYSTEM_MESSAGES = frozenset(map(os.strerror, errno.errorcode))
#: What the recorder says of its own limit, and its version.
_RECORDER = re.compile(r"--max-bytes [0-9]{1,20} reached|jobrecord [0-9.]{1,20}")
_VERSION = re.compile(r"[0-9][0-9.]{0,20}(?:\+(?:cpu|cu[0-9]{1,4}))?")
#: Kinds of names that never stay, and kinds of what the recorder tells.
_ALWAYS_CHANGE = ("node", "capture", "path", "quote", "row", "command", "commit")
_OF_RECORDER = ("message", "sensor", "label")
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
#: Of a file in the folder of libraries.
_FIRST_NAME = re.compile(r"(?:<frozen )?(\w+)")
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
_NUMBER = re.compile(r"-?[0-9]{1,11}(\.[0-9]{1,12})?|[0-9]{16}")


class Pseudonyms(Struct, frozen=True, kw_only=True):
    """The placeholder of each name, by kind and name."""

    names: dict[tuple[str, str], str]
    #: The mode that StepOutlier checks, if it is given.
    mode: str | None = None

    @classmethod
    def of(cls, names: Iterable[tuple[str, str]], mode: str | None = None) -> Pseudonyms:
        """Make placeholders for names, given with their kinds, and for ``StepOutlier.mode``.

        Kinds: node, device, mount, process, rank, event (an event type or a mode), tensor (of the model), scalar (that a
        script logged), iterator, operator, kernel, group, type (of elements or modules), stream, model (of a device),
        capture, file, function.
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
            layers = filter(None, dict.fromkeys(map(_layer, own))) if kind == "tensor" else ()
            number_of = {"": 0, **{layer: i for i, layer in enumerate(layers, start=1)}}
            for name in own:
                placeholders = (_placeholder(kind, name, number, made) for number in numbers)
                if kind == "tensor" and (layer := number_of[_layer(name)]):
                    placeholders = (f"layer-{layer}.{one}" for one in placeholders)
                if kind == "event" and mode:
                    is_seen = given.looks_at(name)
                    placeholders = (f"{one} {seen.mode}" if is_seen else one for one in placeholders)
                    # "event-1" would match a mode "1".
                    placeholders = (one for one in placeholders if seen.looks_at(one) == is_seen)
                made[kind, name] = next(one for one in placeholders if one not in taken)
        return cls(names=made, mode=seen.mode)

    def __call__(self, kind: str, name: str) -> str:
        """Placeholder of a name; the name itself if it stays, and an ellipsis for one that has none."""
        return self.names.get((kind, name)) or (name if not kind or _stays(kind, name) else "…")

    def only(self, names: Iterable[tuple[str, str]]) -> Pseudonyms:
        """The placeholders of some names: of a node, so that what travels to it does not grow with their number."""
        return replace(self, names={one: self.names[one] for one in names if one in self.names})

    def part(self, part: JobInMemory) -> JobInMemory:
        """The tables of a node, with placeholders."""
        panels, steps, events = renamed((part.panels, part.steps, part.events), self)
        stacks = (
            replace(
                renamed(replace(one, frames=()), self),
                frames=tuple(frame if _is_public(frame) else renamed(frame, self) for frame in one.frames),
            )
            for one in part.stacks
        )
        return dataclasses.replace(part, panels=panels, steps=steps, events=events, stacks=tuple(stacks))

    def profile(self, one: Profile) -> Profile:
        """A profile of Python code."""
        functions = tuple(map(self._function, one.functions))
        return replace(renamed(replace(one, functions=()), self), functions=functions)

    def _function(self, one: Function) -> Function:
        place = _library(one)
        return renamed(one, self) if place is None else replace(one, file=place)

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
        options = [f"{before}{self.mode}" if one.startswith(before) else one for one in chosen.options]
        for i, one in enumerate(options):
            scalar, _, logged_as = one.partition("=")
            if scalar.startswith("--scalar "):
                options[i] = f"{scalar}={self.names.get(('scalar', logged_as), logged_as)}"
        rules = (
            dataclasses.replace(one, mode=self.mode) if isinstance(one, StepOutlier) else one
            for one in chosen.rules
        )
        return replace(chosen, rules=tuple(rules), options=(*options, OPTION))

    def source(self, source: SourceQuality) -> SourceQuality:
        """What became of files of one kind, without their names."""
        changed = renamed(source, self)
        logs = (replace(log, file=f"file-{number}") for number, log in enumerate(changed.logs, start=1))
        return replace(changed, remarks=self._remarks(source.remarks), logs=tuple(logs))

    def _remarks(self, remarks: Iterable[Remark]) -> tuple[Remark, ...]:
        """The remarks without places and names; those that differed in a name only become one."""
        tally = Tally()
        tally.take(replace(renamed(one, self), place=None) for one in remarks)
        return tally.remarks()


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
    functions = [one for profile in job.profiles for one in profile.functions if _library(one) is None]
    profiles = [replace(one, functions=()) for one in job.profiles]
    names = names_in(functions, profiles, job.captures, job.across_ranks, job.learning).union(*of_nodes)
    for source in quality.sources:
        names |= {("node", one.node) for one in source.logs}
        names |= {("node", one.node) for one in source.recordings}
        raised = [error for one in source.recordings for error in one.exceptions]
        names |= {(kind, name) for kind, name in names_in(raised) if kind in ("file", "function")}
    names |= {("node", node) for node in _nodes_of(results)} if results else set()
    pseudonyms = Pseudonyms.of(names, mode)
    changed_job = dataclasses.replace(
        job,
        kept=tuple(
            replace(one, facts=renamed(one.facts, pseudonyms), change=pseudonyms.only(own).part)
            for one, own in zip(job.kept, of_nodes, strict=True)
        ),
        profiles=tuple(map(pseudonyms.profile, job.profiles)),
        captures=renamed(job.captures, pseudonyms),
        across_ranks=renamed(job.across_ranks, pseudonyms),
        learning=renamed(job.learning, pseudonyms),
    )
    beside = _results(results, pseudonyms) if results else None
    changed = replace(reading, job=changed_job, debugger_results=beside)
    return changed, pseudonyms.quality(quality), pseudonyms.settings(chosen)


def _names_of(part: Job) -> set[tuple[str, str]]:
    """Every name in a part of a job, with its kind; of operators, of which there may be many, only those that change."""
    names = names_in(part.panels, part.steps, part.events) | {("node", node) for node in part.nodes}
    for one in part.stacks:
        own = [frame for frame in one.frames if not _is_public(frame)]
        names |= names_in(replace(one, frames=()), own)
    return {(kind, name) for kind, name in names if kind != "operator" or not is_common(name)}


def _stays(kind: str, name: str) -> bool:
    # The parameters of a model are its structure.
    if not name or kind in _ALWAYS_CHANGE or (kind == "tensor" and "." in name):
        return not name
    if kind == "rank":
        return _is_process(name)
    if kind == "error":
        package, _, rest = name.partition(".")
        return hasattr(builtins, name) or bool(rest and package in _LIBRARIES | sys.stdlib_module_names)
    if kind == "version" and _VERSION.fullmatch(name):
        return True
    return (
        is_common(name)
        or (kind == "scalar" and name in CANONICAL)
        or (kind in _OF_RECORDER and (name in _SYSTEM_MESSAGES or _RECORDER.fullmatch(name) is not None))
    )


def _placeholder(kind: str, name: str, number: int, others: dict[tuple[str, str], str]) -> str:
    """``node-1``, ``cpu event-2``, ``aten::operator-3``: parts of names that rules look for are kept."""
    if kind not in ("event", "iterator", "operator"):
        return f"{kind}-{number}.py" if kind == "file" else f"{kind}-{number}"
    # The class of an iterator, by which fetches are given to their loaders, or a framework's name space.
    head, colons, _ = name.partition("::")
    head = others.get(("iterator", head)) or (head if is_common(head) else "")
    space = f"{head}::" if colons and head else ""
    traits = [] if space else [head for head in _HEADS if name.startswith(head)]
    traits += [trait for trait in _ANY_CASE if trait in name.lower()]
    traits += [trait for trait in _INSIDE if trait in name]
    kept = [trait for i, trait in enumerate(traits) if trait not in space + "".join(traits[:i])]
    return space + " ".join([*kept, f"{kind}-{number}"])


def _layer(tensor: str) -> str:
    """The block of a tensor; without a number, the module that has it."""
    block = block_of(tensor)
    return block if block != tensor else tensor.rpartition(".")[0]


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


def _is_public(frame: CodeFrame) -> bool:
    """Whether a line is of a public library, or of Python's own."""
    package = _FIRST_NAME.match(frame.file)
    known = sys.stdlib_module_names if frame.place == "python" else _LIBRARIES
    return frame.place != "own" and package is not None and package[1] in known


# Results of SageMaker Debugger


def _results(found: RuleResults, pseudonyms: Pseudonyms) -> RuleResults:
    """The results of SageMaker Debugger, decoded again from documents without names."""
    texts = {text for one in found.documents for _, text in texts_in([one.raw, one.parameters])}
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
        raw, parameters = renamed([document.raw, document.parameters], lambda _, text: known.get(text, text))
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
