"""Jobs that a notebook opens in object storage."""

from __future__ import annotations

from jobreport import JobFrames, open_job
from tests.paths import ROOT
from tests.report.storage.servers import Bucket, Proxy, run

SAMPLE = ROOT / "sample_data" / "fluctuating-1gpu"


def test_a_job_in_object_storage_is_opened(proxy: Proxy, bucket: Bucket) -> None:
    bucket.put_folder(SAMPLE, "jobs/one")
    url = f"s3://{bucket.name}/jobs/one"
    expected = open_job(SAMPLE).samples()

    async def in_a_notebook() -> JobFrames:
        return open_job(url)

    for job in (open_job(url), run(in_a_notebook())):
        assert job.name == "one"
        assert job.samples().equals(expected)
        assert job.report().report.command == f"make-report --job-dir {url}"
    assert proxy.count("LIST") == 2
