"""What all groups of files hold together: the quality of each source, the tables of each node."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from jobreport.readers.tally import Tally, most_frequent
from jobreport.tables.parts import facts_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobreport.readers.grouping import Piece
    from jobreport.remarks import SourceQuality
    from jobreport.tables.engine import Engine, Handle
    from jobrules.model import Job, Metric, PartFacts

#: Remarks of one code that differ in a name, such as unknown sensors; the others are counted together.
MAX_NAMED = 8


def sources_of(pieces: Sequence[Piece], tally: Tally) -> list[SourceQuality]:
    """What became of the files of each source; a reader that failed is counted in ``tally``."""
    found: dict[str, SourceQuality] = {}
    remarks: defaultdict[str, Tally] = defaultdict(Tally)
    for piece in pieces:
        one = piece.found.quality
        failed = [remark for remark in one.remarks if remark.action == "failed"]
        tally.take(failed)
        if failed and not one.rows:
            continue
        known = found.get(one.source)
        found[one.source] = (
            replace(known, files=known.files + one.files, rows=known.rows + one.rows) if known else one
        )
        remarks[one.source].take(remark for remark in one.remarks if remark not in failed)
    return [
        replace(one, remarks=most_frequent(remarks[source].remarks(), MAX_NAMED))
        for source, one in found.items()
    ]


def nodes_of(
    pieces: Sequence[Piece], engine: Engine, tally: Tally
) -> Mapping[str, tuple[PartFacts, list[Handle]]]:
    """What is known of each node, and its tables. Of a metric with two sources the first one's samples are used."""
    parts: defaultdict[str, list[tuple[PartFacts, Handle]]] = defaultdict(list)
    for piece in pieces:
        for facts, handle in piece.nodes:
            parts[facts.node].append((facts, handle))
    for node, known in parts.items():
        seen: set[Metric] = set()
        for facts, handle in known:
            for panel in facts.panels:
                if panel.metric in seen:
                    (samples,) = engine.ask(_samples, [([handle], (panel.metric,))])
                    tally.note("node.second_source", count=samples, metric=panel.metric.label, node=node)
                seen.add(panel.metric)
    return {
        node: (facts_of([facts for facts, _ in known]), [handle for _, handle in known])
        for node, known in parts.items()
    }


def _samples(jobs: Sequence[Job], metric: Metric) -> int:
    return sum(
        int(np.count_nonzero(~np.isnan(panel.values))) for one in jobs for panel in one.panels_of(metric)
    )
