from __future__ import annotations

from pathlib import Path

import pytest

from jobrecord.names import node_count, node_name, node_rank
from jobrecord.settings import SettingError, for_processes, read


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("100ms", 0.1), ("500ms", 0.5), ("1s", 1), ("2.5s", 2.5), ("1min", 60), ("60s", 60)],
)
def test_intervals(text: str, seconds: float) -> None:
    assert read({"JOBRECORD_INTERVAL": text}).interval_s == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(
            ("INTERVAL", text)
            for text in ("10ms", "99ms", "2min", "2h", "abc", "-1s", "1e1s", "500", "nan", " 1s")
        ),
        *(("MAX_BYTES", text) for text in ("many", "-1", "1.5GB", "2XB", "1B B")),
        *(("STACKS", text) for text in ("-1", "a", "0.01", "51", "1e1")),
        *(("PROFILE_STEPS", text) for text in ("9-", "11-9", "a", "1-2-3")),
        *(("OPERATORS", text) for text in ("x", "1,,2", "-1")),
        ("STEPS", "always"),
        ("PROFILER", "perf"),
        *(
            ("LABEL", text)
            for text in ("novalue", "KEY=v", "=v", "a b=v", f"k={'x' * 1025}", f"{'k' * 65}=v")
        ),
        ("LABEL", "\n".join(f"k{n}=v" for n in range(101))),
        ("LABEL", "\n".join(f"k{n}={'é' * 400}" for n in range(90))),
    ],
)
def test_bad_options_are_one_sentence_that_names_the_option(name: str, text: str) -> None:
    with pytest.raises(SettingError, match=f"^--{name.lower().replace('_', '-')}") as error:
        read({f"JOBRECORD_{name}": text})

    assert "\n" not in str(error.value)


def test_a_long_name_of_a_run_is_refused() -> None:
    with pytest.raises(SettingError, match=r"^JOBRECORD_RUN: use at most 100 characters, not 101\.$"):
        read({"JOBRECORD_RUN": "x" * 101})


def test_options_of_the_environment() -> None:
    chosen = read(
        {
            "JOBRECORD_DIR": "/data/job",
            "JOBRECORD_NODE": "gpu-07.cluster.example",
            "JOBRECORD_MAX_BYTES": "500MB",
            "JOBRECORD_LABEL": "batch_size=256\nnote=a=b, c",
            "JOBRECORD_PROFILE_STEPS": "9-11",
            "JOBRECORD_OPERATORS": "5,6",
            "JOBRECORD_STACKS": "0",
            "JOBRECORD_FORCE": "1",
            "JOBRECORD_QUIET": "0",
        }
    )

    assert (chosen.out, chosen.node, chosen.max_bytes) == (Path("/data/job"), "gpu-07", 500_000_000)
    assert chosen.labels == {"batch_size": "256", "note": "a=b, c"}
    assert (chosen.profile_steps, chosen.operators) == ((9, 11), (5, 6))
    assert (chosen.stacks, read({}).stacks, read({"JOBRECORD_STACKS": "2.5"}).stacks) == (0, 10, 2.5)
    assert (chosen.force, chosen.quiet, chosen.all_cores) == (True, False, False)


def test_processes_of_a_recording_find_it() -> None:
    chosen = read({})

    again = read(for_processes(chosen))

    assert (again.out, again.node, again.run) == (chosen.out, chosen.node, chosen.run)
    assert read({}).run != chosen.run


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("host", "host"),
        ("gpu-node-07.cluster.example", "gpu-node-07"),
        ("a_b", "a-b"),
        ("../../etc", "node"),
        ("x/../y", "x-"),
        ("<script>", "-script-"),
        ("nœud\n", "n-ud-"),
        ("a\x00b", "a-b"),
        ("x" * 500, "x" * 64),
    ],
)
def test_names_of_nodes_are_safe_in_names_of_files(name: str, expected: str) -> None:
    assert node_name(name) == expected


def test_vendor_names() -> None:
    assert read({"JOBRECORD_VENDOR_NAMES": "1", "SLURM_NODEID": "2"}).node == "algo-3"
    assert read({"JOBRECORD_VENDOR_NAMES": "1"}).node == "algo-1"


def test_nodes_by_launcher() -> None:
    assert (node_count({"SLURM_NNODES": "4"}), node_rank({"SLURM_NODEID": "3"})) == (4, 3)
    assert (node_count({"GROUP_WORLD_SIZE": "2", "SLURM_NNODES": "4"}), node_rank({"GROUP_RANK": "0"})) == (
        2,
        0,
    )
    assert (node_count({"SLURM_NNODES": "many"}), node_rank({})) == (None, None)
