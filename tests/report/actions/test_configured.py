"""The actions of a file and of the options: what is wrong with them is said before the job starts."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from jobreport.actions.configured import KEYS, Action, actions_of
from jobreport.errors import UsageError
from jobreport.settings import load
from jobrules import RULES
from jobrules.model import Severity
from tests.paths import ROOT
from tests.report.test_cli import make_report, sample

ALL = tuple(rule() for rule in RULES)
HOOK = {"on": "critical", "do": "webhook", "url_env": "HOOK"}
RUN = {"on": ["UnusedGPU"], "do": "command", "argv": ["true"]}
STOP = {"on": ["UnusedGPU"], "do": "stop"}
SECRET = "hush"


@pytest.fixture(autouse=True)
def _variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", f"https://example.com/{SECRET}")
    monkeypatch.delenv("MISSING", raising=False)


def test_the_blocks_of_the_documentation() -> None:
    text = (ROOT / "docs/actions.md").read_text("utf-8")
    toml = text.partition("```toml\n")[2].partition("```")[0]
    assert "[[action]]" in toml
    blocks = tomllib.loads(toml)["action"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JOBREPORT_WEBHOOK", "https://example.com/x")
        patch.setenv("SLURM_JOB_ID", "7")
        hook, command, stop = actions_of(blocks, ALL)

    assert hook == Action(
        do="webhook", severity=Severity.CRITICAL, for_s=600.0, url="https://example.com/x", timeout_s=10.0
    )
    assert command == Action(
        do="command", rules=frozenset({"UnusedGPU"}), timeout_s=30.0, argv=("scancel", "{env:SLURM_JOB_ID}")
    )
    assert stop == Action(do="stop", rules=frozenset({"UnusedGPU"}), after_s=1800.0, grace_s=60.0)


def test_the_options_are_short_forms() -> None:
    hook, stop = actions_of([], ALL, notify="http://localhost:8/x", stop_on="unusedgpu,idle-gaps")

    assert (hook.do, hook.severity, hook.url) == ("webhook", Severity.WARNING, "http://localhost:8/x")
    assert (stop.do, stop.rules, stop.keys) == ("stop", frozenset({"UnusedGPU"}), frozenset({"idle-gaps"}))
    assert (stop.after_s, stop.grace_s) == (1800.0, 60.0)


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (HOOK | {"do": "mail"}, "Unknown do mail. Use webhook, command, and stop."),
        (HOOK | {"do": "webhok"}, "Did you mean webhook?"),
        ({"on": "critical"}, "Unknown do None."),
        ("stop", "expected a table"),
        (HOOK | {"fr": "1min"}, "Did you mean for?"),
        (HOOK | {"url": "https://example.com"}, "Unknown key of a webhook: url."),
        (HOOK | {"argv": ["true"]}, "Unknown key of a webhook: argv."),
        (HOOK | {"format": "xml"}, "Unknown format xml."),
        (HOOK | {"for": 10}, 'for: expected a time such as "10min"'),
        (HOOK | {"timeout": "soon"}, "timeout: expected a time"),
        (HOOK | {"url_env": 7}, "expected the name of a variable"),
        (HOOK | {"url_env": "MISSING"}, "the variable MISSING is not set"),
        (RUN | {"on": ["UnusedGPUs"]}, "Did you mean UnusedGPU?"),
        (RUN | {"on": ["thermal-throtling"]}, "Did you mean thermal-throttling?"),
        (RUN | {"on": []}, "on: expected a severity"),
        (RUN | {"on": ["UnusedGPU", "UnusedGPU"]}, "a name is given twice"),
        (RUN | {"argv": "true"}, "argv: expected a list"),
        (RUN | {"argv": [""]}, "argv: expected a list"),
        (RUN | {"argv": ["kill", "{env:MISSING}"]}, "the variable MISSING is not set"),
        (STOP | {"on": "critical"}, "name the rules that may stop the job"),
        (STOP | {"grace": "-1s"}, "grace: expected a time"),
    ],
)
def test_a_block_that_cannot_be(block: Any, message: str) -> None:
    with pytest.raises(UsageError, match="action 2 of --config: ") as error:
        actions_of([HOOK, block], ALL)

    assert message in str(error.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/hush",
        "http://localhost.example.com/hush",
        "ftp://localhost/hush",
        "file:///hush",
        "https:///hush",
        "https://me:hush@example.com/",
        "https://exämple.com/hush",
        "https://example.com/hush\r\nX: 1",
        "https://example.com:hush/",
        "hush",
    ],
)
def test_a_url_that_is_refused_is_not_repeated(url: str) -> None:
    with pytest.raises(UsageError, match="--notify") as error:
        actions_of([], ALL, notify=url)

    assert SECRET not in str(error.value)


def test_case_makes_no_difference() -> None:
    (action,) = actions_of([{"ON": ["unusedgpu"], "do": "STOP", "Grace": "7s"}], ALL)

    assert action == Action(do="stop", rules=frozenset({"UnusedGPU"}), grace_s=7.0)


def test_a_rule_that_does_not_run_sets_nothing_off() -> None:
    with pytest.raises(UsageError, match="Unknown rule UnusedGPU"):
        actions_of([RUN], load(ignore=["UnusedGPU"]).rules)


def test_a_wrong_file_ends_the_watch_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("subprocess.Popen", lambda *_, **__: pytest.fail("a round was started"))
    config = tmp_path / "config.toml"
    config.write_text('[[action]]\non = ["UnusedGPU"]\ndo = "commando"\n[UnusedGPU]\npatience = 3\n')

    done = make_report("--job-dir", sample("fluctuating"), "--config", config, "--watch", cwd=tmp_path)

    assert done.returncode == 2
    assert "action 1 of --config: Unknown do commando. Did you mean command?" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["config.toml"]


def test_the_keys_of_all_findings_are_known() -> None:
    """By the code that makes findings: their keys are texts, or names of texts."""
    sources = [
        path.read_text("utf-8")
        for some in ("rules/jobrules/*/*.py", "rules/jobrules/rules/traces/*.py", "report/jobreport/*.py")
        for path in ROOT.glob(some)
    ]
    # Texts of constants are also in modules that make none.
    trees = [ast.parse(one) for one in sources if re.search(r'Finding\(|Cause\(|^[A-Z_, ]+ = "', one, re.M)]
    texts: dict[str, set[Any]] = {}
    for node in (node for tree in trees for node in tree.body if isinstance(node, ast.Assign)):
        names, values = (getattr(one, "elts", [one]) for one in (node.targets[0], node.value))
        for name, value in zip(names, values, strict=False):
            if isinstance(name, ast.Name) and isinstance(value, ast.Constant):
                texts.setdefault(name.id, set()).add(value.value)
    keys = [
        one.value
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("Finding", "Cause")
        for one in node.keywords
        if one.arg == "key"
    ]
    known = KEYS | {rule.key for rule in ALL}
    # A constant of one module may have the name of another's.
    made = [
        {one.value} if isinstance(one, ast.Constant) else texts.get(ast.unparse(one), known) for one in keys
    ]

    assert len(made) > 20
    assert [one for one in made if not one & known] == []
