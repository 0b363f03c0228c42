"""The distribution: what it imports, and what its wheel holds."""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.record.recordings import environment

RECORD = ROOT / "record"


def test_the_recorder_knows_nothing_of_the_report() -> None:
    imported = {
        name
        for path in RECORD.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in (
            [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        )
    }

    assert {name.partition(".")[0] for name in imported} & {
        "jobreport",
        "jobrules",
        "numpy",
        "msgspec",
    } == set()


@pytest.mark.parametrize(
    ("module", "most", "not_yet"), [("jobrecord", 50, {"jobrecord.hooks"}), ("jobrecord.sampler", 200, set())]
)
def test_imports_are_light(module: str, most: int, not_yet: set[str]) -> None:
    heavy = {"torch", "numpy", "psutil", "pynvml", "amdsmi"} | not_yet
    program = f"import sys; n = len(sys.modules); import {module}; print(*{heavy} & sys.modules.keys(), len(sys.modules) - n < {most})"

    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True, check=True
    )

    assert done.stdout == "True\n"


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_its_types(tmp_path: Path) -> None:
    build = ["-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(RECORD)]
    subprocess.run([sys.executable, *build], capture_output=True, check=True)

    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = (archive.read(name).decode() for name in names if name.endswith("METADATA"))
        (terms,) = (archive.read(name) for name in names if name.endswith("LICENSE"))

    sources = {str(path.relative_to(RECORD)) for path in (RECORD / "jobrecord").rglob("*.py")}
    assert sources | {"jobrecord/py.typed"} <= names
    assert {name.partition("/")[0] for name in names if ".dist-info" not in name} == {"jobrecord"}
    assert "Requires-Python: >=3.10" in metadata
    assert metadata.count("Requires-Dist") - metadata.count("; extra ==") == 2
    assert terms == (ROOT / "LICENSE").read_bytes()
