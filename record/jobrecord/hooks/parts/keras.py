"""Keras: our callback is added in ``fit`` and ``evaluate``."""

from __future__ import annotations

from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType


def attach(keras: ModuleType) -> str:
    """Add the callback to each call that has none of ours."""
    methods = [getattr(keras.Model, name) for name in ("fit", "evaluate")]
    if not all("callbacks" in signature(method).parameters for method in methods):
        return "its functions take no callbacks"
    for method in methods:
        setattr(keras.Model, method.__name__, _recorded(method))
    return ""


def _recorded(method: Callable[..., Any]) -> Callable[..., Any]:
    parameters = signature(method)

    @wraps(method)
    def with_callback(*args: Any, **options: Any) -> Any:
        try:
            given = parameters.bind(*args, **options)
        except TypeError:  # the method says so
            return method(*args, **options)
        from jobrecord.keras import JobRecorderCallback  # noqa: PLC0415 - needs Keras

        callbacks = given.arguments.get("callbacks")
        listed = list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks] * bool(callbacks)
        # A list of Keras's own has the callbacks of an outer call.
        if not hasattr(callbacks, "callbacks") and not any(
            isinstance(one, JobRecorderCallback) for one in listed
        ):
            given.arguments["callbacks"] = [*listed, JobRecorderCallback()]
        return method(*given.args, **given.kwargs)

    return with_callback
