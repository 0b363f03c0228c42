"""Which addresses are taken, and that a refusal repeats nothing that may be secret."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobreport.storage.urls import UrlError, is_open_line, is_url, parse, storage_option
from tests.report.test_cli import make_report

SECRET = "wJalrXUtnFEMI0K7MDENGbPxRfiCYEXAMPLEKEY"
ID = "AKIAIOSFODNN7EXAMPLE"
SIGNATURE = f"X-Amz-Signature={SECRET}"


@pytest.mark.parametrize(
    ("text", "backend", "bucket", "key", "shown"),
    [
        ("s3://b1/job", "s3", "b1", "job", "s3://b1/job"),
        ("S3://bucket/job/profiler-output/", "s3", "bucket", "job/profiler-output", None),
        ("s3://bucket", "s3", "bucket", "", "s3://bucket"),
        ("s3://bucket//a//b", "s3", "bucket", "/a//b", "s3://bucket//a//b"),
        ("s3://bucket/date=2026/run?#1", "s3", "bucket", "date=2026/run?#1", "s3://bucket/date=2026/run?#1"),
        ("gs://bucket/x", "gs", "bucket", "x", "gs://bucket/x"),
        ("gcs://bucket/x", "gs", "bucket", "x", "gcs://bucket/x"),
        ("az://container/x", "az", "container", "x", "az://container/x"),
        ("abfss://c@acc1.dfs.core.windows.net/x", "az", "c", "x", "abfss://c@acc1.dfs.core.windows.net/x"),
    ],
)
def test_a_url_is_bucket_and_key(text: str, backend: str, bucket: str, key: str, shown: str | None) -> None:
    url = parse(text)

    assert not isinstance(url, str)
    assert (url.backend, url.bucket, url.key) == (backend, bucket, key)
    assert shown is None or str(url) == shown
    assert (url / "rules/A.json").key == (f"{key}/rules/A.json" if key else "rules/A.json")


@pytest.mark.parametrize(
    "text", ["s3:", "s3:/bucket", r"C:\jobs\1", "C://jobs", "a/b://c", "job", "./s3://x"]
)
def test_other_names_are_paths(text: str) -> None:
    assert not is_url(text)


@pytest.mark.parametrize(
    "text", ["file:///data/my%20job", "file://localhost/data/my%20job", "FILE:///data/my job"]
)
def test_a_file_url_is_a_path(text: str) -> None:
    assert parse(text) == "/data/my job"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"s3://{ID}:{SECRET}@bucket/job", "in front of @"),
        (f"s3://{ID}:{SECRET[:20]}/{SECRET[20:]}@bucket/job", "no valid name of a bucket"),
        (f"s3://{SECRET}@bucket/job", "in front of @"),
        (f"az://{SECRET}:{SECRET}@acc1.blob.core.windows.net/job", "in front of @"),
        (f"https://bucket.s3.amazonaws.com/job?X-Amz-Credential={ID}&{SIGNATURE}", "signed URL"),
        (f"s3://bucket/job?{SIGNATURE}", "signed URL"),
        (f"https://acc1.blob.core.windows.net/c/job?sv=2024-11-04&sig={SECRET}", "signed URL"),
        (f"az://container/job?sp=r&sig={SECRET}", "signed URL"),
        (f"https://{ID}:{SECRET}@host/job", "https:// is not supported"),
        (f"ssh://{SECRET}@host/job", "ssh:// is not supported"),
        ("s3://", "names no bucket"),
        ("s3:///key", "names no bucket"),
        ("s3://bucket/a/../b", "no valid key"),
        ("s3://bucket/a\x1bb", "no valid key"),
        ("s3://bucket/" + "a" * 1025, "no valid key"),
        ("file://host/data", "needs a path on this machine"),
    ],
)
def test_a_refusal_says_why_and_repeats_no_secret(text: str, words: str) -> None:
    with pytest.raises(UrlError) as refused:
        parse(text)

    assert words in str(refused.value)
    assert not any(one in str(refused.value) for one in (ID, SECRET[:20], SECRET[20:], "Signature="))
    for option in ("--job-dir", "--out"):
        done = make_report("--job-dir", "x", option, text, "--strict")
        assert done.returncode == 2
        assert words in " ".join(done.stderr.split())
        assert not any(one in done.stderr for one in (ID, SECRET[:20], SECRET[20:], "Signature="))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"key={ID}", "list of processes"),
        (f"secret={SECRET}", "list of processes"),
        (f"account_key={SECRET}", "list of processes"),
        (f"connection_string=AccountKey={SECRET}", "list of processes"),
        (f"sas_token=sv=2024&sig={SECRET}", "list of processes"),
        (f"AWS_SECRET_ACCESS_KEY={SECRET}", "list of processes"),
        (SECRET[:20], "Unknown setting"),
        (f"verify={SECRET}", "Unknown setting"),
        (f"endpoint_url=https://{ID}:{SECRET}@host", "No valid value of endpoint_url"),
        (f"endpoint_url=https://host?sig={SECRET}", "No valid value of endpoint_url"),
        ("anon=yes", "true or false"),
    ],
)
def test_a_setting_that_is_secret_or_unknown_is_refused(text: str, words: str) -> None:
    done = make_report("--job-dir", "s3://bucket/x", "--storage-option", text, "--strict")

    assert done.returncode == 2
    assert words in " ".join(done.stderr.split())
    assert SECRET not in done.stderr
    assert ID not in done.stderr


def test_settings_are_taken() -> None:
    assert storage_option("endpoint_url=http://127.0.0.1:9000") == ("endpoint_url", "http://127.0.0.1:9000")
    assert storage_option("Anon=True") == ("anon", "True")


@pytest.mark.parametrize(
    ("endpoint", "is_open"),
    [
        ("https://s3.amazonaws.com", False),
        ("http://127.0.0.1:9000", False),
        ("http://localhost", False),
        ("http://[::1]:9000", False),
        ("http://10.0.0.1", True),
        ("http://127.0.0.1.example.com", True),
        ("http://localhost.example.com:80", True),
    ],
)
def test_a_line_without_tls_stays_within_the_machine(endpoint: str, is_open: bool) -> None:
    assert is_open_line(endpoint) is is_open


def test_a_file_url_is_read_as_its_path(tmp_path: Path) -> None:
    missing = make_report("--job-dir", f"file://{tmp_path}/none")

    assert missing.returncode == 2
    assert f"{tmp_path}/none" in missing.stderr


def test_help_loads_nothing_of_storage() -> None:
    code = "import sys; sys.argv[1:] = ['--help']\nfrom jobreport import cli\ntry: cli.main()\nexcept SystemExit: pass\n"
    code += (
        "print([name for name in sys.modules if 'storage' in name or name in ('fsspec', 'asyncio', 'ssl')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ)
    )

    assert done.stdout.splitlines()[-1] == "[]"
