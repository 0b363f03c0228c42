"""One file of a rank: ``jobrecord/training-<rank>.jsonl``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from jobreport.readers import text_files
from jobreport.readers.bounds import EARLIEST_US
from jobreport.readers.learning.lines import (
    ABOUT,
    LONGEST,
    Classes,
    Event,
    Head,
    Names,
    NotRecorded,
    Record,
    Scalar,
    Trees,
    decoded,
)
from jobreport.readers.learning.rows import BINS, COLUMNS, Rows
from jobreport.readers.names import as_name
from jobreport.readers.restarts import latest
from jobreport.readers.series import Logged
from jobreport.readers.tally import UnusableError
from jobrules.model.learning import (
    EVALUATION,
    PREDICTION,
    TRAINING,
    ClassCounts,
    Collection,
    LearningEvent,
    Scalars,
    Tensor,
    TensorRecords,
)
from jobrules.model.learning import Trees as BoostedTrees

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jobreport.readers.base import SourceFile
    from jobreport.readers.learning.lines import Line, NamedTensor
    from jobreport.readers.tally import Tally

SOURCE = "jobrecord"
_MODES = (TRAINING, EVALUATION, PREDICTION)
_WORDS = {"nan": np.nan, "inf": np.inf, "infinity": np.inf, "-inf": -np.inf, "-infinity": -np.inf}
_COLLECTIONS = frozenset(Collection)
_EVENTS = ("overflow", "skipped", "resume", "epoch", "checkpoint", "error")
_DTYPE = re.compile(r"bool|bfloat16|(?:float|u?int|complex)[0-9]{1,3}(?:_e[0-9]m[0-9][a-z]{0,6})?")
#: Of a file: tensors, numbers of evaluations, events, and reasons.
_MAX_TENSORS, _MAX_COUNTS, _MAX_EVENTS, _MAX_REASONS = 120_000, 4_000_000, 100_000, 100
#: Characters of a name, and of a text.
_MAX_NAME, _MAX_TEXT = 200, 200


class TrainingLog(Struct, kw_only=True):
    """What was read of a file."""

    head: Head
    scalars: list[Scalars] = field(default_factory=list)
    tensors: TensorRecords | None = None
    classes: list[ClassCounts] = field(default_factory=list)
    events: list[LearningEvent] = field(default_factory=list)
    trees: BoostedTrees | None = None
    cost_us: int = 0
    not_recorded: list[str] = field(default_factory=list)


def head_of(file: SourceFile) -> Head:
    """The first line. Raises ``UnusableError`` and ``DamagedError``."""
    line = next(text_files.lines(file.path, LONGEST), b"")
    try:
        head, _ = decoded(line or b"")
    except (ValueError, RecursionError):
        head = None
    if not isinstance(head, Head):
        raise UnusableError("learning.unknown" if line else "file.empty")
    return head


def read_log(file: SourceFile, head: Head, tally: Tally, share: int = 1) -> TrainingLog:
    """What a file says, one of ``share`` that share the memory; a damaged line costs itself."""
    reading = _Reading(file, head, tally, share)
    damaged = first = 0
    with text_files.noting(file, tally):
        for number, line in enumerate(text_files.lines(file.path, LONGEST), start=1):
            if not line or not reading.takes(line, number):
                damaged += 1
                first = first or number
    tally.note("learning.line", count=damaged, file=file.name, line=first)
    return reading.finished()


class _Reading:
    """A file, as far as it was read."""

    def __init__(self, file: SourceFile, head: Head, tally: Tally, share: int) -> None:
        self._file, self._head, self._tally = file, head, tally
        self._rows, self._logged = Rows(), Logged(share)
        self._names: dict[int, Tensor] = {}
        self._classes: list[ClassCounts] = []
        self._counts = 0
        self._found: dict[LearningEvent, None] = {}
        self._trees: BoostedTrees | None = None
        self._not_recorded: dict[str, None] = {}
        self._cost_us = 0

    def takes(self, line: bytes, number: int) -> bool:
        """Whether a line is one whose parts agree, which is taken."""
        try:
            one, is_bare = decoded(line)
            self._add(one)
        except (ValueError, RecursionError):
            return False
        self._tally.note("learning.bare", count=is_bare, file=self._file.name, line=number)
        return True

    def _add(self, one: Line) -> None:
        match one:
            case Record():
                self._add_record(one)
            case Scalar():
                self._add_scalars(one)
            case Classes():
                self._add_classes(one)
            case Names():
                self._add_names(one.first, one.tensors)
            case Event():
                self._add_event(one)
            case Trees():
                gains = sorted(one.importance.items(), key=lambda item: -item[1])
                self._trees = BoostedTrees(
                    importance=tuple((_name(name), gain) for name, gain in gains),
                    depths=tuple(one.depths),
                    max_depth=one.max_depth,
                )
            case Head():
                known = {name: value for name in ABOUT if (value := getattr(one, name)) is not None}
                self._head = replace(self._head, **known)
                self._add_reasons(one.not_recorded or ())
            case NotRecorded():
                self._add_reasons(one.not_recorded or ())

    def _add_reasons(self, reasons: Iterable[str]) -> None:
        for one in reasons:
            if len(self._not_recorded) < _MAX_REASONS:
                self._not_recorded[one[:_MAX_TEXT]] = None

    def _add_event(self, one: Event) -> None:
        if one.name not in _EVENTS:
            raise ValueError
        event = LearningEvent(step=one.step, time_us=_time(one), name=one.name, text=one.text[:_MAX_TEXT])
        if event in self._found or len(self._found) < _MAX_EVENTS:
            self._found[event] = None
        else:
            self._note("learning.events", 1)

    def _add_record(self, one: Record) -> None:
        if one.mode != TRAINING:
            self._note("learning.other_mode", len(one.id))
            return
        self._rows.add(one)
        self._cost_us += one.cost_us

    def _add_names(self, first: int, tensors: Iterable[NamedTensor]) -> None:
        for number, one in enumerate(tensors, start=first):
            if one.c in _COLLECTIONS and len(self._names) < _MAX_TENSORS:
                dtype = (one.dtype or "").removeprefix("torch.")
                self._names[number] = Tensor(
                    name=_name(one.n),
                    collection=Collection(one.c),
                    shape=tuple(one.shape),
                    dtype=dtype if _DTYPE.fullmatch(dtype) else "",
                    trainable=one.trainable,
                    optimized=one.optimized,
                    module=_name(one.m or ""),
                    order=-1 if one.order is None else one.order,
                    pad_id=one.pad_id,
                )

    def _add_scalars(self, one: Scalar) -> None:
        if one.mode not in _MODES:
            raise ValueError
        time_us = _time(one)
        for name, value in one.values.items():
            number = _WORDS.get(value.lower()) if isinstance(value, str) else value
            if number is None or not self._logged.add(one.mode, name, one.step, time_us, number):
                self._note("learning.value", 1)

    def _add_classes(self, one: Classes) -> None:
        size = len(one.labels)
        pairs = np.array(one.pairs, np.int64).reshape(-1, 3)
        if one.mode not in _MODES or len(one.predicted) != size or (pairs[:, :2] >= size).any():
            raise ValueError
        labels = np.array(one.labels, np.int64)
        found = ClassCounts(
            step=one.step,
            mode=one.mode,
            labels=labels,
            predicted=np.array(one.predicted, np.int64),
            pairs=pairs,
            complete=bool(pairs[:, 2].sum() == labels.sum()),
        )
        self._classes.append(found)
        self._counts += _size(found)
        while self._counts > _MAX_COUNTS and len(self._classes) > 1:
            self._counts -= _size(self._classes.pop(0))
            self._note("learning.evaluations", 1)

    def _note(self, code: str, count: int) -> None:
        self._tally.note(code, count=count, file=self._file.name)

    def finished(self) -> TrainingLog:
        """All of it."""
        classes = self._classes
        modes = np.array([_MODES.index(one.mode) for one in classes], np.int32)
        kept = latest(np.array([one.step for one in classes], np.int64), modes)
        scalars = self._logged.scalars(SOURCE, self._head.rank)
        self._note("learning.thinned_values", self._logged.left_out)
        self._note("learning.again", self._logged.repeated)
        return TrainingLog(
            head=self._head,
            scalars=scalars,
            tensors=self._tensors(),
            classes=[classes[i] for i in kept.tolist()],
            events=[*self._found],
            trees=self._trees,
            cost_us=self._cost_us,
            not_recorded=[*self._not_recorded],
        )

    def _tensors(self) -> TensorRecords | None:
        self._rows.finish()
        self._note("learning.thinned", self._rows.left_out)
        whose, values, bins = self._rows.arrays()
        ids = np.array(sorted(self._names), np.int64)
        at = np.searchsorted(ids, whose[:, 3])
        named = np.append(ids, -1)[at] == whose[:, 3]
        self._note("learning.unnamed", int((~named).sum()))
        if not named.any():
            return None
        tensors = [self._names[one] for one in ids.tolist()]
        # Forward order as far as it is known, then that of the ids.
        order = sorted(range(len(ids)), key=lambda i: (tensors[i].order < 0, tensors[i].order, i))
        place = np.empty(len(ids), np.int32)
        place[order] = np.arange(len(ids))
        code = place[at[named]]
        kept = np.flatnonzero(named)[latest(whose[named, 1], code, whose[named, 0])]
        self._note("learning.rows_again", int(named.sum()) - len(kept))
        rows = dict(zip(COLUMNS, values[:, kept], strict=True))
        return TensorRecords(
            tensors=tuple(tensors[i] for i in order),
            tensor=place[at[kept]],
            step=whose[kept, 1],
            time_us=np.where(whose[kept, 2] >= EARLIEST_US, whose[kept, 2], 0),
            bins=bins[kept] if bins.any() else np.empty((0, BINS), np.int32),
            **rows,
        )


def _size(one: ClassCounts) -> int:
    return 2 * len(one.labels) + 3 * len(one.pairs) + 10


def _time(one: Scalar | Event) -> int:
    return one.time_us if one.time_us >= EARLIEST_US else 0


def _name(text: str) -> str:
    return as_name(text[:_MAX_NAME])
