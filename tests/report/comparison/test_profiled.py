"""Traces against traces: what is known by construction, what is refused, and what the verdict says."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobreport.comparison.document import Comparison, Word, from_json, to_json
from jobreport.comparison.runs import RunOf
from jobreport.comparison.shown import change_of, changed_work
from jobreport.cost.prices import Machine
from jobreport.document import Report
from jobrules.captures.operators import MAX_ROWS
from jobrules.model.captures import Capture, Operators
from tests.captured_jobs import STEP, training
from tests.copies import replace
from tests.kineto import Recording
from tests.report.comparison.runs import compared, listed, of_traces, run, steady
from tests.report.page.sections.example_captures import ranks

#: Microseconds.
MS = 1000.0
SLOW, FAST = {"cause": "data loading", "share": 0.4}, {"length": 0.6 * STEP}


@cache
@cache
def traced(cause: str = "", share: float = 0.0, **options: Any) -> Report:
    return of_traces(training(cause, share, **options))


def pair(a: Report, b: Report) -> Comparison:
    return compared(run("A", a), run("B", b))


def with_traces(report: Report, of: Report) -> Report:
    """A job of samples and steps that was profiled, too."""
    return replace(report, captures=of.captures)


def incomplete(report: Report) -> Report:
    """As of a trace that lacks events."""
    (capture,) = report.captures or ()
    cut = replace(capture, devices=tuple(replace(one, complete=False) for one in capture.devices))
    return replace(report, captures=(cut,))


def without_kernels() -> Report:
    host = training(length=20 * MS)
    host.events = [event for event in host.events if event["cat"] != "kernel"]
    return of_traces(host)


def short(*kernels: tuple[float, float], operator: str = "op") -> Report:
    trace = Recording()
    trace.operator(operator, 1000, 1010)
    for start, end in kernels:
        trace.kernel("Kernel", start, end, launch=(1000, 1001))
    return of_traces(trace)


def lengths(label: str, *milliseconds: float) -> list[RunOf]:
    """Repeats by the lengths of their steps."""
    return [run(label, traced(length=one * MS)) for one in milliseconds]


#: As in ``test_verdict``.
VERDICTS: dict[str, Callable[[], Comparison]] = {
    # Steps of 50 ms of which 20 ms are a wait for data, then steps of 30 ms.
    "traces: a shorter wait": lambda: pair(traced(**SLOW), traced(**FAST)),
    "traces: a longer wait": lambda: pair(traced(**FAST), traced(**SLOW)),
    "traces: the same": lambda: pair(traced(**SLOW), traced(**SLOW)),
    **{
        f"traces: {cause}": partial(
            # The host is blocked as long as the GPU then waits.
            lambda cause: pair(
                traced(length=(0.7 if cause == "blocking" else 0.6) * STEP), traced(cause, 0.4)
            ),
            cause,
        )
        for cause in ("communication", "copy", "blocking", "allocation", "profiler", "late host")
    },
    # What has no cause, and what was not recorded, is no reason.
    "traces: a wait without a cause": lambda: pair(traced(**FAST), incomplete(traced(**SLOW))),
    "traces: no kernels": lambda: pair(traced(**FAST), without_kernels()),
    # Shares alone would blame the wait for data, which is the same in both.
    "traces: computing": lambda: pair(
        traced("data loading", 0.2, length=50 * MS), traced("data loading", 0.4, length=25 * MS)
    ),
    "traces: without steps": lambda: pair(traced(**SLOW, marked=False), traced(marked=False)),
    "traces: a hundred steps": lambda: pair(
        traced(steps=120, length=20 * MS), traced(steps=120, length=30 * MS)
    ),
    "traces: repeats": lambda: compared(*lengths("A", 40, 40.2, 39.8), *lengths("B", 30, 30.2, 29.8)),
    "traces: other batches": lambda: compared(
        run("A", traced(length=50 * MS), batch_size=64.0), run("B", traced(length=80 * MS), batch_size=128.0)
    ),
    "samples with traces": lambda: pair(
        with_traces(steady(), traced(**SLOW)), with_traces(steady(1.5, 2), traced(**FAST))
    ),
    # Each is judged by what it has in common with the base.
    "samples with traces, and traces": lambda: compared(
        run("A", with_traces(steady(), traced(**SLOW))),
        run("B", with_traces(steady(1.5, 2), traced(**FAST))),
        run("C", traced(**FAST)),
    ),
    "samples against traces": lambda: pair(steady(), traced()),
    "traces against samples": lambda: pair(traced(), steady()),
    "short traces: the same": lambda: pair(short((1010, 1010.02)), short((1010, 1010.02))),
    "short traces: a kernel": lambda: pair(short((1010, 1010.02)), short((1010, 11_010))),
    "short traces: another operator": lambda: pair(
        short((1010, 1010.02)), short((1010, 1010.02), operator="</b>")
    ),
    "short traces: no kernel": lambda: pair(short((1010, 1010.02)), short()),
}


# --- measures


def test_a_step_without_its_data_wait_is_that_much_shorter() -> None:
    found = VERDICTS["traces: a shorter wait"]()

    values = {one.key: one.values for one in found.measures}
    assert values["profiled_step_s"] == pytest.approx({"A": 0.05, "B": 0.03})
    assert values["profiled_data_loading_percent"] == pytest.approx({"A": 40.0, "B": 0.0}, abs=0.05)
    assert values["profiled_compute_percent"] == pytest.approx({"A": 60.0, "B": 100.0}, abs=0.05)
    assert values["profiled_kernels"] == {"A": 2.0, "B": 2.0}
    assert {one.against["B"].word for one in found.measures} == {Word.NOT_TESTED}
    assert found.profiled
    assert found.profiled.per_step
    for label, step_s in (("A", 0.05), ("B", 0.03)):
        parts = found.profiled.time[label]
        assert math.fsum(part.amount for part in parts) == pytest.approx(step_s, rel=1e-3)
        assert math.fsum(part.percent for part in parts) == pytest.approx(100)


def test_swapped_runs_change_signs_and_a_run_against_itself_changes_nothing() -> None:
    there, back, same = (
        VERDICTS[f"traces: {name}"]() for name in ("a shorter wait", "a longer wait", "the same")
    )

    for forth, reverse in zip(there.measures, back.measures, strict=True):
        one, other = forth.against["B"], reverse.against["B"]
        assert (one.points or 0.0) == -(other.points or 0.0)
        assert one.word is other.word
    assert all((one.against["B"].points or one.against["B"].change or 0.0) == 0.0 for one in same.measures)
    assert same.profiled
    assert (same.profiled.work, same.profiled.compared) == ((), ("operator", "mark", "kernel"))


def test_without_steps_shares_are_compared() -> None:
    found = VERDICTS["traces: without steps"]()

    assert found.headline == "profiled_compute_percent"
    assert found.profiled
    assert not found.profiled.per_step


def test_a_hundred_steps_are_tested_and_so_are_repeats() -> None:
    many, repeats = (
        VERDICTS[f"traces: {name}"]().measure("profiled_step_s").against["B"]
        for name in ("a hundred steps", "repeats")
    )

    assert many.word is Word.WORSE
    assert (repeats.word, repeats.run_noise) == (Word.BETTER, None)


def test_steps_of_other_batches_are_refused_and_throughput_is_compared() -> None:
    found = VERDICTS["traces: other batches"]()

    assert found.measure("profiled_step_s").against["B"].word is Word.REFUSED
    assert found.measure("profiled_samples_per_s").values == pytest.approx({"A": 1280.0, "B": 1600.0})


def test_a_last_step_that_is_cut_short_does_not_count() -> None:
    trace = training(length=50 * MS, steps=4)
    trace.step(4, 1000 + 200 * MS, 1000 + 201 * MS)
    report = of_traces(trace)

    assert report.captures
    assert report.captures[0].devices[0].incomplete_step == 4
    values = {one.key: one.values for one in pair(report, report).measures}
    assert values["profiled_step_s"]["A"] == pytest.approx(0.05)


def test_ranks_are_compared_by_what_they_wait() -> None:
    captures, together = ranks(4)
    even = replace(together, waiting=tuple(replace(one, caused_ns=0) for one in together.waiting))
    report = replace(traced(), captures=tuple(lengthened(one) for one in captures), across_ranks=together)
    other = replace(report, across_ranks=even)

    found = pair(report, other)

    window_ns = sum(device.window_ns for one in report.captures or () for device in one.devices)
    waited_ns = sum(device.exposed_waiting_ns or 0 for one in report.captures or () for device in one.devices)
    late = found.measure("profiled_late_rank_percent").values
    assert late == {
        "A": pytest.approx(100 * max(w.caused_ns for w in together.waiting) / window_ns),
        "B": 0.0,
    }
    assert found.measure("profiled_waiting_percent").values["A"] == pytest.approx(100 * waited_ns / window_ns)
    assert waited_ns
    facts = {one.key: one.values["A"] for one in found.differences}
    assert (facts["profiled_ranks"], facts["profiled_gpus"], facts["world_size"]) == (4, 4, 4)
    assert (facts["profiled_steps"], facts["gpu_model"]) == (3, "H100")
    assert facts["profiler_settings"] == "record_shapes, with_stack"


def lengthened(one: Capture) -> Capture:
    """The capture with ten times as much idle time, so that it is long enough to be judged."""
    device = one.devices[0]
    more = 9 * device.window_ns
    causes = device.idle_by_cause_ns | {"host": device.idle_by_cause_ns["host"] + more}
    longer = replace(
        device, window_ns=device.window_ns + more, idle_ns=device.idle_ns + more, idle_by_cause_ns=causes
    )
    return replace(one, devices=(longer,))


def test_a_trace_that_lacks_events_has_no_causes_of_idle_time() -> None:
    found = pair(traced(**SLOW), incomplete(traced(**SLOW)))

    assert found.measure("profiled_data_loading_percent").against["B"].word is Word.NOT_MEASURED
    assert found.measure("profiled_idle_percent").values["B"] == pytest.approx(40, abs=0.1)
    assert found.profiled
    assert [part.key for part in found.profiled.time["B"]] == ["computing", "idle-unknown"]


# --- the whole job


def test_traces_alone_say_nothing_of_the_whole_job() -> None:
    prices = listed(Machine(type="big", per_hour=8.0, gpus=1))
    facts = {"instance_type": "big", "nodes": 1.0, "gpus_per_node": 8.0}
    found = compared(run("A", traced(**SLOW), **facts), run("B", traced(**FAST), **facts), prices=prices)

    assert {one.key.partition("_")[0] for one in found.measures} == {"profiled"}
    assert (found.cost, found.goodput, found.device_time) == (None, {}, {})
    assert found.variants[0].facts["gpus"] == 8
    assert [note.kind for note in found.notes].count("traces") == 1
    assert pair(traced(), traced()).variants[0].facts["gpus"] is None


def test_samples_and_traces_are_two_groups() -> None:
    found = VERDICTS["samples with traces"]()

    assert found.headline == "steps_per_s"
    assert found.measure("step_s").values["A"] == pytest.approx(0.5, rel=0.02)
    assert found.measure("profiled_step_s").values == pytest.approx({"A": 0.05, "B": 0.03})
    without = {one.key: one for one in pair(steady(), steady(1.5, 2)).measures}
    for one in found.measures:
        assert one.key.startswith("profiled_") or one == without[one.key]
    half = pair(with_traces(steady(), traced(**SLOW)), steady(1.5, 2))
    assert half.profiled is None
    assert half.measure("profiled_step_s").against["B"].word is Word.NOT_MEASURED


# --- what ran


def test_what_appears_and_disappears_is_named() -> None:
    one, other = training(length=50 * MS), training(length=50 * MS)
    one.operator("aten::sort", 1000, 4000, thread=2)
    other.operator("aten::topk", 1000, 2000, thread=2)
    other.mark("## loss ##", 1000, 3000, thread=2)
    found = pair(of_traces(one), of_traces(other))

    assert found.profiled
    rows = [
        (row.kind, row.name, *(round(row.variants[label].low_s * 1e6) for label in "AB"))
        for row in found.profiled.work
    ]
    # Microseconds per step.
    assert rows == [
        ("operator", "aten::sort", 300, 0),
        ("operator", "aten::topk", 0, 100),
        ("mark", "## loss ##", 0, 200),
    ]


TIMES = st.dictionaries(st.sampled_from([f"op{i}" for i in range(40)]), st.integers(0, 1000), min_size=1)


def capture_of(times: Mapping[str, int]) -> Capture:
    """As a trace with these operators is reduced: those with most time stand in its table."""
    ranked = sorted(times.items(), key=lambda one: (-one[1], one[0]))
    rows = tuple(
        Operators(name=name, calls=1, self_ns=ns, total_ns=ns, device_self_ns=0, device_total_ns=0)
        for name, ns in ranked[:MAX_ROWS]
    )
    capture = (traced().captures or ())[0]
    return replace(capture, operators=rows, operator_names=len(times), marks=(), devices=())


@given(st.lists(TIMES, min_size=1, max_size=3), st.lists(TIMES, min_size=1, max_size=3))
def test_limits_hold_what_the_tables_left_out(one: list[dict[str, int]], other: list[dict[str, int]]) -> None:
    truth = {
        label: {
            name: sum(times.get(name, 0) for times in own) / len(own) / 1e9
            for name in map("op{}".format, range(40))
        }
        for label, own in (("A", one), ("B", other))
    }

    rows, kinds = changed_work(
        {"A": list(map(capture_of, one)), "B": list(map(capture_of, other))}, per_step=False
    )

    assert kinds == ("operator",)
    for row in rows:
        changed = abs(truth["A"][row.name] - truth["B"][row.name])
        assert 0 < change_of(row) <= changed + 1e-15
        for label, time in row.variants.items():
            assert time.low_s - 1e-15 <= truth[label][row.name] <= time.high_s + 1e-15
            assert (time.calls is None) is (time.low_s != time.high_s)
    if len(rows) < 8 and all(len(times) <= MAX_ROWS for times in (*one, *other)):
        assert {row.name for row in rows} == {
            name for name in truth["A"] if truth["A"][name] != truth["B"][name]
        }


def test_placeholders_of_two_reports_are_not_compared() -> None:
    one, other = training(), training()
    one.operator("operator-1", 1000, 9000, thread=2)
    other.operator("aten::operator-1", 1000, 2000, thread=2)
    found = pair(of_traces(one), of_traces(other))

    assert found.profiled
    assert (found.profiled.work, found.profiled.compared) == ((), ("mark", "kernel"))


@pytest.mark.parametrize("name", [name for name in VERDICTS if name.startswith("short")])
def test_of_too_little_device_work_nothing_is_measured(name: str) -> None:
    found = VERDICTS[name]()

    assert found.measures == ()
    assert from_json(to_json(found)) == found
