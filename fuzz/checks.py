"""What must hold for each reader, whatever bytes it is given: the functions that ``fuzz.targets`` calls.

A check takes the bytes of a file, or of several, and raises for what must not be. Each has seeds, sound files that
are damaged, and regressions in ``fuzz/corpus``.
"""

from __future__ import annotations

import gzip
import io
import json
import marshal
import math
import re
import shutil
import tarfile
import tempfile
import time
import zipfile
from collections import Counter
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

import msgspec
import numpy as np
from generator.job import JobSpec
from generator.scenarios import SCENARIOS
from generator.smi_log import DIALECTS, log_files

from fuzz import hostile, sample_rows_reference
from fuzz.bases import bases
from fuzz.mutations import applied, steps
from fuzz.sample_rows_reference import unpacked
from jobreport import document
from jobreport.build import report_of
from jobreport.errors import NothingReadableError
from jobreport.files import REPORT
from jobreport.readers import archive, text_files
from jobreport.readers.base import Found, Reader, SourceFile
from jobreport.readers.debugger_results import rule_results
from jobreport.readers.kineto import text as kineto_text
from jobreport.readers.kineto.reader import Kineto
from jobreport.readers.learning import joining
from jobreport.readers.learning.reader import TrainingLogs
from jobreport.readers.nvidia_smi import lines as smi_lines
from jobreport.readers.nvidia_smi.reader import NvidiaSmi
from jobreport.readers.profiler_config.reader import ProfilerConfig
from jobreport.readers.python_profiles import marshalled
from jobreport.readers.python_profiles.function_times import of_tree, pyinstrument_session
from jobreport.readers.python_profiles.reader import PythonProfiles
from jobreport.readers.python_stacks.reader import PythonStacks
from jobreport.readers.recorder_facts.reader import RecorderFacts
from jobreport.readers.registry import Reading
from jobreport.readers.saved_tensors.reader import SavedTensors
from jobreport.readers.scalar_files.reader import MetricTables, TrainerStates
from jobreport.readers.system_samples.reader import SystemSamples
from jobreport.readers.system_samples.text import SoundFiles
from jobreport.readers.tally import Tally, UnusableError
from jobreport.readers.tensorboard.reader import TensorBoard
from jobreport.readers.traces import rows as trace_rows
from jobreport.readers.traces.reader import Traces
from jobreport.remarks import Quality, Remark
from jobreport.settings import Settings
from jobreport.storage import manifest
from jobreport.storage.fetching import places
from jobreport.tables.engine import LocalEngine
from jobreport.tables.parts import JobInParts
from jobrules import RULES
from jobrules.analyses.code_lines import code_lines
from jobrules.captures.across import joined
from jobrules.model import JobInMemory
from jobrules.text import NBSP
from tests.event_writer import CONSTANT, START_S, event, field, record, saved, scalar, tensor, tensor_value
from tests.kineto import Recording, adds_up
from tests.report.readers.nvidia_smi.forms import FORMS, contents

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from jobreport.document import Report
    from jobreport.readers.debugger_results.rule_results import RuleResults
    from jobrules.model.learning import Learning
    from jobrules.rule import Rule


CORPUS = Path(__file__).parent / "corpus"
#: Seconds of processor time that a check may take, seconds after which it is ended, and bytes of the longest input.
MOST_S, TIMEOUT_S = 20.0, 30
LONGEST = 1 << 13
#: Bytes of text of which rows are counted again, which takes the square of it; a short compressed input may hold more.
_COUNTED = 1 << 17
#: Bytes of a line-oriented seed: enough for each kind of row.
_SEED = 2500

_SAMPLES = "system/incremental/2023111422/1700000040.algo-1.json"
_LOG = "gpu.log"
_TRACE = "framework/pevents/2023111422/1700000060000000_33-algo-1_pythontimeline.json"
_CAPTURE = "rank-0.pt.trace.json"
_STEP = "framework/tensorflow/detailed_profiling/2023111422/5"
#: Names that the traces of one input have, by its first byte; between files stands ``_NEXT``.
_TRACES = (
    (_TRACE, _TRACE.replace("33", "34"), f"copy/{_TRACE}"),
    (_TRACE.replace("python", "horovod_").replace("horovod_timeline", "horovod_timeline"), _TRACE),
    ("horovod_timeline_raw.json", "job_merged_timeline.json"),
    ("job_merged_timeline.json", "b_merged_timeline.json"),
    (_TRACE, f"{_STEP}/plugins/profile/x/algo-1.trace.json.gz"),
    (f"{_STEP}/plugins/profile/2023_11_14_22_13_20/algo-1.trace.json", _TRACE + ".gz"),
    (_TRACE.replace("python", "model_"), _TRACE.replace("33", "7").replace("python", "smdataparallel_")),
    ("framework/1700000060000000_33-algo-1_other.json", "framework/33-algo-1_pythontimeline.tmp"),
)
_NEXT = b"\0next file\0"
_PROFILE = (
    "framework/pytorch/{0}/33-algo-1/train-9-stepstart-1700000123456789.0_train-9-stepend-1700000124000001.5"
)
_LIMIT = 1 << 20


class Target(NamedTuple):
    """A reader under test."""

    check: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]


def inputs(name: str) -> list[bytes]:
    """The seeds of a target and the regressions of it."""
    return [*TARGETS[name].seeds(), *(path.read_bytes() for path in sorted((CORPUS / name).glob("*")))]


def damaged(name: str, numbers: Iterable[int]) -> Iterator[bytes]:
    """Inputs for a target: its seeds, and as many with damage as there are numbers, the same for the same number."""
    seeds = inputs(name)
    yield from seeds
    for number in numbers:
        data = seeds[number % len(seeds)]
        for step in steps(number):
            data = next(iter(applied({"file": data}, step).values()), b"")
        yield data[:LONGEST]


def check(name: str, data: bytes) -> None:
    """Check one input, and that it takes no longer than it may."""
    begin = time.process_time()
    TARGETS[name].check(data)
    took = time.process_time() - begin
    assert took < MOST_S, f"{took:.0f} s"


# What they share


@cache
def _folder() -> Path:
    """A folder in memory where there is one."""
    memory = Path("/dev/shm")  # noqa: S108 - a folder below it is made for this process alone
    keeper = tempfile.TemporaryDirectory(prefix="fuzz-", dir=memory if memory.is_dir() else None)
    _KEPT.append(keeper)
    return Path(keeper.name)


_KEPT: list[tempfile.TemporaryDirectory[str]] = []


def _written(files: Mapping[str, bytes]) -> list[SourceFile]:
    """The files of a job, written; those of the one before are gone."""
    shutil.rmtree(_folder() / "job", ignore_errors=True)
    found = []
    for name, content in files.items():
        path = _folder() / "job" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        found.append(SourceFile(name=name, place=str(path), size=len(content)))
    return found


def _read(reader: Reader, files: Sequence[SourceFile]) -> Found:
    return reader.read([file for file in files if reader.matches_name(file) or reader.matches_content(file)])


def _comparable(value: object) -> Any:
    """A value as something that can be compared, NaN too."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, msgspec.Struct):
        return [_comparable(getattr(value, name)) for name in value.__struct_fields__]
    if isinstance(value, tuple | list):
        return [_comparable(one) for one in value]
    return getattr(value, "__dict__", None) or repr(value)


def _count(remarks: Sequence[Remark], *units: str) -> int:
    return sum(one.count for one in remarks if one.unit in units and one.action in ("skipped", "dropped"))


def _assert_printable(texts: Sequence[str]) -> None:
    for one in texts:
        assert one.replace(NBSP, " ").isprintable(), one


# Samples


def _check_samples(data: bytes) -> None:
    files = _written({_SAMPLES: data})
    found = _read(SystemSamples(), files)
    with mock.patch.object(SoundFiles, "rows", return_value=None):
        by_lines = _read(SystemSamples(), files)
    assert _comparable(found) == _comparable(by_lines)
    expected = sample_rows_reference.rows({_SAMPLES: data}, with_far=True)
    assert found.quality.rows == expected.kept, (found.quality, expected)
    left_out = _count(found.quality.remarks, "lines", "samples")
    assert found.quality.rows + left_out == expected.rows, (found.quality, expected)


# Logs


def _check_log(data: bytes) -> None:
    files = _written({_LOG: data})
    found = _read(NvidiaSmi(), files)
    assert _comparable(found) == _comparable(_read(NvidiaSmi(), files))
    with mock.patch.object(smi_lines, "_PIECE", 100):
        in_blocks = _read(NvidiaSmi(), files)
    for panel in found.panels:
        assert (np.diff(panel.time_us) > 0).all()
        assert (np.diff(panel.snapshot) > 0).all()
        known = ~np.isnan(panel.values)
        assert known.any(axis=0).all()
        assert known.any(axis=1).all()
        assert (panel.values[known] >= 0).all()
        assert np.isfinite(panel.values[known]).all()
    assert in_blocks.quality.rows == found.quality.rows
    _assert_printable(
        [*(panel.node for panel in found.panels), *(d for p in found.panels for d in p.devices)]
    )


# Traces


def _check_trace(data: bytes) -> None:
    _check_files({_TRACE: data})


def _check_traces(data: bytes) -> None:
    names = _TRACES[data[0] % len(_TRACES) if data else 0]
    parts = data[1:].split(_NEXT)
    files = dict(zip(names, parts, strict=False))
    _check_files(
        {
            name: gzip.compress(text, 1, mtime=0) if name.endswith(".gz") else text
            for name, text in files.items()
        }
    )


def _check_files(files: Mapping[str, bytes]) -> None:
    reader = Traces()
    written = _written(files)
    mine = [file for file in written if reader.matches_name(file) or reader.matches_content(file)]
    found = reader.read(mine)
    if sum(len(unpacked(content)) for content in files.values()) > _COUNTED:
        return
    with mock.patch.multiple(trace_rows, _BLOCK=64, text_files=_SMALL):
        in_blocks = reader.read(mine)
    assert _comparable(found) == _comparable(in_blocks), "small blocks and large ones differ"
    assert found.quality.rows == len(found.events)
    assert (found.events.start_us <= found.events.end_us).all()
    if len(mine) == 1 and (rows := _rows(unpacked(next(iter(files.values()))))) is not None:
        left_out = _count(found.quality.remarks, "rows", "lines")
        assert found.quality.rows + left_out == rows, (found.quality, rows)


def _rows(data: bytes) -> int | None:
    """Rows of a sound trace but those that name lanes, and the ends of others; None if it is not sound or has phases."""
    rows = _values(data)
    if rows is None or any(row.get("ph") in ("B", "E") for row in rows):
        return None
    return len([row for row in rows if row.get("ph") != "M"])


def _in_pieces(path: Path) -> Iterator[bytes]:
    """The text in small pieces."""
    for chunk in text_files.chunks(path):
        yield from (chunk[at : at + 100] for at in range(0, len(chunk), 100))


_SMALL = SimpleNamespace(
    chunks=_in_pieces, DamagedError=text_files.DamagedError, TooLargeError=text_files.TooLargeError
)


# Traces of PyTorch's profiler


def _check_kineto(data: bytes) -> None:
    files = _written({_CAPTURE: data})
    Kineto().matches_content(files[0])
    found = Kineto().read(files)
    captures, across = joined(found.captures, found.communication)
    msgspec.json.encode((captures, across))
    assert all(adds_up(device) for one in captures for device in one.devices)
    tally = Tally()
    text = kineto_text.TraceText(files[0], tally)
    decoded = sum(map(len, text.events()))
    left_out = _count([one for one in found.quality.remarks if one.code != "kineto.dropped"], "events")
    # A file without a single usable event is no capture.
    if found.captures:
        assert found.quality.rows + left_out == text.count, (found.quality, text.count)
    assert decoded + _count(tally.remarks(), "events") == text.count
    sound = _values(data)
    if sound is not None:
        assert text.count == len(sound), (text.count, len(sound), found.quality)


def _values(data: bytes) -> list[dict[str, Any]] | None:
    """The events of a trace; None where it is no JSON, holds other values, or says twice where they are."""
    try:
        # Bytes would be read as UTF-16, too, which no writer of traces uses.
        whole = json.loads(data.decode("utf-8-sig", "surrogatepass"))
    except (ValueError, RecursionError):
        return None
    if isinstance(whole, dict) and data.count(b"traceEvents") == 1 and b"\\" not in data:
        whole = whole.get("traceEvents")
    return whole if isinstance(whole, list) and all(isinstance(one, dict) for one in whole) else None


# Profiles of Python code


def _check_cprofile(data: bytes) -> None:
    found = _profiles(f"{_PROFILE.format('cprofile')}/python_stats", data)
    for profile in found.profiles:
        entries = marshalled.loads(_unwrapped(data))
        assert isinstance(entries, list)
        assert profile.count + _count(found.quality.remarks, "functions") == len(entries)


def _check_pyinstrument(data: bytes) -> None:
    found = _profiles(f"{_PROFILE.format('pyinstrument')}/python_stats.json", data)
    try:
        session = pyinstrument_session(_unwrapped(data))
    except UnusableError:
        assert not found.profiles
        return
    spent = of_tree(session["root_frame"], Counter())
    assert all(math.isfinite(one.self_s) and one.self_s >= 0 for one in spent.values())


def _profiles(name: str, data: bytes) -> Found:
    found = _read(PythonProfiles(), _written({name: data}))
    assert len(found.profiles) + _count(found.quality.remarks, "files") == 1
    for profile in found.profiles:
        assert 0 <= profile.self_s < math.inf
        assert profile.start_us <= profile.end_us
        _assert_printable([text for one in profile.functions for text in (one.file, one.name)])
        msgspec.json.encode(profile)
    return found


def _unwrapped(data: bytes) -> bytes:
    return unpacked(data).removeprefix(b"\xef\xbb\xbf")


# What stands around the job


def _check_config(data: bytes) -> None:
    found = _read(ProfilerConfig(), _written({"profilerconfig.json": data}))
    assert found.quality.files + _count(found.quality.remarks, "files") == 1
    _assert_printable(found.recorded)


def _check_stacks(data: bytes) -> None:
    found = _read(PythonStacks(), _written({"pythonstacks/0-n/1.jsonl": data}))
    assert found.quality.files + _count(found.quality.remarks, "files") >= 1
    for one in found.stacks:
        _assert_printable([text for frame in one.frames for text in (frame.file, frame.function)])
        assert (one.parent < np.arange(len(one.parent))).all()
        assert ((one.frame >= 0) & (one.frame < len(one.frames))).all()
        assert ((one.stack >= 0) & (one.stack < len(one.parent))).all()
        assert (np.diff(one.time_us) >= 0).all()
    job = JobInMemory(name="job", stacks=found.stacks)
    msgspec.json.encode(code_lines(job))


def _check_facts(data: bytes) -> None:
    found = _read(RecorderFacts(), _written({"jobrecord/n.json": data}))
    assert found.quality.files + _count(found.quality.remarks, "files") == 1
    _assert_printable([one.node for one in found.quality.recordings])
    json.dumps(msgspec.to_builtins(found.quality)).encode()


def _check_scalars(data: bytes) -> None:
    """A file of a rank, next to a sound one of another."""
    sound = _of_scalars()[1]
    found = _read(
        TrainingLogs(),
        _written({"jobrecord/training-00000.jsonl": data, "jobrecord/training-00001.jsonl": sound}),
    )
    assert found.quality.files + _count(found.quality.remarks, "files") >= 2
    assert _joined(found)


def _joined(found: Found) -> Learning | None:
    """What was found of a training, joined and checked."""
    json.dumps(msgspec.to_builtins(found.quality)).encode()
    learning = joining.joined(found.learning, {}, Tally())
    if learning is None:
        return None
    assert len({(one.name, one.mode, one.rank) for one in learning.scalars}) == len(learning.scalars)
    for one in learning.scalars:
        assert (np.diff(one.step) >= 0).all()
        _assert_printable([one.name, one.logged_as])
    if learning.tensors:
        assert (np.diff(learning.tensors.step) >= 0).all()
        assert (learning.tensors.tensor < len(learning.tensors.tensors)).all()
        assert len(learning.tensors.bins) in (0, len(learning.tensors))
        _assert_printable([one.name for one in learning.tensors.tensors])
    for counts in learning.classes:
        assert len(counts.recall) == len(counts.labels)
    return learning


# Event files: as they are, or messages of which each gets its checksums, as otherwise nearly all damage is a wrong one


def _check_tensorboard(data: bytes) -> None:
    name, parts = "events.out.tfevents.1741514400.host.1.0", data[1:].split(_NEXT)
    if data[:1] == b"m":
        parts = [b"".join(map(record, parts)), record(parts[-1]) * 3]
    files = _written(
        {f"{folder}/{name}": part for folder, part in zip(("train", "train/a"), parts, strict=False)}
    )
    found = _read(TensorBoard(), files)
    learning = _joined(found)
    assert found.quality.rows == sum(map(len, learning.scalars if learning else ()))
    alone = [TensorBoard().read([file]).quality for file in files]
    assert all(one.files or one.remarks for one in alone)


def _check_saved_tensors(data: bytes) -> None:
    """Names, index, and messages of two steps."""
    names, index, *messages = [*data.split(_NEXT), b"", b""]
    files = {"collections/000000000/w_collections.json": names, "index/000000000/000000000000_w.json": index}
    for step in (0, 1):
        events = b"".join(record(one, CONSTANT) for one in messages[step::2])
        files[f"events/{step:012}/{step:012}_w.tfevents"] = events
    found = _read(SavedTensors(), _written(files))
    learning = _joined(found)
    assert bool(found.quality.rows or (learning and learning.classes)) == (learning is not None)


def _check_metrics(data: bytes) -> None:
    """A table, or the state of a trainer if it looks like one, next to a sound table."""
    sound = b"epoch,step,train_loss,val_loss\n0,9,1.5,\n0,9,,2\n"
    files = _written({"a.csv": data, "a.json": data, "b.csv": sound})
    for reader in (MetricTables(), TrainerStates()):
        found = reader.read([file for file in files if reader.matches_content(file)])
        json.dumps(msgspec.to_builtins(found.quality)).encode()
        learning = joining.joined(found.learning, {}, Tally())
        for one in learning.scalars if learning else ():
            assert (np.diff(one.step) >= 0).all()
            assert len(one.step) == len(one.value) == len(one.time_us) > 0
            _assert_printable([one.name])


def _check_rule_results(data: bytes) -> None:
    """One result, alone or, by its first byte, among sound ones of all other rules."""
    first = data[0] if data else 0
    name = rule_results.NAMES[(first & 127) % len(rule_results.NAMES)]
    documents = {rule_results.NAMES[one[0]]: one[1:] for one in _of_rule_results()} if first & 128 else {}
    files = _written(
        {f"profiler-reports/{one}.json": text for one, text in (documents | {name: data[1:]}).items()}
    )
    results = rule_results.read(files)
    assert len(results.documents) + _count(results.quality.remarks, "files") == len(files)
    if results.documents:
        report, written = _of_results(results, RULES)
        report = document.from_json(document.to_json(report))
        assert document.from_json(document.to_json(report)) == report
        for text in written.values():
            json.loads(text)


def _of_results(results: RuleResults, rules: Sequence[type[Rule]]) -> tuple[Report, dict[str, bytes]]:
    """The report of rule results alone, and the files of these rules."""
    job = JobInParts(name="job", engine=LocalEngine(1), kept=())
    reading = Reading(job=job, quality=Quality(sources=(results.quality,)), debugger_results=results)
    return report_of(reading, Settings(rules=tuple(rule() for rule in rules)), "job", strict=True)


def _check_archive(suffix: str) -> Callable[[bytes], None]:
    def check(data: bytes) -> None:
        (file,) = _written({f"a{suffix}": data})
        inside = file.path.parent / "inside"
        inside.mkdir()
        with (
            mock.patch.object(archive, "MAX_BYTES", _LIMIT),
            mock.patch.object(tempfile, "tempdir", str(inside)),
        ):
            try:
                with archive.unpacked(file.path) as job:
                    _check_unpacked(job, inside)
            except NothingReadableError as error:
                _assert_printable([str(error)])
        assert not list(inside.iterdir())
        assert [path.name for path in file.path.parent.iterdir() if path != inside] == [file.path.name]

    return check


def _check_unpacked(job: archive.Unpacked, inside: Path) -> None:
    """Whether all that was unpacked are plain files and folders below the one for it, and not too large."""
    assert [path.name for path in inside.iterdir()] == [job.directory.name]
    found = list(job.directory.rglob("*"))
    assert all(not path.is_symlink() and (path.is_dir() or path.is_file()) for path in found)
    assert sum(path.stat().st_size for path in found if path.is_file()) <= _LIMIT
    _assert_printable([remark.place or "" for remark in job.remarks])


def _check_report(data: bytes) -> None:
    (file,) = _written({"report.json": data})
    try:
        report = document.load(file.path)
    except NothingReadableError as error:
        _assert_printable([str(error)])
        return
    written = document.to_json(report)
    assert document.to_json(document.from_json(written)) == written


# Seeds


def _of_jobs(part: str) -> list[bytes]:
    """How the first file with such a part in its path begins in each base, once for each layout."""
    found: dict[bytes, bytes] = {}
    for kind in ("sample", "made"):
        for job in bases().get(kind, {}).values():
            name = next((name for name in sorted(job) if part in name), None)
            if name:
                text = unpacked(job[name])[:_SEED]
                found.setdefault(re.sub(rb"[0-9.]+", b"0", text[:1000]), text[: text.rfind(b"\n")])
    return list(found.values())


def _of_samples() -> list[bytes]:
    texts = _of_jobs("incremental")
    return [*texts, gzip.compress(texts[0], mtime=0), _of_a_container()]


def _of_a_container() -> bytes:
    """Samples of record-job in a container with a CPU limit, of processes, and of a file system."""
    sensors = [
        *(("cpu", f"cpu{core}", "CPUUtilization", 50.0) for core in range(4)),
        *(("container", name, "", 2.0) for name in ("CPUUsedCores", "CPULimitCores", "OOMKills")),
        *(("pressure", name, "SomePercentage", 10.0) for name in ("CPU", "IO", "Memory")),
        *(("process", name, "ResidentBytes", 1e9) for name in ("0", "loaders-0")),
        ("disk", "/", "FreeBytes", 1e9),
    ]
    lines = (
        f'{{"Type":"{kind}","Name":"{name}","Dimension":"{dimension}","Value":{value},"NodeId":"n","Timestamp":{second}.0}}\n'
        for second in (1_700_000_041, 1_700_000_042)
        for kind, name, dimension, value in sensors
    )
    return "".join(lines).encode()


def _of_logs() -> list[bytes]:
    spec = JobSpec.of(
        SCENARIOS["throttled"], steps=None, gpus=2, cores=2, duration_us=16_000_000, interval_us=2_000_000
    )
    made = [text for dialect in DIALECTS.values() for _, text in log_files(spec, dialect)]
    return made + [text for form in FORMS for text in contents(form.write(form.rows[:8])).values()]


def _of_traces() -> list[bytes]:
    texts = [text.removesuffix(b",") + b"\n]\n" for text in _of_jobs("timeline.json")]
    rows = json.loads(texts[0])[:20]
    return [
        *texts,
        json.dumps(rows).encode(),
        json.dumps(rows, indent=1).encode(),
        json.dumps({"displayTimeUnit": "ns", "traceEvents": rows, "other": {"a": [1]}}).encode(),
        gzip.compress(texts[0], mtime=0),
    ]


def _of_several_traces() -> list[bytes]:
    texts = [text[:2000] for text in _of_traces()]
    pairs = [
        {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "gradient"}},
        {"ph": "B", "pid": 1, "ts": 5, "name": "ALLREDUCE"},
        {"ph": "X", "pid": 1, "ts": 6, "dur": 7, "name": "3"},
        {"ph": "E", "pid": 1, "ts": 9},
        {"ph": "i", "pid": 1, "ts": 9, "name": "CYCLE_START", "s": "g"},
    ]
    texts.append(json.dumps(pairs).encode())
    return [
        bytes([first]) + _NEXT.join((texts[first % len(texts)], texts[-1], texts[0]))
        for first in range(len(_TRACES))
    ]


def _of_kineto() -> list[bytes]:
    trace = Recording(0, world=2)
    trace.top["baseTimeNanoseconds"] = 1_700_000_000_000_000_000
    known: dict[str, Any] = {"Collective name": "allreduce", "In msg nelems": 100, "Group size": 2}
    for number in range(3):
        at = 1000.0 + 150 * number
        trace.step(number, at, at + 150)
        trace.operator("aten::mm", at, at + 60)
        trace.kernel("gemm", at + 70, at + 140, launch=(at + 15, at + 20))
        trace.kernel(
            "ncclDevKernel_AllReduce", at + 80, at + 149, 20, (at + 40, at + 45), **known, Seq=number
        )
    trace.memory(1000, 100, **{"Total Allocated": 100, "Total Reserved": 2000})
    trace.call("cudaMalloc", 1500, 1520)
    trace.call("cudaStreamSynchronize", 1700, 1790)
    trace.mark("enumerate(DataLoader)#_Iter.__next__", 1100, 1200)
    trace.add("overhead", "Buffer Flush", 1300, 1310)
    trace.add("python_function", "train.py(1): step", 1000, 1010)
    trace.operator("record_param_comms", 1040, 1046, **known, Rank=0)
    behind = json.dumps({"schemaVersion": 1, "traceEvents": trace.events, "distributedInfo": {"rank": 3}})
    text = trace.text()
    return [
        text,
        behind.encode(),
        json.dumps(trace.events).encode(),
        json.dumps([{"name": one["name"], **one} for one in trace.events], indent=1).encode(),
        text.replace(b'"ts": 1', b'"ts": 17121954955010'),
        text.replace(b"cpu_op", b"Operator")
        .replace(b'"kernel"', b'"Kernel"')
        .replace(b'"tid": ', b'"tid": "s", "t": '),
        gzip.compress(text, mtime=0),
    ]


def _of_cprofile() -> list[bytes]:
    few = {
        ("a.py", 1, "f"): (2, 3, 0.5, 1.5, {("b.py", 2, "g"): (1, 1, 0.1, 0.2)}),
        ("~", 0, "<built-in method x>"): (1, 1, 0.0, 0.0, {}),
    }
    many: dict[Any, Any] = {
        (f"m{i % 3}.py", i, f"f{i}"): (1, 1 << i, 0.25 * i, 0.5 * i, {}) for i in range(20)
    }
    return [marshal.dumps(value, version) for value in (few, many) for version in (0, 2, 4)]


def _of_pyinstrument() -> list[bytes]:
    def frame(name: str, took: float, *children: object) -> dict[str, object]:
        return {"function": name, "file_path": "a.py", "line_no": 3, "time": took, "children": list(children)}

    leaf = frame("g", 0.5, frame("[self]", 0.25))
    session = {"start_time": 1_700_000_000.5, "duration": 2.5, "root_frame": frame("f", 2.0, leaf, leaf)}
    return [json.dumps(session, indent=indent).encode() for indent in (None, 1)]


def _of_config() -> list[bytes]:
    settings = {
        "DetailedProfilingConfig": '{"StartStep": 5, "NumSteps": 3, }',
        "PythonProfilingConfig": "{'StartStep': '9', 'ProfilerName': 'cprofile', 'cProfileTimer': 'total_time'}",
        "DataloaderProfilingConfig": {"MetricsRegex": ".*", "StartTimeInSecSinceEpoch": 1_700_000_000},
    }
    config = {"ProfilingIntervalInMilliseconds": 500, "ProfilingParameters": settings}
    return [
        json.dumps(one).encode() for one in (config, {"ProfilerConfig": config}, {"DisableProfiler": True})
    ]


def _of_stacks() -> list[bytes]:
    return [text for path, text in hostile.stacks(["a", "b"], "n").items() if path.endswith(".jsonl")]


def _of_scalars() -> list[bytes]:
    return [text for path, text in hostile.facts(["a", "b"]).items() if path.endswith(".jsonl")]


def _of_tensorboard() -> list[bytes]:
    first = field(1, START_S, "<d") + field(3, b"brain.Event:2")
    plain = tensor_value("b", tensor(np.float32(2)), {"scalars": ""})
    messages = [first, *(event(step, scalar("loss", step), plain) for step in range(5))]
    messages += [
        event(3, begins=True),
        event(3, scalar("loss", 1), field(1, b"c") + field(5, b"\1")),
        event(0),
    ]
    whole = b"".join(map(record, messages))
    packed = gzip.compress(whole, mtime=0)
    return [b"m" + _NEXT.join(messages), b"f" + whole, b"f" + _NEXT.join([whole, packed]), b"f" + packed]


def _of_saved_tensors() -> list[bytes]:
    array = np.linspace(-1, 1, 24, dtype="f4").reshape(4, 6)
    names = ("W.weight", "gradient/W.weight", "relu_output_0", "tanh_output_0", "predictions")
    values = [tensor_value(name, tensor(array), {"mode": "1"}) for name in names]
    values += [
        tensor_value("labels", tensor(np.arange(4))),
        tensor_value("l_output_0", tensor(np.float32(1))),
    ]
    values += [scalar(f"smdebug/reductions/{name}/W.weight", 2) for name in ("mean", "max")]
    values += [tensor_value("smdebug/reductions/std/W.weight", tensor(np.array(1e200)))]
    values += [tensor_value("x.bias", tensor(np.zeros(2500), "float16"))]
    files = saved(
        {0: {"W.weight": array}}, collections={"losses": ["l_output_0"]}, shapes={"W.weight": (4, 6)}
    )
    names_and_index = [text for path, text in files.items() if path.endswith(".json")]
    messages = [event(step, one) for one in values for step in (0, 1)]
    return [
        _NEXT.join([*names_and_index, *some])
        for some in (messages[:10], messages[8:20], messages[20:21], messages[22:23])
    ]


def _of_metrics() -> list[bytes]:
    tables = (
        "epoch,accuracy,loss,val_loss\n0,0.5,2,3\n1,0.6,nan,\n",
        'timestamp;step;"train/loss";lr-Adam\r\n1741514400.5;1;1e999;0.1\r\n1741514401;2;-inf;0.1\r\n',
    )
    history: list[dict[str, float]] = [
        {"step": 1, "loss": 2.0},
        {"step": 2, "eval_loss": float("nan"), "eval_runtime": 1},
    ]
    state = {"global_step": 2, "log_history": [*history, {"step": 2, "train_runtime": 3.5}]}
    return [*(one.encode() for one in tables), json.dumps(state).encode()]


def _of_facts() -> list[bytes]:
    facts = next(text for path, text in hostile.facts(["a", "b"]).items() if path.endswith(".json"))
    known = json.loads(facts)
    few = {key: known[key] for key in ("schema", "recorder", "node", "started_us", "interval_ms")}
    return [facts, json.dumps(few).encode()]


@cache
def _of_rule_results() -> list[bytes]:
    """The number of a rule, and its result."""
    found = {path.rpartition("/")[2]: text for path, text in hostile.results(["a", "b"]).items()}
    return [bytes([number]) + found[f"{name}.json"] for number, name in enumerate(rule_results.NAMES)]


def _of_rule_results_alone_and_together() -> list[bytes]:
    alone = _of_rule_results()
    return [*alone, *(bytes([one[0] | 128]) + one[1:] for one in alone)]


_MEMBERS = {"job/a.json": b"one\n", "job/b/c.json": b"two\n" * 50}


def _of_tar() -> list[bytes]:
    found = []
    for mode in ("w", "w:gz"):
        sink = io.BytesIO()
        with tarfile.open(fileobj=sink, mode=mode) as archived:
            for name, content in _MEMBERS.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archived.addfile(info, io.BytesIO(content))
            for name, target, kind in (
                ("l", "../../out", tarfile.SYMTYPE),
                ("../up", "job/a.json", tarfile.LNKTYPE),
            ):
                info = tarfile.TarInfo(name)
                info.type, info.linkname = kind, target
                archived.addfile(info)
        found.append(sink.getvalue())
    return found


def _of_zip() -> list[bytes]:
    found = []
    for packed in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        sink = io.BytesIO()
        with zipfile.ZipFile(sink, "w", packed) as archived:
            for name, content in _MEMBERS.items():
                archived.writestr(zipfile.ZipInfo(name), content, packed)
            archived.writestr(zipfile.ZipInfo("../../out"), b"out")
        found.append(sink.getvalue())
    return found


def _of_reports() -> list[bytes]:
    """Reports of rule results, which are small."""
    found = []
    for data in _of_rule_results()[2::8]:
        name = rule_results.NAMES[data[0]]
        results = rule_results.read(_written({f"profiler-reports/{name}.json": data[1:]}))
        report, _ = _of_results(results, [rule for rule in RULES if rule.__name__ == name])
        # Without the blanks a report of one rule is as long as an input may be.
        found.append(msgspec.json.encode(report))
    return found


def _check_manifest(data: bytes) -> None:
    """Whatever it says, only names of files of a report are in it, and no file is taken for another."""
    found = manifest.decoded(data)
    assert all(manifest.is_own(name, "", REPORT) and ".." not in name for name in found.own(REPORT))
    (file,) = _written({"report.json": data})
    assert not found.is_of(file.path)


def _of_manifests() -> list[bytes]:
    files = {name: manifest.File.of(name.encode()) for name in ("report.json", "rules/more/IdleGaps.json")}
    complete = manifest.Manifest(state="complete", id="1", version="0.1.0", files=files)
    writing = manifest.Manifest(state="writing", id="2", older=["report.html", "../x"])
    return [msgspec.json.encode(one) for one in (complete, writing)]


def _check_keys(data: bytes) -> None:
    """The lines are keys of a bucket: each has a place of its own, which stays in its folder."""
    names = [*dict.fromkeys(data.decode("utf-8", "surrogateescape").split("\n"))]
    found = places(names)
    assert [*found] == names
    paths = [Path("/copy", place) for place in found.values()]
    assert all(".." not in path.parts and len(path.parts) > 2 for path in paths)
    assert len({str(path).casefold() for path in paths}) == len(paths)
    files = {str(path) for path in paths}
    assert not any(str(above) in files for path in paths for above in path.parents)
    assert all(len(part.encode()) < 256 for path in paths for part in path.parts)


def _of_keys() -> list[bytes]:
    keys = (
        "a/b.json",
        "a/B.json",
        "A/b.json",
        "a",
        "../x",
        "/x",
        "a//b",
        "n\x01/x",
        "x" * 300,
        "é/" * 50 + "x",
    )
    return ["\n".join(keys).encode(), b"system/incremental/1.json\nsystem\nsystem/"]


TARGETS = {
    "samples": Target(_check_samples, _of_samples),
    "nvidia-smi": Target(_check_log, _of_logs),
    "trace": Target(_check_trace, _of_traces),
    "traces": Target(_check_traces, _of_several_traces),
    "kineto": Target(_check_kineto, _of_kineto),
    "cprofile": Target(_check_cprofile, _of_cprofile),
    "pyinstrument": Target(_check_pyinstrument, _of_pyinstrument),
    "config": Target(_check_config, _of_config),
    "stacks": Target(_check_stacks, _of_stacks),
    "facts": Target(_check_facts, _of_facts),
    "scalars": Target(_check_scalars, _of_scalars),
    "metrics": Target(_check_metrics, _of_metrics),
    "tensorboard": Target(_check_tensorboard, _of_tensorboard),
    "saved-tensors": Target(_check_saved_tensors, _of_saved_tensors),
    "rule-results": Target(_check_rule_results, _of_rule_results_alone_and_together),
    "tar": Target(_check_archive(".tar"), _of_tar),
    "zip": Target(_check_archive(".zip"), _of_zip),
    "report": Target(_check_report, _of_reports),
    "manifest": Target(_check_manifest, _of_manifests),
    "keys": Target(_check_keys, _of_keys),
}
