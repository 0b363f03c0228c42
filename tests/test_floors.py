"""A module imports from its own floor or below."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.paths import ROOT

#: From the ground up; modules of one line do not know each other, unless they share a folder.
FLOORS = (
    ("jobrules.job", "jobrules.result", "jobrules.rounding"),
    ("jobrules.words", "jobrules.intervals", "jobrules.rows", "jobrules.counted"),
    (
        "jobrules.windows",
        "jobrules.boxplot",
        "jobrules.snapshots",
        "jobrules.rule",
        "jobrules.clocks",
        "jobrules.histograms",
        "jobrules.loading",
        "jobrules.curve_offset",
    ),
    ("jobrules.coverage", "jobrules.gpu_windows", "jobrules.framework"),
    ("jobrules.usage", "jobrules.bottlenecks", "jobrules.gpu_log"),
    (
        "jobrules.phases",
        "jobrules.timelines",
        "jobrules.overall_system_usage",
        "jobrules.overall_framework_metrics",
        "jobrules.max_initialization_time",
        "jobrules.gpu_memory_full",
    ),
    (
        "jobrules.low_gpu_utilization",
        "jobrules.batch_size",
        "jobrules.cpu_bottleneck",
        "jobrules.io_bottleneck",
        "jobrules.gpu_memory_increase",
        "jobrules.load_balancing",
        "jobrules.step_outlier",
        "jobrules.dataloader",
        "jobrules.framework_time",
        "jobrules.unused_gpu",
        "jobrules.idle_gaps",
        "jobrules.low_mean_use",
        "jobrules.gpu_memory_leak",
        "jobrules.thermal_throttling",
        "jobrules.power_cap",
        "jobrules.slow_clock",
        "jobrules.ecc_errors",
        "jobrules.energy",
    ),
    ("jobrules.step_parts",),
    (
        "jobrules.step_times",
        "jobrules.balance",
        "jobrules.data_loading",
        "jobrules.stalls",
        "jobrules.memory_use",
        "jobrules.gpu_states",
        "jobrules.device_grid",
        "jobrules.moments",
        "jobrules.node_ranks",
    ),
    ("jobrules.causes",),
    ("jobrules.verdict",),
    ("jobrules",),
    ("jobreport",),
    (
        "jobreport.errors",
        "jobreport.quality",
        "jobreport.files",
        "jobreport.folders",
        "jobreport.differences",
    ),
    ("jobreport.plugins", "jobreport.progress"),
    ("jobreport.engine",),
    ("jobreport.cluster", "jobreport.parts"),
    (
        "jobreport.assets",
        "jobreport.document",
        "jobreport.settings",
        "jobreport.archive",
        "jobreport.formats",
    ),
    ("jobreport.identity",),
    ("jobreport.figures", "jobreport.readers", "jobreport.summary", "jobreport.describe"),
    ("jobreport.sections",),
    ("jobreport.kernel",),
    ("jobreport.notebook", "jobreport.export", "jobreport.publish"),
    ("jobreport.vendor_rules", "jobreport.standins"),
    ("jobreport.vendor",),
    ("jobreport.pipeline",),
    ("jobreport.cli",),
)
FLOOR = {name: i for i, names in enumerate(FLOORS) for name in names}

#: Libraries that have one home each.
HOMES = {
    "bokeh": ("jobreport.figures", "jobreport.sections", "jobreport.export"),
    "papermill": ("jobreport.notebook",),
    "nbconvert": ("jobreport.export",),
    "jinja2": ("jobreport.sections", "jobreport.export"),
    "click": ("jobreport.cli",),
    "distributed": ("jobreport.cluster",),
    "tqdm": ("jobreport.progress",),
}


def module_name(path: Path) -> str:
    parts = path.relative_to(path.parents[len(path.parts) - len(ROOT.parts) - 2]).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def home(module: str) -> str:
    """The entry of FLOORS that a module belongs to."""
    folder = ".".join(module.split(".")[:2])
    found = module if module in FLOOR else folder
    assert found in FLOOR, f"{module} stands on no floor: add it to FLOORS"
    return found


MODULES = {module_name(p): p for folder in ("report", "rules") for p in (ROOT / folder).rglob("*.py")}


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


@pytest.mark.parametrize("module", sorted(MODULES))
def test_a_module_imports_from_its_own_floor_or_below(module: str) -> None:
    own = home(module)
    for name in imports(MODULES[module]):
        top = name.partition(".")[0]
        if top in ("jobreport", "jobrules"):
            theirs = home(name)
            assert FLOOR[theirs] < FLOOR[own] or theirs == own, f"{module} imports {name}"
            assert not (own.startswith("jobrules") and top == "jobreport"), f"{module} imports {name}"
        elif top in HOMES:
            assert own in HOMES[top], f"{module} imports {name}"
