"""Figures as inert JSON for the script of the page: few bytes, and equal ones for equal figures."""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections import Counter, defaultdict
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from jobreport.page.figures.models import DocumentConfig, Glyph, GlyphRenderer, Map, Model

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy.typing as npt

#: Any would do that is always the same.
_GZIP_LEVEL, _GZIP_TIME = 6, 1


def document_json(section: str, figures: Mapping[str, Model]) -> str:
    """One Bokeh document for the figures of a section, keyed by the id of the element each is drawn in.

    ``common`` holds, for each kind of model, the
    attributes that the script puts into every model of the kind that lacks them. Models, fields and values
    are written short; ``complete`` in ``templates/script/figures.js`` reads them: ``{"$": name, "id": …, "a": attributes}``
    is a model, ``{"f": …}`` a field, ``{"v": …}`` a value, ``{"m": …}`` the entries of a map,
    ``{"b": bytes, "s": shape, "d": dtype}`` an array of numbers.
    """
    writer = _Writer(section, [*figures.values()])
    document = {
        "version": _version(),
        "title": section,
        "config": writer.written(DocumentConfig(notifications=None)),
        "roots": [writer.written(figure) for figure in figures.values()],
    }
    roots = {root["id"]: element for root, element in zip(document["roots"], figures, strict=True)}
    return inert({"roots": roots, "common": _common(document), "doc": document})


def inert(value: Any) -> str:
    """JSON for a ``<script type="application/json">``, which no name in it can end."""
    return _text(value).replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


@cache
def _version() -> str:
    return version("bokeh")


class _Writer:
    """Writes models, each once; its id is a number in the order of the document.

    Those that stand on the page need ids that no other document has.
    """

    def __init__(self, section: str, roots: list[Model]) -> None:
        self._names = {id(root): f"{section}-{i}" for i, root in enumerate(roots)}
        self._written: set[int] = set()

    def written(self, value: Any) -> Any:  # noqa: PLR0911 - one return a kind
        """A value of a property."""
        if isinstance(value, Model):
            return self._model(value)
        if isinstance(value, np.ndarray):
            return _array(value)
        if isinstance(value, Map):
            return {"m": [[self.written(key), self.written(item)] for key, item in value.items()]}
        if isinstance(value, dict):
            return {key: self.written(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.written(item) for item in value]
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, float) and not math.isfinite(value):
            return {"type": "number", "value": "nan" if math.isnan(value) else f"{value:+}"}
        return value

    def _model(self, model: Model) -> dict[str, Any]:
        name = self._names.setdefault(id(model), f"{len(self._names):x}")
        if id(model) in self._written:
            return {"id": name}
        self._written.add(id(model))
        found: dict[str, Any] = {"$": type(model).__name__, "id": name}
        properties = vars(model)
        if isinstance(model, GlyphRenderer):
            given = {key: self.written(item) for key, item in properties.items() if key != "glyph"}
            given["glyph"] = self._glyph(model.glyph, model.data_source.data)
        else:
            given = {key: self.written(item) for key, item in properties.items()}
        return found | ({"a": given} if given else {})

    def _glyph(self, glyph: Glyph, columns: Mapping[str, Any]) -> dict[str, Any]:
        """A property that may have a column is the name of one, or a value."""
        given = {}
        for key, item in vars(glyph).items():
            value = self.written(item)
            may_have = glyph.columns is None or key in glyph.columns
            is_column = isinstance(item, str) and item in columns
            given[key] = ({"f": value} if is_column else {"v": value}) if may_have else value
        name = self._names.setdefault(id(glyph), f"{len(self._names):x}")
        return {"$": type(glyph).__name__, "id": name, "a": given}


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _array(array: npt.NDArray[Any]) -> Any:
    """Numbers as bytes, or as a list if that is shorter."""
    if array.dtype == np.int64:
        # BokehJS knows no longer ones.
        if np.abs(array).max(initial=0) > np.iinfo(np.int32).max:
            return array.tolist()
        array = array.astype(np.int32)
    data = base64.b64encode(gzip.compress(array.tobytes(), _GZIP_LEVEL, mtime=_GZIP_TIME)).decode()
    packed = {"b": data, "s": [*array.shape], "d": array.dtype.name}
    longest = len(_text(packed))
    # A number of a list takes two characters or more.
    if array.ndim == 1 and 2 * len(array) < longest and np.isfinite(array).all():
        listed = _shortest(array)
        if len(_text(listed)) <= longest:
            return listed
    return packed


def _shortest(array: npt.NDArray[Any]) -> list[float | int]:
    """The numbers with as many digits as their type holds, and none after the point where these are zeros."""
    values = map(float, array.astype("U").tolist())
    return [int(value) if value.is_integer() else value for value in values]


def _models(value: Any) -> Iterator[dict[str, Any]]:
    """Every model in a piece of JSON, the outer ones first."""
    if isinstance(value, dict):
        if "$" in value:
            yield value
        for item in value.values():
            yield from _models(item)
    elif isinstance(value, list):
        for item in value:
            yield from _models(item)


def _common(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Take out of the models what most of their kind share; an attribute that one of them lacks stays."""
    kinds: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for model in _models(document):
        kinds[model["$"]].append(model)
    common: dict[str, dict[str, Any]] = {}
    for name, models in sorted(kinds.items()):
        attributes = [model.get("a", {}) for model in models]
        for key in sorted(set.intersection(*map(set, attributes))) if len(models) > 1 else ():
            texts = [msgspec.json.encode(one[key], order="deterministic") for one in attributes]
            text, times = Counter(texts).most_common(1)[0]
            if times > 1 and b'"id"' not in text:
                common.setdefault(name, {})[key] = msgspec.json.decode(text)
                for one, its in zip(attributes, texts, strict=True):
                    if its == text:
                        del one[key]
        for model in models:
            if not model.get("a", True):
                del model["a"]
    return common
