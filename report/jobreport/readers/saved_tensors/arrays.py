"""Single arrays that SageMaker Debugger saved, as they are."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from jobreport.readers import event_files, text_files
from jobreport.readers.event_files import MessageError, Records
from jobreport.readers.saved_tensors.files import place_of
from jobreport.readers.tally import Tally
from jobrules.model import natural_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from jobreport.readers.base import SourceFile
    from jobreport.readers.event_files import Value

#: Bytes of a message with name, type, and shape; and of an array that is read.
_HEAD, _MAX_ARRAY = 1 << 12, 1 << 30


def by_step(files: Iterable[SourceFile]) -> Mapping[int, Sequence[SourceFile]]:
    """The files with arrays of each step, in the order of workers."""
    found: defaultdict[int, list[tuple[Any, SourceFile]]] = defaultdict(list)
    for file in files:
        place = place_of(file)
        if place and place.step is not None and not place.is_index:
            found[place.step].append(((natural_key(place.worker), file.name), file))
    return {step: [file for _, file in sorted(found[step])] for step in sorted(found)}


def array(files: Iterable[SourceFile], name: str) -> tuple[Any, Sequence[str]]:
    """The array in the first of these files that has it, or None; and the names that were seen.

    Raises ``ValueError`` for one that is too large, or of a type that is not known.
    """
    names: list[str] = []
    for file in files:
        with text_files.noting(file, Tally()):
            records = Records(file.path, _HEAD)
            for message in records:
                is_cut = records.size > len(message)
                try:
                    values = event_files.event(message, is_cut=is_cut).values
                except MessageError:
                    continue
                # As in ``SavedJob``: behind the first value, another one cannot be seen.
                for value in values[:1] if is_cut else values:
                    names.append(value.tag.decode("utf-8", "backslashreplace"))
                    if names[-1] == name:
                        return _elements(records if is_cut else None, value, name), names
    return None, names


def _elements(records: Records | None, value: Value, name: str) -> Any:
    """The elements of a value, or of the whole message at which the records stand."""
    if records and records.size > _MAX_ARRAY:
        raise ValueError(f"{name}: {records.size:,} bytes, more than {_MAX_ARRAY:,}")
    try:
        if records:
            value = event_files.event(records.whole()).values[0]
        if value.tensor is not None:
            return event_files.elements(value.tensor)
    except MessageError:
        raise ValueError(f"{name}: elements of an unknown type") from None
    if value.simple is None:
        raise ValueError(f"{name}: neither an array nor a number")
    return np.array(value.simple)
