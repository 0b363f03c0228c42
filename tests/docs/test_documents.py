from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import textwrap
from types import ModuleType

import pytest

import jobrecord
from jobrecord import command as recorder
from jobreport import JobFrames, cli
from jobreport.readers.nvidia_smi.columns import columns
from jobreport.readers.system_samples import sensors
from tests.paths import ROOT


def load_generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATOR = load_generator()


@pytest.mark.parametrize("name", sorted(GENERATOR.PAGES))
def test_generated_documents_are_up_to_date(name: str) -> None:
    found = (ROOT / "docs" / name).read_text("utf-8")

    assert found == GENERATOR.PAGES[name](), f"docs/{name} is stale: run make docs"


def test_every_sensor_has_its_place_on_the_page() -> None:
    (section,) = re.findall(
        r"^## Sensors$.*?(?=^## )", (ROOT / "docs" / "architecture.md").read_text("utf-8"), re.M | re.S
    )
    metrics = {*sensors._DEVICES.values(), *(metric for metric, _ in sensors._WHOLE_NODE.values())}

    assert not [metric.name for metric in metrics if not re.search(rf"\b{metric.name}\b", section)]


def test_the_readme_names_only_options_that_exist() -> None:
    record_job = re.findall(r"--[a-z][a-z-]*", recorder._parser().format_help())
    known = {
        "make-report": {option for parameter in cli.command.params for option in parameter.opts} | {"--help"},
        "record-job": {*record_job},
    }

    pages = ["README.md", "CONTRIBUTING.md", "record/README.md", "sample_data/README.md"]
    for name in [
        *pages,
        *(
            f"docs/{page}.md"
            for page in ("actions", "architecture", "ci", "job-directory", "recording", "watching")
        ),
    ]:
        text = (ROOT / name).read_text("utf-8")
        for program, options in re.findall(r"(make-report|record-job)((?: +[^`\s]+)*)", text):
            own = options.partition(" -- ")[0]
            assert set(re.findall(r"(?<![^ ])--[a-z][a-z-]*", own)) <= known[program], (name, own)


@pytest.mark.parametrize("name", ["README.md", "docs/recording.md", "record/README.md"])
def test_examples_call_what_the_recorder_has(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")

    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        compile(textwrap.dedent(block), name, "exec")
    assert {*re.findall(r"jobrecord\.(\w+)\(", text)} <= {*jobrecord.__all__}


def test_the_commands_that_record_run_and_all_their_columns_are_read() -> None:
    for name in ("docs/recording.md", "docs/job-directory.md"):
        text = (ROOT / name).read_text("utf-8")
        for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL):
            subprocess.run(["bash", "-n"], input=block, text=True, check=True)
            for names in re.findall(r"--query-gpu=(\S+)", block):
                assert all(columns(names.split(","))), (name, names)


def test_links_between_documents_lead_somewhere() -> None:
    folders = (ROOT / folder for folder in (".", "docs", "record", "sample_data"))
    for page in [page for folder in folders for page in folder.glob("*.md")]:
        for path, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", page.read_text("utf-8")):
            target = page.parent / path if path else page
            if path.startswith("http"):
                continue
            assert target.exists(), f"{page.name}: {path}"
            if anchor:
                assert anchor in anchors(target.read_text("utf-8")), f"{page.name}: {path}#{anchor}"


def anchors(text: str) -> set[str]:
    """Those of the headings, as Git hosts make them."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_schema_is_valid_json_with_every_field_of_the_report() -> None:
    schema = json.loads((ROOT / "docs" / "report.schema.json").read_text("utf-8"))

    report = schema["$defs"]["Report"]
    assert {"schema_version", "job", "verdict", "rules", "quality"} <= set(report["required"])


def test_what_the_library_has_instead_exists() -> None:
    table = (ROOT / "docs" / "differences.md").read_text("utf-8").partition("## The library")[2]
    ours = {
        name for row in table.splitlines() for name in re.findall(r"`job\.(\w+)", row.rpartition(" | ")[2])
    }

    assert len(ours) > 20
    assert [name for name in ours if not hasattr(JobFrames, name)] == []
