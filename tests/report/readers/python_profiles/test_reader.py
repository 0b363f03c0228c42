from __future__ import annotations

import cProfile
import gzip
import json
import marshal
import math
import pstats
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobreport.readers.base import Found, SourceFile
from jobreport.readers.python_profiles.reader import PythonProfiles
from jobrules.model import Profile
from tests.paths import CORPUS, needs_corpus

STRETCH = "train-9-stepstart-1700000123456789.0_train-9-stepend-1700000124000001.5"
FOLDER = f"framework/pytorch/cprofile/33-algo-1/{STRETCH}"
TREES = f"framework/pytorch/pyinstrument/33-algo-1/{STRETCH}"


def read(directory: Path, files: Mapping[str, bytes]) -> Found:
    """Write the files and read those that the reader claims, last name first."""
    reader = PythonProfiles()
    sources = []
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        sources.append(SourceFile(name=name, place=str(path)))
    return reader.read(
        [
            file
            for file in sorted(sources, reverse=True)
            if reader.matches_name(file) or reader.matches_content(file)
        ]
    )


def only(found: Found) -> Profile:
    (profile,) = found.profiles
    assert not found.quality.remarks
    return profile


def counts(found: Found) -> dict[str, int]:
    return {remark.code: remark.count for remark in found.quality.remarks}


def dump(entries: Mapping[Any, Any] | None = None) -> bytes:
    return marshal.dumps({("a.py", 1, "f"): (2, 3, 0.5, 1.5, {})} if entries is None else dict(entries))


def frame(
    name: str, time: object, *children: object, file: str = "a.py", line: object = 1
) -> dict[str, object]:
    return {"function": name, "file_path": file, "line_no": line, "time": time, "children": list(children)}


def tree(root: object, **session: object) -> bytes:
    return json.dumps({**session, "root_frame": root}).encode()


# Who and when


def test_the_path_says_who_was_profiled_and_when(tmp_path: Path) -> None:
    profile = only(read(tmp_path, {f"{FOLDER}/python_stats": dump()}))

    assert (profile.node, profile.rank, profile.profiler) == ("algo-1", "33", "cProfile")
    assert (profile.start_us, profile.end_us) == (1_700_000_123_456_789, 1_700_000_124_000_002)
    assert (profile.begin, profile.end) == ("train step 9, step start", "train step 9, step end")


@pytest.mark.parametrize(
    ("begin", "end", "words"),
    [
        ("prestepzero-*-start", "train-0-stepstart", ("before step 0, start", "train step 0, step start")),
        ("train-9-stepend", "posthookclose-*-end", ("train step 9, step end", "end of the script")),
        (
            "eval-3-stepstart",
            "eval-3-forwardpassend",
            ("eval step 3, step start", "eval step 3, end of the forward pass"),
        ),
        ("global-7-stepend", "global-8-stepstart", ("step 7, step end", "step 8, step start")),
        ("TRAIN-1-StepStart", "warmup-1-odd", ("train step 1, step start", "step 1")),
        (
            "train-*-stepstart",
            "train-1-stepend",
            ("train unknown step, step start", "train step 1, step end"),
        ),
        ("nothing", "that fits", ("start of the profile", "end of the profile")),
    ],
)
def test_begin_and_end_are_put_into_words(
    tmp_path: Path, begin: str, end: str, words: tuple[str, str]
) -> None:
    folder = f"pytorch/cprofile/33-algo-1/{begin}-1700000123456789.0_{end}-1700000124000001"

    profile = only(read(tmp_path, {f"{folder}/python_stats": dump()}))

    assert (profile.begin, profile.end) == words
    assert (profile.node, profile.rank) == ("algo-1", "33")
    assert profile.end_us - profile.start_us == 543_212


@pytest.mark.parametrize(("step", "words"), [("-1", "before step 0"), ("0", "step 0"), ("12", "step 12")])
def test_the_early_layout_is_read(tmp_path: Path, step: str, words: str) -> None:
    folder = f"framework/tensorflow/cProfile/1596585376012363.8_1596585376017246.5_151-algo-1_{step}"

    profile = only(read(tmp_path, {f"{folder}/python_stats": dump()}))

    assert (profile.node, profile.rank) == ("algo-1", "151")
    assert (profile.start_us, profile.end_us) == (1_596_585_376_012_364, 1_596_585_376_017_246)
    assert (profile.begin, profile.end) == (words, words)


def test_a_profile_whose_path_names_no_process_is_read(tmp_path: Path) -> None:
    found = read(tmp_path, {"copies/1700000123456789_1700000123456790/python_stats": dump()})

    assert (only(found).node, only(found).rank) == ("node", "")


def test_pyinstrument_may_say_itself_when_it_ran(tmp_path: Path) -> None:
    content = tree(frame("f", 1.5), start_time=1_700_000_000.25, duration=1.5)

    profile = only(read(tmp_path, {"python_stats.json": content}))

    assert (profile.start_us, profile.end_us) == (1_700_000_000_250_000, 1_700_000_001_750_000)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("python_stats", "profiles.undated"),
        ("1-1_2-2/python_stats", "profiles.undated"),
        (f"{FOLDER}x/python_stats", None),
        (f"{FOLDER}-1700000123456789/python_stats", "profiles.undated"),
        (
            "train-9-a-170000012345678_train-9-b-170000012345679/python_stats",
            "profiles.undated",
        ),
        ("1700000124000001_1700000123456789/python_stats", "profiles.undated"),
        (FOLDER.replace("33-algo-1", "3-new\nline") + "/python_stats", None),
    ],
)
def test_a_profile_without_a_time_is_skipped_with_a_reason(
    tmp_path: Path, name: str, reason: str | None
) -> None:
    found = read(tmp_path, {name: dump()})

    assert counts(found) == ({reason: 1} if reason else {})
    assert len(found.profiles) == found.quality.files == (reason is None)


# What functions took


def test_a_run_of_cprofile_is_what_pstats_says(tmp_path: Path) -> None:
    profiler = cProfile.Profile()
    profiler.runcall(lambda: [json.loads(json.dumps({str(i): [i] * 5})) for i in range(200)])
    profiler.dump_stats(tmp_path / "dump")

    profile = only(read(tmp_path, {f"{FOLDER}/python_stats": (tmp_path / "dump").read_bytes()}))

    agrees_with_pstats(profile, tmp_path / "dump")


@needs_corpus
def test_real_dumps_are_what_pstats_says(tmp_path: Path) -> None:
    root = CORPUS / "sagemaker-fixtures"
    files = {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("python_stats")}

    found = read(tmp_path, files)

    assert not found.quality.remarks
    assert [profile.begin for profile in found.profiles] == ["before step 0", "step 2", "step 3"]
    for profile, path in zip(found.profiles, sorted(files), strict=True):
        agrees_with_pstats(profile, tmp_path / path)


def agrees_with_pstats(profile: Profile, path: Path) -> None:
    stats: dict[tuple[str, int, str], tuple[int, int, float, float, object]]
    stats = pstats.Stats(str(path)).stats  # type: ignore[attr-defined]
    expected = [
        (name, calls, self_s, total_s)
        for (_, _, name), (_, calls, self_s, total_s, _) in sorted(
            stats.items(), key=lambda item: (-item[1][2], item[0])
        )
    ]
    assert [(f.name, f.calls, f.self_s, f.total_s) for f in profile.functions] == expected[:25]
    assert profile.count == len(stats)
    assert math.isclose(profile.self_s, sum(row[2] for row in expected))


def test_what_is_built_in_has_no_place_and_long_names_are_cut(tmp_path: Path) -> None:
    entries: dict[Any, Any] = {
        ("~", 0, "<built-in len>"): (1, 1, 3.0, 3.0, {}),
        ("f" * 999, 1, "\udc80\n" + "n" * 999): (1, 1, 1, 1, {}),
    }

    built_in, long = only(read(tmp_path, {f"{FOLDER}/python_stats": dump(entries)})).functions

    assert (built_in.file, built_in.line, built_in.name) == ("", 0, "<built-in len>")
    assert long.name.startswith("\\udc80\\nnnn")
    assert (len(long.file) <= 200, len(long.name) <= 140) == (True, True)


GOOD: tuple[Any, ...] = (1, 1, 0.5, 0.5, {})


@pytest.mark.parametrize(
    ("key", "row", "reason"),
    [
        (("a.py", 1, "f"), (1, 1, math.nan, 1.0, {}), "profiles.time"),
        (("a.py", 1, "f"), (1, 1, 0.5, math.inf, {}), "profiles.time"),
        (("a.py", 1, "f"), (1, 1, -0.1, 1.0, {}), "profiles.time"),
        (("a.py", 1, "f"), (1, 1, True, 1.0, {}), "profiles.time"),
        (("a.py", 1, "f"), (1, 1, 2**100, 1.0, {}), "profiles.time"),
        (("a.py", 1, "f"), (1, -1, 0.5, 1.0, {}), "profiles.entry"),
        (("a.py", 1, "f"), (1, 2**64, 0.5, 1.0, {}), "profiles.entry"),
        (("a.py", 1, "f"), (1, 1, 0.5, 1.0), "profiles.entry"),
        (("a.py", 1, "f"), None, "profiles.entry"),
        (("a.py", -1, "f"), GOOD, "profiles.entry"),
        (("a.py", 1), GOOD, "profiles.entry"),
        (("a.py", 1, ("f", ())), GOOD, "profiles.entry"),
        (("a" * 5000, 1, "f"), GOOD, "profiles.entry"),
        ("a.py", GOOD, "profiles.entry"),
    ],
)
def test_entries_that_cannot_be_used_are_dropped_and_counted(
    tmp_path: Path, key: Any, row: Any, reason: str
) -> None:
    found = read(tmp_path, {f"{FOLDER}/python_stats": dump({key: row, ("a.py", 2, "g"): GOOD})})

    assert counts(found) == {reason: 1}
    assert [f.name for f in found.profiles[0].functions] == ["g"]
    assert found.quality.rows == 1


def test_a_second_entry_of_a_function_is_dropped(tmp_path: Path) -> None:
    one = dump({("a.py", 1, "f"): GOOD})

    found = read(
        tmp_path, {f"{FOLDER}/python_stats": one[:-1] + marshal.dumps({("a.py", 1, "f"): GOOD}, 2)[1:]}
    )

    assert counts(found) == {"profiles.second": 1}
    assert found.profiles[0].self_s == 0.5


def test_the_frames_of_a_function_are_summed_and_recursion_counts_once(tmp_path: Path) -> None:
    root = frame(
        "main", 10.0, frame("f", 6.0, frame("g", 5.0, frame("f", 4.0))), frame("f", 1.0, frame("[self]", 0.5))
    )

    profile = only(read(tmp_path, {f"{TREES}/python_stats.json": tree(root)}))

    took = {f.name: (f.self_s, f.total_s, f.calls) for f in profile.functions}
    assert took == {"main": (3.0, 10.0, None), "f": (6.0, 7.0, None), "g": (1.0, 5.0, None)}
    assert (profile.profiler, profile.count, profile.self_s) == ("Pyinstrument", 3, 10.0)


TREE = st.recursive(
    st.tuples(st.sampled_from("abc"), st.integers(0, 8), st.just(())),
    lambda inner: st.tuples(
        st.sampled_from("abc"), st.integers(0, 8), st.lists(inner, max_size=4).map(tuple)
    ),
    max_leaves=20,
)


@given(TREE)
def test_trees_are_summed_as_by_hand(tmp_path: Path, shape: Any) -> None:
    took: dict[str, list[float]] = {}

    def visit(shape: Any, above: tuple[str, ...]) -> dict[str, object]:
        """Times are whole eighths of seconds and grow from the leaves up."""
        name, own, children = shape
        below = [visit(child, (*above, name)) for child in children]
        time = own / 8 + sum(float(str(child["time"])) for child in below)
        row = took.setdefault(name, [0.0, 0.0])
        row[0] += own / 8
        row[1] += time if name not in above else 0.0
        return frame(name, time, *below)

    content = tree(visit(shape, ()))

    profile = only(read(tmp_path, {f"{TREES}/python_stats.json": content}))

    assert {f.name: [f.self_s, f.total_s] for f in profile.functions} == took


@pytest.mark.parametrize("time", [math.nan, math.inf, -1.0, "1", None, True, 1e300])
def test_the_time_of_a_frame_that_cannot_be_used_stays_with_its_caller(tmp_path: Path, time: object) -> None:
    root = frame("main", 3.0, frame("f", 1.0), frame("bad", time, frame("lost", 1.0)))

    found = read(tmp_path, {f"{TREES}/python_stats.json": tree(root)})

    assert counts(found) == {
        "profiles.time": 1,
    }
    assert [(f.name, f.self_s) for f in found.profiles[0].functions] == [("main", 2.0), ("f", 1.0)]


def test_children_that_took_longer_than_their_caller_leave_it_no_time(tmp_path: Path) -> None:
    profile = only(
        read(tmp_path, {f"{TREES}/python_stats.json": tree(frame("main", 1.0, frame("f", 1.000001)))})
    )

    assert [(f.name, f.self_s) for f in profile.functions] == [("f", 1.000001), ("main", 0.0)]


# Files


def test_compressed_profiles_are_read_and_a_copy_counts_once(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        {f"{FOLDER}/python_stats.gz": gzip.compress(dump()), f"a/{FOLDER}/python_stats": dump()},
    )

    assert len(found.profiles) == found.quality.files == 1
    assert counts(found) == {"profiles.repeated": 1}


def test_pages_are_left_out(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        {
            f"{TREES}/python_stats.json": tree(frame("f", 1.0)),
            f"{TREES}/python_stats.html": b"<html>",
            "x/python_stats.html": b"<html>",
        },
    )

    assert counts(found) == {
        "profiles.page": 2,
    }
    assert len(found.profiles) == 1


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("python_stats", b"", "file.empty"),
        ("python_stats", dump()[:-1], "profiles.unreadable"),
        (
            "python_stats",
            b"cposix\nsystem\n",
            "profiles.unreadable",
        ),
        ("python_stats", marshal.dumps((1,)), "profiles.unreadable"),
        ("python_stats", dump({}), "profiles.no_function"),
        ("python_stats", b"x" * ((16 << 20) + 1), "file.large"),
        ("python_stats.gz", gzip.compress(dump(), mtime=0)[:-9], "file.damaged"),
        ("python_stats.json", tree(None), "profiles.no_function"),
        ("python_stats.json", tree(frame("f", 1.0))[:-1], "file.not_json"),
        ("python_stats.json", b"\xff", "file.not_json"),
        ("python_stats.json", b"[]", "profiles.unreadable"),
        ("python_stats.json", b"{}", "profiles.unreadable"),
        ("python_stats.json", b'{"root_frame":' + b"[" * 100_000, "file.not_json"),
    ],
)
def test_a_damaged_file_costs_itself_and_a_remark(
    tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    found = read(tmp_path, {f"{FOLDER}/{name}": content, f"{FOLDER[:-1]}4/python_stats": dump()})

    assert counts(found) == {reason: 1}
    assert len(found.profiles) == found.quality.files == 1
