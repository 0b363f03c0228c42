from __future__ import annotations

import importlib.util
import json
import re
import subprocess
from types import ModuleType

import pytest

from jobreport import cli
from jobreport.readers.nvidia_smi.columns import columns
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


def test_the_readme_names_only_options_that_exist() -> None:
    known = {option for parameter in cli.command.params for option in parameter.opts} | {"--help"}

    for name in ("README.md", "CONTRIBUTING.md", "docs/architecture.md", "docs/job-directory.md"):
        text = (ROOT / name).read_text("utf-8")
        for block in re.findall(r"make-report[^`\n]*", text):
            assert set(re.findall(r"--[a-z][a-z-]*", block)) <= known, name


def test_the_commands_that_record_run_and_all_their_columns_are_read() -> None:
    for name in ("README.md", "docs/job-directory.md"):
        text = (ROOT / name).read_text("utf-8")
        for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL):
            subprocess.run(["bash", "-n"], input=block, text=True, check=True)
            for names in re.findall(r"--query-gpu=(\S+)", block):
                assert all(columns(names.split(","))), (name, names)


def test_links_between_documents_lead_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("sample_data/*.md")]:
        for target in re.findall(r"\]\(([^)#\s]+)\)", page.read_text("utf-8")):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_schema_is_valid_json_with_every_field_of_the_report() -> None:
    schema = json.loads((ROOT / "docs" / "report.schema.json").read_text("utf-8"))

    report = schema["$defs"]["Report"]
    assert {"schema_version", "job", "verdict", "rules", "quality"} <= set(report["required"])
