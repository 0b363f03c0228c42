"""What a training script calls."""

from __future__ import annotations

import copy
import json
import math
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import jobrecord
from jobrecord.hooks import current, process_facts, training_log
from jobrecord.hooks.imports import when_imported
from tests.record.hooks import fake_torch
from tests.record.hooks.written import events, hook_facts, steps, trace_files
from tests.record.recordings import rows, wait_for


def test_exported_names_are_there() -> None:
    assert sorted(jobrecord.__all__) == jobrecord.__all__
    assert all(callable(getattr(jobrecord, name)) for name in jobrecord.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'stpe'"):
        jobrecord.stpe  # noqa: B018


def test_script_runs_without_a_recording() -> None:
    loader = [1, 2]
    assert jobrecord.data(loader) is loader
    with jobrecord.phase("Checkpoint"), jobrecord.eval(), jobrecord.predict():
        jobrecord.batch(samples=1)
        jobrecord.step()
        jobrecord.resume(5)
        jobrecord.watch(object())
        jobrecord.config({"lr": 0.1})
        jobrecord.flops(1e12)
        jobrecord.log(loss=1.0)
    jobrecord.stop()


class Broken(dict[str, int]):
    """Settings that cannot be listed."""

    def items(self) -> Any:
        raise RuntimeError


def test_settings_of_the_script_are_noted_without_secrets(out: Path) -> None:
    jobrecord.start()
    own: dict[str, Any] = {"width": 12, "credentials": {"user": "hush"}, "deep": {"a": {"b": [1, 2]}}}
    jobrecord.config(
        {"lr": 0.1, "api_key": "hush", "model": own, "note": "my token: hush", "hub token": "hush"}
    )
    own["model"] = own
    jobrecord.config(own)
    jobrecord.config({f"k{i}": "x" * 10_000 for i in range(1000)})
    jobrecord.config(Broken(a=1))
    with pytest.raises(TypeError, match="needs a mapping, not list"):
        jobrecord.config([])  # type: ignore[arg-type]
    jobrecord.step()
    jobrecord.step()
    jobrecord.stop()

    facts = hook_facts(out)
    config = facts["config"]
    assert (
        config.items()
        >= {"lr": "0.1", "model.width": "12", "model.deep.a.b": "[1, 2]", "width": "12"}.items()
    )
    assert "hush" not in json.dumps(facts)
    assert (len(config), max(map(len, config.values()))) == (
        process_facts.MAX_CONFIG,
        process_facts.MAX_VALUE,
    )
    assert facts["versions"].keys() >= {"python", "jobrecord"}


def test_operations_of_a_step_are_given_as_a_number(out: Path) -> None:
    jobrecord.start()
    jobrecord.flops(2, precision="float16")
    with pytest.raises(TypeError, match="a number or 'count', not list"):
        jobrecord.flops([])  # type: ignore[arg-type]
    jobrecord.step()
    jobrecord.step()
    jobrecord.stop()

    facts = hook_facts(out)
    assert (facts["flops"], facts["precision"]) == ({"per_step": 2.0, "source": "given"}, "float16")


def lines(out: Path, name: str = "training-00000.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "jobrecord" / name).read_text().splitlines()]


def test_logged_numbers_are_written_at_once_a_line_each(out: Path) -> None:
    jobrecord.start()
    jobrecord.step()
    jobrecord.log(loss=0.1 + 0.2, count=3)
    jobrecord.log(step=7, mode="EVAL", loss=math.nan, up=math.inf, down=-math.inf, **{"a" * 300: 1.0})
    with pytest.raises(TypeError, match="log\\(\\) needs numbers, not list: loss"):
        jobrecord.log(loss=[])
    # Before anything is closed: what a killed process leaves.
    head, one, other = lines(out)
    jobrecord.stop()

    assert (out / "jobrecord/training-00000.jsonl").read_text().startswith('{"jobrecord":1,')
    assert (head["kind"], head["node"], head["rank"], head["world"]) == ("head", "node-1", 0, 1)
    assert (one["step"], one["mode"], one["values"]) == (1, "TRAIN", {"loss": 0.1 + 0.2, "count": 3})
    wanted = {"loss": "nan", "up": "inf", "down": "-inf", "a" * training_log.MAX_NAME: 1.0}
    assert (other["step"], other["mode"], other["values"]) == (7, "EVAL", wanted)
    assert lines(out)[-1].items() >= {"kind": "end", "step": 1, "reason": "finished"}.items()


def test_a_rank_that_starts_again_has_another_file(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "12")
    for loss in (1.0, 2.0):
        jobrecord.start()
        jobrecord.log(loss=loss)
        jobrecord.stop()
    names = "training-00012.jsonl", "training-00012-2.jsonl"
    assert [lines(out, name)[1]["values"]["loss"] for name in names] == [1.0, 2.0]


def test_a_file_of_logged_numbers_ends_at_its_limit(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(training_log, "MAX_BYTES", 2000)
    jobrecord.start()
    for _ in range(1000):
        jobrecord.log(loss=1.0)
    jobrecord.stop()
    assert (out / "jobrecord/training-00000.jsonl").stat().st_size < 2200
    assert capsys.readouterr().err.count("nothing more is written") == 1


def test_loop_by_hand(out: Path) -> None:
    jobrecord.start()
    for _ in jobrecord.data(range(3)):
        with jobrecord.phase("Augment"):
            pass
        jobrecord.batch(samples=32)
        jobrecord.batch(samples=32, tokens=100)
        jobrecord.step()
    with jobrecord.phase("Checkpoint"):
        time.sleep(0.05)
    jobrecord.step()
    jobrecord.stop()

    assert [event.args["samples"] for event in steps(out)[:3]] == [64] * 3
    assert [event.args["tokens"] for event in steps(out)[:3]] == [100] * 3
    assert [event.name for event in events(out, "Augment")] == ["Augment"] * 3
    assert [event.step for event in events(out, "Augment")] == [0, 1, 2]
    (checkpoint,) = events(out, "Checkpoint")
    assert steps(out)[3].start_us >= checkpoint.end_us
    first_fetch = events(out, "DataLoaderIter")[0]
    assert steps(out)[0].start_us == first_fetch.start_us


@pytest.mark.parametrize("saving", ["phase", "files"])
def test_a_checkpoint_that_was_not_saved_says_so(out: Path, saving: str) -> None:
    jobrecord.start()
    jobrecord.step()
    recording = current.current()
    assert recording
    for error in (None, OSError(), None):
        with suppress(OSError), jobrecord.phase("Checkpoint") if saving == "phase" else recording.saving():
            if error:
                raise error
        jobrecord.step()
    with suppress(OSError), jobrecord.phase("Augment"):
        raise OSError
    jobrecord.stop()

    assert [event.name for event in events(out, "Checkpoint")] == ["Checkpoint", "failed", "Checkpoint"]
    assert [event.name for event in events(out, "Augment")] == ["Augment"]


def test_evaluation_and_prediction_are_steps_of_their_own(out: Path) -> None:
    jobrecord.start()
    jobrecord.step()
    with jobrecord.eval():
        for _ in jobrecord.data([1, 2, 3]):
            time.sleep(0.01)
        for batch in jobrecord.data([1, 2, 3]):
            time.sleep(0.01)
            if batch == 2:
                break
    with jobrecord.predict():
        for _ in jobrecord.data([1]):
            pass
    jobrecord.step()
    jobrecord.stop()

    assert [event.step for event in steps(out, "EVAL")] == [0, 1, 2, 3, 4]
    assert all(event.end_us - event.start_us >= 10_000 for event in steps(out, "EVAL"))
    assert len(steps(out, "PREDICT")) == 1
    assert steps(out)[1].start_us >= steps(out, "PREDICT")[0].end_us


def test_loaders_can_be_copied_and_sent_to_other_processes(out: Path) -> None:
    jobrecord.start()
    loader = jobrecord.data([[1], [2]])
    copied, deep, sent = copy.copy(loader), copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))
    deep[0].append(3)

    assert [list(copied), deep, sent] == [[[1], [2]], [[1, 3], [2]], [[1], [2]]]
    fetches = iter(loader)
    next(fetches)
    assert [*pickle.loads(pickle.dumps(fetches))] == [[2]]
    jobrecord.stop()
    # Only the shallow copy is recorded.
    assert len(events(out, "DataLoaderIter")) == 3


def test_an_iterator_stays_one(out: Path) -> None:
    jobrecord.start()
    batches = jobrecord.data(iter([1, 2]))

    assert (next(batches), list(batches)) == (1, [2])
    jobrecord.stop()
    assert len(events(out, "DataLoaderIter")) == 2


def test_evaluation_without_data_is_one_step(out: Path) -> None:
    jobrecord.start()
    jobrecord.step()
    for _ in range(2):
        with jobrecord.eval(), jobrecord.phase("Evaluation"):
            pass
    jobrecord.step()
    jobrecord.stop()

    evaluations = steps(out, "EVAL")
    assert [event.step for event in evaluations] == [0, 1]
    for step, phase in zip(evaluations, events(out, "Evaluation"), strict=True):
        assert step.start_us <= phase.start_us <= phase.end_us <= step.end_us
    assert steps(out)[1].start_us >= evaluations[1].end_us


def test_start_twice_warns_and_a_nested_record_is_a_phase(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with jobrecord.record() as outer:
        jobrecord.start()
        with jobrecord.record("elsewhere") as inner:
            assert inner is outer
    assert capsys.readouterr().err.count("already recorded") == 1
    assert len(events(out, "record")) == 1
    assert current.current() is None


def test_recording_ends_with_the_block_also_by_an_exception(out: Path) -> None:
    with pytest.raises(KeyError), jobrecord.record() as recording, recording.phase("Load"):
        raise KeyError
    assert len(events(out, "Load")) == 1
    assert trace_files(out)[0].suffix == ".json"


@pytest.mark.parametrize(("call", "wrong"), [("data", 5), ("data", None), ("watch", 5), ("watch", [])])
def test_defects_of_the_script_show_at_once(out: Path, call: str, wrong: Any) -> None:
    jobrecord.start()
    with pytest.raises(TypeError, match=f"{call}\\(\\) needs"):
        getattr(jobrecord, call)(wrong)
    with pytest.raises(TypeError, match=r"phase\(\) needs"), jobrecord.phase(cast("str", 5)):
        pass


def test_size_of_a_batch_is_a_whole_number(out: Path) -> None:
    jobrecord.start()
    with pytest.raises(TypeError, match="not float: samples"):
        jobrecord.batch(samples=1.5)  # type: ignore[arg-type]


def test_loader_stays_what_it_was(out: Path) -> None:
    class Batches:
        batch_size = 4

        def __len__(self) -> int:
            return 2

        def __getitem__(self, i: int) -> int:
            return [10, 20][i]

    jobrecord.start()
    loader = jobrecord.data(Batches())
    assert (list(loader), len(loader), loader.batch_size, loader[1], bool(loader)) == (
        [10, 20],
        2,
        4,
        20,
        True,
    )
    assert list(jobrecord.data(value for value in "ab")) == ["a", "b"]
    with pytest.raises(AttributeError):
        loader.sampler  # noqa: B018


def test_exception_of_a_fetch_reaches_the_script_and_the_iterator_goes_on(out: Path) -> None:
    class Batches:
        def __init__(self) -> None:
            self.given = 0

        def __iter__(self) -> Iterator[int]:
            return self

        def __next__(self) -> int:
            self.given += 1
            if self.given == 2:
                raise ValueError("bad batch")
            if self.given > 3:
                raise StopIteration
            return self.given

    jobrecord.start()
    fetches = iter(jobrecord.data(Batches()))
    assert next(fetches) == 1
    with pytest.raises(ValueError, match="bad batch"):
        next(fetches)
    assert list(fetches) == [3]


def test_steps_of_a_library_that_is_imported_later(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_torch.install(tmp_path / "lib", monkeypatch)
    # Tests before may have awaited what they did not import.
    before = [one for one in sys.meta_path if type(one).__module__ != "jobrecord.hooks.imports"]
    monkeypatch.setattr(sys, "meta_path", [*before])
    jobrecord.start()
    # A script may ask first whether it is installed.
    assert find_spec("torch.optim.optimizer")
    optimizers = import_module("torch.optim.optimizer")
    optimizer = optimizers.Optimizer()
    for _ in range(5):
        optimizer.step()
    jobrecord.stop()
    optimizer.step()

    assert len(steps(out)) == 5
    assert (optimizers.before, optimizers.after) == ([], [])
    assert sys.meta_path == before


@pytest.mark.filterwarnings("ignore::ImportWarning")
def test_imports_that_fail_do_so_as_without_the_recorder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    # The last finder is of the protocol before `find_spec`.
    finders = [one for one in sys.meta_path if type(one).__module__ != "jobrecord.hooks.imports"]
    old = SimpleNamespace(find_module=lambda name, path=None: None)
    monkeypatch.setattr(sys, "meta_path", [*finders, old])
    called: list[str] = []
    for name in ("is_late", "is_missing"):
        when_imported(name, lambda module: called.append(module.__name__))
    (late := tmp_path / "is_late.py").write_text("1 / 0")

    with pytest.raises(ModuleNotFoundError):
        import_module("is_missing")
    with pytest.raises(ZeroDivisionError):
        import_module("is_late")
    assert called == []
    late.write_text("works = True")
    assert import_module("is_late").works
    assert called == ["is_late"]


def test_fault_of_a_hook_ends_the_recording_and_not_the_training(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_torch.install(tmp_path / "lib", monkeypatch)
    optimizers = import_module("torch.optim.optimizer")
    jobrecord.start()
    recording = current.current()
    assert recording is not None

    def broken(*_: object) -> None:
        raise RuntimeError("defect")

    monkeypatch.setattr(recording.steps, "optimizer_stepped", broken)
    with jobrecord.phase("before"):
        pass
    for _ in jobrecord.data(range(3)):
        optimizers.Optimizer().step()

    assert len(events(out, "before")) == 1
    assert capsys.readouterr().err.count("recording ends: RuntimeError: defect") == 1


def test_fork_is_inert_and_may_record_itself(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    jobrecord.start()
    loader = jobrecord.data([1, 2])
    with jobrecord.phase("before"):
        pass
    for records_itself in (False, True):
        if (child := os.fork()) == 0:
            try:
                list(loader)
                with jobrecord.phase("inert"):
                    pass
                if records_itself:
                    jobrecord.start()
                    with jobrecord.phase("child"):
                        pass
                jobrecord.stop()
            finally:
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    jobrecord.stop()

    names = [event.name for event in events(out)]
    assert sorted(names) == ["before", "child"]


def test_killed_process_loses_a_second_at_most(out: Path) -> None:
    code = (
        "import os, time, jobrecord; jobrecord.start(); end = time.monotonic() + 1.5\n"
        "for i in range(10**9):\n"
        "    time.sleep(0.01); jobrecord.step()\n"
        "    if time.monotonic() > end: print(i + 1, flush=True); os.kill(os.getpid(), 9)\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)

    assert run.returncode == -signal.SIGKILL
    done = int(run.stdout)
    recorded = [event.step for event in steps(out)]
    assert recorded == list(range(len(recorded))) != []
    assert done - len(recorded) <= 110


@pytest.mark.parametrize("wall", ["file size limit", "no folder"])
def test_training_goes_on_without_a_disk(out: Path, wall: str) -> None:
    code = (
        "import resource, sys, jobrecord\n"
        "if sys.argv[1] == 'file size limit': resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "jobrecord.start()\n"
        "for _ in jobrecord.data(range(5000)): jobrecord.step()\n"
        "print('trained')"
    )
    if wall == "no folder":
        out.write_text("a file")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", code, wall], env=env, capture_output=True, text=True, check=False
    )

    reason = "Not a directory" if wall == "no folder" else "File too large"
    warning = f"jobrecord: steps and events are not written: {reason}\n"
    assert (run.returncode, run.stdout, run.stderr) == (0, "trained\n", warning)


def test_python_profile_of_chosen_steps(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBRECORD_PROFILE_STEPS", "2-3")
    jobrecord.start()
    for _ in range(6):
        sorted(range(1000))
        jobrecord.step()
    jobrecord.stop()

    assert [event.step for event in steps(out) if event.args.get("profiled") == "cprofile"] == [2, 3]
    folders = sorted(out.glob("framework/pytorch/cprofile/*-node-1/*"))
    assert [folder.name.split("-")[1:3] for folder in folders] == [["2", "stepstart"], ["3", "stepstart"]]
    assert all("built-in method builtins.sorted" in str(_functions(folder)) for folder in folders)


def _functions(folder: Path) -> list[Any]:
    import marshal  # noqa: PLC0415

    return list(marshal.loads((folder / "python_stats").read_bytes()))


def test_recorder_without_record_job_samples_and_lets_later_processes_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("RUN", "DIR", "NODE"):
        monkeypatch.delenv(f"JOBRECORD_{name}", raising=False)
    with jobrecord.record(tmp_path / "job") as recording:
        assert os.environ["JOBRECORD_DIR"] == str(tmp_path / "job")
        for _ in range(30):
            recording.step()
        wait_for(lambda: rows(tmp_path / "job"))
    assert "JOBRECORD_RUN" not in os.environ
    assert capsys.readouterr().err == f"jobrecord: next: make-report --job-dir {tmp_path / 'job'}\n"
    assert len(steps(tmp_path / "job")) == 30
    (file,) = tmp_path.glob("job/jobrecord/*.json")
    known = json.loads(file.read_text())
    assert (known["ended_by"], known["overhead"]["steps"], known["dropped"]["events"]) == ("exit", 30, 0)
    assert known["overhead"]["hook_s"] > 0
    assert (tmp_path / "job" / "framework" / "training_job_end.ts").exists()
    assert list(tmp_path.glob("job/system/incremental/*/*"))


def test_folder_with_a_recording_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("RUN", "DIR", "NODE"):
        monkeypatch.delenv(f"JOBRECORD_{name}", raising=False)
    for _ in range(2):
        with jobrecord.record(tmp_path / "job") as recording:
            recording.step()
    assert "nothing is recorded" in capsys.readouterr().err
    assert len(steps(tmp_path / "job")) == 1


def test_several_nodes_need_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("RUN", "DIR", "NODE"):
        monkeypatch.delenv(f"JOBRECORD_{name}", raising=False)
    monkeypatch.setenv("SLURM_NNODES", "2")
    with jobrecord.record() as recording:
        recording.step()
    assert "give the same folder on all of them" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_facts_count_the_steps(out: Path) -> None:
    with jobrecord.record() as recording:
        for _ in range(7):
            recording.step()
    assert hook_facts(out)["steps"] == 7
