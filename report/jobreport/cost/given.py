"""Facts of a job that the user gives with ``--set``."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from jobreport.cost.facts import NUMBERS, number_of
from jobreport.errors import UsageError
from jobrules.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Sequence

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


def facts(assignments: Sequence[str]) -> dict[str, str | float]:
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
