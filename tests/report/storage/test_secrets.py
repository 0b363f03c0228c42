"""No credential is in anything that is printed or written, whatever happens."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.report.storage.jobs import log
from tests.report.storage.servers import ID, SECRET, Bucket, Fault, Proxy, Request, free_port
from tests.report.test_cli import make_report

#: Also in the texts with which the proxy makes a fault.
SECRETS = [
    one.encode() for one in (ID, SECRET, SECRET.replace("/", "%2F"), "Signature", "SessionTokenOfTheTest")
]

FAULTS = {
    "no fault": None,
    "list": lambda asked: Fault(400, "AuthorizationHeaderMalformed") if asked.kind == "LIST" else None,
    "get": lambda asked: Fault(403, "SignatureDoesNotMatch") if asked.path.endswith(".csv") else None,
    "server": lambda asked: Fault(500, SECRET),
    "put": lambda asked: Fault(400, f"Bad{ID}") if asked.kind == "PUT" else None,
    "cut": lambda asked: Fault(cut=3) if asked.kind == "GET" else None,
}


@pytest.mark.parametrize(
    "name",
    [
        "no fault",
        "put",
        *(
            pytest.param(one, marks=pytest.mark.slow)
            for one in ("list", "get", "server", "cut", "nobody answers")
        ),
    ],
)
def test_no_secret_is_printed_or_written(
    name: str,
    bucket: Bucket,
    proxy: Proxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "SessionTokenOfTheTest")
    bucket.put("job/gpu.csv", log())
    fault = FAULTS.get(name)
    if fault:
        proxy.fault = fault
    if name == "nobody answers":
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    cache = tmp_path / "cache"
    url = f"s3://{bucket.name}"

    done = make_report(
        *(
            "--job-dir",
            f"{url}/job",
            "--out",
            f"{url}/r",
            "--formats",
            "json,md",
            "--cache",
            cache,
            "--strict",
        )
    )

    assert done.returncode == (0 if name == "no fault" else 2)
    assert "Traceback" not in done.stderr
    texts = [done.stdout.encode(), done.stderr.encode(), caplog.text.encode()]
    texts += [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    texts += [bucket.get(key) or b"" for key in bucket.listed("r/")]
    assert len(texts) > (8 if name == "no fault" else 2)
    assert not [one for one in SECRETS for text in texts if one in text]
    # They were at work.
    assert name == "nobody answers" or any(_signed(one) for one in proxy.requests)


def _signed(asked: Request) -> bool:
    return ID in asked.headers.get("authorization", "") and "Signature=" in asked.headers["authorization"]
