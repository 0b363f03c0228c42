"""Google's and Azure's stores, where servers of these are installed: azurite (npm), gcp-storage-emulator."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Awaitable, Iterator
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from jobreport.storage.stores import Answer, opened
from jobreport.storage.urls import Url, parse
from tests.report.storage.servers import Fault, Proxy, free_port, process, run
from tests.report.test_cli import make_report, sample

pytestmark = pytest.mark.slow
KEY = "c2VjcmV0T2ZUaGVUZXN0MDEyMzQ1Njc4OWFiY2RlZmdoaWprbG1ubw=="


@pytest.fixture(params=["gs", "az"])
def store(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[tuple[Url, tuple[str, ...]]]:
    """A place in an empty bucket, and the options that it needs."""
    port = free_port()
    if request.param == "gs":
        if not (importlib.util.find_spec("gcp_storage_emulator") and importlib.util.find_spec("gcsfs")):
            pytest.skip("pip install 'jobreport[gs]' gcp-storage-emulator")
        command = [
            sys.executable,
            "-m",
            "gcp_storage_emulator",
            "start",
            "-H",
            "127.0.0.1",
            "--port",
            str(port),
            "-M",
        ]
        with process([*command, "--default-bucket", "bucket"], port):
            endpoint = f"endpoint_url=http://127.0.0.1:{port}"
            yield (
                Url("gs", "bucket", "jobs/one"),
                ("--storage-option", "anon=true", "--storage-option", endpoint),
            )
        return
    azurite = os.environ.get("AZURITE") or shutil.which("azurite-blob")
    if not azurite or importlib.util.find_spec("azure") is None:
        pytest.skip(
            "pip install 'jobreport[az]'; npm install azurite; AZURITE=…/node_modules/.bin/azurite-blob"
        )
    address = f"http://127.0.0.1:{port}/acc1"
    line = f"DefaultEndpointsProtocol=http;AccountName=acc1;AccountKey={KEY};BlobEndpoint={address};"
    command = [
        azurite,
        "--blobPort",
        str(port),
        "--location",
        str(tmp_path / "az"),
        "--skipApiVersionCheck",
        "--silent",
    ]
    with process(command, port, AZURITE_ACCOUNTS=f"acc1:{KEY}"):
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", line)
        from azure.storage.blob import BlobServiceClient  # noqa: PLC0415 - where it is installed

        with BlobServiceClient.from_connection_string(line) as service:
            service.create_container("bucket")
        yield Url("az", "bucket", "jobs/one"), ()


async def _status(work: Awaitable[object]) -> int:
    try:
        await work
    except Answer as answer:
        return answer.status
    return 200


def test_lists_and_ranges(store: tuple[Url, tuple[str, ...]], tmp_path: Path) -> None:
    url, options = store
    key, file = "jobs/one/a b#?.json", tmp_path / "x"

    async def use() -> list[object]:
        async with opened(url, dict(one.split("=", 1) for one in options[1::2])) as bucket:
            await bucket.put(key, b"0123456789", "text/plain")
            listed = await bucket.find(key)
            assert listed is not None
            found: list[object] = [listed[:2]]
            for most in (0, 4):
                await bucket.get(key, str(file), tag=listed.tag, size=10, most=most)
                found.append(file.read_bytes())
            found.append(await _status(bucket.get("jobs/one/none", str(file))))
            for _ in range(2):
                await bucket.delete(key)
            return [*found, await bucket.find(key)]

    assert run(use()) == [(key, 10), b"0123456789", b"0123", 404, None]


def test_conditions(store: tuple[Url, tuple[str, ...]], tmp_path: Path) -> None:
    url, options = store
    if url.scheme == "gs":
        pytest.skip("gcp-storage-emulator has no conditions: the next test")
    key, file = "jobs/one/a.json", str(tmp_path / "x")

    async def use() -> list[int]:
        async with opened(url, dict(one.split("=", 1) for one in options[1::2])) as bucket:
            tag = await bucket.put(key, b"0123456789", "text/plain", "")
            return [
                await _status(bucket.put(key, b"x", "text/plain", "")),
                await _status(bucket.get(key, file, tag=tag)),
                await _status(bucket.put(key, b"new", "text/plain", tag)),
                await _status(bucket.put(key, b"newer", "text/plain", tag)),
                await _status(bucket.get(key, file, tag=tag)),
            ]

    assert run(use()) == [412, 200, 200, 412, 412]


def test_conditions_are_asked_for(store: tuple[Url, tuple[str, ...]], tmp_path: Path) -> None:
    url, options = store
    if url.scheme != "gs":
        pytest.skip("azurite has conditions: the test before")
    known = dict(one.split("=", 1) for one in options[1::2])
    proxy = Proxy(known["endpoint_url"])

    async def use() -> list[int]:
        async with opened(url, known | {"endpoint_url": proxy.url}) as bucket:
            for tag in (None, "", "17"):
                await bucket.put("a.json", b"x", "text/plain", tag)
            await bucket.get("a.json", str(tmp_path / "x"), tag="18")
            proxy.fault = lambda _: Fault(412)
            return [
                await _status(bucket.put("a.json", b"x", "text/plain", "17")),
                await _status(bucket.get("a.json", str(tmp_path / "x"), tag="18")),
            ]

    try:
        assert run(use()) == [412, 412]
    finally:
        proxy.close()
    asked = [parse_qs(one.query).get("ifGenerationMatch") for one in proxy.requests]
    assert asked == [None, ["0"], ["17"], ["18"], ["17"], ["18"]]


def test_a_job_is_read_and_its_report_written(store: tuple[Url, tuple[str, ...]], tmp_path: Path) -> None:
    url, options = store
    job = sample("fluctuating")

    async def upload() -> None:
        async with opened(url, dict(one.split("=", 1) for one in options[1::2])) as bucket:
            for path in job.rglob("*"):
                if path.is_file():
                    await bucket.put(f"{url.key}/{path.relative_to(job)}", path.read_bytes(), "text/plain")

    run(upload())
    out = parse(f"{url.scheme}://{url.bucket}/reports/one")
    done = make_report("--job-dir", str(url), "--out", str(out), "--formats", "json", "--quiet", *options)
    again = make_report("--job-dir", str(url), "--out", str(out), "--formats", "json", "--quiet", *options)
    forced = make_report(
        "--job-dir", str(url), "--out", str(out), "--formats", "json", "--quiet", "--force", *options
    )

    assert (done.returncode, done.stdout) == (0, f"{out}/report.json\n"), done.stderr
    assert (again.returncode, forced.returncode) == (2, 0), forced.stderr
    assert "already contains a report" in again.stderr
