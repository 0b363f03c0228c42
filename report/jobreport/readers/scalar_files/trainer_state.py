"""``trainer_state.json`` of Hugging Face's Trainer: all that it logged, without times."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from jobreport.readers import text_files
from jobreport.readers.series import Logged
from jobreport.readers.tally import UnusableError

if TYPE_CHECKING:
    from jobreport.readers.base import SourceFile
    from jobreport.readers.tally import Tally
    from jobrules.model.learning import Scalars

SOURCE = "trainer_state.json"
_MAX_BYTES, _MAX_STEP = 64 << 20, 10**12
#: What the last entry has, which is about the whole run; and names that are about its speed.
_SUMMARY = "train_runtime"
_SPEED = ("step", "epoch", "total_flos")
_SPEED_ENDS = ("_runtime", "_per_second")


def read_state(file: SourceFile, tally: Tally) -> list[Scalars]:
    """What was logged. Raises ``UnusableError``."""
    try:
        found = json.loads(text_files.content(file.path, _MAX_BYTES))
    except (ValueError, RecursionError):
        raise UnusableError("file.not_json") from None
    history = found.get("log_history") if isinstance(found, dict) else None
    if not isinstance(history, list):
        raise UnusableError("learning.unknown")
    logged = Logged()
    for entry in history:
        if not isinstance(entry, dict) or not _is_step(step := entry.get("step")):
            tally.note("learning.row", file=file.name)
        elif _SUMMARY not in entry:
            for name, value in entry.items():
                if name not in _SPEED and not name.endswith(_SPEED_ENDS) and _is_number(value):
                    logged.add("", name, int(step or 0), 0, float(value))
    tally.note("learning.thinned_values", count=logged.left_out, file=file.name)
    if not logged:
        raise UnusableError("learning.no_number")
    found = logged.scalars(SOURCE)
    tally.note("learning.again", count=logged.repeated, file=file.name)
    return found


def _is_number(value: Any) -> bool:
    # A larger whole number is none of a double.
    return type(value) is float or (type(value) is int and abs(value) < 1 << 1000)


def _is_step(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= _MAX_STEP
