"""What travels to the part of a node does not depend on how many nodes there are."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from jobreport.build import build_report
from jobreport.readers.registry import Reading
from jobreport.redaction.pseudonyms import redacted
from jobreport.remarks import Quality
from jobreport.settings import load
from jobreport.tables.engine import LocalEngine, Task
from jobreport.tables.parts import JobInParts, Kept
from jobrules.model import SECOND_US, JobInMemory, Metric, PartFacts
from jobrules.rule import run_rules
from tests.jobs import START_US, joined_steps, make_events, make_panel, make_steps
from tests.once import slow_but

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.tables.engine import Call, Made

#: Samples of a GPU, those before its work, and seconds between them.
LENGTH, START, INTERVAL_S = 300, 30, 4


def one_node(_: Sequence[Any], number: int) -> Made:
    """A node with a never-used GPU, an almost unused and a hot one, outlier steps, and a clock that is ahead."""
    at = {"node": f"algo-{number:04}", "start_us": START_US + (60 + number) * SECOND_US * (number % 2)}
    gpu = np.full((LENGTH, 4), [80.0, 60.0, 3.0, 0.0])
    gpu[:START] = 0
    hot, size = np.zeros((LENGTH, 4)), np.ones((LENGTH, 4))
    hot[60:150, 1] = 100
    values = {
        Metric.GPU_UTILIZATION: gpu,
        Metric.GPU_MEMORY_USED: 0.4 * size,
        Metric.GPU_MEMORY_TOTAL: size,
        Metric.GPU_CLOCK: np.where(hot > 0, 900.0, 1400.0),
        Metric.GPU_THERMAL_SLOWDOWN: hot,
        Metric.CPU_UTILIZATION: np.full((LENGTH, 4), 30.0),
    }
    panels = [make_panel(metric, table, interval_s=INTERVAL_S, **at) for metric, table in values.items()]  # type: ignore[arg-type]
    spans = [
        (INTERVAL_S * START + 5 * k, INTERVAL_S * START + 5 * k + (9 if k % 15 == 0 else 4))
        for k in range(200)
    ]
    steps = [make_steps(spans, rank=str(rank), **at) for rank in range(2)]  # type: ignore[arg-type]
    events = make_events([("Forward", f"op{k}", 200 + k, 201 + k) for k in range(9)], rank="0", **at)  # type: ignore[arg-type]
    job = JobInMemory(
        name="job",
        panels=tuple(sorted(panels, key=lambda panel: list(Metric).index(panel.metric))),
        steps=joined_steps(*steps),
        events=events,
        finished=True,
    )
    return [job], PartFacts.of(job, *job.nodes)


class Measured(LocalEngine):
    """Notes the most bytes that a call of each function sends to a node, as another process would get them."""

    def __init__(self) -> None:
        super().__init__(1, in_memory=0)
        self.sent: dict[str, int] = {}

    def ask(self, function: Any, calls: Sequence[Call]) -> list[Any]:
        for _, args in calls:
            asked = [one for one in (args[2], *args[3]) if hasattr(one, "__qualname__")]
            name = " ".join(f"{one.__module__}.{one.__qualname__}" for one in asked)
            self.sent[name] = max(len(pickle.dumps(args)), self.sent.get(name, 0))
        return super().ask(function, calls)


def sent(nodes: int, *, pseudonyms: bool) -> dict[str, int]:
    """The bytes of a whole report."""
    with Measured() as engine:
        made = engine.keep(one_node, [Task(args=(i,)) for i in range(nodes)], lambda _: None)
        kept = tuple(Kept(facts=facts, handles=handles) for handles, facts in made)
        reading = Reading(job=JobInParts(name="job", engine=engine, kept=kept), quality=Quality())
        if pseudonyms:
            reading, _, _ = redacted(reading, Quality(), load())
        rules = load().rules
        results = run_rules(rules, reading.job, strict=True)
        report = build_report(reading.job, Quality(), rules, results, "make-report", strict=True)
        assert {"unused-gpu", "gpu-never-used", "thermal-throttling"} <= {
            f.key for f in report.verdict.findings
        }
        assert "StepOutlier" in report.verdict.explains
        return engine.sent


@pytest.mark.parametrize("pseudonyms", slow_but(set(), [False, True]))
def test_what_is_sent_to_a_node_does_not_grow_with_their_number(*, pseudonyms: bool) -> None:
    few, many = sent(5, pseudonyms=pseudonyms), sent(40, pseudonyms=pseudonyms)

    assert few.keys() == many.keys()
    assert len(few) > 30
    # The names of 35 nodes have 315 bytes.
    assert {name: many[name] - few[name] for name in few if many[name] > few[name] + 100} == {}
