"""The actions of ``[[action]]`` in ``--config`` and of ``--notify`` and ``--stop-on``, checked before the job starts."""

from __future__ import annotations

import ipaddress
import os
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from msgspec import Struct

from jobreport.errors import UsageError
from jobreport.settings import find_rule, known_name, seconds
from jobrules.model import Severity
from jobrules.text import join_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobrules import Rule
    from jobrules.model import Finding

WEBHOOK, COMMAND, STOP = "webhook", "command", "stop"
#: The name that the URL of ``--notify`` has among the variables.
_NOTIFY = "--notify"
#: What an action of a kind may have besides what each has.
_OWN = {WEBHOOK: ("url_env", "format", "timeout"), COMMAND: ("argv", "timeout"), STOP: ("grace",)}
_OF_EACH = ("on", "do", "for", "after")
_FORMATS = ("json", "slack")
#: In an element of ``argv``; any other braces are text.
PLACE = re.compile(r"\{(?:env:(?P<env>[A-Za-z_]\w*)|(?P<fact>finding\.key|job|report))\}")
#: Keys of findings that are not made from the name of a rule.
KEYS = frozenset(
    {
        *("clocks-differ", "code-line", "cpu-bottleneck", "data-loading", "disjoint-times", "ended"),
        *("free-cores", "gpu-never-used", "hardware-slowdown", "io-bottleneck", "io-pauses"),
        *("late-first-step", "late-start", "lost-samples", "memory-growth", "memory-kills", "nearly-full"),
        *("not-measured", "one-process", "other-processes", "profiling", "recompiled", "saturated-process"),
        *("slow-rank", "start-up", "unexplained", "wind-down"),
    }
)


class Action(Struct, frozen=True, kw_only=True):
    """One block."""

    do: str
    #: A severity, which means this one and worse; else names of rules and keys of findings.
    severity: Severity | None = None
    rules: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    #: How long it must hold in every round; None for two rounds.
    for_s: float | None = None
    #: Measured time of the job before which nothing fires.
    after_s: float = 600.0
    timeout_s: float = 10.0
    #: Of a webhook.
    url: str = ""
    is_slack: bool = False
    #: Of a command.
    argv: tuple[str, ...] = ()
    #: Of a stop: from SIGTERM to SIGKILL.
    grace_s: float = 60.0

    def concerns(self, finding: Finding) -> bool:
        """Whether a finding is one of those that the action is for."""
        if self.severity:
            order = list(Severity)
            return order.index(finding.severity) <= order.index(self.severity)
        return finding.key in self.keys or not self.rules.isdisjoint(finding.rules)

    @property
    def name(self) -> str:
        """What it is called in lines for the user, and where its state is kept: ``stop on UnusedGPU``."""
        return f"{self.do} on {self.severity or ', '.join(sorted(self.rules | self.keys))}"


def actions_of(
    blocks: Any, rules: Sequence[Rule], *, notify: str | None = None, stop_on: str | None = None
) -> tuple[Action, ...]:
    """The actions of the blocks of a file, and of the options. Raises ``UsageError``, which never has a URL in it."""
    if not isinstance(blocks, list):
        raise UsageError("action: expected tables, [[action]].")
    short, environment = list[Any](), dict(os.environ)
    if notify:
        short.append({"on": "warning", "do": WEBHOOK, "url_env": _NOTIFY})
        environment[_NOTIFY] = notify
    if stop_on:
        names = [one.strip() for one in stop_on.split(",")]
        short.append({"on": names, "do": STOP, "after": "30min"})
    found = [_action(block, rules, environment) for block in short]
    for number, block in enumerate(blocks, start=1):
        try:
            found.append(_action(block, rules, environment))
        except UsageError as error:
            raise UsageError(f"action {number} of --config: {error}") from error
    if found and os.name != "posix":
        raise UsageError("Actions need Linux or macOS.")
    return tuple(found)


def _action(block: Any, rules: Sequence[Rule], environment: Mapping[str, str]) -> Action:
    if not isinstance(block, dict):
        raise UsageError("expected a table, [[action]].")
    do = known_name(str(block.get("do")), _OWN, "do", f"Use {join_names([*_OWN])}.")
    keys = (*_OF_EACH, *_OWN[do])
    hint = f"Use {join_names(keys)}."
    block = {known_name(key, keys, f"key of a {do}:", hint): value for key, value in block.items()}
    action = Action(
        do=do,
        for_s=_time(block, "for", None),
        after_s=_time(block, "after", 600.0),
        timeout_s=_time(block, "timeout", 30.0 if do == COMMAND else 10.0),
        grace_s=_time(block, "grace", 60.0),
        is_slack=known_name(str(block.get("format", "json")), _FORMATS, "format", "") == "slack",
        url=_url(block, environment) if do == WEBHOOK else "",
        argv=_argv(block, environment) if do == COMMAND else (),
        **_on(block.get("on"), rules),
    )
    if do == STOP and action.severity:
        raise UsageError(f'on = "{action.severity}" with stop: name the rules that may stop the job.')
    return action


def _on(on: Any, rules: Sequence[Rule]) -> dict[str, Any]:
    """What sets an action off, as fields of ``Action``."""
    names = [on] if isinstance(on, str) else on
    if not isinstance(names, list) or not names or not all(isinstance(one, str) for one in names):
        raise UsageError('on: expected a severity, or a list of rules, such as ["UnusedGPU"].')
    if len(set(names)) < len(names):
        raise UsageError("on: a name is given twice.")
    if isinstance(on, str) and on in {*Severity}:
        return {"severity": Severity(on)}
    known = {*KEYS, *(rule.key for rule in rules)}
    keys = {one for one in names if one in known}
    # What has a hyphen is meant as a key.
    for name in {one for one in names if "-" in one} - keys:
        known_name(name, known, "finding", "docs/rules.md has all rules.")
    kinds = [type(rule) for rule in rules]
    return {
        "keys": frozenset(keys),
        "rules": frozenset(find_rule(one, kinds).__name__ for one in {*names} - keys),
    }


def _url(block: Mapping[str, Any], environment: Mapping[str, str]) -> str:
    name = block.get("url_env")
    if not isinstance(name, str):
        raise UsageError("url_env: expected the name of a variable that holds the URL.")
    url, name = environment.get(name, ""), name[:80]
    if not url:
        raise UsageError(f"url_env: the variable {name} is not set.")
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises
    except ValueError:
        raise UsageError(f"{name}: not a URL.") from None
    host = parts.hostname or ""
    if re.search(r"[\x00-\x20\x7f]", url) or not url.isascii() or not host or "@" in parts.netloc:
        raise UsageError(f"{name}: not a URL such as https://host/path, without a user name.")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(host)):
        raise UsageError(f"{name}: use https; http is for this machine only.")
    return url


def is_loopback(host: str) -> bool:
    """Whether a host is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _argv(block: Mapping[str, Any], environment: Mapping[str, str]) -> tuple[str, ...]:
    """The command, of which all variables are set."""
    argv = block.get("argv")
    if not isinstance(argv, list) or not argv or not all(isinstance(one, str) for one in argv) or not argv[0]:
        raise UsageError('argv: expected a list of texts, such as ["scancel", "{env:SLURM_JOB_ID}"].')
    missing = {place["env"] for one in argv for place in PLACE.finditer(one)} - environment.keys() - {None}
    if missing:
        raise UsageError(f"argv: the variable {min(missing)[:80]} is not set.")
    return tuple(argv)


def _time(block: Mapping[str, Any], key: str, default: Any) -> Any:
    if key not in block:
        return default
    amount = seconds(block[key]) if isinstance(block[key], str) else None
    if amount is None:
        raise UsageError(f'{key}: expected a time such as "10min".')
    return amount
