"""The command line as it is kept: ``***`` in place of what looks secret. The table of docs/recording.md has the shapes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

HIDDEN = "***"
#: Characters that are kept of an argument.
MAX_ARGUMENT = 4096
#: Names of secrets, whatever the value.
_STRONG = re.compile(
    r"passw(?:or)?d|(?:pass|kenn)wort|passphrase|passcode|secret|credential|webhook|(?<![a-z])jwt(?![a-z])",
    re.IGNORECASE,
)
#: Names of secrets, unless name and value are harmless.
_WEAK = re.compile(
    r"^-p$|(?:(?<![a-z])(?:pw|auth|authorization|bearer|cookie|signature|sig|pat|cred)|(?<!by)pass|pwd|key|token)s?\d*$"
    r"|(?<![a-z])(?:pass|pw|pwd|key|token|auth|pat|cred)s?(?![a-z])",
    re.IGNORECASE,
)
#: Of ``name=value``: a token of a model, a key of a batch, a path, a count.
_HARMLESS = re.compile(
    r"[^=]*(?:(?<![a-z])(?:eos|bos|pad|unk|sep|cls|mask|special)[-_]tokens?="
    r"|(?<![a-z])(?:monitor|sort|input|output|label|text|image|target|metric)[-_]keys?="
    r"|[-_.](?:path|file|dir|rate|dim|size|len|length|budget|count|ratio|type|name|index|weight|bias)="
    r"|pwd=[/.~$]"
    r"|(?:(?:(?:key|token)\d*|(?<!.)-p)=[\d.e-]{1,5}|[-_.]?(?:key|token)s\d*=[-+\d.,_e]+[kmbt]?"
    r"|=(?:true|false|yes|no|on|off|none|null)?)[,;}\]]*(?:\s|$))",
    re.IGNORECASE,
)
#: Of ``name=value``: a user with a password, no numbers of a user and a group.
_LOGIN = re.compile(r"[^=]*(?:(?<!.)-u|user|username|login)=[^:=\s]+:(?!//|\d+$)", re.IGNORECASE)
_OPTION = re.compile(r"--?[A-Za-z][\w.-]*|\w*(?:access|session)_(?:key|token)")
#: Options that need no value.
_FLAG = re.compile(r"-p$|--?(?:no|use|ask)[-_]")
#: A name, what is between, and a value to its end: ``NAME=value``, ``Name: value``, ``"name": "value"``, ``--name value``,
#: ``["--name", "value"]``, ``<name>value``. A value without quotes ends with the word, after a colon with the line.
_NAMED = re.compile(
    r"(?<![\w.-])(?<!mkdir )(?P<name>[\w.-]+)(?P<between>\\*[\"']?\]?\s*(?:=|(?P<colon>:))\s*|>"
    r"|(?P<next>\s+|(?P<list>\\*[\"']\s*,\s*(?=\\*[\"']))))"
    r"(?P<value>\[(?:\"[^\"]*\"|[^\[\]{}\"])*\]|\{(?:\"[^\"]*\"|[^\[\]{}\"])*\}|[\[{].*"
    r"|(?(colon)(?:(?P<quote>\\*[\"'])(?:(?!(?P=quote))(?:\\.|[^\\]))*|[^\n]+)"
    r"|(?(list)(?P<item>\\*[\"'])(?:(?!(?P=item))(?:\\.|[^\\]))*"
    r"|(?:(?P<part>\\*[\"'])(?:(?!(?P=part))(?:\\.|[^\\]))*(?P=part)|\\.|\S)+)))",
    re.DOTALL,
)
#: Secrets that are known by themselves, after what is kept of them.
_KNOWN = re.compile(
    r"(://)(?:[^\s/]+|[^\s/:]+:\S+)(?=@)|(?<![\w/.:@-])()[^\s/:@='\"]{1,64}:[^\s/:@]{1,256}(?=@(?!sha256:)[\w-]+[.:])"
    r"|\b(Bearer )[^\s\"']+|(?<![\w.-])(-u)(?=[^\s:]+:(?!//))\S+|()(?:"
    r"\b(?:gh[opsur]_|github_pat_|glpat-|xox[a-z]-|xapp-|npm_|pypi-|nvapi-|AIza|ya29\.|dckr_pat_|api_org_|gsk_|r8_"
    r"|[rs]k_(?:live|test)_)[\w-]{10,}|\bSG\.[\w-]{16,}\.[\w-]{16,}|(?<=hooks\.slack\.com/services/)[\w/-]+"
    r"|\bhf_[A-Za-z0-9]{16,}|\bsk-[\w-]*?[A-Za-z0-9]{16}[\w-]*|\b(?:AKIA|ASIA)[A-Z0-9]{12,}"
    r"|\beyJ[\w-]+\.[\w-]+\.[\w-]*|(?<=\bBasic )[\w+/=]{8,}|-----BEGIN .*)",
    re.IGNORECASE | re.DOTALL,
)
#: Programs that take a password right after ``-p``.
_ATTACHED = re.compile(r"mysql|mariadb|sshpass")


def without_secrets(command: Sequence[str]) -> list[str]:
    """The arguments of a command, with what looks secret hidden."""
    shown, before = [], ""
    is_attached = _ATTACHED.search(" ".join(command))
    for text in command:
        kept = HIDDEN if _hides_next(before, text) else _masked(text)
        shown.append(re.sub(r"(?<![\w.-])-p[^\s='\"]\S*", f"-p{HIDDEN}", kept) if is_attached else kept)
        before = text
    return shown


def _hides_next(option: str, value: str) -> bool:
    """Whether an argument is the secret value of the one before it."""
    if not _OPTION.fullmatch(option) or (value.startswith("-") and _FLAG.match(option)):
        return False
    return _is_secret(option, value)


def _is_secret(name: str, value: str) -> bool:
    named = f"{name}={value.strip()}"
    is_weak = _WEAK.search(name) and not _HARMLESS.match(named)
    return bool(_STRONG.search(name) or is_weak or _LOGIN.match(named))


def _masked(text: str) -> str:
    text = text if len(text) <= MAX_ARGUMENT else f"{text[:MAX_ARGUMENT]}…"
    name, equals, value = text.partition("=")
    if equals and re.fullmatch(r"[\w.+-]+", name) and _is_secret(name, value):
        return f"{name}={HIDDEN}"
    kept, at = [], 0
    while found := _NAMED.search(text, at):
        quote = found["quote"] or found["item"] or ""
        is_secret = _hides_next if found["next"] else _is_secret
        hidden = is_secret(found["name"], found["value"].removeprefix(quote).lstrip("\"'"))
        # Another name may begin in a value that is kept.
        kept += [text[at : found.start("value")], quote + HIDDEN if hidden else ""]
        at = found.end() if hidden else found.start("value")
    shown = "".join(kept) + text[at:]
    return _KNOWN.sub(lambda secret: next(filter(None, secret.groups()), "") + HIDDEN, shown)
