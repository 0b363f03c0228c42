"""Logs that name no machine, and that several machines may have written."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from msgspec import Struct

from jobreport.errors import NothingReadableError
from jobreport.options import Options
from jobreport.readers.registry import read_directory, read_job
from jobrules.model import Metric

START = datetime(2026, 1, 3, 15, tzinfo=UTC)


class Loop(Struct, frozen=True, kw_only=True):
    """One machine that asks its GPUs for their use."""

    name: str
    gpus: int = 4
    first_s: float = 0.0
    interval_s: float = 1.0
    moments: int = 120
    #: From one GPU to the next, and how uneven the moments are.
    apart_s: float = 0.0
    jitter_s: float = 0.0

    def rows(self) -> list[tuple[float, int, int]]:
        """Time, GPU, and use, which no other machine has."""
        # The letters a, b, … begin at 10, 30, …
        base = 10 + 20 * (ord(self.name) - ord("a"))
        late = np.random.default_rng(ord(self.name)).normal(0, self.jitter_s, self.moments)
        return [
            (
                self.first_s + i * self.interval_s + float(late[i]) + gpu * self.apart_s,
                gpu,
                base + gpu + 5 * (i % 3),
            )
            for i in range(self.moments)
            for gpu in range(self.gpus)
        ]

    def means(self) -> list[float]:
        """The mean use of each GPU."""
        return [
            float(np.mean([use for _, gpu, use in self.rows() if gpu == one])) for one in range(self.gpus)
        ]


COLUMNS = {
    "index": lambda loop, gpu: str(gpu),
    "hostname": lambda loop, gpu: f"host-{loop}",
    "uuid": lambda loop, gpu: f"GPU-{loop}{gpu}",
    "pci.bus_id": lambda loop, gpu: f"00000000:{gpu + 1:02}:00.0",
    "own bus": lambda loop, gpu: f"0000{ord(loop) - 97:04}:{gpu + 1:02}:00.0",
}


def text_of(
    loops: Sequence[Loop], columns: Sequence[str] = ("index",), form: str = "%Y/%m/%d %H:%M:%S.%f"
) -> str:
    """Their common log, each moment of a machine in one go."""
    rows = [
        (i * loop.interval_s + loop.first_s, number, row)
        for number, loop in enumerate(loops)
        for i, row in ((i // loop.gpus, row) for i, row in enumerate(loop.rows()))
    ]
    lines = [
        ", ".join(
            [
                f"{START + timedelta(seconds=at):{form}}",
                *(COLUMNS[one](loops[number].name, gpu) for one in columns),
                f"{use} %",
            ]
        )
        for _, number, (at, gpu, use) in sorted(rows, key=lambda row: row[:2])
    ]
    header = ", ".join(["timestamp", *columns, "utilization.gpu [%]"]).replace("own bus", "pci.bus_id")
    return "\n".join([header, *lines, ""])


def read(folder: Path, **texts: str) -> tuple[dict[str, list[float]], dict[str, int]]:
    """The mean use of each GPU of each machine, and the remarks; no row is lost without one."""
    for name, text in texts.items():
        (folder / f"{name}.csv").write_text(text)
    job, quality = read_job(folder, strict=True)
    (source,) = quality.sources
    left = sum(one.count for one in source.remarks if one.unit == "rows")
    assert source.rows + left == sum(text.count("\n") - 1 for text in texts.values())
    means = {p.node: np.nanmean(p.values, axis=0).tolist() for p in job.panels_of(Metric.GPU_UTILIZATION)}
    return means, {one.code.removeprefix("nvidia_smi."): one.count for one in source.remarks}


A, B, C = Loop(name="a"), Loop(name="b", first_s=0.4), Loop(name="c", first_s=0.73)
TWO = {"log-1": A.means(), "log-2": B.means()}
#: A log that is read whatever stands next to it.
SOUND = text_of([Loop(name="d", gpus=1, first_s=9000, moments=20)], ("hostname", "index"))


@pytest.mark.parametrize(
    "columns",
    [("index", "uuid"), ("index", "uuid", "pci.bus_id"), ("index", "own bus"), ("uuid", "pci.bus_id")],
)
def test_identifiers_separate_machines_that_append_to_one_file(
    columns: tuple[str, ...], tmp_path: Path
) -> None:
    means, remarks = read(tmp_path, gpu=text_of([A, B], columns))

    assert means == TWO
    assert "writers_by_identifier" in remarks


def milliseconds(text: str) -> str:
    """The log with times as the tool writes them."""
    return re.sub(r"(\.[0-9]{3})[0-9]{3},", r"\1,", text)


def shuffled(text: str) -> str:
    """The log with its rows in any order."""
    head, *lines = text.splitlines()
    return "\n".join([head, *np.random.default_rng(1).permutation(lines).tolist(), ""])


AT_ONCE = (A, Loop(name="b"))
#: Logs of several machines with nothing that names them.
MIXED = {
    "index": text_of([A, B]),
    "equal bus ids": text_of([A, B], ("index", "pci.bus_id")),
    "no index": text_of([A, B], ()),
    "three": text_of([A, B, C]),
    "near": text_of([A, Loop(name="b", first_s=0.01)]),
    "later": text_of([A, Loop(name="b", first_s=60.3, moments=200)]),
    "other clocks": text_of(
        [Loop(name="a", interval_s=1.002), Loop(name="b", first_s=0.3, interval_s=1.003)]
    ),
    "jitter": text_of(
        [Loop(name=one, first_s=at, apart_s=0.003, jitter_s=0.002) for one, at in (("a", 0.0), ("b", 0.3))]
    ),
    "slow": text_of([Loop(name="a", interval_s=10), Loop(name="b", first_s=3, interval_s=10)]),
    "short": text_of([Loop(name="a", moments=10), Loop(name="b", first_s=0.3, moments=10)]),
    "same times": text_of(AT_ONCE),
    "phases that cross": text_of([A, Loop(name="b", first_s=0.05, interval_s=0.999)]),
    "nearly the same times": milliseconds(text_of([Loop(name=one, jitter_s=0.0005) for one in "ab"])),
    "three at nearly the same times": milliseconds(
        text_of([Loop(name=one, jitter_s=0.001) for one in "abc"])
    ),
    "same times in any order": shuffled(text_of(AT_ONCE)),
    "one log behind the other": text_of([A]) + text_of([B]).partition("\n")[2],
    "one behind the other, same times": text_of([A]) + text_of([Loop(name="b")]).partition("\n")[2],
}


@pytest.mark.parametrize("text", MIXED.values(), ids=MIXED)
def test_machines_that_nothing_separates_are_not_read(text: str, tmp_path: Path) -> None:
    means, remarks = read(tmp_path, gpu=text, sound=SOUND)

    assert [*means] == ["host-d"]
    assert remarks["mixed"] + remarks.get("incomplete", 0) == text.count(" %\n")


@pytest.mark.parametrize("columns", [("hostname",), ("hostname", "index"), ("hostname", "uuid")])
def test_machines_that_are_named_are_those(columns: tuple[str, ...], tmp_path: Path) -> None:
    loops = (A, Loop(name="b", first_s=0.0))

    assert read(tmp_path, gpu=text_of(loops, columns))[0] == {"host-a": A.means(), "host-b": B.means()}


@pytest.mark.parametrize("first_s", [0, 0.05, 0.4])
def test_uuids_separate_whatever_the_phases(first_s: float, tmp_path: Path) -> None:
    loops = (A, Loop(name="b", gpus=2, first_s=first_s, interval_s=0.999))

    means, _ = read(tmp_path, gpu=text_of(loops, ("index", "uuid")))

    assert means == {f"log-{i}": pytest.approx(loop.means()) for i, loop in enumerate(loops, start=1)}


def test_machines_one_after_the_other_are_two(tmp_path: Path) -> None:
    loops = (A, Loop(name="b", first_s=200))

    assert read(tmp_path, gpu=text_of(loops, ("index", "uuid")))[0] == TWO


@pytest.mark.parametrize(
    "times_s",
    [
        np.cumsum(np.random.default_rng(1).uniform(0.2, 2, 200)),
        np.cumsum(np.random.default_rng(1).choice([1.0, 1.5], 200)),
        np.floor(np.arange(200) * 1.5),
        np.cumsum([1.0] * 100 + [5.0] * 100),
        np.cumsum(np.tile([0.3] * 9 + [3.0], 20) + np.random.default_rng(1).normal(0, 0.02, 200)),
        np.arange(199) * 2 % 199,
    ],
    ids=["uneven", "two pauses", "whole seconds", "slower", "pauses", "not in order"],
)
def test_an_uneven_loop_is_one(times_s: np.ndarray, tmp_path: Path) -> None:
    lines = [f"{START + timedelta(seconds=float(at)):%Y/%m/%d %H:%M:%S.%f}, 0, 50 %" for at in times_s]
    text = "\n".join(["timestamp, index, utilization.gpu [%]", *lines, ""])

    means, remarks = read(tmp_path, gpu=text)

    assert means == {"node": [50.0]}
    assert remarks.keys() - {"uneven"} == {"zone"}


@pytest.mark.parametrize(
    "loops",
    [
        [Loop(name="a", interval_s=5), Loop(name="b", first_s=2, interval_s=5)],
        [Loop(name="a", interval_s=2.5)],
    ],
)
def test_whole_seconds_of_two_machines_or_of_one_are_said(loops: list[Loop], tmp_path: Path) -> None:
    means, remarks = read(tmp_path, gpu=text_of(loops, form="%Y/%m/%d %H:%M:%S"))

    assert ([*means], remarks["uneven"]) == (["node"], 1)


@pytest.mark.parametrize("machines", ["ab", "abc"])
@pytest.mark.parametrize("jitter_s", [0.1, 0.3])
def test_machines_whose_loops_jitter_are_never_one_in_silence(
    machines: str, jitter_s: float, tmp_path: Path
) -> None:
    loops = [Loop(name=one, first_s=0.37 * i, jitter_s=jitter_s) for i, one in enumerate(machines)]

    means, remarks = read(tmp_path, gpu=text_of(loops))

    assert ([*means], remarks["uneven"]) == (["node"], 1)


def test_loops_of_one_machine_with_different_measures_are_not_uneven(tmp_path: Path) -> None:
    lines = ["timestamp, index, utilization.gpu [%], power.draw [W]"]
    for second in range(0, 200, 2):
        now = START + timedelta(seconds=second)
        lines += [
            f"{now:%Y/%m/%d %H:%M:%S.000}, 0, 50 %, [N/A]",
            f"{now:%Y/%m/%d %H:%M:%S.300}, 0, [N/A], 90 W",
        ]

    means, remarks = read(tmp_path, gpu="\n".join([*lines, ""]))

    assert means == {"node": [50.0]}
    assert remarks.keys() == {"zone", "samples.not_available"}


def test_a_loop_faster_than_its_times_show_loses_rows_of_the_same_second_only(tmp_path: Path) -> None:
    text = text_of([Loop(name="a", interval_s=0.7)], form="%Y/%m/%d %H:%M:%S")

    means, remarks = read(tmp_path, gpu=text)

    assert means["node"] == pytest.approx(A.means(), abs=1)
    assert remarks["second_row"] == 4 * (120 - 84)


def test_a_log_twice_in_one_file_is_one_machine(tmp_path: Path) -> None:
    means, remarks = read(tmp_path, gpu=(text := text_of([A])) + text.partition("\n")[2])

    assert means == {"node": A.means()}
    assert remarks["second_row"] == 480


def test_loops_of_one_machine_with_measures_of_their_own_are_one_machine(tmp_path: Path) -> None:
    power = (
        text_of([Loop(name="b", first_s=0.4)])
        .replace("utilization.gpu [%]", "power.draw [W]")
        .replace("%", "W")
    )
    (tmp_path / "gpu.csv").write_text(text_of([A]) + power)

    job, _ = read_job(tmp_path, strict=True)

    assert {p.node for p in job.panels} == {"node"}


# Identifiers that identify nothing


def test_a_damaged_uuid_is_no_machine(tmp_path: Path) -> None:
    text = text_of([A], ("index", "uuid"))
    damaged = text.replace("GPU-a2", "GPU-aZ", 1)

    assert read(tmp_path, gpu=damaged)[0] == {"node": A.means()}


def test_rows_that_lack_their_uuid_are_of_the_gpu_of_their_number(tmp_path: Path) -> None:
    text = text_of([A], ("index", "uuid")).replace("GPU-a2", "GPU-aZ", 1).replace("GPU-a2", "[N/A]", 3)

    assert read(tmp_path, gpu=text)[0] == {"node": A.means()}


@pytest.mark.slow
def test_a_uuid_for_every_second_row_takes_no_time(tmp_path: Path) -> None:
    lines = [f"{1_767_452_400 + i},0,GPU-{i // 2},50" for i in range(20_000)]
    (tmp_path / "gpu.csv").write_text("\n".join(["timestamp,index,uuid,gpu_util", *lines, ""]))
    begin = time.process_time()

    with pytest.raises(NothingReadableError, match="record uuid"):
        read_job(tmp_path, strict=True)

    # A machine for each of them would take minutes.
    assert time.process_time() - begin < 10


def test_uuids_that_were_made_anonymous_are_none(tmp_path: Path) -> None:
    one, other = (text_of([Loop(name=name)], ("index", "uuid")) for name in "ab")
    for gpu in range(4):
        one, other = (text.replace(f"GPU-{n}{gpu}", "GPU-xxxx") for n, text in (("a", one), ("b", other)))

    assert read(tmp_path, n1=one, n2=other)[0] == {"n1": A.means(), "n2": B.means()}


# Logs that name GPUs in different ways


def test_numbers_and_uuids_are_joined_where_a_log_has_both(tmp_path: Path) -> None:
    later = Loop(name="a", first_s=200)
    means, remarks = read(
        tmp_path,
        by_index=text_of([A]),
        by_uuid=text_of([later], ("uuid",)),
        both=text_of([Loop(name="a", first_s=400, moments=3)], ("index", "uuid")),
    )

    assert means == {
        "node": pytest.approx([np.mean([12, 17, 22]) - 2 + gpu - 0.0 for gpu in range(4)], abs=1)
    }
    assert "not_joined" not in remarks


@pytest.mark.parametrize("column", ["uuid", "pci.bus_id"])
@pytest.mark.parametrize("first_s", [0.0, 200.0])
def test_a_log_without_numbers_is_not_joined_to_one_with_numbers(
    column: str, first_s: float, tmp_path: Path
) -> None:
    other = Loop(name="b", first_s=first_s)

    means, remarks = read(tmp_path, by_index=text_of([A]), other=text_of([other], (column,)))

    assert means == {"node": A.means()}
    assert remarks["not_joined"] == 480


# A GPU that falls off, in a log that names none


def without(text: str, gpu: int, from_moment: int, to_moment: int = 120) -> str:
    """The log of a machine with four GPUs without the rows of one of them."""
    head, *lines = text.splitlines()
    gone = {4 * moment + gpu for moment in range(from_moment, to_moment)}
    return "\n".join([head, *(line for i, line in enumerate(lines) if i not in gone), ""])


@pytest.mark.parametrize("moment", [40, 60, 110])
def test_after_the_loss_of_a_gpu_nothing_names_the_others(moment: int, tmp_path: Path) -> None:
    expected = Loop(name="a", moments=moment).means()

    means, remarks = read(tmp_path, gpu=without(text_of([A], ()), 1, moment))

    assert means == {"node": pytest.approx(expected)}
    assert remarks["lost_gpu"] == 3 * (120 - moment)


def test_the_page_says_since_when_the_gpus_are_unknown(tmp_path: Path) -> None:
    (tmp_path / "gpu.csv").write_text(without(text_of([A], ()), 1, 60))

    _, quality = read_job(tmp_path)

    reasons = [one.reason for source in quality.sources for one in source.remarks]
    assert any("from 15:01:00\xa0UTC to the end" in reason for reason in reasons)


def test_a_moment_that_lacks_a_row_is_not_read(tmp_path: Path) -> None:
    complete = [row for i, row in enumerate(A.rows()) if i // 4 not in (50, 51)]
    expected = [np.mean([use for _, gpu, use in complete if gpu == one]) for one in range(4)]

    means, remarks = read(tmp_path, gpu=without(text_of([A], ()), 0, 50, 52))

    assert means == {"node": pytest.approx(expected)}
    assert remarks["incomplete"] == 6
    assert "lost_gpu" not in remarks


def test_a_gpu_that_falls_off_costs_nothing_where_gpus_have_numbers(tmp_path: Path) -> None:
    means, _ = read(tmp_path, gpu=without(text_of([A]), 1, 60))

    assert means["node"] == pytest.approx(
        [A.means()[0], Loop(name="a", moments=60).means()[1], *A.means()[2:]]
    )


@pytest.mark.parametrize("since", [61, 234])
def test_a_second_logger_that_begins_later_is_named_in_a_log_with_milliseconds(
    tmp_path: Path, since: int
) -> None:
    """Also where the names of columns are given: that is the second refusal, and it must not ask for what is there."""
    rng = random.Random(since)
    # The second one's interval is a little longer, so that no phase is its own.
    times = [1000 * i + rng.randrange(60) for i in range(300)]
    times += [1000 * since + 1013 * i + rng.randrange(60) for i in range(300 - since)]
    rows = [
        f"2026/01/03 15:{ms // 60_000:02}:{ms // 1000 % 60:02}.{ms % 1000:03}, {gpu}, {rng.randrange(101)} %\n"
        for ms in sorted(times)
        for gpu in range(2)
    ]
    (tmp_path / "gpu.csv").write_text("".join(rows))

    with pytest.raises(NothingReadableError) as refused:
        read_directory(tmp_path, Options(columns="timestamp,index,utilization.gpu"))

    assert f"15:{since // 60:02}:{since % 60:02}" in str(refused.value)
    assert "milliseconds" not in str(refused.value)
