"""Every text of a report and of a job's tables says whether it holds a name."""

from __future__ import annotations

from typing import Any, get_args

from msgspec import Struct, structs

from jobreport.document import Report
from jobreport.redaction.identifiers import NAMES, PROGRAM_NAMES
from jobrules.model import Events, Panel, PartFacts, Profile, Steps
from jobrules.model.captures import Capture
from jobrules.model.names import Name, Own


def texts_of(annotation: Any, note: Any = None) -> list[Any]:
    """What is noted of each text in an annotation; None if nothing is."""
    if annotation is str:
        return [note]
    parts = get_args(annotation)
    note = next((one for one in parts if isinstance(one, Name | Own)), note)
    return [one for part in parts for one in texts_of(part, note)]


def structs_in(annotation: Any) -> list[Any]:
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        return [annotation]
    return [one for part in get_args(annotation) for one in structs_in(part)]


def all_fields() -> dict[str, list[Any]]:
    """The notes on the texts of each field of all structs that hold names or sentences."""
    owners: list[Any] = [Report, Panel, PartFacts, Profile, Capture, Steps, Events]
    fields: dict[str, list[Any]] = {}
    for owner in owners:
        for field in structs.fields(owner):
            fields[f"{owner.__module__}.{owner.__name__}.{field.name}"] = texts_of(field.type)
            owners += [one for one in structs_in(field.type) if one not in owners]
    return fields


def test_each_text_is_a_name_of_a_kind_or_free_of_names() -> None:
    fields = all_fields()

    assert len(fields) > 500
    # A new field takes one of the annotations in jobrules.model.names.
    assert [name for name, notes in fields.items() if None in notes] == []


def test_each_kind_that_the_page_lists_is_that_of_a_field() -> None:
    kinds = {note.kind for notes in all_fields().values() for note in notes if isinstance(note, Name)}

    assert kinds >= {*NAMES, *PROGRAM_NAMES} - {"row"}
