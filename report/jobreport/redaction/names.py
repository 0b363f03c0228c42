"""Every text of a struct, with the kind of name that its annotation gives (``jobrules.model.names``)."""

from __future__ import annotations

from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar, Union, get_args, get_origin

from msgspec import Struct, structs

from jobrules.model.names import Name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    #: The text that replaces one of a kind; an empty kind is that of our own texts.
    Change: TypeAlias = Callable[[str, str], str]

_T = TypeVar("_T")


def texts_in(value: Any) -> list[tuple[str, str]]:
    """Every text in a struct or a tuple of structs, with its kind in front; that of our own texts is empty."""
    texts = []

    def note(kind: str, text: str) -> str:
        texts.append((kind, text))
        return text

    renamed(value, note)
    return texts


def names_in(*values: Any) -> set[tuple[str, str]]:
    """Every name in structs or tuples of them, with its kind in front."""
    return {(kind, text) for kind, text in texts_in(values) if kind}


def renamed(value: _T, change: Change, annotation: Any = str, owner: Any = None) -> _T:
    """A struct, a tuple of structs, or a JSON value, with all its texts changed, keys too.

    ``owner`` is the struct or the key that has a text, from which its annotation may tell the kind.
    """
    changed: Any = value
    if isinstance(value, Struct):
        fields = {
            name: renamed(getattr(value, name), change, kind, value)
            for name, kind in _fields(type(value)).items()
        }
        changed = structs.replace(value, **fields) if fields else value
    elif isinstance(value, str):
        kind = _kind(annotation)
        changed = change(kind if isinstance(kind, str) else kind(owner), value)
    elif isinstance(value, tuple | list):
        changed = type(value)(
            renamed(part, change, kind, owner)
            for part, kind in zip(value, _parts(annotation, len(value)), strict=True)
        )
    elif isinstance(value, dict):
        of_dict = (get_args(one) for one in _options(annotation) if get_origin(one) is dict)
        of_key, of_value = next(of_dict, (str, str))
        changed = {
            renamed(key, change, of_key, owner): renamed(part, change, of_value, key)
            for key, part in value.items()
        }
    return changed  # type: ignore[no-any-return]


@cache
def _fields(owner: type[Struct]) -> dict[str, Any]:
    """The fields of a struct that hold texts, with their annotations."""
    return {field.name: field.type for field in structs.fields(owner) if _holds_text(field.type)}


def _holds_text(annotation: Any) -> bool:
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        return bool(_fields(annotation))
    return annotation is str or any(map(_holds_text, get_args(annotation)))


@cache
def _kind(annotation: Any) -> str | Callable[[Any], str]:
    return next((one.kind for one in _options(annotation) if isinstance(one, Name)), "")


@cache
def _parts(annotation: Any, count: int) -> tuple[Any, ...]:
    """The annotation of each part of a tuple."""
    parts = next((get_args(one) for one in _options(annotation) if get_origin(one) is tuple), (annotation,))
    return parts if len(parts) == count and parts[-1] is not ... else parts[:1] * count


def _options(annotation: Any) -> Iterator[Any]:
    """An annotation; of a union its members, and of one with notes the notes, too."""
    if get_origin(annotation) in (Annotated, Union, UnionType):
        for one in get_args(annotation):
            yield from _options(one)
    else:
        yield annotation
