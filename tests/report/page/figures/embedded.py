"""What the page's script makes of the figures of a section: the document that Bokeh reads."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bokeh.document import Document


def whole(text: str, **options: Any) -> dict[str, Any]:
    """``complete`` of ``templates/script/figures.js``, for tests without a browser."""
    told = json.loads(text, **options)
    return {"roots": told["roots"], "doc": _complete(told["doc"], told["common"])}


def _complete(value: Any, common: dict[str, Any]) -> Any:
    if isinstance(value, list):
        return [_complete(item, common) for item in value]
    if not isinstance(value, dict):
        return value
    if "$" in value:
        attributes = common.get(value["$"], {}) | value.get("a", {})
        told = {key: _complete(item, common) for key, item in attributes.items()}
        return {"type": "object", "name": value["$"], "id": value["id"], "attributes": told}
    if "f" in value:
        return {"type": "field", "field": value["f"]}
    if "v" in value:
        return {"type": "value", "value": _complete(value["v"], common)}
    if "m" in value:
        return {"type": "map", "entries": _complete(value["m"], common)}
    if "b" in value:
        array = {"type": "bytes", "data": value["b"]}
        return {"type": "ndarray", "array": array, "shape": value["s"], "dtype": value["d"]}
    return {key: _complete(item, common) for key, item in value.items()}


def loaded(text: str) -> Document:
    """The figures in Bokeh's own classes, which know every property and check every value."""
    from bokeh.document import Document  # noqa: PLC0415 - it takes a second, and few tests need it

    # Browsers read no NaN and no Infinity in JSON, and int reads neither.
    return Document.from_json(_sized(whole(text, parse_constant=int)["doc"]))


def _sized(value: Any) -> Any:
    """The document with what BokehJS does not ask for: the order of the bytes of arrays."""
    if isinstance(value, list):
        return [_sized(item) for item in value]
    if not isinstance(value, dict):
        return value
    order = {"order": "little"} if value.get("type") == "ndarray" else {}
    return {key: _sized(item) for key, item in value.items()} | order
