"""The command line as facts keep it: ``***`` in place of what looks secret. The table of docs/recording.md has the shapes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

HIDDEN = "***"
#: Characters that are kept of an argument.
MAX_ARGUMENT = 4096
#: Names of secrets, whatever the value.
_STRONG = re.compile(r"passw(?:or)?d|passphrase|pwd|secret|credential", re.IGNORECASE)
#: Names of secrets, unless the value is a number, as of ``--max-tokens 4096``.
_WEAK = re.compile(
    r"^-p$|pass(?!es|ed|ing|ive|age)|key|token(?!i[sz])|auth(?!or(?!iz))|bearer|cookie|signature|(?<![a-z])sig(?![a-z])",
    re.IGNORECASE,
)
_PLAIN = re.compile(r"[-+0-9.,:e_]*|true|false|yes|no|none|null", re.IGNORECASE)
_OPTION = re.compile(r"-[A-Za-z]|--[A-Za-z][\w.-]*(?:=.*)?", re.DOTALL)
#: A name, what is between, and a value to its end: ``NAME=value``, ``Name: value``, ``"name": "value"``, ``--name value``.
_NAMED = re.compile(
    r"(?<![\w.-])(?P<name>[\w.-]+)(?P<between>\\*[\"']?\s*(?:=|(?P<colon>:))\s*|(?P<space>\s+))"
    r"(?P<value>(?P<quote>\\*[\"'])(?:(?!(?P=quote))(?:\\.|.))*|[\[{].*|(?(colon)[^,\"'}\n]+|(?(space)\S+|[^\s,;&\"']+)))",
    re.DOTALL,
)
#: Secrets that are known by themselves, after what is kept of them.
_KNOWN = re.compile(
    r"(://)[^\s/]+(?=@)|\b(Bearer )[^\s\"']+|()(?:"
    r"\b(?:gh[opsur]_|github_pat_|glpat-|xox[a-z]-|npm_|pypi-|nvapi-|AIza|ya29\.)[\w-]{10,}"
    r"|\bhf_[A-Za-z0-9]{16,}|\bsk-[\w-]{16,}|\b(?:AKIA|ASIA)[A-Z0-9]{12,}|\beyJ[\w-]+\.[\w-]+\.[\w-]*"
    r"|(?<=\bBasic )[\w+/=]{8,}|-----BEGIN .*)",
    re.IGNORECASE | re.DOTALL,
)


def without_secrets(command: Sequence[str]) -> list[str]:
    """The arguments of a command, with what looks secret hidden."""
    shown, before = [], ""
    for text in command:
        shown.append(HIDDEN if _hides_next(before, text) else _masked(text))
        before = text
    return shown


def _hides_next(option: str, value: str) -> bool:
    """Whether an argument is the secret value of the one before it."""
    if not re.fullmatch(r"--?[A-Za-z][\w.-]*", option) or (
        not _STRONG.search(option) and _OPTION.fullmatch(value)
    ):
        return False
    return _is_secret(option, value) or (option in {"-u", "--user"} and ":" in value)


def _is_secret(name: str, value: str) -> bool:
    return bool(_STRONG.search(name) or (_WEAK.search(name) and not _PLAIN.fullmatch(value)))


def _masked(text: str) -> str:
    text = text if len(text) <= MAX_ARGUMENT else f"{text[:MAX_ARGUMENT]}…"
    name, equals, value = text.partition("=")
    if equals and re.fullmatch(r"[\w.+-]+", name) and _is_secret(name, value):
        return f"{name}={HIDDEN}"
    kept, at = [], 0
    while found := _NAMED.search(text, at):
        quote, value = found["quote"] or "", found["value"]
        is_secret = _hides_next if found["space"] else _is_secret
        hidden = is_secret(found["name"], value.removeprefix(quote))
        # Another name may begin in a value that is kept.
        kept += [text[at : found.start("value")], quote + HIDDEN if hidden else ""]
        at = found.end() if hidden else found.start("value")
    shown = "".join(kept) + text[at:]
    return _KNOWN.sub(lambda secret: (secret[1] or secret[2] or "") + HIDDEN, shown)
