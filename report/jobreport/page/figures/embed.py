"""Figures as inert JSON for the script of the page: few bytes, and equal ones for equal figures."""

from __future__ import annotations

import base64
import gzip
import json
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import bokeh
import numpy as np
from bokeh.core.property.wrappers import PropertyValueContainer
from bokeh.core.serialization import Serializer
from bokeh.document.config import DocumentConfig
from bokeh.model import Model

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bokeh.models.ui.ui_element import UIElement

#: Parts that BokehJS makes itself where a model names none.
DEFAULTS = frozenset(
    {
        *("AllIndices", "AllLabels", "BasicTickFormatter", "CDSView"),
        *("LinearScale", "Selection", "Title", "UnionRenderers"),
    }
)


def document_json(section: str, figures: Mapping[str, UIElement]) -> str:
    """One Bokeh document for the figures of a section, keyed by the id of the element each is drawn in.

    The text stands in a ``<script type="application/json">``: ``<``, ``>`` and ``&`` are escaped, so
    that no name from data can end that element. ``common`` holds, for each kind of model, the
    attributes that the script puts into every model of the kind that lacks them. Models, fields and values
    are written short: see ``_short``.
    """
    models = [DocumentConfig(notifications=None), *figures.values()]
    config, *roots = _Writer(deferred=False).encode(models)
    document = {"version": bokeh.__version__, "title": section, "config": config, "roots": roots}
    document = _Ids(section, roots).rename(_listed(document))
    roots = {root["id"]: element for root, element in zip(document["roots"], figures, strict=True)}
    common = _common(document)
    text = _written({"roots": roots, "common": _short(common), "doc": _short(document)})
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


class _Writer(Serializer):
    """Write the properties of a model that were set, and the parts of it that BokehJS would not make itself.

    A ``Document`` writes the same, but takes longer: it looks through all models twice, and at every default.
    """

    def _encode(self, obj: Any) -> Any:
        if not isinstance(obj, Model):
            return super()._encode(obj)
        self.add_ref(obj, obj.ref)
        given, added = obj._property_values, obj._unstable_default_values
        kinds: Any = obj.properties(_with_props=True)  # a dict, in a fixed order; by its type a set
        attributes = {
            name: self.encode(obj.lookup(name).get_value(obj))
            for name, kind in kinds.items()
            if kind.serialized and (name in given or (name in added and not _is_default(added[name])))
        }
        model = {"type": "object", "name": obj.__qualified_model__, "id": obj.id}
        return model | ({"attributes": attributes} if attributes else {})


def _is_default(value: Any) -> bool:
    """Whether a part that Bokeh added is an empty container, or a model that BokehJS makes itself."""
    if isinstance(value, Model):
        return type(value).__name__ in DEFAULTS and not value._property_values
    return isinstance(value, PropertyValueContainer)


def _written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _short(value: Any) -> Any:  # noqa: PLR0911 - one return a kind
    """The same JSON in few words; ``complete`` in ``templates/script/figures.js`` reads them.

    ``{"$": name, "id": …, "a": attributes}`` is a model, ``{"f": …}`` a field, ``{"v": …}`` a value,
    ``{"m": …}`` the entries of a map, ``{"b": bytes, "s": shape, "d": dtype}`` an array of numbers.
    """
    if isinstance(value, list):
        return [_short(item) for item in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"type": "object", "name": name, "id": id_}:
            attributes = value.get("attributes")
            return {"$": name, "id": id_, **({"a": _short(attributes)} if attributes else {})}
        case {"type": "field", "field": field} if len(value) == 2:
            return {"f": field}
        case {"type": "value", "value": plain} if len(value) == 2:
            return {"v": _short(plain)}
        case {"type": "map", "entries": entries}:
            return {"m": _short(entries)}
        case {"type": "ndarray", "array": {"data": data}, "order": "little"}:
            return {"b": data, "s": value["shape"], "d": value["dtype"]}
    return {key: _short(item) for key, item in value.items()}


def _models(value: Any) -> Iterator[dict[str, Any]]:
    """Every model in a piece of JSON, the outer ones first."""
    if isinstance(value, dict):
        if value.get("type") == "object":
            yield value
        for item in value.values():
            yield from _models(item)
    elif isinstance(value, list):
        for item in value:
            yield from _models(item)


def _listed(value: Any) -> Any:
    """The same JSON with arrays of finite numbers as lists, if that is shorter."""
    if isinstance(value, list | tuple):  # the entries of a map are tuples
        return [_listed(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("type") == "ndarray" and len(value["shape"]) == 1 and value["dtype"] != "object":
        numbers = np.frombuffer(gzip.decompress(base64.b64decode(value["array"]["data"])), value["dtype"])
        if np.isfinite(numbers).all():
            listed = [_shortest(number) for number in numbers]
            if len(_written(listed)) <= len(_written(value)):
                return listed
    return {key: _listed(item) for key, item in value.items()}


def _shortest(number: np.generic) -> float | int:
    """The number with as many digits as its type holds, and none after the point where these are zeros."""
    value = float(str(number))
    return int(value) if value.is_integer() else value


def _common(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Take out of the models what most of their kind share; an attribute that one of them lacks stays."""
    kinds: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for model in _models(document):
        kinds[model["name"]].append(model.setdefault("attributes", {}))
    common: dict[str, dict[str, Any]] = {}
    for name, models in sorted(kinds.items()):
        for key in sorted(set.intersection(*(set(one) for one in models))) if len(models) > 1 else ():
            texts = [json.dumps(one[key], sort_keys=True) for one in models]
            text, times = Counter(texts).most_common(1)[0]
            if times > 1 and '"id"' not in text:
                common.setdefault(name, {})[key] = json.loads(text)
                for one, its in zip(models, texts, strict=True):
                    if its == text:
                        del one[key]
    return common


class _Ids:
    """Numbers for models in the order of the document, in place of Bokeh's running ones.

    Those that stand on the page need ids that no other document has.
    """

    def __init__(self, section: str, roots: list[dict[str, Any]]) -> None:
        self._names = {root["id"]: f"{section}-{i}" for i, root in enumerate(roots)}

    def rename(self, value: Any) -> Any:
        """The same JSON with every id of a model replaced; an id stands in an object or a reference to it."""
        if isinstance(value, list):
            return [self.rename(item) for item in value]
        if not isinstance(value, dict):
            return value
        if "id" in value and (value.get("type") == "object" or len(value) == 1):
            name = self._names.setdefault(value["id"], f"{len(self._names):x}")
            value = {**value, "id": name}
        return {key: self.rename(item) for key, item in value.items()}
