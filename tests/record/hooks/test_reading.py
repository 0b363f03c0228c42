"""What the report's reader makes of the recorder's traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobrecord.traces import RECORDER_LANE, SECOND_NS, STEP_LANE, Trace, now
from jobreport.readers.base import Found, SourceFile
from jobreport.readers.traces.reader import Traces
from jobrules.model import StepMark

TRAIN = f"{STEP_LANE}TRAIN"


def read(out: Path) -> Found:
    files = sorted((out / "framework").rglob("*_pythontimeline*"))
    return Traces().read([SourceFile(name=file.name, place=str(file)) for file in files])


def test_marked_steps_are_known_and_the_recorder_is_no_part_of_the_job(tmp_path: Path) -> None:
    trace, begin = Trace(tmp_path, "node-1"), now()
    marks: list[dict[str, Any]] = [
        {},
        {"profiled": "operators+cprofile"},
        {"samples": 8},
        {"cut": True},
        {"profiled": "", "cut": False},
    ]
    for number, args in enumerate(marks):
        at = begin + number * SECOND_NS // 10
        trace.add("Forward", "Net", at, at + 1000)
        trace.add(TRAIN, TRAIN, at, at + SECOND_NS // 10, number, args)
        trace.add(RECORDER_LANE, "write", at, at + 2000)
    trace.close()

    found = read(tmp_path)

    assert found.quality.remarks == ()
    assert {lane.event_type for lane in found.events.lanes} == {"Forward", TRAIN}
    assert found.steps.mark.tolist() == [0, StepMark.PROFILED, 0, StepMark.CUT, 0]
    assert found.steps.comparable.number.tolist() == [0, 2, 4]
    assert found.steps.whole


@pytest.mark.parametrize(
    ("spans_s", "ranks"),
    [
        # Started again; started again while another process runs; two at a time.
        ([(0, 10), (12, 20), (25, 30)], ["1000", "1000", "1000"]),
        ([(0, 10), (5, 40), (12, 20)], ["1000", "1001", "1000"]),
        ([(0, 10), (1, 10)], ["1000", "1001"]),
    ],
)
def test_processes_one_after_the_other_are_one_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spans_s: list[tuple[int, int]], ranks: list[str]
) -> None:
    monkeypatch.delenv("RANK", raising=False)
    begin = now()
    for number, (start_s, end_s) in enumerate(spans_s):
        monkeypatch.setattr("os.getpid", lambda pid=1000 + number: pid)
        trace = Trace(tmp_path, "node-1")
        trace.add(TRAIN, TRAIN, begin + start_s * SECOND_NS, begin + end_s * SECOND_NS, 0)
        trace.close()

    found = read(tmp_path)

    rank_of = {
        int(pid): found.events.lanes[lane].rank
        for pid, lane in zip(found.events.pid, found.events.lane, strict=True)
    }
    assert rank_of == {1000 + number: rank for number, rank in enumerate(ranks)}
    assert set(found.steps.rank.tolist()) == set(ranks)


def test_sizes_of_steps_and_what_is_inferred_are_known(tmp_path: Path) -> None:
    trace, begin = Trace(tmp_path, "node-1"), now()
    sizes: list[tuple[dict[str, Any], tuple[int, int, bool]]] = [
        ({"samples": 8, "tokens": 4096}, (8, 4096, False)),
        ({"samples": 8, "inferred": True}, (8, -1, True)),
        ({"inferred": True}, (-1, -1, True)),
        ({}, (-1, -1, False)),
        ({"samples": -8, "tokens": "many", "inferred": "yes"}, (-1, -1, False)),
        ({"samples": 10**40, "tokens": 2.5}, (-1, -1, False)),
    ]
    for number, (args, _) in enumerate(sizes):
        at = begin + number * SECOND_NS // 10
        trace.add(TRAIN, TRAIN, at, at + SECOND_NS // 10, number, args)
    trace.close()

    steps = read(tmp_path).steps

    found = zip(steps.samples.tolist(), steps.tokens.tolist(), steps.inferred.tolist(), strict=True)
    assert list(found) == [expected for _, expected in sizes]
    assert steps.where(steps.inferred).samples.tolist() == [8, -1]
