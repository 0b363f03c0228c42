"""What one job saved of its training: losses, and tensors or reductions of them.

Tensors become statistics, one at a time. Checksums of messages are not computed: most of these files have a constant in
their place.
"""

from __future__ import annotations

import math
import re
from array import array
from collections import defaultdict
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from jobreport.readers import event_files, text_files
from jobreport.readers.event_files import MessageError, Records
from jobreport.readers.names import as_name
from jobreport.readers.saved_tensors.files import CLASSES, MODES, Kind, Known, place_of
from jobreport.readers.saved_tensors.statistics import classes, fired, statistics
from jobreport.readers.saved_tensors.table import Counts, Table
from jobrules.model import natural_key
from jobrules.model.learning import EVALUATION, LOSS, TRAINING, Learning, Scalars

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from jobreport.readers.base import SourceFile
    from jobreport.readers.event_files import Event, Value
    from jobreport.readers.tally import Tally
    from jobrules.model import BoolArray, IntArray
    from jobrules.model.learning import ClassCounts

#: Name, name as logged, mode, and rank.
_Series: TypeAlias = tuple[str, str, str, int]

SOURCE = "SageMaker Debugger"
#: Bytes of a message with name, type, and shape; of a tensor that is read; and of all files whose tensors are.
_HEAD, _MAX_TENSOR, _MAX_BYTES = 1 << 12, 1 << 30, 8 << 30
#: Names that are looked at; modules and records of outputs that show which units are dead.
_MAX_NAMES, _MAX_MODULES, _BATCHES = 200_000, 256, 10
_RANK = re.compile(r".*?([0-9]{1,6})", re.DOTALL)
#: Reductions that are columns, as hooks save them: norms are those of vectors. Others need the number of elements.
_COLUMNS = {"sum": "sum", "abs_sum": "l1", "l1": "l1", "abs_l1": "l1", "l2": "l2", "abs_l2": "l2"}
_COLUMNS |= {"min": "min", "max": "max"}
_MEANS = {"mean": "sum", "abs_mean": "l1"}


class _File(Struct, kw_only=True):
    """What becomes of one file: of one worker at one step."""

    file: SourceFile
    step: int
    rank: int
    #: Whether it is of the first worker, and its tensors are read.
    is_first: bool
    reads_tensors: bool
    mode: str
    #: Of each tensor, by what the library calls them.
    reductions: dict[Kind, dict[str, float]] = field(default_factory=dict)
    #: Labels and predictions.
    batch: dict[str, IntArray] = field(default_factory=dict)
    time_us: int = 0
    is_used: bool = False


class SavedJob:
    """What was saved below one folder."""

    def __init__(self, files: Sequence[SourceFile], tally: Tally) -> None:
        self._tally, self._known = tally, Known()
        self._events: defaultdict[int, list[tuple[str, SourceFile]]] = defaultdict(list)
        for file in sorted(files):
            place = place_of(file)
            with text_files.noting(file, tally):
                if place is None or place.step is None:
                    self._known.add_collections(file)
                elif place.is_index:
                    self._known.add_index(file, place.step, place.worker)
                else:
                    self._events[place.step].append((place.worker, file))
        self._ranks = _ranks({worker for some in self._events.values() for worker, _ in some})
        size = sum(file.size for some in self._events.values() for _, file in some) / max(1, len(self._ranks))
        self._table = Table(stride=max(1, math.ceil(size / _MAX_BYTES)))
        self._kinds: dict[bytes, Kind | None] = {}
        self._scalars: defaultdict[_Series, array[float]] = defaultdict(lambda: array("d"))
        self._fired: defaultdict[str, list[BoolArray]] = defaultdict(list)
        self._class_count: int | None = None
        #: Batches of the evaluation that is being read, and of the second half of the training.
        self._evaluation, self._training = Counts(), Counts()
        self._evaluations: list[ClassCounts] = []
        #: Files of which something is read.
        self.used = 0

    def read(self) -> Learning | None:
        """All that was saved; None if nothing of it is read."""
        first = min(self._ranks.values(), default=0)
        for number, (step, files) in enumerate(sorted(self._events.items())):
            reads_tensors = self._table.begin(number, step)
            for worker, file in sorted(files, key=lambda one: self._ranks[one[0]]):
                rank = self._ranks[worker]
                mode = self._known.modes.get((step, worker), TRAINING)
                one = _File(
                    file=file,
                    step=step,
                    rank=rank,
                    is_first=rank == first,
                    reads_tensors=reads_tensors and rank == first,
                    mode=mode,
                )
                with text_files.noting(file, self._tally), np.errstate(all="ignore"):
                    self._read(one)
                self._finish(one, is_late=2 * number + 1 >= len(self._events))
        if self._evaluation:
            self._evaluations.append(self._evaluation.counted(EVALUATION))
        if not self._evaluations and self._training:
            self._evaluations.append(self._training.counted(TRAINING))
        if not self.used:
            return None
        self._tally.note("saved_tensors.thinned", count=self._table.left_out)
        self._tally.note("saved_tensors.forward_passes", count=len(self._events))
        return Learning(
            scalars=tuple(_scalars(*series, rows) for series, rows in sorted(self._scalars.items())),
            tensors=self._table.records(),
            classes=tuple(self._evaluations),
            ranks=tuple(sorted(self._ranks.values())),
            class_count=self._class_count,
            sources=(SOURCE,),
        )

    def _read(self, one: _File) -> None:
        """Read the records of a file, up to what they raise."""
        records = Records(one.file.path, _HEAD)
        for message in records:
            is_cut = records.size > len(message)
            try:
                event = event_files.event(message, is_cut=is_cut)
                # Behind the first value of a message that is not read whole, another one cannot be seen.
                for value in event.values[:1] if is_cut else event.values:
                    if (kind := self._kind(value.tag)) is None:
                        self._note("saved_tensors.other", one)
                    elif not is_cut:
                        self._add(kind, value, event, one)
                    elif self._is_read(kind, one):
                        if records.size > _MAX_TENSOR:
                            self._note("saved_tensors.large", one)
                            continue
                        whole = event_files.event(records.whole())
                        self._add(kind, whole.values[0], whole, one)
            except MessageError:
                self._note("saved_tensors.unreadable", one)

    def _kind(self, tag: bytes) -> Kind | None:
        if tag not in self._kinds:
            kind = self._known.kind(tag.decode("utf-8", "backslashreplace"))
            is_read = kind is None or kind.reduction in ("", *_COLUMNS, *_MEANS, "std", "variance")
            if len(self._kinds) == _MAX_NAMES:
                return None
            self._kinds[tag] = kind if is_read else None
        return self._kinds[tag]

    def _is_read(self, kind: Kind, one: _File) -> bool:
        """Whether a tensor of many elements is read; with a remark, unless that is because of its step."""
        if kind.collection is None:
            self._note("saved_tensors.other", one, count=kind.of not in CLASSES)
            return kind.of in CLASSES
        if not one.is_first:
            self._note("saved_tensors.worker", one)
        elif one.mode != TRAINING:
            self._note("saved_tensors.evaluation", one)
        return one.reads_tensors and one.mode == TRAINING

    def _add(self, kind: Kind, value: Value, event: Event, one: _File) -> None:
        """Add a value of which the whole message is known. Raises ``MessageError``."""
        one.time_us = event.time_us or one.time_us
        mode = value.notes.get(b"mode", b"").decode("ascii", "replace").rpartition(".")[2]
        one.mode = MODES.get(mode, one.mode)
        elements = None if value.tensor is None else event_files.elements(value.tensor)
        number = value.simple
        if elements is not None and elements.size == 1:
            number = float(elements.item())
        if kind.of in CLASSES and elements is not None:
            self._add_batch(kind, elements, one)
        elif kind.of and kind.of not in CLASSES and number is not None:
            name = as_name(value.tag.decode("utf-8", "backslashreplace"))
            series = LOSS if kind.of == "loss" else name, name, one.mode, one.rank
            self._scalars[series].extend((one.step, event.time_us, number))
            one.is_used = True
        elif not kind.collection or (number is None if kind.reduction else elements is None):
            self._note("saved_tensors.other", one)
        elif self._is_read(kind, one):
            one.is_used = True
            if kind.reduction and number is not None:
                of_tensor = replace(kind, reduction="")
                one.reductions.setdefault(of_tensor, {})[kind.reduction] = number
            elif elements is not None:
                self._add_tensor(kind, elements, one)

    def _add_tensor(self, kind: Kind, elements: Any, one: _File) -> None:
        row, bins = statistics(elements, kind.module)
        is_known = kind.name in self._fired or len(self._fired) < _MAX_MODULES
        if kind.module == "ReLU" and is_known and (units := fired(elements)) is not None:
            batches = self._fired[kind.name]
            if batches and len(batches[0]) != len(units):
                batches.clear()
            batches.append(units)
            del batches[:-_BATCHES]
            row["dead"] = 1 - float(np.any(batches, axis=0).mean())
        self._add_row(kind, elements.shape, elements.dtype.name, row, bins, one)

    def _add_row(
        self,
        kind: Kind,
        shape: tuple[int, ...],
        dtype: str,
        row: dict[str, float],
        bins: IntArray | None,
        one: _File,
    ) -> None:
        if not self._table.add(kind, shape, dtype, one.time_us, row, bins):
            self._note("saved_tensors.many", one)

    def _add_batch(self, kind: Kind, elements: Any, one: _File) -> None:
        found = classes(elements)
        if found is None:
            self._note("saved_tensors.other", one)
            return
        one.batch[kind.of] = found
        if kind.of == "predictions" and len(elements.shape) > 1 and elements.shape[-1] > 1:
            self._class_count = elements.shape[-1]

    def _finish(self, one: _File, *, is_late: bool) -> None:
        """What is known of a file at its end."""
        for kind, reductions in one.reductions.items():
            shape = self._known.shapes.get(kind.tensor)
            row = _row(reductions, None if shape is None else math.prod(shape))
            self._note("saved_tensors.not_finite", one, count=row.get("nan", 0) + row.get("inf", 0) > 0)
            if not self._table.has(kind):
                self._add_row(kind, shape or (), "", row, None, one)
        if one.mode == TRAINING and self._evaluation:
            self._evaluations.append(self._evaluation.counted(EVALUATION))
            self._evaluation = Counts()
        labels, predictions = (one.batch.get(name) for name in CLASSES)
        if labels is not None and predictions is not None and len(labels) == len(predictions):
            one.is_used = True
            if one.mode == EVALUATION:
                self._evaluation.add(one.step, labels, predictions)
            elif one.mode == TRAINING and is_late:
                self._training.add(one.step, labels, predictions)
        self.used += one.is_used

    def _note(self, code: str, one: _File, *, count: int = 1) -> None:
        self._tally.note(code, count=count, file=one.file.name)


def _ranks(workers: Collection[str]) -> dict[str, int]:
    """Ranks of workers: the first number in their names, or their order."""
    names = sorted(workers, key=natural_key)
    found = [int(match[1]) if (match := _RANK.match(one)) else -1 for one in names]
    is_known = len(set(found)) == len(found) and -1 not in found
    return dict(zip(names, found if is_known else range(len(names)), strict=True))


def _row(reductions: Mapping[str, float], count: int | None) -> dict[str, float]:
    """Columns of a tensor by its reductions."""
    known = {name: value for name, value in reductions.items() if math.isfinite(value)}
    row = {column: known[name] for name, column in _COLUMNS.items() if name in known}
    if count is not None:
        row["count"] = float(count)
        row |= {column: known[name] * count for name, column in _MEANS.items() if name in known}
        spread = known["std"] * known["std"] if "std" in known else known.get("variance")
        if "l2" not in row and spread is not None and count and "sum" in row:
            # Hooks divide by one element less.
            row["l2"] = math.sqrt(max(0.0, spread * (count - 1) + row["sum"] / count * row["sum"]))
        row = {column: value for column, value in row.items() if math.isfinite(value)}
    is_nan = any(math.isnan(value) for value in reductions.values())
    # A sum of finite numbers may be infinite.
    is_inf = any(math.isinf(reductions.get(name, 0)) for name in ("min", "max"))
    if known or is_nan or is_inf:
        row |= {"nan": float(is_nan), "inf": float(is_inf)}
    return row


def _scalars(name: str, logged_as: str, mode: str, rank: int, rows: array[float]) -> Scalars:
    step, time_us, value = np.array(rows).reshape(-1, 3).T
    return Scalars(
        name=name,
        logged_as=logged_as,
        mode=mode,
        rank=rank,
        source=SOURCE,
        step=step.astype(np.int64),
        time_us=time_us.astype(np.int64),
        value=value,
    )
