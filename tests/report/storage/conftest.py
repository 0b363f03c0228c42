from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from jobreport.storage import fetching, stores
from tests.report.storage.servers import ID, SECRET, Bucket, Proxy, moto

_numbers = count(1)


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    with moto() as address:
        yield address


@pytest.fixture(scope="session")
def _proxy(server: str) -> Iterator[Proxy]:
    proxy = Proxy(server)
    yield proxy
    proxy.close()


@pytest.fixture
def proxy(_proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Proxy:
    """The proxy, which programs take for their store, with credentials."""
    _proxy.reset()
    for name, value in environment(_proxy).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(stores, "WAITS_S", [0.01] * 4)
    monkeypatch.setattr(fetching, "_WAITS_S", [0.01] * 2)
    return _proxy


def environment(proxy: Proxy) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": proxy.url,
        "AWS_ACCESS_KEY_ID": ID,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": "/nonexistent",
        "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
    }


@pytest.fixture
def bucket(server: str) -> Bucket:
    return Bucket(server, f"bucket-{next(_numbers)}")
