"""Addresses in object storage as users write them, and the settings of ``--storage-option``.

What may be secret in them is refused, and never repeated. No import here is slow.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

#: Schemes, and the extra that reads each.
SCHEMES = {"s3": "s3", "gs": "gs", "gcs": "gs", "az": "az", "abfs": "az", "abfss": "az"}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_BUCKET = re.compile(r"[A-Za-z0-9$][A-Za-z0-9._-]{0,254}")
#: Of an Azure storage account: ``abfss://container@account.dfs.core.windows.net/key``.
_ACCOUNT = re.compile(r"[a-z0-9]{3,24}(?:\.[a-z0-9-]{1,63}){2,6}")
_SIGNED = re.compile(
    r"[?&](?:x-(?:amz|goog)-|signature=|sig=|sv=|awsaccesskeyid=|googleaccessid=|(?:access_)?token=)",
    re.IGNORECASE,
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
#: Bytes of a key.
MAX_KEY = 1024
#: Settings that are taken, and what each has to be.
_BOOLEAN = re.compile(r"true|false", re.IGNORECASE)
OPTIONS = {
    "endpoint_url": re.compile(r"https?://[^\s/@?#]+/?(?:[^\s@?#]*)"),
    "profile": re.compile(r"[^\x00-\x1f]{1,200}"),
    "region": re.compile(r"[a-z0-9-]{1,60}"),
    "account_name": re.compile(r"[a-z0-9]{3,24}"),
    "project": re.compile(r"[A-Za-z0-9:._-]{1,100}"),
    **dict.fromkeys(("anon", "requester_pays", "insecure"), _BOOLEAN),
}
_SECRETS = ("key", "secret", "token", "sas", "password", "credential", "connection")


class UrlError(ValueError):
    """An address or a setting that is refused; a sentence for the user."""


class Url(NamedTuple):
    """A place in object storage; keys have ``/`` between their parts, and none at the end."""

    scheme: str
    bucket: str
    key: str = ""
    #: Host of an Azure storage account, where the address names it.
    account: str = ""

    def __str__(self) -> str:
        account = f"@{self.account}" if self.account else ""
        return f"{self.scheme}://{self.bucket}{account}{'/' if self.key else ''}{self.key}"

    def __truediv__(self, name: str) -> Url:
        """A key below this one."""
        return self._replace(key=f"{self.key}/{name}" if self.key else name)

    @property
    def backend(self) -> str:
        """``s3``, ``gs``, or ``az``."""
        return SCHEMES[self.scheme]

    @property
    def name(self) -> str:
        """The last part of the key, or the bucket."""
        return self.key.rpartition("/")[2] or self.bucket


def is_url(text: str) -> bool:
    """Whether a text is meant as a URL: a path of Windows and a file called ``s3:`` are not."""
    return _SCHEME.match(text) is not None


def parse(text: str) -> Url | str:
    """The place that a URL names; of ``file://`` the path. Raises ``UrlError`` for any other."""
    scheme, _, rest = text.partition("://")
    scheme = scheme.lower()
    if _SIGNED.search(text):
        raise UrlError(
            "A signed URL is a credential, and would stand in the history and in the report. Give s3://bucket/prefix; "
            "credentials come from the environment or a profile."
        )
    if scheme == "file":
        host, slash, path = rest.partition("/")
        if host not in ("", "localhost") or not slash:
            raise UrlError("file:// needs a path on this machine, such as file:///data/job.")
        return unquote(slash + path)
    if scheme not in SCHEMES:
        raise UrlError(
            f"{scheme}:// is not supported. Use {', '.join(f'{s}://' for s in SCHEMES)}, or a path."
        )
    place, _, key = rest.partition("/")
    bucket, at, account = place.partition("@")
    if at and (SCHEMES[scheme] != "az" or not _ACCOUNT.fullmatch(account) or ":" in bucket):
        raise UrlError(
            "The URL holds a user or a secret in front of @. Credentials come from the environment or a profile."
        )
    if not place:
        raise UrlError(f"{scheme}:// names no bucket. Give {scheme}://bucket/prefix.")
    if not _BUCKET.fullmatch(bucket):
        raise UrlError(f"The URL has no valid name of a bucket. Give {scheme}://bucket/prefix.")
    key = key.rstrip("/")
    if (
        len(key.encode("utf-8", "replace")) > MAX_KEY
        or _CONTROL.search(key)
        or {".", ".."} & {*key.split("/")}
    ):
        raise UrlError(
            f"The URL has no valid key: at most {MAX_KEY:,} bytes, no control characters, no . or .."
        )
    return Url(scheme, bucket, key, account)


def storage_option(text: str) -> tuple[str, str]:
    """``KEY=VALUE`` of ``--storage-option``. Raises ``UrlError`` for one that is refused."""
    key, equals, value = text.partition("=")
    key = key.strip().lower()
    if key not in OPTIONS and any(word in key for word in _SECRETS):
        raise UrlError(
            "A secret on the command line shows in the list of processes. Credentials come from the environment or a "
            "profile."
        )
    if not equals or key not in OPTIONS:
        raise UrlError(f"Unknown setting of storage. Known are {', '.join(OPTIONS)}, as KEY=VALUE.")
    if not OPTIONS[key].fullmatch(value):
        raise UrlError(f"No valid value of {key}{': true or false' if OPTIONS[key] is _BOOLEAN else ''}.")
    return key, value


def is_open_line(endpoint: str) -> bool:
    """Whether data would travel to an endpoint without TLS, and not only within this machine."""
    parts = urlsplit(endpoint)
    host = parts.hostname or ""
    is_here = host in ("localhost", "::1") or re.fullmatch(r"127(?:\.[0-9]{1,3}){3}", host)
    return parts.scheme == "http" and not is_here
