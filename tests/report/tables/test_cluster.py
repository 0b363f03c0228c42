"""The workers of a cluster give the same bytes as this machine, also when one is killed."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from generator.job import JobSpec
from generator.scenarios import SCENARIOS
from generator.writer import write_job
from msgspec.structs import replace

from jobreport.errors import JobReportError, UsageError
from jobreport.options import Options
from jobreport.pipeline import make_report
from jobreport.progress import Progress
from jobreport.readers.grouping import Group, read_groups
from jobreport.readers.listing import listing
from jobreport.readers.system_samples.reader import SystemSamples
from jobreport.readers.tally import Tally
from jobreport.readers.traces.reader import Traces
from jobreport.tables.cluster import DaskEngine
from jobreport.tables.engine import Task

distributed: Any = pytest.importorskip("distributed")
pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four nodes with samples, steps and events."""
    folder: Path = tmp_path_factory.mktemp("job")
    spec = JobSpec.of(SCENARIOS["cpu-bottleneck"], nodes=4, cores=4)
    write_job(spec, folder, gzipped=False)
    return folder


@pytest.fixture(scope="module")
def expected(job: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The report that is made in this process."""
    return report(job, tmp_path_factory.mktemp("here"))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two workers, each a process."""
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0", silence_logs=50
    ) as workers:
        yield workers


def report(job: Path, out: Path, engine: Any = None) -> bytes:
    """``report.json``."""
    make_report(job, out, Options(formats=("json",), force=True, strict=True), engine=engine)
    return (out / "report.json").read_bytes()


def groups_of(job: Path) -> list[Group]:
    """Eight groups: samples and traces of four nodes."""
    files = listing(job, Tally())
    return [
        Group(reader=reader, files=some)
        for reader in (SystemSamples(), Traces())
        for some in reader.groups([file for file in files if reader.matches_name(file)]).values()
    ]


def killing_after(engine: DaskEngine, method: str, kill: Callable[[], None]) -> None:
    """Kill a worker once, behind the first call of a method."""
    called = getattr(engine, method)

    def first(*given: Any) -> Any:
        answer = called(*given)
        setattr(engine, method, called)
        kill()
        return answer

    setattr(engine, method, first)


def test_tables_of_one_machine_are_kept_together(cluster: Any, job: Path) -> None:
    with DaskEngine(cluster.scheduler_address) as engine:
        groups = [replace(group, node=f"node {i % 3}") for i, group in enumerate(groups_of(job))]
        pieces = read_groups(engine, groups, Progress(), strict=True)
        handles = [handle for piece in pieces for handle in piece.handles]
        engine.fetch(handles)  # they are there
        places = engine._client.who_has(handles)
        workers: defaultdict[str, set[str]] = defaultdict(set)
        for piece in pieces:
            for handle in piece.handles:
                workers[piece.group.node].update(places[handle.key])
        assert all(len(some) == 1 for some in workers.values())
        assert len(set.union(*workers.values())) == 2


def test_an_address_without_a_scheduler_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobreport.tables.cluster._CONNECT_S", 0.2)
    with pytest.raises(UsageError, match=r"No Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        DaskEngine("tcp://127.0.0.1:9")


@pytest.mark.parametrize("address", ["nonsense", "", "foo://x", "tcp://x:y"])
def test_a_malformed_address_is_an_error(address: str) -> None:
    with pytest.raises(UsageError, match="No Dask scheduler answers at"):
        DaskEngine(address)


def test_workers_of_another_version_are_an_error(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobreport.tables.cluster.__version__", "0.0.0")
    with pytest.raises(UsageError, match=r"workers have jobreport .*, this machine has 0\.0\.0"):
        DaskEngine(cluster.scheduler_address)


def test_a_cluster_gives_the_same_bytes_also_when_workers_are_killed(
    cluster: Any, job: Path, expected: bytes, tmp_path: Path
) -> None:
    pids, killed = [worker.pid for worker in cluster.workers.values()], list[int]()

    def kill() -> None:
        # The other one: the first may not have been started again yet.
        killed.append(next(pid for pid in pids if pid not in killed))
        os.kill(killed[-1], signal.SIGKILL)

    with DaskEngine(cluster.scheduler_address) as engine:
        assert report(job, tmp_path / "0", engine) == expected
        # What the worker has read is lost, and read again.
        killing_after(engine, "keep", kill)
        assert report(job, tmp_path / "1", engine) == expected
        # In the middle of the rules.
        killing_after(engine, "ask", kill)
        assert report(job, tmp_path / "2", engine) == expected
    assert killed == pids


@pytest.mark.parametrize(
    ("lost", "after_s", "again"),
    [("workers", 2, 0), ("scheduler", 2, 0), ("scheduler", 0, 1)],
)
def test_a_cluster_that_is_gone_ends_the_run_with_a_sentence(
    lost: str,
    after_s: float,
    again: float,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    # The workers could not import this file, but they get a function within a function whole.
    def lasting(tables: list[Any], seconds: float) -> tuple[list[Any], int]:
        time.sleep(seconds)
        return [tables], 0

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    dask = [sys.executable, "-m", "dask"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    port = address.rpartition(":")[2]
    local = ["--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0"]
    commands = [["scheduler", "--port", port, *local], *[["worker", address, "--no-nanny", *local]] * 2]
    scheduler, *workers = [subprocess.Popen(dask + one, **quiet) for one in commands]  # type: ignore[call-overload]
    try:
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", int(port)), 1):
                break
            time.sleep(1)
        with DaskEngine(address) as engine:
            monkeypatch.setattr("jobreport.tables.cluster._CONNECT_S", 6)
            tasks = [Task(args=(60.0,), memory=1, machine=machine) for machine in "abc"]
            ((handles, _),) = engine.keep(lasting, [Task(args=(0.1,), memory=1, machine="a")], lambda _: None)
            killing = [process.kill for process in (workers if lost == "workers" else [scheduler])]
            threading.Timer(after_s, lambda: [kill() for kill in killing]).start()
            time.sleep(again)
            begin = time.monotonic()
            for call in (
                lambda: engine.keep(lasting, tasks, lambda _: None),
                lambda: engine.ask(lasting, [((handles[0],), (0.1,))]),
                lambda: engine.fetch(handles),
            ):
                with pytest.raises(JobReportError, match="of the Dask cluster are gone"):
                    call()
            assert time.monotonic() - begin < 40
    finally:
        for process in (scheduler, *workers):
            process.kill()
            process.wait()
    assert "Traceback" not in capfd.readouterr().err
