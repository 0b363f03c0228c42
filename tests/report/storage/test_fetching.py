"""Which objects of a URL are read, by which names, and how many requests that takes."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from jobreport import document
from jobreport.redaction.identifiers import identifiers
from jobreport.storage import fetching
from tests.report.storage.jobs import LOGS, gpus, log, remarks, report_of
from tests.report.storage.servers import Bucket, Proxy
from tests.report.test_cli import make_report, sample

LOG = log()
TRACE = b'{"schemaVersion": 1, "deviceProperties": [], "traceEvents": [' + b" " * (1 << 20) + b"]}"


def put(bucket: Bucket, objects: dict[str, bytes]) -> None:
    for key, data in objects.items():
        bucket.put(key, data)


def test_what_says_nothing_is_not_fetched(bucket: Bucket, proxy: Proxy, tmp_path: Path) -> None:
    weights = b"\0" * (3 << 20)
    put(
        bucket,
        {
            "job/gpu.csv": LOG,
            "job/notes.txt": b"hello\n",
            "job/model.pt": weights,
            "job/checkpoints/1.bin": weights,
            "job/data.csv": weights,
            "job/large/gpu.csv": log(1, 60_000),
            "job/folder/": b"",
        },
    )

    _, report = report_of(f"s3://{bucket.name}/job", tmp_path / "o")

    asked = {one.path.partition("/job/")[2]: one.headers.get("range", "") for one in proxy.requests[1:]}
    assert asked == {"gpu.csv": "", "notes.txt": "", "data.csv": "bytes=0-65535", "large/gpu.csv": ""}
    assert report is not None
    assert remarks(report) == {"storage.not_fetched": 3, "directory.unknown": 1}
    assert gpus(report) == 2
    (remark,) = (one for one in report["quality"]["remarks"] if one["code"] == "storage.not_fetched")
    assert remark["fields"]["size"] == "9.0 MiB"


@pytest.mark.slow
def test_2300_objects_are_three_lists_and_one_request_for_each_that_is_fetched(
    bucket: Bucket, proxy: Proxy, tmp_path: Path
) -> None:
    put(bucket, {f"job/shard-{i:04}.bin": b"x" for i in range(2300 - len(LOGS))})
    put(bucket, {f"job/{name}": data for name, data in LOGS.items()})

    _, report = report_of(f"s3://{bucket.name}/job", tmp_path / "o")

    assert report is not None
    assert gpus(report) == len(LOGS)
    assert (proxy.count("LIST"), proxy.count("GET"), len(proxy.requests)) == (3, len(LOGS), 3 + len(LOGS))


HOSTILE = [
    "../../../escape/gpu.csv",
    "/etc/gpu.csv",
    "a//gpu.csv",
    "./gpu.csv",
    "x/../gpu.csv",
    "nul\x01/gpu.csv",
    "back\\slash/gpu.csv",
    "Case/gpu.csv",
    "case/gpu.csv",
    "both.csv",
    "both.csv/gpu.csv",
    "Case/gpu.csv.part/gpu.csv",
    "x" * 300 + "/gpu.csv",
    "/".join(["deep"] * 60) + "/gpu.csv",
    "ünïcode \u202e/gpu.csv",
]


def test_hostile_keys_stay_in_the_folder_and_are_told_as_they_are(
    bucket: Bucket, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(bucket, {f"job/{key}": log(i) for i, key in enumerate(HOSTILE)})
    put(bucket, {"job/../../unknown.txt": b"nothing"})
    cache = tmp_path / "deep/er/cache"

    _, report = report_of(f"s3://{bucket.name}/job", tmp_path / "o", "--cache", cache)

    assert report is not None
    assert gpus(report) == len(HOSTILE)
    (remark,) = (one for one in report["quality"]["remarks"] if one["code"] == "directory.unknown")
    assert remark["place"] == "../../unknown.txt"
    (copy,) = cache.iterdir()
    outside = {path for path in tmp_path.rglob("*") if path.is_file()} - {*copy.rglob("*")}
    assert {path.relative_to(tmp_path).parts[0] for path in outside} == {"o"}
    by_name = {
        str(path.relative_to(copy / "files")) for path in (copy / "files").rglob("*") if path.is_file()
    }
    assert by_name == {"Case/gpu.csv", "Case/gpu.csv.part/gpu.csv", "both.csv", "ünïcode \u202e/gpu.csv"}


def test_a_key_over_the_limit_is_no_path() -> None:
    key = "/".join(["\U0001f600" * 60] * 30) + "/gpu.csv"

    assert fetching.places([key]) == {key: "others/0/gpu.csv"}


@pytest.mark.parametrize(
    "levels",
    [
        "",
        *(
            pytest.param(f"/my-job{one}", marks=pytest.mark.slow)
            for one in ("", "/profiler-output", "/profiler-output/")
        ),
    ],
)
def test_a_job_is_found_some_levels_above(levels: str, bucket: Bucket, proxy: Proxy, tmp_path: Path) -> None:
    put(bucket, {"x/my-job/profiler-output/gpu.csv": LOG})
    put(bucket, {"x/my-job/rule-output/ProfilerReport-1/profiler-output/profiler-report.html": b"page"})

    _, report = report_of(f"s3://{bucket.name}/x{levels}", tmp_path / "o")

    assert report is not None
    assert report["job"]["name"] == ("my-job" if levels else "x")


@pytest.mark.slow
def test_several_jobs_are_named(bucket: Bucket, proxy: Proxy, tmp_path: Path) -> None:
    put(bucket, {f"x/job-{i:02}/profiler-output/gpu.csv": LOG for i in range(12)})

    done, _ = report_of(f"s3://{bucket.name}/x", tmp_path / "o")

    assert done.returncode == 2
    assert "12 jobs below" in done.stderr
    assert done.stderr.count("/profiler-output") == 10
    assert proxy.count("GET") == 0


def test_a_prefix_is_a_folder_and_not_the_beginning_of_others(
    bucket: Bucket, proxy: Proxy, tmp_path: Path
) -> None:
    put(
        bucket,
        {"job1/gpu.csv": LOG, "job10/gpu.csv": log(1), "job1.csv": log(2), "log1": log(3), "log10": log(4)},
    )

    _, folder = report_of(f"s3://{bucket.name}/job1", tmp_path / "folder")
    _, one = report_of(f"s3://{bucket.name}/log1", tmp_path / "one")
    done, _ = report_of(f"s3://{bucket.name}/jo", tmp_path / "none")

    assert folder is not None
    assert one is not None
    assert (gpus(folder), gpus(one), done.returncode) == (1, 1, 2)
    assert one["job"]["name"] == "log1"
    assert "Nothing is stored at" in done.stderr


@pytest.mark.parametrize("suffix", [".tar.gz", pytest.param(".zip", marks=pytest.mark.slow)])
def test_an_archive_is_read_as_a_local_one(suffix: str, bucket: Bucket, proxy: Proxy, tmp_path: Path) -> None:
    job = sample("fluctuating")
    shutil.make_archive(str(tmp_path / "my-job"), "gztar" if suffix == ".tar.gz" else "zip", job)
    archive = tmp_path / f"my-job{suffix}"
    put(bucket, {f"x/my-job{suffix}": archive.read_bytes()})

    _, local = report_of(str(archive), tmp_path / "local")
    _, remote = report_of(f"s3://{bucket.name}/x/my-job{suffix}", tmp_path / "remote")

    assert local is not None
    assert remote is not None
    assert remote.pop("command").startswith(f"make-report --job-dir s3://{bucket.name}/x/my-job{suffix} ")
    local.pop("command")
    assert remote == local


@pytest.mark.parametrize(
    ("objects", "words"),
    [
        ({}, "Nothing is stored at"),
        (
            {"job/a.pt": b"1", "job/b.pt": b"2", "job/c.x": b"3"},
            "3\xa0objects found, by suffix: .pt (2), .x (1).",
        ),
        pytest.param({"job/a.pt": b"1", "job/c": b"3"}, "1\xa0file found (c)", marks=pytest.mark.slow),
        ({"job": b"no log"}, "1\xa0file found"),
    ],
    ids=["nothing", "by suffix", "looked at", "one"],
)
def test_nothing_readable_says_what_was_found(
    objects: dict[str, bytes], words: str, bucket: Bucket, proxy: Proxy, tmp_path: Path
) -> None:
    put(bucket, objects)

    done, _ = report_of(f"s3://{bucket.name}/job", tmp_path / "o", "--strict")

    assert done.returncode == 2
    assert words in done.stderr
    assert str(tmp_path) not in done.stderr


def test_an_object_that_is_no_log_is_not_fetched(bucket: Bucket, proxy: Proxy, tmp_path: Path) -> None:
    put(bucket, {"job/model.pt": b"1" * 100})

    done, _ = report_of(f"s3://{bucket.name}/job/model.pt", tmp_path / "o")

    assert done.returncode == 2
    assert "1\xa0object found, by suffix: .pt (1)" in done.stderr
    assert proxy.count("GET") == 0


@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="only root can give a folder away")
def test_a_copy_in_a_folder_of_somebody_else_is_refused(bucket: Bucket, proxy: Proxy, tmp_path: Path) -> None:
    put(bucket, {"job/gpu.csv": LOG})
    url = f"s3://{bucket.name}/job"
    report_of(url, tmp_path / "o", "--cache", tmp_path / "cache")
    (folder,) = (tmp_path / "cache").iterdir()
    os.chown(folder, 12345, -1)

    done, _ = report_of(url, tmp_path / "o", "--cache", tmp_path / "cache")

    assert done.returncode == 2
    assert "belongs to somebody else" in done.stderr


def test_a_job_over_the_limit_is_refused_before_the_first_byte(
    bucket: Bucket, proxy: Proxy, tmp_path: Path
) -> None:
    put(bucket, {"job/1700000040.algo-1.json": b" " * (3 << 20)})

    done, _ = report_of(f"s3://{bucket.name}/job", tmp_path / "o", "--max-download", "2 MiB")

    assert done.returncode == 2
    assert "3.0 MiB to copy; --max-download is 2.0 MiB" in done.stderr
    assert proxy.count("GET") == 0


def test_a_job_that_the_disk_does_not_hold_or_that_has_no_end_is_refused(
    bucket: Bucket, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(bucket, {"job/1700000040.algo-1.json": b" " * (3 << 20), "job/2.json": b"", "job/3.json": b""})
    url = f"s3://{bucket.name}/job"

    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=3 << 20))
    full, _ = report_of(url, tmp_path / "o")
    monkeypatch.setattr(fetching, "MAX_OBJECTS", 2)
    long, _ = report_of(url, tmp_path / "o")

    assert (full.returncode, long.returncode) == (2, 2)
    assert "3.0 MiB to copy; --max-download is 20.0 GiB, and 2.7 MiB of the disk" in full.stderr
    assert "More than 2 objects below" in long.stderr
    assert proxy.count("GET") == 0


def test_a_copy_that_is_kept_is_fetched_again_where_it_changed(
    bucket: Bucket, proxy: Proxy, tmp_path: Path
) -> None:
    url, cache = f"s3://{bucket.name}/job", tmp_path / "cache"
    put(bucket, {"job/1.csv": log(1), "job/2.csv": log(2), "job/3.csv": log(3)})
    _, first = report_of(url, tmp_path / "o", "--cache", cache)
    proxy.reset()

    _, again = report_of(url, tmp_path / "o", "--cache", cache)
    assert (proxy.count("LIST"), proxy.count("GET")) == (1, 0)
    assert again == first

    bucket.put("job/2.csv", log(4))
    bucket.delete("job/1.csv")
    proxy.reset()
    _, changed = report_of(url, tmp_path / "o", "--cache", cache)
    assert [one.path for one in proxy.requests[1:]] == [f"{bucket.name}/job/2.csv"]
    _, fresh = report_of(url, tmp_path / "o")
    assert changed == fresh
    assert changed is not None
    assert gpus(changed) == 2
    assert {path.name for path in cache.rglob("*.csv")} == {"2.csv", "3.csv"}

    # What someone else wrote there is not taken for the copy.
    (kept,) = cache.rglob("2.csv")
    kept.write_bytes(log(5))
    proxy.reset()
    _, repaired = report_of(url, tmp_path / "o", "--cache", cache)
    assert proxy.count("GET") == 1
    assert repaired == fresh

    # Another folder is not touched by the copy of a copy, and one run at a time uses a folder.
    shutil.copytree(cache, tmp_path / "other")
    report_of(url, tmp_path / "o", "--cache", tmp_path / "other")
    assert {path.name for path in cache.rglob("*.csv")} == {"2.csv", "3.csv"}
    with fetching._held(next(cache.iterdir())):
        done, _ = report_of(url, tmp_path / "o", "--cache", cache)
    assert done.returncode == 2
    assert "Another run uses" in done.stderr


@pytest.mark.slow
def test_a_report_in_the_folder_of_its_job_is_no_part_of_it(bucket: Bucket, proxy: Proxy) -> None:
    put(bucket, {"job/gpu.csv": LOG})
    url = f"s3://{bucket.name}/job"
    options = ("--job-dir", url, "--out", url, "--formats", "json,md", "--quiet", "--force", "--strict")

    make_report(*options)
    first = json.loads(bucket.get("job/report.json") or b"")
    proxy.reset()
    again = make_report(*options)

    assert again.returncode == 0
    assert json.loads(bucket.get("job/report.json") or b"") == first
    assert [one.path for one in proxy.requests if one.kind == "GET" and "manifest" not in one.path] == [
        f"{bucket.name}/job/gpu.csv"
    ]


def test_redacted_reports_name_no_address(bucket: Bucket, proxy: Proxy, tmp_path: Path) -> None:
    put(bucket, {"secret-team/secret-job/gpu.csv": LOG, "secret-team/secret-job/secret.bin": b"1"})

    done = make_report(
        *("--job-dir", f"s3://{bucket.name}/secret-team/secret-job", "--redact", "--formats", "json,md"),
        cwd=tmp_path,
    )

    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "job-report/report.json").read_bytes())
    assert identifiers(document.load(tmp_path / "job-report/report.json")) == ()
    assert report["command"] == "make-report --job-dir 's3://…' --redact"
    assert "secret" not in done.stderr + done.stdout.replace(str(tmp_path), "")
    for path in (tmp_path / "job-report").rglob("*"):
        if path.is_file():
            assert b"secret" not in path.read_bytes()
            assert bucket.name.encode() not in path.read_bytes()


@pytest.mark.slow
def test_the_address_is_listed_as_a_name(bucket: Bucket, proxy: Proxy, tmp_path: Path) -> None:
    put(bucket, {"job/gpu.csv": LOG})
    url = f"s3://{bucket.name}/job"

    report_of(url, tmp_path / "o")

    found = identifiers(document.load(tmp_path / "o/report.json"))
    assert [one.names for one in found if one.kind == "Storage address"] == [(url,)]


def test_dask_needs_a_folder(tmp_path: Path) -> None:
    done = make_report("--job-dir", "s3://bucket/job", "--dask", "tcp://127.0.0.1:1")

    assert done.returncode == 2
    assert "--dask needs a folder" in done.stderr
