from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from string import Formatter

import pytest

from jobreport.errors import NothingReadableError
from jobreport.readers import grouping
from jobreport.readers.base import FileFailedError
from jobreport.readers.nvidia_smi import headed
from jobreport.readers.nvidia_smi.reader import NvidiaSmi
from jobreport.readers.nvidia_smi.table import Block, Skipped, Table
from jobreport.readers.registry import READERS, read_job
from jobreport.readers.tally import Tally
from jobreport.remarks import REMARKS, Remark
from jobrules.model import Metric
from tests import scenario_d1
from tests.paths import SAMPLES
from tests.report.readers import events
from tests.report.readers.samples import FILE, read, remarks, sample, values, write


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("my-job", "my-job"),
        ("my-job/profiler-output", "my-job"),
        ("my-job/profiler-output/system", "my-job"),
        ("my-job/system", "my-job"),
        ("</script>".replace("/", ""), "<script>"),
    ],
)
def test_a_job_is_called_like_its_directory_but_not_like_a_folder_every_job_has(
    tmp_path: Path, place: str, name: str
) -> None:
    job, _ = read(tmp_path / place, {FILE: [sample()]})

    assert job.name == name


@pytest.mark.parametrize(
    ("marker", "finished"),
    [
        ("system/training_job_end.ts", True),
        ("framework/training_job_end.ts", True),
        ("training_job_end.ts", True),
        ("profiler-output/system/training_job_end.ts", True),
        ("elsewhere/deep/training_job_end.ts", False),
        ("system/training_job_end.ts.bak", False),
    ],
)
def test_a_job_has_ended_when_a_marker_says_so(tmp_path: Path, marker: str, finished: bool) -> None:
    job, quality = read(tmp_path, {FILE: [sample()], marker: ""})

    assert job.finished is finished
    assert len(quality.remarks) == (not finished)


def test_a_directory_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NothingReadableError, match=r"Directory not found: .*nowhere"):
        read_job(tmp_path / "nowhere")


def test_a_file_in_the_place_of_the_directory_is_read_alone(tmp_path: Path) -> None:
    write(tmp_path, {FILE: [sample(5)], "notes.txt": "x"})
    (tmp_path / "link.json").symlink_to(FILE)

    for name in (FILE, "link.json"):
        job, quality = read_job(tmp_path / name)
        assert (values(job), quality.remarks) == ([[5.0]], ())
    with pytest.raises(NothingReadableError, match="1\u00a0file found"):
        read_job(tmp_path / "notes.txt")


def test_a_single_trace_is_read_alone() -> None:
    trace = next(path for sample in SAMPLES for path in sorted(sample.rglob("*_pythontimeline.json.gz")))

    job, _ = read_job(trace, strict=True)

    assert (len(job.nodes), job.step_count > 0) == (1, True)


def test_what_is_neither_a_directory_nor_a_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(NothingReadableError, match="neither a directory nor a file"):
        read_job(tmp_path / "pipe")


def test_an_empty_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NothingReadableError) as error:
        read_job(tmp_path)

    assert str(error.value).endswith(" is empty. Check the path given with --job-dir.")


def test_a_directory_of_other_files_is_refused_with_an_example_and_what_is_supported(tmp_path: Path) -> None:
    with pytest.raises(NothingReadableError, match="2\u00a0files found \\(such as notes\\.txt\\)") as error:
        read(tmp_path, {"notes.txt": "x", "system/training_job_end.ts": ""})

    assert all(reader.looks_for in str(error.value) for reader in (*READERS, NvidiaSmi()))


def test_the_directory_itself_may_be_a_link_and_relative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "real", {FILE: [sample(5)]})
    (tmp_path / "link").symlink_to("real")
    monkeypatch.chdir(tmp_path)

    job, _ = read_job(Path("link"))

    assert values(job) == [[5.0]]


def test_links_are_not_followed(tmp_path: Path) -> None:
    inside, outside = tmp_path / "job", tmp_path / "outside"
    write(outside, {FILE: [sample(99)]})
    write(inside, {FILE: [sample(5)]})
    (inside / "1700000100.out.json").symlink_to(outside / FILE)
    (inside / "out").symlink_to(outside)
    (inside / "1700000100.broken.json").symlink_to("nothing")
    (inside / "1700000100.self.json").symlink_to("1700000100.self.json")
    (inside / "loop").symlink_to(".")
    (inside / "1700000100.again.json").symlink_to(FILE)

    job, quality = read_job(inside)

    assert values(job) == [[5.0]]
    assert {reason: (r.count, r.place) for reason, r in remarks(quality).items()} == {
        "link out of the directory": (2, "1700000100.out.json"),
        "link that leads nowhere": (2, "1700000100.broken.json"),
        "link to another place in the directory, read there": (2, "1700000100.again.json"),
    }


def test_a_pipe_is_not_opened(tmp_path: Path) -> None:
    write(tmp_path, {FILE: [sample(5)]})
    os.mkfifo(tmp_path / "1700000100.pipe.json")

    job, quality = read_job(tmp_path)

    assert values(job) == [[5.0]]
    assert remarks(quality)["neither file nor folder"].place == "1700000100.pipe.json"


def test_a_folder_that_cannot_be_opened_costs_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {FILE: [sample(5)], "closed/x.txt": ""})
    scandir = os.scandir

    def refusing(path: Path | int) -> object:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)

    job, quality = read_job(tmp_path)

    assert values(job) == [[5.0]]
    assert remarks(quality)["may not be read: permission denied"].place == "closed"


def test_a_file_without_permission_costs_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, _: not str(path).endswith(".csv"))
    write(tmp_path, {"gpu.csv": ""})
    with pytest.raises(
        NothingReadableError, match=r": 1.file skipped: may not be read: permission denied \(gpu\.csv\)\.$"
    ):
        read_job(tmp_path)

    write(tmp_path, {FILE: [sample(5)]})
    job, quality = read_job(tmp_path)

    assert values(job) == [[5.0]]
    assert remarks(quality)["may not be read: permission denied"].place == "gpu.csv"


def test_a_file_at_which_a_reader_stops_costs_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = "timestamp, index, utilization.gpu [%]\n2026/01/03 15:00:00.000, 0, 50 %\n"
    write(
        tmp_path, {"a.csv": log, "b.csv": log.replace("50 %", "broken"), "c.csv": log.replace(" 0,", " 1,")}
    )
    tables = headed.tables

    def breaking(blocks: Iterable[Block], names: Sequence[str]) -> Iterator[Table | Skipped]:
        for part in tables(blocks, names):
            if isinstance(part, Table) and " broken" in part.columns[-1].distinct:
                raise MemoryError
            yield part

    monkeypatch.setattr(headed, "tables", breaking)

    job, quality = read_job(tmp_path)

    (panel,) = job.panels_of(Metric.GPU_UTILIZATION)
    assert panel.values.tolist() == [[50.0, 50.0]]
    (failed,) = (one for one in quality.remarks if one.code == "reader.failed")
    assert (failed.place, failed.count, failed.fields["kind"]) == ("b.csv", 1, "MemoryError")
    with pytest.raises(FileFailedError):
        read_job(tmp_path, strict=True)


def test_remarks_come_by_action_and_the_most_frequent_first() -> None:
    tally = Tally()
    tally.note("samples.second", count=5)
    tally.note("samples.repeated", file="b", line=2)
    tally.note("samples.repeated", file="a", line=30)
    tally.note("samples.repeated", file="a", line=4)
    tally.note("samples.long", count=2)
    tally.note("samples.percent", count=0, file="x")

    found = [(r.code, r.count, r.place) for r in tally.remarks()]

    assert found == [("samples.long", 2, None), ("samples.second", 5, None), ("samples.repeated", 3, "a:4")]


def test_every_remark_can_be_worded() -> None:
    for code, wording in REMARKS.items():
        names = {name for text in wording[:3] for _, name, _, _ in Formatter().parse(text) if name}
        remark = Remark(code=code, count=1, fields=dict.fromkeys(names, 1))
        assert remark.reason
        assert remark.unit
        assert wording.action in ("failed", "skipped", "dropped", "corrected", "used")
        assert wording.rest in ("", *REMARKS)


@pytest.mark.parametrize("undated", [True, False], ids=["without a date", "a year earlier"])
def test_events_far_from_all_samples_are_left_out_and_counted(tmp_path: Path, undated: bool) -> None:
    scenario_d1.write_samples(tmp_path)
    base = (
        []
        if undated
        else [{"start_time_since_epoch_in_micros": (scenario_d1.BASE_S - 365 * 86400) * 1_000_000}]
    )
    rows: list[dict[str, object]] = [
        {"name": "process_name", "ph": "M", "pid": 0, "args": args} for args in base
    ]
    rows.append({"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "Step:ModeKeys.TRAIN"}})
    rows += [
        {"name": "Step:ModeKeys.TRAIN", "ph": "X", "pid": 1, "ts": i * 1000, "dur": 10} for i in range(3)
    ]
    (tmp_path / "1700000040000000_33-algo-1_pythontimeline.json").write_text(json.dumps(rows))

    job, quality = read_job(tmp_path)

    assert job.span_us == job.samples_us
    assert (len(job.events), len(job.steps)) == (0, 0)
    (traces,) = (source for source in quality.sources if source.source == "traces")
    assert traces.rows == 0
    assert any(remark.count == 3 and remark.action == "dropped" for remark in traces.remarks)


def test_rule_results_next_to_traces_are_used_for_what_these_lack(tmp_path: Path) -> None:
    scenario_d1.write_events(tmp_path)
    (tmp_path / "BatchSize.json").write_text(
        '{"RuleTriggered": 1, "Violations": 1, "Details": {}, "Datapoints": 5}'
    )

    _, quality = read_job(tmp_path)

    reasons = [remark.reason for source in quality.sources for remark in source.remarks]
    assert reasons == ["where the job's own records lack something"]


# Machines that are read apart


def trace(node: str) -> str:
    return f"{events.HOUR}/1700000060000000_33-{node}_pythontimeline.json"


@pytest.fixture
def _apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small machines are read apart too."""
    monkeypatch.setattr(grouping, "_GROUP_NODES", 1)


@pytest.mark.usefixtures("_apart")
def test_machines_without_dates_are_dropped_next_to_those_with_dates(tmp_path: Path) -> None:
    rows = [events.x(ts=i * 1000) for i in range(50)]
    events.write(
        tmp_path,
        {trace("algo-1"): events.text([events.base(), *rows]), trace("algo-2"): events.text(rows)},
    )

    job, quality = read_job(tmp_path, strict=True)

    assert job.nodes == ("algo-1",)
    assert job.span_us == (events.BASE_US, events.BASE_US + 49_010)
    (source,) = quality.sources
    assert (source.files, source.rows) == (2, 50)
    counts = {(one.code, one.unit): one.count for one in source.remarks}
    assert counts["times.implausible", "events"] == 50


@pytest.mark.usefixtures("_apart")
def test_events_from_before_a_clock_was_set_are_dropped(tmp_path: Path) -> None:
    rows = [events.x(ts=i * 1000) for i in range(200)]
    wrong = events.BASE_US - 400 * events.DAY_US
    other = trace("algo-1").replace("60000000", "70000000")
    files = {trace("algo-1"): [events.base(), *rows], other: [events.base(wrong), rows[0]]}
    events.write(tmp_path, {name: events.text(some) for name, some in files.items()})

    job, quality = read_job(tmp_path, strict=True)

    assert job.nodes == ("algo-1",)
    (remark,) = quality.sources[0].remarks
    assert (remark.action, remark.count) == ("dropped", 1)


@pytest.mark.usefixtures("_apart")
def test_files_that_name_a_machine_of_other_files_are_read_with_them(tmp_path: Path) -> None:
    """The file's name says algo-2, its lines say algo-1: both files' samples are of one machine."""
    other = FILE.replace("algo-1", "algo-2")
    lines = [sample(i, at=1_700_000_041 + i) for i in range(10)]
    write(tmp_path, {FILE: lines[::2], other: [*lines[1::2], lines[0]]})

    job, quality = read_job(tmp_path, strict=True)

    assert job.nodes == ("algo-1",)
    assert values(job) == [[float(i)] for i in range(10)]
    (source,) = quality.sources
    assert (source.files, source.rows) == (2, 10)
    # That it stands in both files can only be seen by whoever reads both.
    assert remarks(quality)["exact repetition of another sample"].count == 1


@pytest.mark.usefixtures("_apart")
def test_what_is_left_out_is_added_up_over_machines(tmp_path: Path) -> None:
    files = {FILE.replace("algo-1", f"algo-{i}"): [sample(1, node=f"algo-{i}"), "{", "{"] for i in (1, 2, 3)}
    write(tmp_path, files)

    _, quality = read_job(tmp_path, strict=True)

    (source,) = quality.sources
    (remark,) = source.remarks
    assert (source.files, source.rows, remark.count) == (3, 3, 6)
    assert remark.place == f"{FILE}:2"


@pytest.mark.parametrize("together", [1, 64])
def test_the_most_frequent_unknown_sensors_of_all_machines_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    monkeypatch.setattr(grouping, "_GROUP_NODES", together)

    def lines(node: str, counts: dict[str, int]) -> list[str]:
        return [
            sample(i, node=node, kind="tpu", name=name, at=1_700_000_041 + i)
            for name, count in counts.items()
            for i in range(count)
        ]

    first = dict.fromkeys((f"s{i}" for i in range(9)), 3) | {"zz": 1}
    files = {
        FILE: [sample(), *lines("algo-1", first)],
        FILE.replace("1.json", "2.json"): lines("algo-2", {"zz": 5}),
    }
    write(tmp_path, files)

    _, quality = read_job(tmp_path, strict=True)

    counts = {reason.split()[-1]: one.count for reason, one in remarks(quality).items()}
    assert counts == {"zz": 6, "sensors": 6} | dict.fromkeys((f"s{i}" for i in range(7)), 3)
