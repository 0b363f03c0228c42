"""Documents of ``nvidia-smi -q -x``, one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree

from jobreport.readers.nvidia_smi.query_keys import MAX_KEYS, GpuKeys, key_of
from jobreport.readers.nvidia_smi.table import Skipped
from jobreport.readers.nvidia_smi.unheaded import as_tables, damaged_document, documents_of, last_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from xml.etree.ElementTree import Element

    from jobreport.readers.nvidia_smi.table import Block
    from jobreport.readers.nvidia_smi.unheaded import Row

_BEGIN, _END = "<nvidia_smi_log", "</nvidia_smi_log>"


def is_log(beginning: str, _: Sequence[str]) -> bool:
    """Whether such a document begins there."""
    return _BEGIN in beginning


@as_tables
def tables(blocks: Iterable[Block]) -> Iterator[Row | Skipped]:
    """All rows, one for each GPU in a document."""
    for document in documents_of(blocks, lambda line: _BEGIN in line, lambda line: _END in line):
        if isinstance(document, Skipped):
            yield document
            continue
        line, text = document
        # Nothing in front of the root is parsed, so no entity is declared, and none is expanded.
        whole = text[text.index(_BEGIN) : text.rindex(_END) + len(_END)]
        try:
            root = ElementTree.fromstring(whole)  # noqa: S314  # no declaration, so no entity
        except ElementTree.ParseError:
            yield damaged_document(line)
            continue
        for element in root.iterfind("gpu"):
            gpu = GpuKeys(element.get("id", ""), line)
            _add(gpu, [], element)
            yield from gpu.rows(line, last_time(root.findtext("timestamp", "")))


def _add(gpu: GpuKeys, keys: list[str], parent: Element) -> None:
    """All keys in an element that are not too deep to be read."""
    for element in parent:
        path = [*keys, key_of(element.tag)]
        gpu.add(path, (element.text or "").strip())
        if len(path) < MAX_KEYS:
            _add(gpu, path, element)
