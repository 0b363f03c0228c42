"""A module imports from its own folder or from one below."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.paths import ROOT

#: From the ground up. A folder holds all modules below it that no longer entry holds; modules of one floor share it.
FLOORS = (
    ("jobrules.model.types",),
    ("jobrules.text",),
    ("jobrules.model",),
    ("jobrules.rule",),
    ("jobrules.measures",),
    ("jobrules.captures",),
    ("jobrules",),
    ("jobrules.verdict",),
    ("jobrules.analyses",),
    ("jobreport",),
    ("jobreport.tables", "jobreport.cost.document", "jobreport.redaction.names"),
    ("jobreport.document",),
    ("jobreport.sentences", "jobreport.cost"),
    ("jobreport.comparison", "jobreport.headline", "jobreport.options"),
    ("jobreport.readers", "jobreport.page.figures", "jobreport.redaction.identifiers"),
    ("jobreport.redaction", "jobreport.page.kit", "jobreport.storage"),
    ("jobreport.page.sections",),
    ("jobreport.debugger_report", "jobreport.output"),
    ("jobreport.build", "jobreport.actions", "jobreport.timeline"),
    ("jobreport.pipeline",),
    ("jobreport.comparison.reading",),
    ("jobreport.watching", "jobreport.library"),
    ("jobreport.compare",),
    ("jobreport.cli",),
    ("jobreport.compare_cli", "jobreport.trace_cli"),
    ("jobreport.__main__",),
)
FLOOR = {name: i for i, names in enumerate(FLOORS) for name in names}

#: Libraries that have one home each.
HOMES = {
    "bokeh": ("jobreport.page", "jobreport.output.export"),
    "papermill": ("jobreport.output.notebook",),
    "nbconvert": ("jobreport.output.export",),
    "jinja2": ("jobreport.page.kit", "jobreport.output.export"),
    "click": ("jobreport.cli", "jobreport.compare_cli", "jobreport.trace_cli"),
    "distributed": ("jobreport.tables.cluster",),
    "tqdm": ("jobreport.progress",),
    "pandas": ("jobreport.library",),
}
#: What no module outside of them imports: one format's reader knows no other.
FORMATS = {
    f"jobreport.readers.{path.name}"
    for path in (ROOT / "report/jobreport/readers").iterdir()
    if path.is_dir() and path.name != "__pycache__"
}


def module_name(path: Path, folder: Path) -> str:
    parts = path.relative_to(folder).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def home(module: str) -> str:
    """The entry of FLOORS that a module belongs to."""
    while module not in FLOOR:
        module = module.rpartition(".")[0]
    return module


MODULES = {
    module_name(p, ROOT / folder): p for folder in ("report", "rules") for p in (ROOT / folder).rglob("*.py")
}


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.add(full if full in MODULES else node.module)
    return found


def inside(module: str, folders: set[str] | tuple[str, ...]) -> str:
    """The folder that holds the module; empty if none does."""
    return next((one for one in folders if f"{module}.".startswith(f"{one}.")), "")


@pytest.fixture(scope="module")
def imported() -> list[tuple[str, str]]:
    """Each module with each name that it imports; the package itself offers the names of the library."""
    return [
        (module, name) for module, path in MODULES.items() if module != "jobreport" for name in imports(path)
    ]


def test_a_module_imports_from_its_own_floor_or_below(imported: list[tuple[str, str]]) -> None:
    wrong = []
    for module, name in imported:
        top = name.partition(".")[0]
        own = home(module)
        if top in ("jobreport", "jobrules"):
            allowed = FLOOR[home(name)] < FLOOR[own] or home(name) == own
        else:
            allowed = top not in HOMES or inside(module, HOMES[top]) != ""
        if not allowed:
            wrong.append(f"{module} imports {name}")

    assert len(imported) > 500
    assert wrong == []


def test_a_reader_knows_no_other_reader(imported: list[tuple[str, str]]) -> None:
    readers = [(module, name) for module, name in imported if inside(module, FORMATS)]

    assert len(readers) > 100
    assert [
        f"{module} imports {name}"
        for module, name in readers
        if inside(name, FORMATS) not in ("", inside(module, FORMATS))
    ] == []


def test_no_folder_holds_more_than_one_can_look_through() -> None:
    for folder in {path.parent for path in MODULES.values()}:
        assert len(list(folder.glob("*.py"))) <= 27, folder
