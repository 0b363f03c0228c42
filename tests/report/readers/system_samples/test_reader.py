from __future__ import annotations

import gzip
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobreport.readers.base import SourceFile
from jobreport.readers.registry import read_directory, read_job
from jobreport.readers.system_samples import reader as sample_reader
from jobreport.remarks import Quality
from jobreport.tables.engine import LocalEngine
from jobrules.measures.snapshots import MOST_CELLS
from jobrules.model import Metric
from tests.report.readers.samples import (
    FILE,
    HOUR,
    METRICS,
    T0,
    read,
    remarks,
    sample,
    slow_tables,
    tables,
    values,
    write,
)

# Where files lie and what they are called


@pytest.mark.parametrize(
    "name",
    [
        FILE,
        "system/incremental/1700000100.algo-1.json",
        f"profiler-output/{FILE}",
        f"a/b/c/{FILE}",
        "1700000100.algo-1.json",
        "1700000100123456.my.host-7.json",
        "samples.jsonl",
        "anything at all.json",
        f"{HOUR}/1700000100.al[3]go-*?.json",
        "[3]/{a,b}/1700000100.algo-1.json",
        "Type=gpu/NodeId=x/1700000100.algo-1.json",
        "back\\slash[1]/1700000100.algo-1.json",
        "üñ/1700000100.\N{SNOWMAN}.json",
        "new\nline/1700000100.algo-1.json",
        "quote'\".json",
    ],
)
def test_a_file_is_known_by_its_name_or_its_first_line_wherever_it_lies(tmp_path: Path, name: str) -> None:
    job, quality = read(tmp_path, {name: [sample(10)]})

    assert values(job) == [[10.0]]
    assert quality.sources[0].files == quality.sources[0].rows == 1
    assert not remarks(quality)


@pytest.mark.parametrize("name", [f"{FILE}.gz", "samples.json.gz", "x.jsonl.gz"])
def test_compressed_files_are_read(tmp_path: Path, name: str) -> None:
    text = gzip.compress(sample(10).encode() + b"\n") + gzip.compress(sample(20, at=T0 + 1).encode())

    job, quality = read(tmp_path, {name: text})

    assert values(job) == [[10.0], [20.0]]
    assert not remarks(quality)


def test_a_file_name_that_is_not_utf8_is_read_and_shown_with_escapes(tmp_path: Path) -> None:
    name = b"1700000100.\xff.json".decode("utf-8", "surrogateescape")
    write(tmp_path, {name: [sample(10), "?"]})

    job, quality = read_job(tmp_path)

    assert values(job) == [[10.0]]
    assert remarks(quality)["not complete JSON"].place == "1700000100.\\xff.json:2"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("1700000100.host.pt.trace.json", "{}"),
        ("rules/Other.json", '{\n "RuleTriggered": 0\n}'),
        ("one-line.json", '{"Type": "x", "Value": 1}'),
        ("list.json", f"[{sample()}]"),
        ("cut.json.gz", b"\x1f\x8b\x08"),
        ("empty.json", ""),
        ("number.json", "9" * 5000),
        ("deep.json", "[" * 100_000),
        ("bytes.json", b"\xff\xfe\x00"),
        ("1700000100.algo-1.csv", sample()),
        ("a-line-each.json", f"[\n{sample()},\n{sample()},\n{sample()}\n]"),
        ("others.jsonl", '{"Type": "x"}\n' * 9 + sample()),
        ("cut.jsonl.gz", gzip.compress(b"?\n" * 9, mtime=0)[:-9]),
    ],
)
def test_files_of_other_kinds_are_left_alone(tmp_path: Path, name: str, content: str | bytes) -> None:
    job, quality = read(tmp_path, {FILE: [sample(10)], name: content})

    assert values(job) == [[10.0]]
    (remark,) = quality.remarks
    assert (remark.count, remark.unit, remark.place) == (1, "files", name)
    assert not quality.sources[0].remarks


# What a sample may look like


@pytest.mark.parametrize("value", [37, 37.0, "37", " 37.0 "])
@pytest.mark.parametrize("at", [1_700_000_100, 1_700_000_100.0, "1700000100"])
def test_numbers_may_be_whole_or_strings(tmp_path: Path, value: object, at: object) -> None:
    job, quality = read(tmp_path, {FILE: [sample(value, at=at)]})

    assert values(job) == [[37.0]]
    assert job.panels[0].time_us.tolist() == [1_700_000_100_000_000]
    assert not remarks(quality)


@pytest.mark.parametrize("without", ["Name", "NodeId"])
def test_name_and_machine_may_be_missing(tmp_path: Path, without: str) -> None:
    job, quality = read(tmp_path, {f"{HOUR}/1700000100.my.host.json": [sample(10, without=without)]})

    assert job.panels[0].devices == ("gpu" if without == "Name" else "gpu0",)
    assert job.panels[0].node == ("my.host" if without == "NodeId" else "algo-1")
    assert not remarks(quality)


def test_every_sensor_of_the_catalog_has_its_metric(tmp_path: Path) -> None:
    lines = [
        sample(i + 1, kind=kind, dimension=dimension, name=name or f"{kind}3")
        for i, (kind, dimension, name) in enumerate(METRICS)
    ]

    job, quality = read(tmp_path, {FILE: lines})

    assert {p.metric: (p.devices, p.values.item()) for p in job.panels} == {
        metric: ((DEVICE.get(kind, f"{kind}3"),), i + 1)
        for i, ((kind, _, _), metric) in enumerate(METRICS.items())
    }
    assert [p.metric for p in job.panels] == [metric for metric in Metric if metric in METRICS.values()]
    assert quality.sources[0].rows == len(METRICS)


DEVICE = {"memory": "memory", "network": "network", "i/o": "disk"}


def test_devices_come_in_natural_order_and_nodes_too(tmp_path: Path) -> None:
    lines = [sample(1, name=f"gpu{i}", node=f"algo-{n}") for i in (10, 2, 0) for n in (10, 9)]

    job, _ = read(tmp_path, {FILE: lines})

    assert job.nodes == ("algo-9", "algo-10")
    assert [p.node for p in job.panels] == ["algo-9", "algo-10"]
    assert job.panels[0].devices == ("gpu0", "gpu2", "gpu10")


def test_families_sampled_some_milliseconds_apart_share_their_snapshot(tmp_path: Path) -> None:
    lines = [
        line
        for tick in range(3)
        for line in (
            sample(1, at=T0 + tick * 0.5 + 0.013),
            sample(2, at=T0 + tick * 0.5, kind="cpu", name="cpu0", dimension="CPUUtilization"),
        )
    ]

    job, _ = read(tmp_path, {FILE: lines[:-2] + lines[-1:]})

    gpu, cpu = job.panels
    assert gpu.snapshot.tolist() == [0, 1]
    assert cpu.snapshot.tolist() == [0, 1, 2]
    assert gpu.time_us[0] - cpu.time_us[0] == 13_000


# Damage


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("garbage", "not complete JSON"),
        (sample()[:-20], "not complete JSON"),
        ("\0\0\0", "not complete JSON"),
        (f"[{sample()}]", "not a JSON object"),
        ("42", "not a JSON object"),
        ('{"a":' * 100_000, "not complete JSON"),
        ('{"Value":' + "[" * 5000 + "]" * 5000 + "}", "not complete JSON"),
        (sample(without="Type"), "no usable value of key 'Type'"),
        (sample(without="Timestamp"), "no usable value of key 'Timestamp'"),
        *((sample(value), "no usable value of key 'Value'") for value in (None, "much", [1], True, False)),
        (sample(at="noon"), "no usable value of key 'Timestamp'"),
        (sample(at=float("nan")), "'Timestamp' is not a time in seconds between 1990 and 2100"),
        (sample(at=float("-inf")), "'Timestamp' is not a time in seconds between 1990 and 2100"),
        (sample(at=0), "'Timestamp' is not a time in seconds between 1990 and 2100"),
        (sample(at=1_700_000_100_000_000), "'Timestamp' is not a time in seconds between 1990 and 2100"),
    ],
)
def test_a_bad_line_costs_itself_and_is_counted_with_its_place(
    tmp_path: Path, line: str, reason: str
) -> None:
    lines = [sample(1), "", line, "  ", sample(2, at=T0 + 1), line]

    job, quality = read(tmp_path, {FILE: lines})

    assert values(job) == [[1.0], [2.0]]
    assert {r.reason: (r.action, r.count, r.unit, r.place) for r in remarks(quality).values()} == {
        reason: ("skipped", 2, "lines", f"{FILE}:3")
    }


def test_bytes_that_are_no_text_cost_their_line(tmp_path: Path) -> None:
    text = b"\n".join((sample(1).encode(), sample(2, name="X").encode().replace(b"X", b"\xff"), b"\xfe\xff"))

    job, quality = read(tmp_path, {FILE: text})

    assert values(job) == [[1.0]]
    assert remarks(quality)["not UTF-8 text"].count == 2


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), "NaN", "inf"])
def test_values_that_are_not_finite_are_dropped(tmp_path: Path, value: object) -> None:
    job, quality = read(tmp_path, {FILE: [sample(1), sample(value, at=T0 + 1), sample(2, at=T0 + 2)]})

    assert values(job) == [[1.0], [2.0]]
    remark = remarks(quality)["value is NaN or infinite"]
    assert (remark.action, remark.count, remark.unit, remark.place) == (
        "dropped",
        1,
        "samples",
        f"{FILE}:2",
    )


def test_percentages_are_clamped_and_rates_may_not_be_negative(tmp_path: Path) -> None:
    lines = [
        *(sample(v, at=T0 + i) for i, v in enumerate([-19.61, 101, 0, 100, -0.0])),
        *(
            sample(v, at=T0 + i, kind="i/o", dimension="", name="IOPS")
            for i, v in enumerate([-5, 1e9, 1.7e308])
        ),
    ]

    job, quality = read(tmp_path, {FILE: lines})

    assert values(job) == [[0.0], [100.0], [0.0], [100.0], [0.0]]
    assert not np.signbit(job.panels[0].values).any()
    assert values(job, Metric.DISK_OPERATIONS) == [[0.0], [1e9], [1e15]]
    assert {r.reason: (r.action, r.count, r.place) for r in remarks(quality).values()} == {
        "percentage outside 0 to 100, set to the nearer bound": ("corrected", 2, FILE),
        "value outside 0 to 10^15, set to the nearer bound": ("corrected", 2, FILE),
    }


def test_exact_repetitions_are_dropped_also_between_files(tmp_path: Path) -> None:
    lines = [sample(i % 3, at=T0 + i, name=f"gpu{g}") for i in range(5) for g in range(2)]

    job, quality = read(tmp_path, {FILE: lines, f"copy/{FILE}": [*lines, lines[0]]})

    assert values(job) == [[i % 3] * 2 for i in range(5)]
    assert remarks(quality)["exact repetition of another sample"].count == 11
    assert quality.sources[0].rows == 10
    assert quality.sources[0].files == 2


def test_of_two_values_in_one_snapshot_the_first_and_then_the_smaller_is_used(tmp_path: Path) -> None:
    lines = [sample(50, at=T0 + 0.02), sample(9), sample(8), sample(8), sample(1, at=T0 + 0.021)]

    job, quality = read(tmp_path, {FILE: lines})

    assert values(job) == [[8.0], [1.0]]
    assert remarks(quality)["second value of a device in the same snapshot"].count == 2
    assert remarks(quality)["exact repetition of another sample"].count == 1


def test_sensors_that_are_not_known_are_dropped_by_name(tmp_path: Path) -> None:
    lines = [
        sample(1),
        *(sample(i, at=T0 + i, dimension="Temperature") for i in range(3)),
        sample(kind="tpu"),
    ]

    job, quality = read(tmp_path, {FILE: lines})

    assert values(job) == [[1.0]]
    assert {r.reason: (r.action, r.count, r.place) for r in remarks(quality).values()} == {
        "unknown sensor gpu Temperature gpu0": ("dropped", 3, FILE),
        "unknown sensor tpu GPUUtilization gpu0": ("dropped", 1, FILE),
    }


def test_many_unknown_sensors_share_a_remark(tmp_path: Path) -> None:
    lines = [sample(1), *(sample(1, kind=f"x{i:03}") for i in range(100))]

    _, quality = read(tmp_path, {FILE: lines})

    assert len(remarks(quality)) == 9
    assert remarks(quality)["other unknown sensors"].count == 92


HOSTILE = ["</script><script>alert(1)</script>", "\x1b[31m\r\n\0", "\u202egpu", "x" * 1_000_000, "\ud800"]


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("key", ["kind", "dimension", "name", "node"])
def test_hostile_text_stays_short_and_printable(tmp_path: Path, text: str, key: str) -> None:
    hostile = sample(5, **{key: text})

    job, quality = read(tmp_path, {FILE: [sample(1), hostile, sample(2, at=T0 + 1)]})

    gpu = next(panel for panel in job.panels if panel.node == "algo-1")
    assert gpu.values[0][gpu.devices.index("gpu0")] == 1.0
    if key in ("name", "node") and "\ud800" not in text:
        assert sum(np.isfinite(panel.values).sum() for panel in job.panels) == 3
    texts = [p.node for p in job.panels] + [d for p in job.panels for d in p.devices] + list(remarks(quality))
    assert all(len(t) < 260 and t.isprintable() for t in texts)


def test_a_machine_has_fewer_gpus_than_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobreport.readers.system_samples.reader.MAX_GPUS", 2)
    monkeypatch.setattr("jobreport.readers.system_samples.reader._MAX_DEVICES", 4)
    kinds = [("gpu", "GPUUtilization"), ("gpu", "GPUMemoryUtilization"), ("cpu", "CPUUtilization")]
    lines = [sample(1, kind=k, dimension=d, name=f"d{i}") for k, d in kinds for i in range(5)]

    job, quality = read(tmp_path, {FILE: lines})

    assert [len(panel.devices) for panel in job.panels] == [2, 2, 4]
    assert remarks(quality)["more than 2 devices of one node"].count == 6
    assert remarks(quality)["more than 4 devices of one node"].count == 1


def test_a_panel_that_would_be_nearly_empty_keeps_the_devices_with_most_samples(tmp_path: Path) -> None:
    sound = [sample(10, name="gpu0", at=T0 + i) for i in range(50)]
    lone = [sample(10, name=f"gpu{1 + i}", at=T0 + i + 0.5) for i in range(400)]

    job, quality = read(tmp_path, {FILE: [*lone, *sound]})

    kept = sum(int(np.isfinite(panel.values).sum()) for panel in job.panels)
    reason = f"nearly every sample has a time of its own; the {MOST_CELLS} devices with most samples are used"
    assert len(job.panels[0].devices) == MOST_CELLS
    assert kept == quality.sources[0].rows == 50 + MOST_CELLS - 1
    assert remarks(quality)[reason].count == 400 - (MOST_CELLS - 1)


@pytest.mark.parametrize("tail", [b"\0" * 100, b"junk"])
def test_what_follows_compressed_data_does_no_harm(tmp_path: Path, tail: bytes) -> None:
    job, _ = read(tmp_path, {f"{FILE}.gz": gzip.compress(sample(10).encode()) + tail})

    assert values(job) == [[10.0]]


def test_a_file_that_is_compressed_or_not_despite_its_name_is_read(tmp_path: Path) -> None:
    zipped = gzip.compress("\n".join([sample(1), sample(2, at=T0 + 1)]).encode())

    job, quality = read(tmp_path, {FILE: zipped, "1700000160.algo-1.json.gz": [sample(3, at=T0 + 2)]})

    assert values(job) == [[1.0], [2.0], [3.0]]
    assert not remarks(quality)


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_line_ends_of_other_systems_are_read(tmp_path: Path, line_end: str) -> None:
    text = line_end.join([sample(1), "", sample(2, at=T0 + 1)])

    job, quality = read(tmp_path, {FILE: text.encode()})

    assert values(job) == [[1.0], [2.0]]
    assert not remarks(quality)


@pytest.mark.parametrize("content", [b"", b"\n\n  \n"])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_an_empty_file_is_counted(tmp_path: Path, content: bytes, suffix: str) -> None:
    content = gzip.compress(content) if suffix and content else content

    job, quality = read(tmp_path, {FILE + suffix: content, "1700000160.algo-1.json": [sample(2)]})

    assert values(job) == [[2.0]]
    assert remarks(quality)["empty"].place == FILE + suffix
    assert quality.sources[0].files == 1


def test_a_file_that_disappears_costs_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "1700000160.algo-1.json"
    write(tmp_path, {FILE: [sample(1)], gone.name: [sample(2)]})
    begin = sample_reader._batches

    def late(files: Sequence[SourceFile]) -> Iterator[list[int]]:
        gone.unlink()
        return begin(files)

    monkeypatch.setattr(sample_reader, "_batches", late)

    job, quality = read_job(tmp_path)

    assert values(job) == [[1.0]]
    assert remarks(quality)["cannot be read: No such file or directory"].place == gone.name


# What must not matter

TIMES = st.integers(0, 200).map(lambda i: 1_700_000_100 + i * 0.006)
VALUES = st.one_of(
    st.integers(-5, 105), st.floats(-200, 200), st.sampled_from(["7", "x", float("nan"), float("inf"), None])
)
LINES = st.builds(
    lambda sensor, device, at, value, node: sample(
        value, at=at, node=node, kind=sensor[0], dimension=sensor[1], name=sensor[2] or f"{sensor[0]}{device}"
    ),
    st.sampled_from([*METRICS, ("fan", "Speed", "fan0")]),
    st.integers(0, 3),
    TIMES,
    VALUES,
    st.sampled_from(["algo-1", "algo-2"]),
)


@given(
    st.lists(st.one_of(LINES, st.sampled_from(["", "garbage", sample()[:50], "[]"])), max_size=60),
    st.randoms(use_true_random=False),
    st.integers(1, 4),
)
def test_order_of_lines_and_split_into_files_do_not_matter(
    lines: list[str], rng: random.Random, parts: int
) -> None:
    lines = [*lines, sample(1)]
    shuffled = rng.sample(lines, len(lines))
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        job, quality = read(Path(one), {FILE: lines})
        again, same = read(
            Path(two), {f"{HOUR}/170000016{i}.h.json": shuffled[i::parts] for i in range(parts)}
        )

    assert tables(job) == tables(again) == slow_tables(lines)
    assert counts(quality) == counts(same)
    left_out = sum(r.count for r in remarks(quality).values() if r.action != "corrected")
    assert quality.sources[0].rows + left_out == sum(bool(line) for line in lines)
    for a, b in zip(job.panels, again.panels, strict=True):
        assert (a.node, a.metric, a.devices, a.last_us) == (b.node, b.metric, b.devices, b.last_us)
        assert a.values.tobytes() == b.values.tobytes()
        assert a.snapshot.tolist() == b.snapshot.tolist()


def counts(quality: Quality) -> list[tuple[str, int]]:
    return sorted((reason, r.count) for reason, r in remarks(quality).items() if reason != "empty")


def test_both_ways_of_reading_and_many_batches_give_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(2)
    lines = [
        sample(rng.random() * 100, at=T0 + i // 8 + rng.random() / 100, name=f"gpu{i % 8}")
        for i in range(20_000)
    ]
    files = {f"{HOUR}/{1_700_000_000 + i}.algo-1.json": lines[i::20] for i in range(20)}
    write(tmp_path, {**files, "big.json": lines})
    expected = slow_tables(lines)

    for by_lines, batch in ((False, 1 << 30), (False, 100_000), (True, 1 << 30), (True, 100_000)):
        if by_lines:
            monkeypatch.setattr("jobreport.readers.system_samples.text.SoundFiles.rows", lambda *_: None)
        monkeypatch.setattr(sample_reader, "_BATCH_BYTES", batch)
        job, quality = read_job(tmp_path)
        assert tables(job) == expected
        assert quality.sources[0].files == 21
        assert remarks(quality)["exact repetition of another sample"].count == 20_000


@pytest.mark.skipif(sys.platform != "linux", reason="used on Linux only")
def test_several_processes_find_the_same_and_remark_on_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = ["garbage", sample(120), sample(-3), sample(1, kind="fan", dimension="Speed", name="fan0")]
    for i in range(9):
        lines = [sample(i, at=T0 + i), sample(i, at=T0 + i), *(odd if i in (4, 7, 8) else [])]
        write(tmp_path, {f"{HOUR}/{1_700_000_000 + i}.algo-1.json": lines})
    expected, quality = read_job(tmp_path)
    monkeypatch.setattr("jobreport.tables.forked.WORTH_PROCESS", 1)

    for processes in (2, 3):
        monkeypatch.setattr("os.cpu_count", lambda count=processes: count)
        with LocalEngine() as engine:
            shared = read_directory(tmp_path, engine=engine)
            assert tables(shared.job) == tables(expected)
            assert shared.quality == quality
    places = {str(one.place).partition(":")[0] for one in remarks(quality).values() if one.place}
    assert places == {f"{HOUR}/1700000004.algo-1.json"}


@pytest.mark.parametrize("count", [2, 300])
def test_samples_of_another_decade_do_not_stretch_the_job(tmp_path: Path, count: int) -> None:
    lines = [sample(5, at=1_700_000_041 + i) for i in range(count)]
    lines += [sample(5, at=s) for s in (650_000_000, 4_000_000_000)]

    job, quality = read(tmp_path, {FILE: lines})

    assert job.samples_us == (1_700_000_041_000_000, (1_700_000_040 + count) * 1_000_000)
    (remark,) = quality.sources[0].remarks
    assert (remark.code, remark.count) == ("times.implausible", 2)


def test_times_are_compared_with_the_samples_of_the_node_alone(tmp_path: Path) -> None:
    """A node whose clock is a year late keeps its samples, but not those from after the clock was set."""
    year = 365 * 86_400
    lines = [sample(5, at=T0 + i) for i in range(900)]
    late = [sample(5, at=T0 - year + i, node="algo-2") for i in range(300)]
    set_later = [sample(5, at=T0 + i, node="algo-2") for i in range(2)]

    job, quality = read(tmp_path, {FILE: [*lines, *late, *set_later]})

    assert tables(job) == slow_tables([*lines, *late])
    (remark,) = quality.sources[0].remarks
    assert (remark.code, remark.count, remark.unit) == ("times.implausible", 2, "samples")
    assert quality.sources[0].rows == 1200
