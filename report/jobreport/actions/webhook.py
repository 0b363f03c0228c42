"""Posts a body to a URL: a program of its own, so that it can be ended in time whatever the other side does.

Standard input has JSON: ``url``, ``body``, ``timeout_s`` of a try, ``pauses_s`` before each, and ``is_loopback``. Of an answer only the status counts.
What is printed on a failure has neither the URL nor anything of the answer.
"""

from __future__ import annotations

import http.client
import json
import signal
import sys
import time
import urllib.error
import urllib.request
from typing import Any


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow none: the body is for the URL that was given."""


def main() -> int:
    """Try until it succeeds; the exit status is 0 then."""
    asked = json.load(sys.stdin)
    signal.signal(signal.SIGALRM, _out_of_time)
    reason = ""
    for pause_s in asked["pauses_s"]:
        time.sleep(pause_s)
        reason, may_succeed = _posted(asked)
        if not may_succeed:
            break
    print(reason, end="")
    return 1 if reason else 0


def _posted(asked: dict[str, Any]) -> tuple[str, bool]:
    """What went wrong, and whether another try makes sense."""
    request = urllib.request.Request(  # noqa: S310 - the scheme was checked
        asked["url"],
        asked["body"].encode("utf-8", "replace"),
        {"Content-Type": "application/json", "User-Agent": "jobreport"},
    )
    # A proxy is not on the way to this machine.
    proxies = [urllib.request.ProxyHandler({})] if asked["is_loopback"] else []
    signal.setitimer(signal.ITIMER_REAL, asked["timeout_s"])
    try:
        with urllib.request.build_opener(_NoRedirect, *proxies).open(request):
            return "", False
    except urllib.error.HTTPError as error:
        if 300 <= error.code < 400:
            return f"HTTP status {error.code}: redirects are not followed", False
        return f"HTTP status {error.code}", error.code >= 500 or error.code in (408, 429)  # which may pass
    except (OSError, http.client.HTTPException, ValueError) as error:
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(cause, TimeoutError):
            return f"no answer within {asked['timeout_s']:g} s", True
        why = getattr(cause, "verify_message", None) or getattr(cause, "strerror", None)
        return str(why or type(cause).__name__), True
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _out_of_time(*_: object) -> None:
    raise TimeoutError


if __name__ == "__main__":
    sys.exit(main())
