"""What a training wrote of its learning, read without the code that wrote it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

#: A row of a record: columns by name.
Row = dict[str, Any]


def lines(out: Path, kind: str = "", name: str = "training-00000.jsonl") -> list[dict[str, Any]]:
    """All lines of a file, or those of one kind."""
    every = [json.loads(line) for line in (out / "jobrecord" / name).read_text().splitlines()]
    return [line for line in every if kind in ("", line["kind"])]


def head(out: Path, name: str = "training-00000.jsonl") -> dict[str, Any]:
    """The last head, which has what became known later."""
    return lines(out, "head", name)[-1]


def rows(out: Path, collection: str, name: str = "training-00000.jsonl") -> dict[tuple[str, int], Row]:
    """Rows of a collection by tensor and step, with what was said of the tensor."""
    named: dict[int, dict[str, Any]] = {}
    found: dict[tuple[str, int], Row] = {}
    for line in lines(out, name=name):
        if line["kind"] == "names":
            named |= dict(enumerate(line["tensors"], line["first"]))
        if line["kind"] != "record":
            continue
        columns = {key: one for key, one in line.items() if isinstance(one, list)}
        assert {len(one) for one in columns.values()} == {len(line["id"])}
        for place, number in enumerate(line["id"]):
            assert named[number]["c"] == line["c"]
            if line["c"] == collection:
                row = {key: one[place] for key, one in columns.items()}
                found[named[number]["n"], line["step"]] = named[number] | row
    return found


def steps(out: Path, collection: str = "gradient", name: str = "training-00000.jsonl") -> list[int]:
    """Steps of the records of a collection."""
    return sorted({step for _, step in rows(out, collection, name)})


def events(out: Path, name: str = "training-00000.jsonl") -> list[tuple[str, int]]:
    return [(line["name"], line["step"]) for line in lines(out, "event", name)]
