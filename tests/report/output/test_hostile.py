"""Jobs whose names were chosen to break something, in surroundings full of traps; through the command, as a user runs it."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz.hostile import (
    MARK,
    NAMES,
    faults,
    of_html,
    of_markdown,
    results,
    unseen,
    write,
)
from jobreport import cli, pipeline
from jobreport.markdown import escape
from jobreport.options import Options
from jobreport.page import sections
from jobrules.text import escape_name
from tests.hostile_run import CODE, Made, hostile_run
from tests.paths import ROOT
from tests.report.page.sections.html import Page

#: What Python, Jupyter and our own code import; a file of each of these names waits in the working directory.
MODULES = [
    "jobreport",
    "jobrules",
    "numpy",
    "msgspec",
    "click",
    "tqdm",
    "bokeh",
    "jinja2",
    "markupsafe",
    "papermill",
    "nbconvert",
    "nbformat",
    "nbclient",
    "jupyter_client",
    "jupyter_core",
    "ipykernel",
    "IPython",
    "traitlets",
    "zmq",
    "json",
    "re",
    "string",
    "random",
    "typing",
    "zipfile",
    "multiprocessing",
    "pickle",
    "sitecustomize",
    "usercustomize",
]
#: Files of the user that Python, IPython, Jupyter or Dask would run or read.
STARTED = (
    *(".ipython/profile_default/startup/00.py", ".config/ipython/profile_default/startup/00.py"),
    *(".ipython/profile_default/ipython_config.py", ".ipython/profile_default/ipython_kernel_config.py"),
    *(".jupyter/jupyter_config.py", ".jupyter/jupyter_nbconvert_config.py", ".jupyter/nbconvert_config.py"),
    *(".config/papermill/papermill.py", ".pdbrc", ".pythonrc.py", ".ipython/extensions/00.py"),
)
CONFIG = {
    "TemplateExporter": {"template_name": "lab", "exclude_output": True},
    "Exporter": {"default_preprocessors": ["nbconvert.preprocessors.ClearOutputPreprocessor"]},
    "NbConvertBase": {"display_data_priority": ["text/plain"]},
    "KernelManager": {"kernel_name": "trap"},
}
KERNEL = {"argv": ["false", "{connection_file}"], "display_name": "trap", "language": "python"}
TEMPLATE = {"base_template": "lab", "mimetypes": {"text/html": True}}


def _set_traps(home: Path, cwd: Path, sprung: Path) -> dict[str, str]:
    """Traps in both folders, each of which leaves a file behind; and the variables that lead to others."""
    python = [cwd / f"{name}.py" for name in MODULES] + [home / name for name in STARTED]
    for trap in python:
        trap.parent.mkdir(parents=True, exist_ok=True)
        trap.write_text(f"open({str(sprung / trap.name)!r}, 'w').close()\nraise SystemExit(7)\n")
    jupyter = [home / ".local/share/jupyter", home / ".jupyter", home / "more"]
    texts = {
        **{folder / "nbconvert/templates/page/index.html.j2": "trap" for folder in jupyter},
        **{folder / "nbconvert/templates/page/conf.json": json.dumps(TEMPLATE) for folder in jupyter},
        **{folder / "kernels/python3/kernel.json": json.dumps(KERNEL) for folder in jupyter},
        **{
            folder / f"jupyter_{name}config.json": json.dumps(CONFIG)
            for folder in (home / ".jupyter", cwd)
            for name in ("", "nbconvert_")
        },
        **dict.fromkeys(
            (cwd / "index.html.j2", cwd / "templates/page/index.html.j2", cwd / "report.ipynb"), "trap"
        ),
        home / ".bokeh/settings.yaml": "resources: cdn\n",
        cwd / "dask.yaml": "scheduler: processes\n",
    }
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_DATA_HOME": str(home / ".local/share"),
        "IPYTHONDIR": str(home / ".ipython"),
        "JUPYTER_PATH": str(home / "more"),
        "JUPYTER_CONFIG_DIR": str(home / ".jupyter"),
        "JUPYTER_CONFIG_PATH": str(home / ".jupyter"),
        "JUPYTER_DATA_DIR": str(home / "more"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "BOKEH_RESOURCES": "cdn",
        "BOKEH_MINIFIED": "no",
        "BOKEH_SIMPLE_IDS": "no",
        "BOKEH_PRETTY": "yes",
        "BOKEH_LOG_LEVEL": "trace",
        "BOKEH_PY_LOG_LEVEL": "trace",
        "BOKEH_SERIALIZE_INCLUDE_DEFAULTS": "yes",
        "DASK_CONFIG": str(cwd),
        "TQDM_DISABLE": "0",
    }


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return hostile_run(tmp_path_factory)


def test_every_name_is_text_and_nothing_else(clean: Made) -> None:
    text = Page.of(clean.files["report.html"].decode()).text

    assert clean.status == 0
    assert faults(clean.folder) == []
    assert [
        kind for kind, name in NAMES.items() if " ".join(escape_name(name[:14]).split()) not in text
    ] == []
    assert escape_name(CODE) in text


@pytest.mark.parametrize(
    "html",
    [
        NAMES["markup"],
        NAMES["script"],
        "\u202e",
        f"<a href='{NAMES['address']}'>x</a>",
        f"<p>{'x' * 3000}</p>",
        "<p style='background:url(x)'></p>",
        "</section>",
    ],
)
def test_what_looks_for_faults_finds_them_in_html(html: str) -> None:
    assert of_html(f"<section><p>sound</p>{html}</section>", scripts=0) != []
    assert of_html("<section><p>sound</p></section>", scripts=0) == []


@pytest.mark.parametrize(
    "text",
    [
        NAMES["markdown link"],
        NAMES["markdown table"],
        NAMES["markup"],
        "$$x$$",
        "https://hostile.invalid/",
        "\u202e",
    ],
)
def test_what_looks_for_faults_finds_them_in_markdown(text: str) -> None:
    assert of_markdown(f"# Head\n\n{text}\n") != []
    assert of_markdown(f"# Head\n\n{escape(escape_name(text))}\n") == []


def test_what_looks_for_faults_finds_them_in_a_notebook(clean: Made, tmp_path: Path) -> None:
    for name in ("report.html", "summary.md", "junit.xml"):
        (tmp_path / name).write_bytes(clean.files[name])
    notebook = json.loads(clean.files["report.ipynb"])
    cells = {cell["id"]: cell for cell in notebook["cells"]}
    cells["head"]["source"] = "__import__('os').system('id')"
    cells["verdict"]["outputs"][0]["data"]["application/javascript"] = "1"
    cells["nodes"]["outputs"][0]["data"]["text/html"] = "<section class='jr'><p>$$x$$</p></section>"
    (tmp_path / "report.ipynb").write_text(json.dumps(notebook))

    found = faults(tmp_path)

    assert len(found) == 3
    for fault, told in zip(found, ("application/javascript", "formulas", "code of its cells"), strict=True):
        assert told in fault


def test_the_terminal_shows_names_and_obeys_none(clean: Made) -> None:
    # Of its own, a bar of progress goes back to the beginning of its line, or a line up.
    told = clean.said.replace("\r\n", "\n").replace("\r", "\n").replace("\x1b[A", "")

    assert unseen(told) == []
    assert escape_name(CODE) in told
    assert "of GPU time was " in told
    assert r"/out\x1b]0;\u202e/report.html" in told


def test_a_name_that_is_a_program_is_not_run(clean: Made) -> None:
    notebook = json.loads(clean.files["report.ipynb"])

    assert clean.strays == []
    assert not list(clean.job_dir.parent.glob(f"**/{MARK}"))
    (parameter,) = (cell for cell in notebook["cells"] if "parameters" in cell["metadata"].get("tags", ()))
    assert "".join(parameter["source"]) == 'report_json = "report.json"'


@pytest.mark.slow
def test_traps_in_the_surroundings_change_no_byte(clean: Made, tmp_path: Path) -> None:
    home, cwd, sprung = (tmp_path / name for name in ("home", "cwd", "sprung"))
    for folder in (home, cwd, sprung):
        folder.mkdir()
    environment = _set_traps(home, cwd, sprung)
    # They would work: a Python that has the working directory on its path falls for them.
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([sys.executable, "-c", "import jobreport"], cwd=cwd, env=plain, check=False)
    assert [trap.name for trap in sprung.iterdir()] == ["jobreport.py"]
    (sprung / "jobreport.py").unlink()

    made = Made(tmp_path / "out", clean.job_dir, cwd, environment)

    assert (made.status, made.strays, list(sprung.iterdir())) == (0, [], [])
    assert [name for name, content in clean.files.items() if made.files.get(name) != content] == []
    assert made.files.keys() == clean.files.keys()


def test_rule_results_with_such_names_are_text_too(tmp_path: Path) -> None:
    write(tmp_path / "in", results([name[:5000] for name in NAMES.values()]))

    report = pipeline.make_report(tmp_path / "in", tmp_path / "out", Options(formats=["json", "md"])).report
    pages = [one.html for one in sections.page(report).values()]

    assert of_html("".join(pages), scripts=0) == []
    assert of_markdown((tmp_path / "out" / "summary.md").read_text("utf-8")) == []
    assert escape_name(NAMES["markup"]) in Page.of("".join(pages)).text


@pytest.mark.parametrize(
    "options",
    [
        ["--job-dir", "NAME"],
        ["--job-dir", ".", "--config", "NAME"],
        ["--job-dir", ".", "--rules", "NAME"],
        ["--job-dir", ".", "--set", "NAME"],
        ["--job-dir", ".", "--formats", "NAME"],
        ["--explain", "NAME"],
        ["--NAME"],
        ["NAME"],
    ],
)
def test_no_complaint_is_obeyed_by_the_terminal(
    options: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "\x1b[31mred\x9b2J\u202egpj\x07"
    monkeypatch.setattr(sys, "argv", ["make-report", *(option.replace("NAME", name) for option in options)])

    with pytest.raises(SystemExit) as stopped:
        cli.main()

    told = capsys.readouterr().err
    assert stopped.value.code == 2
    assert unseen(told) == []
    assert r"red\x9b2J\u202egpj\x07" in told


def test_the_policy_allows_the_scripts_of_the_page_and_nothing_else(clean: Made) -> None:
    html = clean.files["report.html"].decode()
    page = Page.of(html)
    (content,) = (m["content"] for m in page.all("meta") if m.get("http-equiv") == "Content-Security-Policy")
    policy = dict(part.strip().split(" ", 1) for part in str(content).split(";"))
    running = [text for attributes, text in page.scripts if attributes.get("type") != "application/json"]
    hashes = [
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in running
    ]

    # What it does not name, as frames, workers, connections, fonts, media and objects, default-src forbids.
    assert policy == {
        "default-src": "'none'",
        "script-src": " ".join(hashes),
        "style-src": "'unsafe-inline'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    # Nothing comes before it but what it cannot govern.
    assert re.match(
        r'<!doctype html>\s<html lang="en">\s<head>\s<meta charset="utf-8">\s<meta name="viewport"[^>]*>\s'
        r'<meta name="color-scheme"[^>]*>\s<meta http-equiv="Content-Security-Policy"',
        html,
    )
    assert [m["content"] for m in page.all("meta") if m.get("name") == "referrer"] == ["no-referrer"]


def test_our_scripts_use_no_storage_and_make_no_code() -> None:
    for script in ("figures", "page"):
        text = (ROOT / "templates" / "script" / f"{script}.js").read_text("utf-8")
        forbidden = r"eval|Function\(|innerHTML|outerHTML|insertAdjacentHTML|document\.write|cookie|Storage|indexedDB|fetch|XMLHttp|import\("
        assert re.findall(forbidden, text) == []
