"""Files that are not read, and what is said of them."""

from __future__ import annotations

import gzip
import os
import pickle
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from jobreport.errors import NothingReadableError
from jobreport.options import Options
from jobreport.readers.listing import listing
from jobreport.readers.recognized import recognized
from jobreport.readers.registry import MAX_REASONS, read_directory, read_job
from jobreport.readers.tally import Tally
from jobreport.remarks import REMARKS
from tests.report.readers.nvidia_smi.forms import FAILED, FORMS, ONE, outcome, query, write

BY_NAME = {form.name: form for form in FORMS}
TEGRA = "03-14-2025 09:21:17 RAM 2871/7772MB (lfb 445x4MB) CPU [12%@1190] GR3D_FREQ 85%\n"

#: What profilers leave behind in addition to traces, by name, and the codes of the remarks.
OF_PROFILERS = {
    "et.json": (
        b'{\n  "schema": "1.1.1-chakra.0.0.4", "pid": 7,\n  "nodes": [\n{"id": 1}]}',
        "execution_trace",
    ),
    "memory.raw.json": (b"[[-1, 1, 37888, 7], [-1, 1, 512, 7]]", "memory"),
    "memory.json": (b"[[1696966048083248105, 1696966048083248106], [[0, 1], [0, 2]]]", "memory"),
    "snapshot.pickle": (pickle.dumps({"segments": [], "device_traces": []}), "memory"),
    "autograd.json": (
        b'[{"name": "aten::mm", "ph": "X", "ts": 1.5, "dur": 2, "pid": "CPU functions"}]',
        "chrome",
    ),
    "viztracer.json": (b'{"viztracer_metadata": {}, "traceEvents": [{"ph": "X", "cat": "FEE"}]}', "chrome"),
    "report1.nsys-rep": (bytes(range(256)), "nsys"),
}


def refusal(directory: Path) -> str:
    with pytest.raises(NothingReadableError) as error:
        read_directory(directory)
    return str(error.value).replace("\u00a0", " ")


def codes_next_to_a_log(directory: Path) -> list[tuple[str, str | None]]:
    (directory / "known.csv").write_text(query(ONE))
    quality = read_job(directory, strict=True)[1]
    return [(one.code, one.place) for one in quality.remarks]


def test_every_kind_is_the_form_of_a_log(tmp_path: Path) -> None:
    kinds = {code for code in REMARKS if code.startswith("recognized.")}
    found = {"recognized.archive", *(f"recognized.{code}" for _, code in OF_PROFILERS.values())}
    for form in FORMS:
        if form.truth == ():
            folder = tmp_path / form.name
            assert outcome(form, folder).refusal
            found |= {code for code, _ in codes_next_to_a_log(folder)}

    assert kinds <= found


@pytest.mark.parametrize("name", ["wandb", "json-lines", "json-array", "json-table"])
def test_the_command_in_a_refusal_makes_a_log_that_is_read(name: str, tmp_path: Path) -> None:
    form = BY_NAME[name]
    (command,) = re.findall(r"with: (.* gpu\.csv)", outcome(form, tmp_path).refusal)
    if not shutil.which(command.split()[0]):
        pytest.skip(f"no {command.split()[0]}")
    (file,) = form.write(form.rows)

    subprocess.run(command, shell=True, cwd=tmp_path, check=True)

    (tmp_path / file).unlink()
    columns = "timestamp,index,utilization.gpu" if "json" in name else None
    job = read_directory(tmp_path, Options(strict=True, columns=columns)).job
    assert sorted(panel.values.shape for panel in job.panels) == [(60, 2)]


def test_what_is_not_read_is_listed_next_to_what_is(tmp_path: Path) -> None:
    write(tmp_path, {"b/tegra.log": TEGRA, "a/tegra.log": TEGRA, "empty.csv": "", "notes.txt": "x"})

    assert codes_next_to_a_log(tmp_path) == [
        ("recognized.tegrastats", "a/tegra.log"),
        ("file.empty", "empty.csv"),
        ("directory.unknown", "notes.txt"),
    ]


@pytest.mark.parametrize("name", OF_PROFILERS)
def test_other_files_of_profilers_are_named(name: str, tmp_path: Path) -> None:
    content, code = OF_PROFILERS[name]
    (tmp_path / name).write_bytes(content)

    assert codes_next_to_a_log(tmp_path) == [(f"recognized.{code}", name)]


@pytest.mark.parametrize(
    "text",
    [
        FAILED * 30 + query(ONE),
        query(ONE[:0]) * 2 + query(ONE),
        "\n\n" + FAILED + "\n" + query(ONE) + FAILED,
    ],
)
def test_a_log_that_only_begins_like_nothing_is_read(text: str, tmp_path: Path) -> None:
    (tmp_path / "gpu.csv").write_text(text)

    (panel, *_) = read_job(tmp_path, strict=True)[0].panels

    assert panel.values.shape == (60, 2)


@pytest.mark.parametrize(
    ("text", "is_header"),
    [
        ("# gpu   pwr gtemp    sm\n# Idx     W     C     %\n", True),
        ("timestamp;gpu_util\n\n", True),
        ("# GPU notes\n", False),
        ("nvidia-smi --query-gpu=timestamp,index,utilization.gpu --format=csv\n", False),
        ("epoch,loss\n", False),
        ("epoch 1 loss 0.5 gpu util 45%\n" * 3, False),
    ],
)
def test_a_header_alone_names_columns_of_a_log(text: str, is_header: bool, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(text)

    assert ("names of columns without a row" in refusal(tmp_path)) == is_header


EMISSIONS = (
    "timestamp,energy_consumed,gpu_utilization_percent,emissions_rate\n" + "2026-01-03T15:36:53,1,4,1\n" * 9
)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (EMISSIONS, "CodeCarbon"),
        ("sda  0.02  0.13  0.01\n\n01/03/26 15:36:53\navg-cpu:  %user  %idle\n  0.1  99.9\n", "iostat"),
        ("sda  0.02  0.13  0.01\n\nDevice  r/s  w/s  %util\nsda  0.02  0.13  0.01\n" * 9, "iostat"),
    ],
)
def test_the_order_of_columns_and_a_lost_beginning_do_not_matter(
    text: str, says: str, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text(text)

    assert f"1 file skipped: {says}" in refusal(tmp_path).replace("the output of ", "").replace("'s", "")


def test_a_log_in_which_iostat_reports_too_is_read(tmp_path: Path) -> None:
    (tmp_path / "gpu.csv").write_text(query(ONE).replace("\n", "\navg-cpu:  %user  %idle\n", 4))

    assert read_job(tmp_path)[0].panels


def test_a_night_of_failures_is_nothing_but_failures(tmp_path: Path) -> None:
    (tmp_path / "gpu.csv.gz").write_bytes(gzip.compress(FAILED.encode() * 50_000))

    assert "the NVIDIA driver cannot be reached" in refusal(tmp_path)


def test_an_archive_in_a_directory_is_named(tmp_path: Path) -> None:
    for name in ("tar-gz", "zip"):
        write(tmp_path, dict(BY_NAME[name].write(BY_NAME[name].rows)))

    assert "2 files skipped: an archive; unpack it, or give it to --job-dir (job.tar.gz)" in refusal(tmp_path)


def test_a_file_that_may_not_be_opened_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"gpu.csv": query(ONE)})
    opened = os.open

    def refuse(path: str, *arguments: int) -> int:
        if str(path).endswith("gpu.csv"):
            raise PermissionError(13, "Permission denied", path)
        return opened(path, *arguments)

    monkeypatch.setattr("jobreport.readers.text_files.os.open", refuse)

    assert "1 file skipped: cannot be read: Permission denied (gpu.csv)." in refusal(tmp_path)


def test_the_first_reasons_are_said_those_about_logs_before_others(tmp_path: Path) -> None:
    names = [form.name for form in FORMS if form.says in ("dcgmi", "tegrastats", "rocm-smi", "amd-smi")]
    for name in names:
        write(tmp_path, {f"{name}/{file}": text for file, text in BY_NAME[name].write(ONE).items()})
    write(tmp_path, {"1700000040.algo-1.json": "[1, 2, 3]\n"})

    said = refusal(tmp_path)

    assert said.count("skipped") == MAX_REASONS
    assert "lines" not in said


def test_names_and_texts_of_a_refusal_are_escaped(tmp_path: Path) -> None:
    write(tmp_path, {"\x1b[31m\u202ea.log": TEGRA, "b.csv": "timestamp,gpu_util\n\x1b]0;x\x07,5\n" * 3})

    assert refusal(tmp_path).isprintable()


@pytest.mark.parametrize(
    "text",
    [
        "_timestamp " * 10_000,
        "PK\x03\x04" + "xl" * 100_000,
        '{"gpu":' * 20_000,
        "| ID " * 50_000,
        "timestamp,util\n" * 100_000 + "x\n",
        ("x" * 100_000 + "\n") * 20,
        "\n" * 1_000_000,
        "GPU 1: " + "(UUID:" * 100_000,
        '{"schema": "1", ' + '"nodes" ' * 100_000,
    ],
)
def test_hostile_beginnings_cost_no_time(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(text)
    (file,) = listing(tmp_path, Tally())
    begin = time.process_time()

    recognized(file)

    assert time.process_time() - begin < 3


def test_the_end_of_a_line_is_not_looked_for_in_all_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    os.truncate(tmp_path / "a.txt", 1 << 40)
    (file,) = listing(tmp_path, Tally())

    assert recognized(file) is None
