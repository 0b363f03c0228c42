"""What the section on data loading says, and that both of its drawings say the same."""

from __future__ import annotations

import numpy as np
import pytest

from jobreport.document import Origin, Report
from jobreport.page import sections
from jobreport.page.figures import data_loading as figures
from jobrules.analyses.data_loading import DataLoading, FetchTimes, LoaderSetup, StepTime
from jobrules.model import Finding, Severity
from tests.copies import replace
from tests.report.page.sections import example_data_loading, examples
from tests.report.page.sections.example_data_loading import node_loading
from tests.report.page.sections.html import Page

EXAMPLE = example_data_loading.data_loading("algo-1")
LOG = FetchTimes(
    log=True,
    edges_s=(0.001, 0.01, 0.1, 1.0, 10.0),
    step=10.0,
    counts=(50, 30, 0, 20),
    beyond=0,
    p25_s=0.002,
    p50_s=0.009,
    p95_s=4.0,
    max_s=9.0,
)


def fetches() -> FetchTimes:
    assert EXAMPLE.fetches
    return EXAMPLE.fetches


def page_of(found: DataLoading | None, origin: Origin = Origin.SAMPLES) -> Page:
    report: Report = replace(examples.gpu_job(), data_loading=found, origin=origin)
    return Page.of(sections.data_loading(report).html)


def text_of(found: DataLoading | None, origin: Origin = Origin.SAMPLES) -> str:
    return page_of(found, origin).text


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        (
            {},
            "1 loader process for 8 cores (12.5%) is below Dataloader's range of 70 to 200%. Raise num_workers.",
        ),
        (
            {"loaders": 20, "of_cores_percent": 250.0, "answer": "too many"},
            "20 loader processes for 8 cores (250%) are above Dataloader's range of 70 to 200%. Lower num_workers.",
        ),
        (
            {"loaders": 8, "of_cores_percent": 100.0, "answer": "adequate", "violating": 0},
            "8 loader processes for 8 cores (100%) are within Dataloader's range of 70 to 200%.",
        ),
        (
            {"loaders": 8, "answer": "adequate", "violating": 1, "evaluated": 4},
            "within Dataloader's range of 70 to 200%, but not in 1 of 4 checks.",
        ),
        (
            {"answer": "", "evaluated": 0, "reason": "only 4 of 11 seconds with data loading"},
            "(12.5%). Dataloader was not evaluated: only 4 of 11 seconds",
        ),
        (
            {"answer": "", "cores": 0, "reason": "CPU was not sampled"},
            "1 loader process (median). Dataloader was not evaluated: CPU was not recorded.",
        ),
        (
            {"answer": "", "loaders": None, "mean": None, "reason": "no number of loader processes"},
            "The number of active loader processes is unknown: no number of loader processes.",
        ),
        ({"pipeline": True, "prefetch": True}, "1 loader thread for 8 cores"),
    ],
)
def test_loader_processes_are_compared_with_the_range_of_the_rule(
    facts: dict[str, object], sentence: str
) -> None:
    found = replace(EXAMPLE, nodes=(node_loading("algo-1", **facts),))

    assert sentence in text_of(found)


def test_without_workers_there_is_no_loader_process_to_count() -> None:
    text = text_of(replace(EXAMPLE, setups=(replace(EXAMPLE.setups[0], num_workers=0),)))

    assert (
        "No loader process: the training processes load their batches themselves. Raise num_workers." in text
    )
    assert "1 loader process for" not in text


def test_pinned_memory_is_advised_only_where_there_are_gpus() -> None:
    without = replace(EXAMPLE, nodes=(node_loading("algo-1", gpus=0),))
    pinned = replace(EXAMPLE, setups=(replace(EXAMPLE.setups[0], pin_memory=True),))
    unknown = replace(EXAMPLE, setups=(replace(EXAMPLE.setups[0], pin_memory=None),))

    told = ["pin_memory=True" in text_of(one) for one in (EXAMPLE, without, pinned, unknown)]

    assert told == [True, False, False, False]


def test_fetching_ahead_is_advised_only_where_a_pipeline_does_not() -> None:
    ahead, not_ahead = (node_loading("n", pipeline=True, prefetch=one) for one in (True, False))

    told = [
        "prefetch(AUTOTUNE)" in text_of(replace(EXAMPLE, nodes=(one,)))
        for one in (node_loading("n"), ahead, not_ahead)
    ]

    assert told == [False, False, True]


def test_the_fold_says_what_bars_count() -> None:
    text, log = text_of(EXAMPLE), text_of(replace(EXAMPLE, fetches=LOG))

    assert "Batch fetches took 46.0 ms (median) and 62.0 ms (p95)" in text
    assert "120 fetches." in text
    assert "Bins of 10 ms. Height: fetches. Last bar, after a gap: 2 longer fetches, up to 1.25 s." in text
    assert "40.0 to 50.0 ms 50" in text
    assert "70.0 ms or more 2" in text
    assert "Logarithmic time axis: each bin ends at 10 times its start." in log
    assert "Last bar" not in log


@pytest.mark.parametrize(
    "times", [fetches(), LOG, replace(fetches(), beyond=0)], ids=["plain", "log", "none"]
)
def test_every_bin_is_a_bar_and_every_mark_a_line_with_its_name(times: FetchTimes) -> None:
    drawing = figures.fetch_times(times).drawing

    (shape,) = drawing.shapes
    assert shape.path.count("M") == sum(n > 0 for n in (*times.counts, times.beyond))
    assert [rule.style for rule in drawing.rules] == ["mark"] * 3
    names = [word for word in drawing.words if word.style == "strong"]
    assert [word.x for word in names] == [rule.x1 for rule in drawing.rules]


def test_marks_lie_where_their_times_are() -> None:
    plain, log = (figures.fetch_times(times).drawing for times in (fetches(), LOG))

    assert [rule.x1 for rule in plain.rules] == pytest.approx(plain.x.place([41, 46, 62]).tolist())
    assert [word.text for word in plain.words][:3] == ["p25 41.0 ms", "median 46.0 ms", "p95 62.0 ms"]
    assert [rule.x1 for rule in log.rules] == pytest.approx(log.x.place(np.log10([0.002, 0.009, 4])).tolist())
    assert [tick.label for tick in log.x.ticks] == ["1 ms", "10 ms", "100 ms", "1 s", "10 s"]


@pytest.mark.parametrize("shift", range(0, 100, 7))
@pytest.mark.parametrize("spread", [(1, 1), (3, 60), (30, 5), (40, 40), (10, 20)])
def test_no_line_crosses_the_name_of_another(shift: int, spread: tuple[int, int]) -> None:
    p25, p50, p95 = (min(100, shift + more) for more in (0, spread[0], sum(spread)))
    sides = figures._sides(p25, p50, p95)

    room, rows = 22, [row for _, row in sides]
    for i, (place, (left, row)) in enumerate(zip((p25, p50, p95), sides, strict=True)):
        low, high = (place - room, place) if left else (place, place + room)
        assert low >= 0 or not left
        assert high <= 100 or left
        for j, other in enumerate((p25, p50, p95)):
            if j != i and low < other < high:
                # The line of a lower row begins below this name.
                assert rows[j] > row
            if j != i and rows[j] == row:
                theirs = (other - room, other) if sides[j][0] else (other, other + room)
                assert high <= theirs[0] or theirs[1] <= low


def test_ticks_have_equal_decimals() -> None:
    even = replace(
        fetches(), edges_s=(0.0310, 0.0312, 0.0314, 0.0316, 0.0318), p25_s=0.0311, p50_s=0.0313, p95_s=0.0316
    )

    ticks = figures.fetch_times(replace(even, beyond=0)).drawing.x.ticks
    labels = [tick.label.removesuffix(" ms") for tick in ticks]
    assert ticks[-1].label.endswith(" ms")

    assert len({len(label.partition(".")[2]) for label in labels}) == 1
    assert len(set(labels)) == len(labels) > 3


@pytest.mark.parametrize(
    ("fetch_s", "sentence", "advised"),
    [
        (1.47, "Training waits for data: a batch fetch takes 1.47 s, a TRAIN step 0.69 s (medians).", True),
        (0.1, "Training waits briefly for data: a batch fetch takes 100 ms, a TRAIN step 690 ms", True),
        (0.01, "Training does not wait for data: a batch fetch takes 10.0 ms, a TRAIN step 690 ms", False),
    ],
)
def test_the_wait_for_data_leads(fetch_s: float, sentence: str, advised: bool) -> None:
    step = StepTime(mode="TRAIN", count=120, p50_s=0.69)
    text = text_of(replace(EXAMPLE, fetches=replace(fetches(), p50_s=fetch_s), step=step))

    assert 0 < text.index(sentence) < text.index("1 loader process for 8 cores")
    assert ("Raise num_workers" in text) == advised
    assert "(medians)" not in text_of(EXAMPLE)


def test_the_section_agrees_with_the_verdict_on_waits() -> None:
    step = StepTime(mode="TRAIN", count=120, p50_s=0.69)
    found = replace(EXAMPLE, fetches=replace(fetches(), p50_s=0.01), step=step)
    report = replace(examples.gpu_job(), data_loading=found)
    waits = Finding(
        key="data-loading",
        severity=Severity.CRITICAL,
        title="Training waits for data on rank 1: a batch fetch takes 0.2 s (medians)",
        evidence=(),
        advice=(),
        rules=(),
        section="data-loading",
    )

    page = sections.data_loading(replace(report, verdict=replace(report.verdict, findings=(waits,))))

    text = Page.of(page.html).text
    assert "Training waits for data on rank 1: a batch fetch takes 0.2 s (medians). 1 loader process" in text
    assert "Raise" not in text


def test_a_number_of_loader_processes_that_never_changes_is_a_sentence() -> None:
    (line,) = EXAMPLE.at_work

    page = page_of(replace(EXAMPLE, at_work=(replace(line, high=line.low),)))

    assert "1 loader process was active in every second with data loading." in page.text
    together = replace(EXAMPLE, nodes=tuple(node_loading(f"n{i}") for i in range(5)))
    text = text_of(replace(together, at_work=(replace(line, node="", high=line.low),)))
    assert "1 loader process on 5 nodes together was active in every second" in text
    assert "fig-data-loading-work" not in page.ids
    assert "live-data-loading-0" not in page.scripts[0][1]


def test_nodes_that_print_the_same_are_one_row() -> None:
    nodes = tuple(node_loading(f"n{i}") for i in range(6))
    setups = tuple(replace(EXAMPLE.setups[0], node=f"n{i}") for i in range(6))
    odd = (*nodes[:5], node_loading("n5", loaders=6, of_cores_percent=75.0, answer="adequate", violating=0))

    text = text_of(replace(EXAMPLE, nodes=nodes, setups=setups))
    other = text_of(replace(EXAMPLE, nodes=odd, setups=setups))

    assert "6 nodes: 1 loader process for 8 cores" in text
    assert text.count("6 nodes (equal)") == 2
    assert "n0, n1, and 3 more (equal) processes 1" in other
    assert "n5 processes 6" in other
    assert "n0, n1, and 3 more: 1 loader process" in other
    assert "n5: 6 loader processes for 8 cores" in other


def test_active_loader_processes_are_drawn_with_the_cores_and_never_joined() -> None:
    (line,) = EXAMPLE.at_work
    assert EXAMPLE.columns

    (figure,) = figures.at_work([line], EXAMPLE.columns)

    drawing = figure.drawing
    (limit,) = drawing.rules
    assert limit.y1 == pytest.approx(100 - 100 * 8 / drawing.y.end)
    assert drawing.shapes[1].path.count("M") == 2
    (hole,) = drawing.areas
    assert (hole.x, hole.width) == pytest.approx((100 * 20 / 70, 100 * 10 / 70))


def test_nodes_together_are_named_so() -> None:
    line = replace(EXAMPLE.at_work[0], node="", cores=40)
    nodes = tuple(node_loading(f"n{i}") for i in range(5))

    text = text_of(replace(EXAMPLE, nodes=nodes, at_work=(line,)))

    assert "1 to 3 loader processes were active on 5 nodes together, with 40 cores (dashed)." in text


def test_what_is_left_out_is_counted() -> None:
    text = text_of(replace(EXAMPLE, nodes_left_out=6, setups_left_out=1))

    assert "Not shown: 6 more nodes." in text
    assert "Not shown: 1 more row." in text


def test_settings_that_were_not_recorded_are_said_so() -> None:
    unknown = LoaderSetup(node="algo-1", iterator="Iter", num_workers=None, pin_memory=None, fetches=3)
    alone = LoaderSetup(node="algo-1", iterator="Single", num_workers=0, pin_memory=False, fetches=3)

    text = text_of(replace(EXAMPLE, setups=(unknown, alone)))

    assert "Iter not recorded not recorded 3" in text
    assert "Single 0, in the training process no 3" in text


def test_times_stand_in_one_table() -> None:
    text = text_of(EXAMPLE)

    assert "Median (ms) p95 (ms) Longest (ms) Total (s) Over 2 × median" in text
    assert "Batch fetch 120 46.0 62.0 1,250 7.90 2" in text
    assert "Between fetches of a process 119 500.0 520.0 4,100 61.00 1" in text
    # Processes run too long for this table.
    assert "1 loader process ran for 1 min." in text


def test_nothing_recorded_is_said_with_the_reason() -> None:
    assert "No trace of the data loader was recorded" in text_of(None)
    assert "rule results hold no data-loading events" in text_of(None, Origin.DEBUGGER_RESULTS)
    card = replace(examples.gpu_job().rules[0], name="Dataloader")
    report = replace(examples.gpu_job(), data_loading=None, origin=Origin.DEBUGGER_RESULTS, rules=(card,))
    assert "#r-Dataloader" in Page.of(sections.data_loading(report).html).links


def test_hostile_names_stay_text() -> None:
    page = page_of(example_data_loading.data_loading(examples.HOSTILE))

    assert page.text.count("alert(1)") >= 2
    assert all("<" not in text for _, text in page.scripts)
    assert page.faults == []
