from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import count

import pytest
from botocore.loaders import JSONFileLoader

from jobreport.storage import fetching, stores
from tests.report.storage.servers import ID, SECRET, Bucket, Proxy, moto

_numbers = count(1)


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    with moto() as address:
        yield address


@pytest.fixture(scope="session")
def _descriptions() -> Iterator[None]:
    """What a client of S3 reads first is read once: it takes as long as all else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JSONFileLoader, "_load_file", cache(JSONFileLoader._load_file))
        yield


@pytest.fixture(scope="session")
def _proxy(server: str) -> Iterator[Proxy]:
    proxy = Proxy(server)
    yield proxy
    proxy.close()


@pytest.fixture
def proxy(_proxy: Proxy, _descriptions: None, monkeypatch: pytest.MonkeyPatch) -> Proxy:
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
