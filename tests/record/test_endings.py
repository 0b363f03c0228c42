"""What ended a process is in the facts, and nothing else of the process changes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobrecord.hooks.endings import MAX_MESSAGE, _memory
from jobreport.ended import ENDED
from jobreport.output import summary
from jobreport.page import sections
from tests.record.recordings import PYTHON, RECORD_JOB, environment, facts, record
from tests.record.reports import pipeline, report

GIB = 1 << 30
#: A script, and what is recorded of its end: type, message, line, function, and memory. Lines count from 1.
SCRIPTS: dict[str, tuple[str, tuple[str, str, int, str, str] | None]] = {
    "memory": ("def load():\n    return bytearray(1 << 60)\nload()\n", ("MemoryError", "", 2, "load", "host")),
    "a library's function": (
        "import json\ndef parse():\n    json.loads('[')\nparse()\n",
        ("json.decoder.JSONDecodeError", "Expecting value: line 1 column 2 (char 1)", 3, "parse", ""),
    ),
    "a hook of its own": (
        "import sys\nsys.excepthook = lambda *_: print('mine')\n1 / 0\n",
        ("ZeroDivisionError", "division by zero", 3, "<module>", ""),
    ),
    "an error of its own": (
        "class Own(Exception):\n    def __str__(self):\n        1 / 0\nraise Own\n",
        ("Own", "", 0, "", ""),
    ),
    "a secret": (
        "raise ValueError('cannot log in: password=hush, user=me')\n",
        ("ValueError", "cannot log in: password=*** user=me", 1, "<module>", ""),
    ),
    "a long message": (
        "raise ValueError('a\\n' * 10_000)\n",
        ("ValueError", f"{'a ' * 100}"[: MAX_MESSAGE - 1] + "…", 1, "<module>", ""),
    ),
    "a fake of CUDA": (
        "OutOfMemoryError = type('OutOfMemoryError', (RuntimeError,), {'__module__': 'torch'})\n"
        "raise OutOfMemoryError('CUDA out of memory. Tried to allocate 2.00 GiB.')\n",
        ("torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB.", 2, "<module>", "gpu"),
    ),
    "a traceback of another process": (
        "raise ValueError('Caught it.\\nTraceback (most recent call last):\\n  File \"/x/data.py\", line 7, in item\\n'\n"
        "    'KeyError: 3')\n",
        ("KeyError", "3", 7, "item", ""),
    ),
    "a long number": (
        "raise MemoryError(f'allocate {10**4200 // 9}, {10**4200 // 7}, {10**4200 // 3}')\n",
        ("MemoryError", f"allocate {'1' * 400}"[: MAX_MESSAGE - 1] + "…", 1, "<module>", "host"),
    ),
    "an interrupt": ("raise KeyboardInterrupt\n", None),
    "an interrupt of a training": (
        "import jobrecord\njobrecord.start()\njobrecord.step()\nraise KeyboardInterrupt\n",
        ("KeyboardInterrupt", "", 4, "<module>", ""),
    ),
    "an exit": ("import sys\nsys.exit(3)\n", None),
    "an exit with a text": ("import sys\ntry:\n    1 / 0\nexcept Exception as e:\n    sys.exit(str(e))\n", None),
    "a good end": ("try:\n    1 / 0\nexcept Exception:\n    pass\n", None),
    "a thread": (
        "import threading\nt = threading.Thread(target=lambda: 1 / 0)\nt.start()\nt.join()\n",
        None,
    ),
    "a child": (
        "import os\nif not os.fork():\n    raise ValueError('of the child')\nos.wait()\n",
        None,
    ),
    "a signal": ("import os\nos.kill(os.getpid(), 9)\n", None),
}  # fmt: skip


@pytest.mark.parametrize("name", SCRIPTS)
def test_an_exception_that_nobody_caught_is_in_the_facts(name: str, tmp_path: Path) -> None:
    script, expected = SCRIPTS[name]
    (tmp_path / "train.py").write_text(script)
    out = tmp_path / "job"

    done = record(out, "--quiet", command=[PYTHON, "train.py"], cwd=tmp_path)
    plain = subprocess.run(
        [PYTHON, "train.py"],
        cwd=tmp_path,
        env=environment(JOBRECORD_QUIET="1"),
        capture_output=True,
        text=True,
        check=False,
    )

    status = plain.returncode if plain.returncode >= 0 else 128 - plain.returncode
    assert (done.returncode, done.stdout, done.stderr) == (status, plain.stdout, plain.stderr)
    found = [_short(one) for one in facts(out).get("exceptions") or []]
    assert found == ([expected] if expected else [])


def _short(one: dict[str, Any]) -> tuple[str, str, int, str, str]:
    place = one["place"] or {"line": 0, "function": ""}
    return one["type"], one["message"], place["line"], place["function"], one["memory"]


@pytest.mark.parametrize(
    ("error", "sizes"),
    [
        (
            "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 14.00 GiB of which 512.00 MiB "
            "is free. Process 12345 has 2.93 GiB memory in use. Of the allocated memory 2.81 GiB is allocated by PyTorch",
            ("gpu", 20.0, 14.0, 0.5),
        ),
        (
            "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 16.00 GiB total capacity; 14.30 GiB already allocated; "
            "256.00 MiB free; 14.34 GiB reserved in total by PyTorch)",
            ("gpu", 2.0, 16.0, 0.25),
        ),
        ("HIP out of memory. Tried to allocate 1024.00 MiB.", ("gpu", 1.0, None, None)),
        ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2147483648 bytes.", ("gpu", 2.0, None, None)),
        ("CUDA error: out of memory", ("gpu", None, None, None)),
        (
            "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
            "4294967296 bytes. Error code 12 (Cannot allocate memory)",
            ("host", 4.0, None, None),
        ),
        ("[Errno 12] Cannot allocate memory", ("host", None, None, None)),
        ("cannot allocate a rank to a free GPU", ("", None, None, None)),
    ],
)  # fmt: skip
def test_sizes_are_those_of_the_message(
    error: str, sizes: tuple[str, float | None, float | None, float | None]
) -> None:
    found = _memory(RuntimeError(error), error)

    known = (found.get(f"{name}_bytes") for name in ("asked", "total", "free"))
    assert (found.get("memory", ""), *(size and size / GIB for size in known)) == sizes


def test_the_first_line_is_about_the_rank_that_failed_first(tmp_path: Path) -> None:
    """Of three processes that each train; one that failed and was started again is not what ended the job."""
    (tmp_path / "train.py").write_text(
        "import os, sys, time, jobrecord\njobrecord.start()\nrank = int(os.environ['RANK'])\n"
        "for i in range(40):\n    time.sleep(0.01)\n    jobrecord.step()\n"
        "    if i == 9 and 'again' not in sys.argv and rank == 2:\n        raise ValueError('a first try')\n"
        "    if i == 20 and rank == 1:\n        open('failed', 'w')\n        raise KeyError('first')\n"
        "while not os.path.exists('failed'): time.sleep(0.01)\n"
        "time.sleep(0.5)\nraise RuntimeError('Connection closed by peer')\n"
    )
    command = "for r in 0 1; do RANK=$r python train.py & done; RANK=2 python train.py; RANK=2 python train.py again; exit 1"
    out = tmp_path / "job"

    record(out, "--quiet", command=["sh", "-c", command.replace("python", PYTHON)], cwd=tmp_path)
    ended = report(out)["ended"]

    known = tuple(ended["error"][name] for name in ("rank", "type", "file", "line"))
    assert known == ("1", "KeyError", "train.py", 11)
    assert (ended["how"], ended["step"], ended["exit_status"]) == ("exception", 21, 1)


@pytest.mark.parametrize(
    ("script", "libraries"),
    [
        ("import jax\n", ["jax"]),
        ("import jax, jobrecord\njobrecord.start()\njobrecord.step()\n", []),
        ("import jax, os\nos._exit(0)\n", []),
        ("import json\n", []),
        # What another process of Python's made does not train by itself.
        (
            "import multiprocessing as m\nimport sys\n"
            "def child(): import jax\n"
            "if __name__ == '__main__': p = m.get_context('spawn').Process(target=child); p.start(); p.join()\n",
            [],
        ),
    ],
)
def test_a_process_that_may_have_trained_without_a_step_is_told(
    script: str, libraries: list[str], tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(script)
    (tmp_path / "jax.py").write_text("")
    out = tmp_path / "job"
    record(out, "--quiet", command=[PYTHON, "train.py"], cwd=tmp_path)

    found = pipeline.make_report(
        out, tmp_path / "report", pipeline.Options(formats=["json"], strict=True)
    ).report

    assert facts(out).get("libraries", []) == libraries
    assert ("<code>jobrecord.step()</code>" in str(sections.head(found).html)) == bool(libraries)
    assert any("jobrecord.step()" in line for line in summary.terminal(found)[-1:]) == bool(libraries)


@pytest.mark.parametrize(
    ("script", "is_bad"),
    [
        ("jobrecord.start()\njobrecord.step()\nraise MemoryError\n", True),
        # The script might catch it.
        ("with jobrecord.record():\n    jobrecord.step()\n    raise MemoryError\n", False),
        ("try:\n    with jobrecord.record():\n        1 / 0\nexcept ZeroDivisionError:\n    pass\n", False),
        ("jobrecord.start()\njobrecord.step()\n", False),
        # A cell of a notebook failed, and others ran after it.
        (
            "import sys\njobrecord.start()\njobrecord.step()\nsys.ps1, sys.last_value = '', ValueError()\n",
            False,
        ),
    ],
)
def test_without_record_job_an_exception_is_all_that_is_known(
    script: str, is_bad: bool, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(f"import jobrecord\n{script}")
    out = tmp_path / "job"
    subprocess.run([PYTHON, "train.py"], cwd=tmp_path, env=environment(JOBRECORD_DIR=str(out)), check=False)

    found = report(out)

    assert found.get("ended", {}).get("how") == ("memory" if is_bad else None)


@pytest.fixture
def small_memory() -> Iterator[Path]:
    """A cgroup with memory for a small process, as a folder."""
    root = Path("/sys/fs/cgroup")
    group = (root / "memory" if (root / "memory").is_dir() else root) / f"jobrecord-{os.getpid()}"
    limit = "memory.limit_in_bytes" if (root / "memory").is_dir() else "memory.max"
    try:
        group.mkdir()
        (group / limit).write_text(str(160 << 20))
    except OSError:
        pytest.skip("only root can limit memory, where it is delegated")
    yield group
    group.rmdir()


def test_a_kill_by_the_kernel_is_what_ended_the_job(small_memory: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import time, jobrecord\njobrecord.start()\nkept = []\nwhile True:\n"
        "    kept.append(bytearray(1 << 20))\n    time.sleep(0.02)\n    jobrecord.step()\n"
    )
    out = tmp_path / "job"
    into = ["sh", "-c", f'echo $$ > {small_memory}/cgroup.procs; exec "$@"', "sh"]
    command = [*into, *RECORD_JOB, "--quiet", "--out", str(out), "--", PYTHON, "train.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), check=False)

    found = report(out)

    assert done.returncode == 137
    assert found["ended"]["how"] == "memory kill"
    assert 0.6 < found["ended"]["used"] / found["ended"]["total"] <= 1
    assert found["verdict"]["findings"][0]["key"] == ENDED
    assert "memory-kills" not in {one["key"] for one in found["verdict"]["findings"]}
