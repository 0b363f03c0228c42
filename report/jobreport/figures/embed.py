"""Figures as inert JSON for the script of the page: the same figures give the same bytes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bokeh.core.json_encoder import serialize_json
from bokeh.document import Document

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bokeh.models.ui.ui_element import UIElement


def document_json(section: str, figures: Mapping[str, UIElement]) -> str:
    """One Bokeh document for the figures of a section, keyed by the id of the element each is drawn in.

    The text stands in a ``<script type="application/json">``: ``<``, ``>`` and ``&`` are escaped, so
    that no name from data can end that element.
    """
    document = Document(title=section)
    document.config.notifications = None
    for figure in figures.values():
        document.add_root(figure)
    told = json.loads(serialize_json(document.to_json(deferred=False)))
    renamed = _Ids(section).rename(told)
    roots = {root["id"]: element for root, element in zip(renamed["roots"], figures, strict=True)}
    text = json.dumps({"roots": roots, "doc": renamed}, ensure_ascii=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


class _Ids:
    """Names for models in the order of the document, in place of Bokeh's running numbers."""

    def __init__(self, section: str) -> None:
        self._section = section
        self._names: dict[str, str] = {}

    def rename(self, value: Any) -> Any:
        """The same JSON with every id of a model replaced; an id stands in an object or a reference to it."""
        if isinstance(value, list):
            return [self.rename(item) for item in value]
        if not isinstance(value, dict):
            return value
        if "id" in value and (value.get("type") == "object" or len(value) == 1):
            name = self._names.setdefault(value["id"], f"{self._section}-{len(self._names)}")
            value = {**value, "id": name}
        return {key: self.rename(item) for key, item in value.items()}
