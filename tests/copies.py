"""A copy of a value with some fields changed, whichever way its class is made."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import msgspec

_T = TypeVar("_T")


def replace(one: _T, /, **changes: Any) -> _T:
    """As ``dataclasses.replace``, for values of ``msgspec`` too."""
    if isinstance(one, msgspec.Struct):
        return msgspec.structs.replace(one, **changes)
    copy: _T = dataclasses.replace(one, **changes)  # type: ignore[type-var]
    return copy
