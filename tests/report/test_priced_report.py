"""Prices and facts of one job on the command line of make-report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobreport import cli, compare_cli
from jobreport.cost.facts import OF_ONE_JOB
from tests.report.test_cli import make_report, sample

TOML = """currency = "USD"
source = "a contract"
as_of = 2026-01-31
[[machine]]
type = "big"
per_hour = 4.0
gpus = 2
"""
CSV = """InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Region,SpotPrice,Price
big,V100,2,8,61,us-east-1,0.9,4.0
big,V100,2,8,61,us-west-2,0.9,5.0
"""


@pytest.fixture
def lists(tmp_path: Path) -> Path:
    """A folder with two lists of prices."""
    (tmp_path / "secret.toml").write_text(TOML)
    (tmp_path / "secret.csv").write_text(CSV)
    return tmp_path


def reported(folder: Path, *options: str | Path) -> dict[str, Any]:
    """``report.json`` of a sample job."""
    done = make_report(
        "--job-dir",
        sample("cpu-bottleneck"),
        "--out",
        "o",
        "--formats",
        "json",
        "--force",
        *options,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads((folder / "o" / "report.json").read_bytes())
    return found


def test_prices_and_facts_reach_the_report_and_its_command(lists: Path) -> None:
    options = ("--prices", "secret.toml", "--billing", "1h", "--set", "instance_type=big")
    found = reported(lists, *options, "--set", "BatchSize.window=100", "--quiet")

    assert found["cost"]["run"]["cost"] == 4.0
    assert (found["cost"]["source"], found["cost"]["as_of"]) == ("a contract", "2026-01-31")
    name = sample("cpu-bottleneck").name
    changed = "--set BatchSize.window=100"
    assert found["command"] == f"make-report --job-dir {name} {changed} {' '.join(options)}"
    assert "cost" not in reported(lists)


def test_a_price_of_a_region_and_of_the_command_line(lists: Path) -> None:
    known = ("--set", "instance_type=big")
    listed = reported(
        lists, "--prices", "secret.csv", "--prices-date", "2026-01-01", *known, "--set", "region=us-west-2"
    )
    given = reported(lists, "--prices", "secret.toml", *known, "--set", "price_per_node_hour=8")

    assert (listed["cost"]["run"]["per_hour"], listed["cost"]["as_of"]) == (5.0, "2026-01-01")
    assert given["cost"]["run"]["per_hour"] == 8.0
    # The list has the currency, but not this price.
    assert (given["cost"]["currency"], given["cost"]["source"], given["cost"]["as_of"]) == (
        "USD",
        "the command line",
        "",
    )


def test_a_list_that_lacks_the_machine_is_a_line_on_the_terminal(lists: Path) -> None:
    options = ("--out", "o", "--formats", "json", "--prices", "secret.toml", "--set", "instance_type=p9")
    done = make_report("--job-dir", sample("cpu-bottleneck"), *options, cwd=lists)

    assert done.returncode == 0
    assert "the list of prices (a contract) lacks p9; add it" in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--prices", "nope.toml"), "Cannot read nope.toml"),
        (
            ("--prices", "secret.csv", "--set", "instance_type=big"),
            "big has prices in several regions: us-east-1, us-west-2. Choose one with --set region=REGION",
        ),
        (("--set", "nodes=none"), "--set nodes=none: expected a number above 0 and below 1e15."),
        (("--set", "instance_type="), "--set instance_type=: expected a value."),
        (("--set", f"region={'x' * 201}"), "--set region: expected at most 200 characters."),
        (("--set", "instance_typ=big"), "unknown fact. Did you mean instance_type?"),
        (("--set", "machine=big"), "expected RULE.PARAMETER=VALUE, or a fact of the job such as"),
        (("--billing", "1d"), "--billing"),
    ],
)
def test_wrong_input_is_one_sentence_and_status_2(
    options: tuple[str, ...], message: str, lists: Path
) -> None:
    done = make_report(
        "--job-dir", sample("cpu-only"), "--out", "o", "--formats", "json", *options, cwd=lists
    )

    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert not (lists / "o").exists()


@pytest.mark.parametrize("name", ["secret.toml", "secret.csv"])
def test_redaction_leaves_the_names_of_the_list_out(name: str, lists: Path) -> None:
    known = ("--prices", name, "--set", "instance_type=big", "--set", "region=us-east-1", "--redact")
    found = reported(lists, *known)

    assert found["cost"]["run"]["cost"] > 0
    assert "--prices PRICES" in found["command"]
    assert [text for text in ("secret", "a contract") if text in str(found)] == []


def test_both_commands_have_the_same_options_on_prices() -> None:
    one, other = (
        {parameter.name: parameter.to_info_dict() for parameter in command.params}
        for command in (cli.command, compare_cli.command)
    )

    for name in ("prices", "prices_date", "billing"):
        assert one[name] == other[name]
    assert set(cli.FACTS.split(", ")) == OF_ONE_JOB
