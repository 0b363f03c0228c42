from __future__ import annotations

import gzip
import json
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from jobreport.readers.base import Found, SourceFile
from jobreport.readers.profiler_config.reader import ProfilerConfig
from tests.once import slow_but


def read(directory: Path, files: Mapping[str, str | bytes]) -> Found:
    """Write the files and read those that the reader claims."""
    reader = ProfilerConfig()
    sources = []
    for name, content in files.items():
        (directory / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        sources.append(SourceFile(name=name, place=str(directory / name)))
    return reader.read(
        [file for file in reversed(sources) if reader.matches_name(file) or reader.matches_content(file)]
    )


def lines(directory: Path, **parameters: object) -> list[str]:
    """What a configuration with these parameters is in words, with plain blanks."""
    found = read(directory, {"profilerconfig.json": json.dumps({"ProfilingParameters": parameters})})
    assert not found.quality.remarks
    return [line.replace("\u00a0", " ") for line in found.recorded]


def counts(found: Found) -> dict[str, int]:
    return {remark.code: remark.count for remark in found.quality.remarks}


WHOLE = """{"ProfilingIntervalInMilliseconds": 500, "ProfilingParameters": {
   "LocalPath": "/opt/ml/output/profiler", "RotateMaxFileSizeInBytes": "10485760",
   "DetailedProfilingConfig": "{\\"StartStep\\": 5, \\"NumSteps\\": 1, }",
   "DataloaderProfilingConfig": "{\\"StartStep\\": 7, \\"NumSteps\\": 2, \\"MetricsRegex\\": \\".*\\", }",
   "PythonProfilingConfig": "{\\"StartStep\\": 9, \\"NumSteps\\": 3, \\"ProfilerName\\": \\"cprofile\\", \\"cProfileTimer\\": \\"total_time\\", }",
   "HorovodProfilingConfig": "{\\"StartStep\\": 13, \\"NumSteps\\": 1, }"}}"""
WORDS = (
    "System samples every 500\u00a0ms",
    "Operators: step 5",
    "Data loading: steps 7 to 8",
    "Python code (cProfile, total time): steps 9 to 11",
    "Horovod: step 13",
)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("profilerconfig.json", WHOLE),
        ("my-ProfilerConfig.json", WHOLE.lower()),
        ("profilerconfig.json", WHOLE[:-1] + ",\n}"),
        ("profilerconfig.json.gz", gzip.compress(WHOLE.encode(), mtime=0)),
        ("job.json", '{"TrainingJobName": "x,}", "ProfilerConfig": ' + WHOLE + "}"),
        ("anything.json.gz", gzip.compress(WHOLE.encode(), mtime=0)),
        ("profilerconfig.json", "\ufeff" + WHOLE),
    ],
)
def test_a_configuration_is_put_into_words(tmp_path: Path, name: str, content: str | bytes) -> None:
    found = read(tmp_path, {name: content})

    assert found.recorded == WORDS
    assert (found.quality.files, found.quality.rows, found.quality.remarks) == (1, 5, ())


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("profilerconfig.txt", WHOLE),
        ("trace.json", "[1, 2]"),
        ("trace.json", '{"traceEvents": [{"ProfilerConfig": 1}]}'),
        ("trace.json", '{"name": "ProfilerConfig"}'),
        ("job.json", '{"ProfilerConfig": {}, ' + " " * (1 << 20) + "}"),
        ("job.json", ""),
        ("job.json.gz", gzip.compress(WHOLE.encode(), mtime=0)[:-9]),
        ("job.json", '{"ProfilerConfig": ' + "[" * 100_000),
        ("job.json", b'{"ProfilerConfig": "\xff"}'),
    ],
)
def test_other_files_are_not_claimed(tmp_path: Path, name: str, content: str | bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())

    assert not ProfilerConfig().matches_content(SourceFile(name=name, place=str(path)))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ('{"StartStep": 5, "NumSteps": 1, }', "step 5"),
        ("{'startstep': '5', 'numsteps': 3,}", "steps 5 to 7"),
        ("{'startstep': 5.0}", "step 5"),
        ({"StartStep": "5"}, "step 5"),
        ('{"NumSteps": 2}', "2 steps from the current step"),
        ('{"StartStep": 0, "NumSteps": 12000}', "steps 0 to 11,999"),
        (
            '{"StartTimeInSecSinceEpoch": 1700000040, "DurationInSeconds": "30"}',
            "for 30 s from 2023-11-14 22:14:00 UTC",
        ),
        ("{'starttimeinsecsinceepoch': '1700000040', }", "from 2023-11-14 22:14:00 UTC to the next step"),
        ("{'DurationInSeconds': 90}", "for 1 min 30 s from the start"),
        ("{}", "no steps or time given"),
        ("{'StartStep': None}", "no steps or time given"),
        (
            "{'StartStep': 5, 'DurationInSeconds': 60}",
            "not recorded: step and time limits contradict each other",
        ),
        ("{'StartStep': 5, 'NumSteps': 0}", "not recorded: the number of steps is 0"),
        ("{'StartStep': 'x'}", "limits cannot be read"),
        ("{'StartStep': -5}", "limits cannot be read"),
        ("{'StartStep': nan}", "settings cannot be read"),
        ("{'StartStep': '" + " " * 5000 + "5'}", "settings cannot be read"),
        ({"StartStep": True}, "limits cannot be read"),
        ({"StartStep": 10**400}, "limits cannot be read"),
        ({"StartStep": [5]}, "limits cannot be read"),
        ({"StartStep": 1e13}, "limits cannot be read"),
        ("{'StartTimeInSecSinceEpoch': 5}", "start is not a time in seconds between 1990 and 2100"),
        ("{'StartStep': __import__('os')}", "settings cannot be read"),
        ("{'StartStep': 5 'NumSteps': 1}", "settings cannot be read"),
        ("{" * 100_000, "settings cannot be read"),
        ("StartStep", "settings cannot be read"),
        (7, "settings cannot be read"),
    ],
)
def test_limits_are_read_from_what_various_hands_wrote(tmp_path: Path, value: object, words: str) -> None:
    assert lines(tmp_path, DetailedProfilingConfig=value) == [f"Operators: {words}"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("", "(cProfile, total time): step 9"),
        (", 'ProfilerName': 'Pyinstrument'", "(Pyinstrument): step 9"),
        (", 'cProfileTimer': 'CPU_time'", "(cProfile, CPU time): step 9"),
        (", 'cProfileTimer': 'off_cpu_time'", "(cProfile, time off the CPU): step 9"),
        (
            ", 'cProfileTimer': 'default'",
            "(cProfile, total time, CPU time and time off the CPU in turn): step 9",
        ),
        (", 'cProfileTimer': 'sun'", "(cProfile, unknown timer): step 9"),
        (", 'ProfilerName': 'x'", ": not recorded: unknown profiler"),
    ],
)
def test_python_profiles_name_profiler_and_timer(tmp_path: Path, settings: str, words: str) -> None:
    (line,) = lines(tmp_path, PythonProfilingConfig="{'StartStep': 9" + settings + "}")

    assert line == f"Python code{'' if words.startswith(':') else ' '}{words}"


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"DisableProfiler": True, "ProfilingIntervalInMilliseconds": 500}, ["Profiler disabled"]),
        ({"disableprofiler": "TRUE"}, ["Profiler disabled"]),
        ({"DisableProfiler": 1}, ["Profiler disabled"]),
        ({"DisableProfiler": "1"}, ["Profiler disabled"]),
        ({"DisableProfiler": 0}, ["Framework profiling disabled"]),
        ({"DisableProfiler": "false", "ProfilingParameters": {}}, ["Framework profiling disabled"]),
        ({}, ["Framework profiling disabled"]),
        (
            {"ProfilingIntervalInMilliseconds": "60000", "ProfilingParameters": None},
            ["System samples every 1 min", "Framework profiling disabled"],
        ),
        (
            {"ProfilingIntervalInMilliseconds": "soon", "ProfilingParameters": 5},
            [
                "System samples at an interval that cannot be read",
                "Framework profiling: settings cannot be read",
            ],
        ),
        (
            {"ProfilingParameters": {"LocalPath": "/opt", "HorovodProfilingConfig": ""}},
            ["Operators, data loading and Python code: not recorded"],
        ),
    ],
)
def test_what_was_switched_off_is_said(tmp_path: Path, config: object, words: list[str]) -> None:
    found = read(tmp_path, {"profilerconfig.json": json.dumps(config)})

    assert [line.replace("\u00a0", " ") for line in found.recorded] == words


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("", "file.empty"),
        (WHOLE[:-1], "file.not_json"),
        ("[" * 100_000, "file.not_json"),
        ("[]", "file.not_object"),
        ('{"a": 1}', "config.no_settings"),
        ('{"ProfilerConfig": 5}', "config.no_settings"),
        (b'{"a": "\xff"}', "file.not_utf8"),
        (gzip.compress(WHOLE.encode(), mtime=0)[:-9], "file.damaged"),
        (" " * (1 << 20) + "{}", "file.large"),
    ],
)
def test_a_configuration_that_cannot_be_read_is_skipped(
    tmp_path: Path, content: str | bytes, code: str
) -> None:
    found = read(tmp_path, {"profilerconfig.json": content})

    assert counts(found) == {code: 1}
    assert not found.recorded


@pytest.mark.parametrize(
    "part",
    slow_but(
        {"'\\", ",", "{", '"a": "b", '},
        ['\\"', "'\\", '"', ",", ", ", "{", '{"a":', "\\", '"a": "b", ', "- "],
    ),
)
def test_hostile_text_costs_no_time(tmp_path: Path, part: str) -> None:
    text = (part * 1_000_000)[:1_000_000]
    started = time.process_time()

    read(tmp_path, {"profilerconfig.json": '{"' + text})
    for value in (text, "{" + text + "}", "{'" + text + "}", '{"' + text + "}"):
        content = json.dumps({"ProfilingParameters": {"DetailedProfilingConfig": value}})[: 1 << 20]
        read(tmp_path, {"profilerconfig.json": content})

    assert time.process_time() - started < 10
