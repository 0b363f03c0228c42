"""Reports that somebody changed: they are refused by name, or compared; nothing else happens."""

from __future__ import annotations

import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobreport import document
from jobreport.comparison import document as comparison
from jobreport.comparison import reading
from jobreport.comparison.markdown import markdown
from jobreport.cost.prices import Machine
from jobreport.errors import NothingReadableError
from jobreport.page.sections import comparison as sections
from tests.captured_jobs import training
from tests.copies import replace
from tests.report.comparison.runs import compared, listed, of_traces, run, steady

SOUND = json.loads(
    document.to_json(replace(steady(), captures=of_traces(training("data loading", 0.4)).captures))
)
PRICES = listed(
    Machine(type="big", per_hour=8.0, gpus=4, cores=8, memory_gib=8),
    Machine(type="small", per_hour=1.0, gpus=1),
)
#: Fields that a comparison reads.
FIELDS = (
    "job",
    "phases",
    "utilization",
    "blocks",
    "time_blocks",
    "goodput",
    "demand",
    "verdict",
    "rules",
    "captures",
)


def loaded(report: Any) -> document.Report:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        path.write_text(json.dumps(report))
        return reading.load(path)


def shown(one: document.Report, *, first: bool) -> None:
    """Compare with a sound report, and show all of it."""
    both = [one, steady(1.1, 2)][:: 1 if first else -1]
    runs = [
        run(label, own, instance_type="big", batch_size=8.0) for label, own in zip("AB", both, strict=True)
    ]
    found = compared(*runs, prices=PRICES)
    assert comparison.from_json(comparison.to_json(found)) == found
    markdown(found)
    for name, piece in sections.page(found).items():
        assert "failed" not in piece.facts, (name, piece.facts)


@pytest.mark.parametrize(
    ("path", "value", "place"),
    [
        (("job", "end_us"), 0, "job is before its start"),
        (("job", "end_us"), 10**19, "job is at an impossible time"),
        (("job", "steps"), -3, "job.steps"),
        (("phases", "phases", 0, "percent"), 1e300, "phases.phases[0].percent"),
        (("phases", "phases", 0, "percent"), 100.2, "phases.phases[0].percent"),
        (("utilization", 0, "p95"), 1e300, "utilization is below 0 or above 100"),
        (("utilization", 0, "p95"), 250.0, "utilization is below 0 or above 100"),
        (("utilization", 0, "p50"), -1.0, "utilization is below 0 or above 100"),
        (("blocks", "n"), [1], "blocks.n, blocks.sum_s, and blocks.fetch_s are not of one length"),
        (("blocks", "n"), [999] * 20, "blocks.n has more steps than blocks.steps"),
        (("blocks", "n", 3), 0, "blocks.n[3]"),
        (("blocks", "timed"), 0, "blocks.timed"),
        (("blocks", "quantiles_s"), [0.5], "blocks.quantiles_s"),
        (("blocks", "steps"), -1, "blocks.steps"),
        (("blocks", "sum_s"), [0.0] * 20, "blocks.sum_s holds no time"),
        (("blocks", "outside_s"), 1e6, "blocks.outside_s is longer than blocks.loop_s"),
        (("time_blocks", 0, "mean"), [1.0], "time_blocks[0].mean"),
        (("time_blocks", 0, "mean", 7), 250.0, "time_blocks.mean has a percentage above 100"),
        (
            ("time_blocks", 0, "covered_s"),
            [0.0] * 20,
            "time_blocks.mean is not that of time_blocks.covered_s",
        ),
        (("time_blocks", 0, "histogram", 3), 101.0, "time_blocks.histogram has a percentage above 100"),
        (("goodput", "parts"), [], "goodput.parts lacks a part"),
        (("goodput", "parts", 3, "amount"), 4321.0, "goodput.parts do not add up to goodput.seconds"),
        (("goodput", "parts", 3, "percent"), 400.0, "goodput.parts[3].percent"),
        (("goodput", "lost_steps"), 401, "goodput.lost_steps is more steps than there were"),
        (("verdict", "use", "parts", 0, "percent"), -1.0, "verdict.use.parts[0].percent"),
        (("verdict", "use", "parts", 0, "percent"), 640.0, "verdict.use.parts[0].percent"),
        (("demand", "gpus"), -1.0, "demand.gpus"),
        (("demand", "gpus"), 77.0, "demand.gpus is more than the job has"),
        (("demand", "cores"), 4.3, "demand.cores is more than the job has"),
        (("demand", "used_gpus"), 9, "demand.used_gpus is more than the job has"),
        (("demand", "host_memory_percent"), 180.0, "demand.host_memory_percent"),
        (("demand", "coverage_percent"), 110.0, "demand.coverage_percent"),
        (("captures", 0, "devices", 0, "idle_ns"), 1, "time does not add up"),
        (("captures", 0, "devices", 0, "idle_by_cause_ns", "host"), 1, "time does not add up"),
        (("captures", 0, "devices", 0, "exposed_waiting_ns"), 1, "time does not add up"),
        (("captures", 0, "step_times", 0, "end_ns"), 0, "captures have a step of impossible length"),
        (("captures", 0, "operators", 0, "self_ns"), -1, "captures[0].operators[0].self_ns"),
    ],
)
def test_impossible_numbers_are_refused_with_the_name_of_the_field(
    path: tuple[Any, ...], value: Any, place: str
) -> None:
    report = json.loads(json.dumps(SOUND))
    parent = report
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = value

    with pytest.raises(NothingReadableError, match=re.escape(place)):
        loaded(report)


@pytest.mark.parametrize("first", [True, False])
def test_a_metric_without_any_sample_and_a_job_that_took_no_time_are_shown(first: bool) -> None:
    report = json.loads(json.dumps(SOUND))
    for one in report["time_blocks"]:
        one |= {"covered_s": [0.0] * 20, "mean": [None] * 20}
    shown(loaded(report), first=first)
    report["job"]["end_us"] = report["job"]["start_us"]
    shown(loaded(report), first=first)


@given(st.data())
@pytest.mark.slow
def test_any_change_of_a_number_or_a_list_is_refused_or_shown(data: st.DataObject) -> None:
    report = json.loads(json.dumps(SOUND))
    for _ in range(data.draw(st.integers(1, 3))):
        place, key = report, data.draw(st.sampled_from(FIELDS))
        while isinstance(place[key], dict | list) and place[key] and data.draw(st.integers(0, 9)):
            place = place[key]
            key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        old = place[key]
        if isinstance(old, bool) or old is None or isinstance(old, str):
            continue
        if isinstance(old, list):
            place[key] = data.draw(st.sampled_from([[], old[:-1], old + old[-1:]]))
        elif isinstance(old, int | float):
            kinds = [0, -1, 1, 10**17, 10**19] if isinstance(old, int) else [0.0, -1.0, 1e-300, 1e17, 1e300]
            place[key] = data.draw(st.sampled_from(kinds))

    try:
        found = loaded(report)
    except NothingReadableError:
        return
    shown(found, first=data.draw(st.booleans()))


def test_a_name_of_a_rule_is_short_and_has_no_direction_marks() -> None:
    one = run("A", steady(1.0))
    first, *others = one.report.rules
    crafted = replace(first, name="R\u202e" + "x" * 200_000, title="\u2066" * 200_000, can_trigger=True)
    two = replace(run("B", steady(1.0)), report=replace(one.report, rules=(crafted, *others)))

    written = comparison.to_json(compared(one, two)).decode()

    assert len(written) < 200_000
    assert not {"\u202e", "\u2066"} & set(written)
