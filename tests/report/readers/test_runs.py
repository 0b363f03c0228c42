"""Runs that a long pause separates in the recording of logs."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from jobreport.errors import UsageError
from jobreport.options import Choice, Options
from jobreport.output import summary
from jobreport.page import sections
from jobreport.pipeline import make_report
from jobreport.readers.registry import Reading, read_directory
from jobrules.model import SECOND_US, Metric

START = datetime(2026, 1, 3, 15, tzinfo=UTC)
DAY, HOUR, HALF_A_YEAR = 86400, 3600, 182 * 86400


def rows(first_s: float, use: int, moments: int = 90, every_s: int = 10) -> list[str]:
    """The rows of two GPUs, each of the same use throughout."""
    return [
        f"{START + timedelta(seconds=first_s + every_s * i):%Y/%m/%d %H:%M:%S.%f}, {gpu}, {use + gpu} %"
        for i in range(moments)
        for gpu in (0, 1)
    ]


def write(folder: Path, *lines: str, name: str = "gpu.csv") -> None:
    (folder / name).write_text("\n".join(["timestamp, index, utilization.gpu [%]", *lines, ""]))


def means(reading: Reading) -> dict[str, list[float]]:
    return {
        p.node: np.nanmean(p.values, axis=0).tolist() for p in reading.job.panels_of(Metric.GPU_UTILIZATION)
    }


def lengths(reading: Reading) -> list[tuple[float, bool]]:
    """Of each run in minutes, and whether it is reported."""
    return [((run.end_us - run.start_us) / 60 / SECOND_US, run.reported) for run in reading.quality.runs]


@pytest.mark.parametrize("later_s", [2 * HOUR, DAY, 29 * DAY, HALF_A_YEAR])
@pytest.mark.parametrize(
    ("choice", "use", "reported"),
    [(None, 70, [False, True]), (2, 70, [False, True]), (1, 20, [True, False]), ("all", 45, [True, True])],
)
def test_a_long_pause_separates_runs(
    later_s: int, choice: Choice, use: int, reported: list[bool], tmp_path: Path
) -> None:
    write(tmp_path, *rows(0, 20), *rows(later_s, 70))

    reading = read_directory(tmp_path, Options(strict=True, run=choice))

    assert means(reading) == {"node": [use, use + 1]}
    assert [one for _, one in lengths(reading)] == reported
    (source,) = reading.quality.sources
    dropped = {one.code: one.count for one in source.remarks if one.unit == "rows"}
    assert dropped == ({} if choice == "all" else {"times.other_run": 180})
    assert source.rows + sum(dropped.values()) == 360


def test_the_report_of_a_run_is_that_of_its_rows_alone(tmp_path: Path) -> None:
    for name, lines in (("both", [*rows(0, 20), *rows(DAY, 70)]), ("alone", rows(DAY, 70))):
        (tmp_path / name).mkdir()
        write(tmp_path / name, *lines)

    both, alone = (
        make_report(
            tmp_path / name, tmp_path / f"{name}-report", Options(formats=["json"], strict=True)
        ).report
        for name in ("both", "alone")
    )

    assert both.job.nodes == alone.job.nodes
    assert both.verdict == alone.verdict
    assert both.phases == alone.phases
    assert alone.quality.runs == ()


@pytest.mark.parametrize(
    "lines",
    [
        [*rows(0, 20, 360), *rows(2 * HOUR + 1200, 20, 2 * 360)],
        [*rows(0, 20), *rows(1700, 20)],
        [*rows(0, 20, 5), *rows(DAY, 20, 5)],
    ],
    ids=["not over half of the measured time", "under an hour", "too few moments"],
)
def test_a_shorter_pause_separates_no_runs(lines: list[str], tmp_path: Path) -> None:
    write(tmp_path, *lines)

    reading = read_directory(tmp_path, Options(strict=True))

    assert lengths(reading) == []
    assert reading.quality.sources[0].rows == len(lines)


def test_somebody_who_tried_the_command_later_is_no_run(tmp_path: Path) -> None:
    write(tmp_path, *rows(0, 20), *rows(DAY, 70, 2))

    reading = read_directory(tmp_path, Options(strict=True))

    assert means(reading) == {"node": [20, 21]}
    (source,) = reading.quality.sources
    assert [(one.code, one.count) for one in source.remarks if one.unit == "rows"] == [("times.no_run", 4)]


def test_times_without_dates_are_a_run_of_their_own_and_not_with_all(tmp_path: Path) -> None:
    write(tmp_path, *rows(0, 20))
    undated = [f"{10 * i}, 0, 90 %" for i in range(50)]
    (tmp_path / "other.csv").write_text("\n".join(["elapsed_s, index, utilization.gpu [%]", *undated, ""]))

    reading = read_directory(tmp_path, Options(strict=True, run="all"))

    assert means(reading) == {"node": [20, 21]}
    assert [one for _, one in lengths(reading)] == [False, True]
    assert means(read_directory(tmp_path, Options(strict=True, run=1))) == {"node": [90]}


def test_a_log_of_a_few_rows_is_a_run_that_can_be_chosen(tmp_path: Path) -> None:
    write(tmp_path, *rows(0, 20), name="n1.csv")
    write(tmp_path, *rows(DAY, 60)[:3], name="n2.csv")

    newest, few = (read_directory(tmp_path, Options(strict=True, run=run)) for run in (None, 2))

    assert [one for _, one in lengths(newest)] == [True, False]
    assert [one for _, one in lengths(few)] == [False, True]
    assert means(few).keys() == {"node"}


def test_machines_of_one_run_are_together_and_others_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, *rows(0, 20), name="early_n1.csv")
    for node in (2, 3):
        write(tmp_path, *rows(DAY + 100 * node, 20 * node), name=f"late_n{node}.csv")
        (tmp_path / f"n{node}").mkdir()
        (tmp_path / f"late_n{node}.csv").rename(tmp_path / f"n{node}" / "gpu.csv")

    reading = read_directory(tmp_path, Options(strict=True))

    assert means(reading) == {"n2": [40, 41], "n3": [60, 61]}
    assert [one for _, one in lengths(reading)] == [False, True]


def test_a_job_with_samples_is_one_job(tmp_path: Path) -> None:
    start = int(START.timestamp())
    for number, first in enumerate((start, start + DAY)):
        samples = [
            {"Type": "gpu", "Name": "gpu0", "Dimension": "GPUUtilization", "Value": 20.0 + number,
             "NodeId": "algo-1", "Timestamp": first + i}
            for i in range(60)
        ]  # fmt: skip
        path = tmp_path / "system" / "incremental" / f"{first}.algo-1.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(one) + "\n" for one in samples))

    reading = read_directory(tmp_path, Options(strict=True))

    assert lengths(reading) == []
    assert means(reading) == {"algo-1": [20.5]}


@pytest.mark.parametrize(("number", "runs"), [(3, "2 runs"), (2, "1 run")])
def test_a_run_that_is_not_there_is_wrong_usage(number: int, runs: str, tmp_path: Path) -> None:
    write(tmp_path, *rows(0, 20), *(rows(DAY, 70) if number == 3 else ()))

    with pytest.raises(UsageError, match=rf"--run {number}: the recording has {runs[0]}.{runs[2:]}\."):
        read_directory(tmp_path, Options(run=number))


@pytest.mark.parametrize("redact", [pytest.param(False, marks=pytest.mark.slow), True])
def test_page_summary_and_terminal_say_which_run(redact: bool, tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    write(job, *rows(0, 20), *rows(DAY, 70))

    outcome = make_report(job, tmp_path / "out", Options(formats=["json", "md"], strict=True, redact=redact))

    line = (
        "2 of 2, the newest. Other runs: 1 (2026-01-03 15:00:00 to 15:14:50 UTC, 14 min 50 s). "
        "Choose with --run N, or --run all."
    )
    assert f"Run {line}" in summary.terminal(outcome.report)[-1].replace("\xa0", " ")
    page = "".join(one.html for one in sections.page(outcome.report).values())
    text = (tmp_path / "out" / "summary.md").read_text().replace("\xa0", " ")
    assert line in page.replace("\xa0", " ")
    assert line in text.replace("\\", "")
