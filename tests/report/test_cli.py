"""The command: what it prints, what it writes, how it exits."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import signal
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from jobreport import cli
from jobreport.readers.debugger_results.rule_results import NAMES
from jobrules import RULES
from tests.paths import ROOT, SAMPLES

LINE = '{"Type":"cpu","Name":"cpu0","Dimension":"CPUUtilization","Value":5,"NodeId":"algo-1","Timestamp":1700000041.5}\n'
CODE = f"import sys; sys.path[:0] = [{str(ROOT / 'report')!r}, {str(ROOT / 'rules')!r}]; "
COMMAND = [sys.executable, "-c", f"{CODE}from jobreport.cli import main; main()"]


def make_report(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """What the command prints and how it exits, in this process: starting another takes most of a second."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["make-report", *map(str, arguments)])
        patch.chdir(cwd or Path.cwd())
        with pytest.raises(SystemExit) as left:
            cli.main()
    return subprocess.CompletedProcess(sys.argv, left.value.code, out.getvalue(), err.getvalue())  # type: ignore[arg-type]


def sample(name: str) -> Path:
    return next(path for path in SAMPLES if path.name.startswith(name))


def test_a_report_without_the_page_is_written_and_its_path_printed(tmp_path: Path) -> None:
    done = make_report("--job-dir", sample("fluctuating"), "--formats", "json,md", cwd=tmp_path)

    folder = tmp_path / f"{sample('fluctuating').name}-report"
    assert (done.returncode, done.stdout) == (0, f"{folder / 'summary.md'}\n")
    assert "of GPU time was lost" in done.stderr
    assert sorted(p.name for p in folder.iterdir()) == ["report.json", "rules", "summary.md"]
    in_sight = {path.stem for path in (folder / "rules").glob("*.json")}
    assert {"CPUBottleneck", "OverallSystemUsage"} < in_sight < set(NAMES)
    assert {path.stem for path in (folder / "rules").rglob("*.json")} == {rule.__name__ for rule in RULES}


def test_quiet_prints_only_the_path(tmp_path: Path) -> None:
    done = make_report("--job-dir", sample("cpu"), "--out", tmp_path / "o", "--formats", "json", "--quiet")

    assert (done.returncode, done.stderr) == (0, "")


def test_a_report_is_not_replaced_without_force(tmp_path: Path) -> None:
    options = ("--job-dir", sample("fluct"), "--out", tmp_path / "o", "--formats", "json", "--quiet")
    make_report(*options)

    again = make_report(*options)
    forced = make_report(*options, "--force", "--select", "BatchSize")

    assert again.returncode == 2
    assert "already contains a report" in again.stderr
    assert forced.returncode == 0
    assert [p.name for p in (tmp_path / "o" / "rules").iterdir()] == ["BatchSize.json"]


def test_fail_on_exits_with_three(tmp_path: Path) -> None:
    options = ("--formats", "json", "--quiet", "--fail-on", "warning")

    low = make_report("--job-dir", sample("fluctuating"), "--out", tmp_path / "low", *options)
    fine = make_report("--job-dir", sample("healthy"), "--out", tmp_path / "fine", *options)

    assert (low.returncode, fine.returncode) == (3, 0)


def test_thresholds_reach_the_rule_and_the_command_in_the_report(tmp_path: Path) -> None:
    change = "LowGPUUtilization.threshold_p95=1"
    make_report(
        "--job-dir", sample("fluctuating"), "--out", tmp_path / "o", "--formats", "json", "--set", change
    )

    report = json.loads((tmp_path / "o" / "report.json").read_bytes())

    assert report["command"] == f"make-report --job-dir {sample('fluctuating').name} --set {change}"
    (low,) = (card for card in report["rules"] if card["name"] == "LowGPUUtilization")
    assert low["parameters"][0]["value"] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "No job given."),
        (("my gpu.csv",), "Use `make-report --job-dir 'my gpu.csv'`."),
        (("--job-dir", "a.csv", "b.csv"), "b.csv stands without an option. --job-dir takes one directory"),
        (("--job-dri", "x"), "--job-dir"),
        (("--job-dir", "x", "--formats", "pdf"), "choose from html, ipynb, json, md"),
        (("--explain", "LowGPUUtilisation"), "Did you mean LowGPUUtilization?"),
        (("--job-dir", "x", "--select", "Batchsizes"), "Did you mean BatchSize?"),
    ],
)
def test_wrong_usage_is_a_sentence_and_status_two(arguments: tuple[str, ...], message: str) -> None:
    done = make_report(*arguments)

    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["gpu.csv", "gpu.csv.gz"])
def test_a_single_log_is_a_job(name: str, tmp_path: Path) -> None:
    rows = "".join(f"{1_767_454_613 + i},0,{i} %\n" for i in range(60))
    log = f"timestamp,index,utilization.gpu\n{rows}".encode()
    (tmp_path / name).write_bytes(gzip.compress(log) if name.endswith(".gz") else log)
    (tmp_path / "other.csv").write_bytes(log)

    done = make_report("--job-dir", name, "--formats", "json", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "gpu-report" / "report.json").read_bytes())
    assert (report["job"]["name"], report["command"]) == ("gpu", f"make-report --job-dir {name}")
    assert [source["files"] for source in report["quality"]["sources"]] == [1]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_standard_output_is_named(tmp_path: Path, unbuffered: str) -> None:
    (tmp_path / "gpu.csv").write_text(
        "timestamp, index, utilization.gpu [%]\n2026/03/04 10:00:00.000, 0, 50 %\n"
    )
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "jobreport", "--job-dir", "gpu.csv", "--formats", "json", "--quiet"],
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered, "PYTHONPATH": os.pathsep.join(sys.path)},
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert done.stderr == "make-report: Cannot use 'standard output': No space left on device.\n"


def test_the_package_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "jobreport", "--frobnicate"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 2
    assert done.stderr.startswith("Usage: make-report --job-dir DIR [OPTIONS]\n")


def empty(folder: Path) -> Path:
    (folder / "job").mkdir()
    return folder / "job"


def something_else(folder: Path) -> Path:
    job = empty(folder)
    (job / "notes.txt").write_text("hello")
    (job / "1700000040.algo-1.json").write_text("[1, 2, 3]\n")
    return job


def a_file(folder: Path) -> Path:
    (folder / "job").write_text("hello")
    return folder / "job"


def a_broken_archive(folder: Path) -> Path:
    (folder / "job.tar.gz").write_bytes(b"\x1f\x8b not really")
    return folder / "job.tar.gz"


def nothing(folder: Path) -> Path:
    return folder / "job"


@pytest.mark.parametrize("make", [empty, something_else, a_file, a_broken_archive, nothing])
def test_nothing_readable_is_a_sentence_and_status_two(make: object, tmp_path: Path) -> None:
    job = make(tmp_path)  # type: ignore[operator]

    done = make_report("--job-dir", job, "--out", tmp_path / "out")

    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    assert "job" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("text", [LINE, LINE + LINE[:40], "garbage\n" + LINE, LINE * 2])
def test_a_job_of_one_sample_or_with_damaged_lines_gives_a_report(text: str, tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    (job / "1700000040.algo-1.json").write_text(text)

    done = make_report("--job-dir", job, "--out", tmp_path / "out", "--formats", "json,md")

    assert done.returncode == 0
    report = json.loads((tmp_path / "out" / "report.json").read_bytes())
    assert report["job"]["start_us"] == 1700000041500000
    assert any(source["remarks"] for source in report["quality"]["sources"]) == (text != LINE)


def test_names_that_no_file_system_takes_are_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")

    for arguments in (
        ("--job-dir", "n" * 300),
        ("--job-dir", tmp_path / "loop"),
        ("--job-dir", sample("cpu"), "--out", "n" * 300),
    ):
        done = make_report(*arguments, cwd=tmp_path)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
        assert "bug" not in done.stderr


def test_explain_and_list_name_every_rule() -> None:
    listed, explained = make_report("--list-rules"), make_report("--explain", "batchsize")

    assert "LowGPUUtilization" in listed.stdout
    assert "gpu_memory_threshold_p95 = 70%" in explained.stdout
    assert (listed.returncode, explained.returncode) == (0, 0)


@pytest.mark.parametrize(
    ("options", "heavy"),
    [
        (["--help"], {"numpy", "bokeh", "papermill", "nbconvert"}),
        (["--version"], {"numpy", "bokeh", "papermill", "nbconvert"}),
        (["--job-dir", sample("cpu"), "--formats", "json,md"], {"bokeh", "papermill", "nbconvert"}),
    ],
)
def test_nothing_heavy_is_imported_that_is_not_used(
    options: list[str], heavy: set[str], tmp_path: Path
) -> None:
    code = (
        "import sys, atexit; atexit.register(lambda: print(*sys.modules)); from jobreport.cli import main; "
    )
    code += f"sys.argv[1:] = {list(map(str, options))!r}; main()"
    path = f"{ROOT / 'report'}:{ROOT / 'rules'}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": path},
        cwd=tmp_path,
    )

    assert not heavy & set(done.stdout.split())


def test_an_empty_name_is_refused(tmp_path: Path) -> None:
    for arguments in (("--job-dir", ""), ("--job-dir", sample("cpu"), "--out", "")):
        done = make_report(*arguments, cwd=tmp_path)
        assert (done.returncode, list(tmp_path.iterdir())) == (2, [])
        assert "the name is empty" in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals are different there")
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("stage", ["Reading", "Writing the page"])
def test_a_run_that_is_stopped_leaves_nothing_half_written(
    sent: signal.Signals, stage: str, tmp_path: Path
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    run = subprocess.Popen(
        [sys.executable, "-m", "jobreport.cli", "--job-dir", str(SAMPLES[0]), "--out", str(tmp_path / "out")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(scratch)},
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert run.stderr is not None
    while not run.stderr.readline().startswith(stage):
        assert run.poll() is None
    run.send_signal(sent)
    printed, errors = run.communicate(timeout=60)

    assert run.returncode == 130
    assert printed == ""
    assert errors.splitlines()[-1] == "make-report: stopped."
    assert "Traceback" not in errors
    assert sorted(tmp_path.iterdir()) == [scratch]
    assert not list(scratch.iterdir())


@pytest.mark.parametrize(
    ("chosen", "status", "words"),
    [
        (("--run", "1"), 0, "Run 1 of 2. Other runs: 2 (2026-01-04 15:00:00"),
        (("--run", "all"), 0, "Run all 2 of the recording"),
        ((), 0, "Run 2 of 2, the newest."),
        (("--run", "3"), 2, "--run 3: the recording has 2 runs."),
        (("--run", "0"), 2, "neither all nor the number of a run"),
        (("--run", "newest"), 2, "neither all nor the number of a run"),
    ],
)
def test_a_run_of_a_log_is_chosen_by_its_number(
    chosen: tuple[str, ...], status: int, words: str, tmp_path: Path
) -> None:
    rows = [f"2026/01/0{day} 15:{i:02}:00.000, 0, 50 %" for day in (3, 4) for i in range(30)]
    (tmp_path / "gpu.csv").write_text("\n".join(["timestamp, index, utilization.gpu [%]", *rows, ""]))

    done = make_report("--job-dir", tmp_path, "--out", tmp_path / "out", "--formats", "json", *chosen)

    assert done.returncode == status
    assert words in done.stderr.replace("\xa0", " ")
    if not status:
        command = json.loads((tmp_path / "out" / "report.json").read_text())["command"]
        assert command.endswith(" ".join(chosen))


def test_the_path_in_a_pipe_is_that_of_the_page_whatever_its_name_has(tmp_path: Path) -> None:
    out = os.fsencode(tmp_path) + b"/a\x1b[31mred\xff"
    done = subprocess.run(
        [*COMMAND, "--job-dir", sample("cpu"), "--out", out, "--formats", "json", "--quiet"],
        capture_output=True,
        check=True,
    )

    assert done.stdout == out + b"/report.json\n"
    assert Path(os.fsdecode(done.stdout[:-1])).is_file()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs limits on open files")
@pytest.mark.slow
def test_few_open_files_cost_the_page_and_no_traceback(tmp_path: Path) -> None:
    script = 'ulimit -n 24; exec "$@"'
    options = ["--job-dir", str(sample("cpu")), "--out", str(tmp_path / "o"), "--quiet"]
    done = subprocess.run(
        ["sh", "-c", script, "sh", *COMMAND, *options], capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "open files" in line


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs limits on memory")
def test_little_memory_costs_the_page_at_most_and_no_traceback(tmp_path: Path) -> None:
    failed = 0
    for limit_kb in (600_000, 400_000, 250_000, 200_000):
        script = f'ulimit -v {limit_kb}; exec "$@"'
        options = ["--job-dir", str(sample("cpu")), "--out", str(tmp_path / str(limit_kb)), "--quiet"]
        done = subprocess.run(
            ["sh", "-c", script, "sh", *COMMAND, *options], capture_output=True, text=True, check=False
        )

        # The library of the kernel's sockets aborts the process if memory ends in it.
        aborted = done.returncode == -signal.SIGABRT and ".cpp" in done.stderr
        assert done.returncode in (0, 1) or aborted
        assert len(done.stderr.splitlines()) == abs(done.returncode) or aborted, done.stderr
        # A thread needs memory, too; Python says the same where there may be no more threads.
        assert re.search("memory|new thread", done.stderr) or aborted or not done.returncode
        failed += done.returncode == 1
    assert failed, "no limit was low enough"


@pytest.mark.skipif(not sys.platform.startswith("linux") or os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("left_kb", [4, 12])
@pytest.mark.slow
def test_a_full_folder_of_temporary_files_is_named(left_kb: int, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("cannot mount a small file system")
    try:
        (disk / "ballast").write_bytes(bytes((64 - left_kb) << 10))
        options = ["--job-dir", str(sample("cpu")), "--out", str(tmp_path / "o"), "--quiet"]
        done = subprocess.run(
            [*COMMAND, *options],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "TMPDIR": str(disk)},
        )
    finally:
        subprocess.run(["umount", str(disk)], check=True)

    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert f"no space left in {disk}. Set TMPDIR" in line
    assert done.stdout == f"{tmp_path / 'o' / 'summary.md'}\n"
