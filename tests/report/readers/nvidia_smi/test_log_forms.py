"""Every form of log gives the truth it was written from, or is refused with a command or an option that helps."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.report.readers.nvidia_smi.forms import (
    FORMS,
    HELP,
    SECOND,
    START,
    UNVARIED,
    VARIATIONS,
    Form,
    Means,
    Row,
    Rows,
    judged,
    machines_differ,
    of,
    outcome,
    problem,
    rows_of,
    seconds,
    stamp,
    truth_of,
    without_supported,
)


@pytest.mark.parametrize("form", FORMS, ids=[form.name for form in FORMS])
def test_a_form_of_log_gives_its_truth_or_help(form: Form) -> None:
    assert judged(form)[1] == ""


@pytest.mark.parametrize("variation", VARIATIONS)
@pytest.mark.parametrize(
    "form",
    [
        # Those of one file in ``make test-slow``.
        pytest.param(form, id=form.name, marks=[pytest.mark.slow] * (len(form.write(form.rows)) == 1))
        for form in FORMS
        if form.name not in UNVARIED
    ],
)
def test_a_form_of_log_gives_another_truth_or_help(form: Form, variation: str, tmp_path: Path) -> None:
    varied = VARIATIONS[variation]
    form = form._replace(rows=varied(form.rows), truth=varied(form.expected))

    assert problem(form, outcome(form, tmp_path)) == ""


def test_each_form_has_a_name_of_its_own() -> None:
    assert len({form.name for form in FORMS}) == len(FORMS) >= 60


# Logs at random

#: Codes of remarks that say nothing about values, GPUs, or machines.
USUAL = {"nvidia_smi.zone", "nvidia_smi.no_dates"}
#: What a remark on GPUs or machines names.
WHO = re.compile(r"machine|node|writer|moment|numbers the GPUs|numbered", re.IGNORECASE)
TIMES: dict[str, tuple[Callable[[Row], str], ...]] = {
    "timestamp": (stamp, seconds, lambda row: row.at.isoformat(), lambda row: f"{row.at:%d.%m.%Y %H:%M:%S}"),
    "time": (lambda row: f"{row.at.timestamp():.3f}", lambda row: f"{row.at:%Y-%m-%dT%H:%M:%S}Z"),
    "elapsed_s": (lambda row: f"{(row.at - START).total_seconds():.2f}",),
}
WHICH: dict[str, Callable[[Row], object]] = {
    "index": lambda row: row.gpu,
    "gpu": lambda row: f"GPU {row.gpu}",
    "uuid": lambda row: row.uuid,
    "pci.bus_id": lambda row: row.bus,
}
#: Names and cells of what was measured, by the letter of the truth.
MEASURED: dict[str, dict[str, Callable[[Row], object]]] = {
    "u": {
        "utilization.gpu [%]": lambda row: f"{row.use} %",
        "gpu_util": lambda row: row.use,
        "gpu_load": lambda row: f"{row.use / 100:.2f}",
        "gpu%": lambda row: f"{row.use}%",
    },
    "m": {
        "memory.used [MiB]": lambda row: f"{row.memory} MiB",
        "mem": lambda row: row.memory,
        "mem_used_gb": lambda row: f"{row.memory / 1024:.3f}",
        "memory_used": lambda row: row.memory << 20,
    },
    "p": {
        "power.draw [W]": lambda row: f"{row.power:.2f} W",
        "power_w": lambda row: row.power,
        "power": lambda row: round(1000 * row.power),
    },
}


@st.composite
def logs(draw: st.DrawFn) -> Form:
    """A log with columns, units, separators, order, and writers at random, and its truth."""
    machines = draw(st.sampled_from([["node-1"], ["node-2"], ["node-1", "node-2"]]))
    gpus = draw(st.integers(1, 2))
    every = draw(st.sampled_from([0.5, 1, 2, 10])) * SECOND
    start = draw(st.sampled_from([START, START.replace(microsecond=0)]))
    begins = {
        one: start + number * draw(st.sampled_from([0, 0.2])) * every for number, one in enumerate(machines)
    }
    # Machines may have one length, and idle for most of it.
    lengths = draw(st.sampled_from([(40, 40), (40, 47), (130, 130), (130, 121)]))
    idle_until = start + draw(st.sampled_from([0, 0, 110])) * every
    rows = sorted(
        row._replace(use=0, memory=3, power=61.0) if row.at < idle_until else row
        for one, moments in zip(machines, lengths, strict=False)
        for row in rows_of(one, gpus, moments, begins[one], every=every)
    )
    random = Random(draw(st.integers(0, 99)))
    if draw(st.booleans()):
        rows = [row for row in rows if random.random() > 0.03]
    if gpus == 2 and draw(st.integers(0, 4)) == 0:
        rows = [row for row in rows if row.gpu or row.at < START + lengths[0] // 2 * every]
    holds = draw(st.sampled_from(["u", "um", "up", "ump"]))
    time = draw(st.sampled_from([*TIMES]))
    columns: dict[str, Callable[[Row], object]] = {time: draw(st.sampled_from(TIMES[time]))}
    for name in draw(st.lists(st.sampled_from([*WHICH]), max_size=2, unique=True)):
        columns[name] = WHICH[name]
    for letter in holds:
        name = draw(st.sampled_from([*MEASURED[letter]]))
        columns[name] = MEASURED[letter][name]
    if draw(st.booleans()):
        columns["hostname"] = lambda row: row.machine
    layout = draw(st.sampled_from(["one file", "folders", "files", "one per GPU"]))
    # Rows of two machines in one file that name neither GPU nor machine could be of one that is asked twice as often.
    assume(layout != "one file" or len(machines) == 1 or {*WHICH, "hostname"} & {*columns})
    order = draw(st.permutations([*columns]))
    separator = draw(st.sampled_from([",", ", ", ";", "\t"]))
    sorting = draw(st.sampled_from(["time", "gpu", "any"]))
    if sorting == "gpu":
        rows.sort(key=lambda row: row.gpu)
    elif sorting == "any":
        random.shuffle(rows)

    def text(some: Rows) -> str:
        lines = [separator.join(order)]
        lines += [separator.join(str(columns[name](row)) for name in order) for row in some]
        return "\n".join(lines) + "\n"

    files = {
        "one file": lambda: {"gpu.csv": text(rows)},
        "folders": lambda: {f"{one}/gpu.csv": text(of(rows, one)) for one in machines},
        "files": lambda: {f"gpu-{one}.csv": text(of(rows, one)) for one in machines},
        "one per GPU": lambda: {
            f"{one}/gpu{i}.csv": text(of(rows, one, i)) for one in machines for i in range(gpus)
        },
    }[layout]()
    return Form("random", layout, "", lambda _: files, rows=tuple(rows), holds=holds)


def by_values(machines: Mapping[str, list[Means]]) -> dict[str, list[Means]]:
    """The GPUs in the order of their values: without numbers they have no other."""
    return {name: sorted(gpus, key=lambda gpu: sorted(gpu.values.items())) for name, gpus in machines.items()}


@given(form=logs())
@settings(max_examples=2 * settings().max_examples)
def test_no_number_of_a_log_made_at_random_is_wrong_in_silence(form: Form) -> None:
    with TemporaryDirectory() as folder:
        found = outcome(form, Path(folder))
    if found.refusal:
        assert HELP.search(without_supported(found.refusal)), found.refusal
    elif different := machines_differ(*map(by_values, (truth_of(form.rows, form.holds), found.machines))):
        said = [one.reason for one in found.remarks if one.code not in USUAL]
        if different.startswith("GPUs of machines"):
            said = [reason for reason in said if WHO.search(reason)]
        assert said, (different, form.write(()), found)
