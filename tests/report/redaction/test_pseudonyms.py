"""After --redact no name of the job is left in anything that is written or printed, and no number is another."""

from __future__ import annotations

import hashlib
import json
import marshal
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from string import Formatter
from typing import Any

import pytest

from fuzz import hostile
from jobreport import pipeline
from jobreport.options import Options
from jobreport.readers.python_profiles.reader import PythonProfiles
from jobreport.readers.registry import Reading
from jobreport.redaction.identifiers import FORMS, identifiers, is_common
from jobreport.redaction.names import texts_in
from jobreport.redaction.pseudonyms import Pseudonyms, redacted
from jobreport.remarks import NAMES, REMARKS, Quality, Remark, SourceQuality, Wording
from jobreport.settings import Settings, load
from jobreport.tables.engine import LocalEngine
from jobreport.tables.parts import JobInParts
from jobrules.model import Function, Profile
from jobrules.model.learning import Collection, Learning, Tensor
from jobrules.rules.step_outlier import StepOutlier
from tests.copies import replace
from tests.kineto import Recording
from tests.learning_data import scalars, tensors
from tests.paths import CORPUS, SAMPLES, needs_corpus
from tests.report.readers.events import base, lane, text, x
from tests.report.readers.samples import sample, write

#: Seconds of samples, two a second; patience and windows of the rules fit into it.
SECONDS, T0 = 600, 1_700_000_100


def mark(kind: str) -> str:
    """A word that stands nowhere else, another one for each kind."""
    letters = "bcdfghjklmnpqrstvwxz"
    return "".join(letters[byte % len(letters)] for byte in hashlib.sha256(kind.encode()).digest()[:14])


#: One for everything in a job that someone may have named.
MARKS = {
    kind: mark(kind)
    for kind in [
        "job",
        "host",
        "device",
        "event",
        "step",
        "tensor",
        "iterator",
        "operator",
        "space",
        "module",
        "function",
        "builtin",
        "user",
        "folder",
        "file",
        "stray",
        "sensor",
        "bucket",
        "mail",
        "key",
        "value",
        "parameter",
        "worker",
        "unread",
        "facts",
        "process",
        "mount",
        *("owner", "namespace", "phase", "kernel", "group", "dtype", "stream", "card", "copy"),
    ]
}
HOSTS = (f"{MARKS['host']}-2", f"{MARKS['host']}-10")
ACCOUNT, ADDRESS = "418273645091", "10.37.214.9"


def files() -> dict[str, str | bytes]:
    """A job of two nodes, with every kind of input."""
    m, made = MARKS, dict[str, str | bytes]()
    for host in HOSTS:
        lines = []
        for i in range(2 * SECONDS):
            at = T0 + i / 2
            lines += [sample(5 + i % 7, at=at, name=f"gpu{d}", node=host) for d in range(2)]
            lines.append(sample(i % 3, at=at, name=f"gpu-{m['device']}", node=host))
            lines.append(sample(97, at=at, name="cpu0", kind="cpu", dimension="CPUUtilization", node=host))
        lines.append(sample(1e9, name=m["process"], kind="process", dimension="ResidentBytes", node=host))
        lines.append(sample(1e6, name=f"/mnt/{m['mount']}", kind="disk", dimension="FreeBytes", node=host))
        lines += [sample(1, name=m["sensor"], kind=m["sensor"], node=host), f'{{"{m["key"]}": broken']
        made[f"{m['folder']}/{T0}.{host}.json"] = "\n".join(lines)
        rows = [base(T0 * 1_000_000)]
        names = {
            1: "Step:ModeKeys.TRAIN",
            2: f"Step:ModeKeys.{m['step']}",
            3: "cpu_functions",
            4: f"Forward-{m['event']}",
            5: f"{m['event']} gpu {ADDRESS}",
            6: "DataLoaderIter",
            7: "DataLoaderIterInitialize",
        }
        rows += [lane(pid, name) for pid, name in names.items()]
        num = {"num_workers": "2", "pin_memory": "True"}
        rows.append(x(f"{m['iterator']}SingleProcess.__init__", 1000, 10, 7, args=num))
        for i in range(60):
            ts = 1_000_000 * (1 + 5 * i)
            rows.append(x(names[1], ts, 3_000_000 + 9_000_000 * (i == 40), 1, args={"step_num": str(i)}))
            rows.append(x(names[2], ts + 4_000_000, 500_000, 2, args={"step_num": str(i)}))
            rows.append(x("aten::conv2d", ts, 900_000 + i, 3))
            rows.append(x(f"aten::{m['space']}", ts + 1_000_000, 500_000, 3))
            rows.append(x(f"s3://{m['bucket']}/{ACCOUNT}/{m['operator']}", ts + 2_000_000, 400_000, 3))
            rows.append(x(f"{m['event']}Layer", ts, 800_000, 4))
            rows.append(x(f"{m['mail']}@example.org", ts, 700_000, 5))
            rows.append(x(f"{m['iterator']}SingleProcess::GetNext", ts + 3_000_000, 300_000, 6))
        made[f"framework/pevents/2023111422/{T0 + 300}000000_33-{host}_pythontimeline.json"] = text(rows)
        tensors = [base(T0 * 1_000_000), lane(1, f"grads/{m['tensor']}")]
        tensors += [x("ALLREDUCE", 1_000_000 * (1 + 5 * i), 900_000, 1) for i in range(60)]
        made[f"framework/pevents/2023111422/{T0 + 300}000000_33-{host}_horovod_timeline.json"] = text(tensors)
    stretch = f"train-9-stepstart-{T0}123456.0_{m['step']}-9-stepend-{T0 + 1}123456.5"
    home = f"/home/{m['user']}/{m['folder']}/{m['module']}.py"
    entries: dict[Any, Any] = {
        (home, 7, m["function"]): (2, 3, 0.5, 1.5, {}),
        ("/opt/lib/python3.9/site-packages/torch/nn/modules/module.py", 9, "_call_impl"): (
            2,
            3,
            0.4,
            1.2,
            {},
        ),
        ("~", 0, f"<built-in method {m['builtin']}.run>"): (2, 3, 0.3, 0.3, {}),
        ("~", 0, "<built-in method torch._C._nn.linear>"): (2, 3, 0.2, 0.2, {}),
    }
    made[f"framework/pytorch/cprofile/33-{HOSTS[0]}/{stretch}/python_stats"] = marshal.dumps(entries)
    quoted = {"StartStep": 7, "NumSteps": 2, "MetricsRegex": m["user"]}
    python = {"StartStep": 9, "NumSteps": 3, "cProfileTimer": m["user"]}
    made["profilerconfig.json"] = json.dumps(
        {
            "ProfilingParameters": {
                "LocalPath": f"/home/{m['user']}",
                "DataloaderProfilingConfig": json.dumps(quoted),
                "PythonProfilingConfig": json.dumps(python),
            }
        }
    )
    made |= hostile.facts([f"zz{m['facts']}"])
    made[f"{m['file']}.unread"] = m["unread"]
    made[f"{HOSTS[0]}_1234.1699999999.pt.trace.json"] = trace()
    made[f"system/incremental/2023111422/{T0}.{m['stray']}.json"] = ""
    return made


def trace() -> bytes:
    """A trace of PyTorch's profiler with names of every kind."""
    m, one = MARKS, Recording(0)
    one.top |= {"hostname": HOSTS[0], "username": m["owner"], "traceName": f"/home/{m['owner']}/run"}
    one.top["deviceProperties"] = [{"id": 0, "name": m["card"]}]
    one.step(1, 1000, 1400)
    one.operator(f"{m['namespace']}::forward", 1000, 1100)
    one.operator("aten::mm", 1100, 1200)
    one.mark(f"{m['phase']} of training", 1000, 1200)
    one.kernel(f"{m['kernel']}_v2", 1050, 1150, launch=(1010, 1020))
    known: dict[str, Any] = {
        "Collective name": "allreduce",
        "Process Group Description": m["group"],
        "dtype": m["dtype"],
    }
    one.kernel("ncclDevKernel_AllReduce", 1200, 1300, 20, (1110, 1120), **known)
    one.events[-1]["args"]["stream"] = m["stream"]
    copy = "Memcpy HtoD (Pageable -> Device)"
    one.kernel(copy, 1300, 1350, 21, (1120, 1130), category="gpu_memcpy")
    one.events[-2]["name"] = m["copy"]
    return one.text()


def result_files() -> dict[str, str | bytes]:
    """Rule results of SageMaker Debugger for a job of two nodes."""
    m, gpu = (
        MARKS,
        {"p25": 1.0, "p50": 2.0, "p75": 3.0, "p95": 4.0, "upper": 5.0, "lower": 0.0, "gpu_max": 6.0},
    )
    step = {"step_stats": {"mean": 1.0, "p50": 1.0, "max": 9.0}, "number_of_outliers": 12, "stddev": 0.5}
    details: dict[str, Any] = {
        "LowGPUUtilization": {host: {"gpu0": gpu, m["device"]: gpu} for host in HOSTS},
        "OverallSystemUsage": {"GPU": {h: {"min": 0, "p50": 1, "p95": 2, "p99": 3, "max": 4} for h in HOSTS}},
        "StepOutlier": {
            "step_details": {
                f"{HOSTS[0]}-27": step | {"phase": f"Step:ModeKeys.{m['step']}", "step_numbers": ["7"]}
            }
        },
        "OverallFrameworkMetrics": {"phase": {"Step:ModeKeys.TRAIN": 60.0, m["event"]: 40.0}},
        "MaxInitializationTime": {"job_start": T0, "job_end": T0 + 100.5, m["key"]: m["value"]},
    }
    empty = {"RuleTriggered": 1, "Violations": 1, "Datapoints": 9}
    parameters = f"threshold:50\n{m['parameter']}:{m['worker']}"
    return {
        f"{m['folder']}/ProfilerReport-{T0}/profiler-output/profiler-reports/{rule}.json": json.dumps(
            empty | {"Details": values, "RuleParameters": parameters}
        )
        for rule, values in details.items()
    }


def pieces(marker: str) -> Iterator[str]:
    yield from (marker[i : i + 6] for i in range(len(marker) - 5))


def leaks(text: str) -> dict[str, str]:
    """Markers of which a piece is left, with the place."""
    low = text.lower()
    found = {kind: piece for kind, marker in MARKS.items() for piece in pieces(marker) if piece in low}
    found |= {one: one for one in (ACCOUNT, ADDRESS) if one in text}
    return {kind: text[max(0, low.find(piece) - 80) : low.find(piece) + 80] for kind, piece in found.items()}


def read_all(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text("utf-8") for p in folder.rglob("*") if p.is_file()}


def same_but_for_texts(one: Any, other: Any, path: str = "") -> None:
    """Equal shape and numbers; the texts may differ."""
    assert type(one) is type(other), path
    if isinstance(one, dict):
        assert len(one) == len(other), path
        for (key, value), changed in zip(one.items(), other.values(), strict=True):
            if key == "remarks":  # Those that differ in a name only become one.
                assert sum(r["count"] for r in value) == sum(r["count"] for r in changed), path
            elif key != "example":
                same_but_for_texts(value, changed, f"{path}/{key}")
    elif isinstance(one, list):
        assert len(one) == len(other), path
        for i, (value, changed) in enumerate(zip(one, other, strict=True)):
            same_but_for_texts(value, changed, f"{path}/{i}")
    elif not isinstance(one, str):
        assert one == other, path


def compare(directory: Path, out: Path, settings: Settings | None = None) -> tuple[str, str]:
    """Make both reports, hold their numbers against each other, and give ``report.json`` of both."""
    for redact in (False, True):
        pipeline.make_report(
            directory, out / str(redact), Options(settings=settings, formats=["json", "md"], redact=redact)
        )
    plain, changed = read_all(out / "False"), read_all(out / "True")
    assert plain.keys() == changed.keys()
    for name, content in plain.items():
        if name.endswith(".json"):
            same_but_for_texts(json.loads(content), json.loads(changed[name]), name)
    return plain["report.json"], changed["report.json"]


def test_no_piece_of_a_name_is_left_in_any_file_or_on_the_terminal(tmp_path: Path) -> None:
    directory, out = tmp_path / MARKS["job"], tmp_path / "out"
    write(directory, files())

    run = subprocess.run(
        [sys.executable, "-m", "jobreport.cli", "--job-dir", directory, "--out", out, "--redact"],
        capture_output=True,
        check=False,
        encoding="utf-8",
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )

    assert run.returncode == 0, run.stderr
    written = read_all(out)
    assert {name.rpartition(".")[2] for name in written} == {"html", "ipynb", "json", "md"}
    assert {name: leaks(one) for name, one in written.items() if leaks(one)} == {}
    assert leaks(run.stdout + run.stderr) == {}
    assert "Reading job" in run.stderr
    page = written["report.html"]
    assert all(name in page for name in ("node-1", "node-2", "aten::conv2d", "torch/nn/modules/module.py"))
    assert "None found" in page


def test_the_choice_of_a_scalar_has_its_placeholder(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("step,secret loss\n1,2\n2,1\n")
    options = Options(formats=["json"], redact=True, scalar={"loss": "secret loss"})
    outcome = pipeline.make_report(tmp_path, tmp_path / "out", options)
    assert "secret" not in (tmp_path / "out" / "report.json").read_text()
    assert "--scalar loss=scalar-1" in outcome.report.command


def test_the_job_has_all_its_names_without_the_option_and_the_same_numbers(tmp_path: Path) -> None:
    directory = tmp_path / MARKS["job"]
    write(directory, files())

    plain, changed = compare(directory, tmp_path)

    # Tensors, users of traces, broken lines, patterns, and timers are shown nowhere; the others are of SageMaker Debugger's results.
    hidden = {"tensor", "owner", "unread", "key", "value", "parameter", "worker", "regex", "timer"}
    assert set(leaks(plain)) >= MARKS.keys() - hidden
    assert leaks(changed) == {}
    assert [one["name"] for one in json.loads(changed)["job"]["nodes"]] == ["node-1", "node-2"]
    assert placeholders(json.loads(changed)["captures"][0]) == {
        *("capture-1", "node-1", "model-1", "aten::mm", "ncclDevKernel_AllReduce", "stream-1", "7", "21"),
        *("operator-6", "kernel-2"),
    }
    assert [one["name"] for one in json.loads(plain)["job"]["nodes"]] == list(HOSTS)


def placeholders(capture: dict[str, Any]) -> set[str]:
    (device,) = capture["devices"]
    rows = (*capture["operators"], *device["kernels"], *capture["step_lines"]["lanes"])
    return {capture["file"], capture["host"], device["name"], *(row["name"] for row in rows)} - {""}


def test_results_of_sagemaker_debugger_lose_their_names(tmp_path: Path) -> None:
    directory = tmp_path / MARKS["job"]
    write(directory, result_files())

    compare(directory, tmp_path)

    written, kept = read_all(tmp_path / "True"), read_all(tmp_path / "False")
    assert {name: leaks(one) for name, one in written.items() if leaks(one)} == {}
    named = {"job", "host", "device", "step", "event", "key", "value", "parameter", "worker"}
    assert named <= {kind for one in kept.values() for kind in leaks(one)}
    assert "node-1-27" in written["rules/StepOutlier.json"]
    assert json.loads(written["rules/StepOutlier.json"])["RuleParameters"].startswith("threshold:50\nname-")


@pytest.mark.parametrize("mode", [f"Keys.{MARKS['step']}", MARKS["step"][3:], "TRAIN", MARKS["value"]])
def test_steps_of_a_mode_are_chosen_by_its_placeholder(mode: str, tmp_path: Path) -> None:
    directory = tmp_path / MARKS["job"]
    write(directory, files() | {f"{MARKS['folder']}/{T0}.{host}.json": "" for host in HOSTS})
    settings = load(assignments=[f"StepOutlier.mode={mode}", "StepOutlier.n_outliers=0"])

    plain, changed = map(json.loads, compare(directory, tmp_path, settings))

    assert leaks(json.dumps(changed)) == {}
    card, other = (next(one for one in r["rules"] if one["name"] == "StepOutlier") for r in (plain, changed))
    assert card["datapoints"] == other["datapoints"] == (0 if mode == MARKS["value"] else 120)
    seen = mode if mode == "TRAIN" else "chosen"
    assert f"--set StepOutlier.mode={seen}" in changed["command"]
    assert {one["name"]: one["value"] for one in other["parameters"]}["mode"] == seen


@pytest.mark.parametrize(
    "mode", ["1", "2", "event-1", "RAIN", "e", "2 chosen", "TRAIN", "Acme", "Keys.Acme", "-"]
)
def test_a_placeholder_ends_with_the_chosen_mode_if_its_name_does(mode: str) -> None:
    names = ["TRAIN", "EVAL", "Acme", "Acme1", "AcmeTRAIN", "event-1", "acmE-", "the", "2 chosen", "mine"]

    pseudonyms = Pseudonyms.of([("event", name) for name in names], mode)

    before, behind = StepOutlier(mode=mode), StepOutlier(mode=pseudonyms.mode)
    seen = [before.looks_at(name) for name in names]
    assert [behind.looks_at(pseudonyms("event", name)) for name in names] == seen
    assert len({pseudonyms("event", name) for name in names}) == len(names)
    assert pseudonyms("event", "TRAIN") == "TRAIN"


@pytest.mark.parametrize("directory", SAMPLES[:2], ids=lambda one: one.name)
def test_the_numbers_of_the_samples_stay(directory: Path, tmp_path: Path) -> None:
    compare(directory, tmp_path)


@needs_corpus
@pytest.mark.parametrize("name", ["job-10", "job-40"])
def test_the_numbers_of_real_jobs_stay(name: str, tmp_path: Path) -> None:
    compare(CORPUS / "sagemaker" / name, tmp_path)


def test_a_remark_keeps_its_count_and_loses_its_place_and_names(monkeypatch: pytest.MonkeyPatch) -> None:
    wording = Wording("dropped", "samples", "{metric} of {node}, {device}, {name} in {file}: {kind}: {error}")
    monkeypatch.setitem(REMARKS, "test.names", wording)

    def reason_of(**names: str) -> str:
        fields = dict.fromkeys(NAMES, "acme") | {"metric": "GPU", "kind": "KeyError"} | names
        remark = Remark(code="test.names", count=3, fields=dict(fields), place="acme/a.json:7")
        source = SourceQuality(source="x", files=1, rows=1, remarks=(remark,))
        changed = Pseudonyms.of([("node", "b2")]).quality(Quality(remarks=(remark,), sources=(source,)))
        (one,) = {*changed.remarks, *changed.sources[0].remarks}
        assert (one.action, one.count, one.unit, one.place) == ("dropped", 3, "samples", None)
        return one.reason

    assert reason_of() == "GPU of …, …, … in …: KeyError: …"
    assert reason_of(node="b2") == "GPU of node-1, …, … in …: KeyError: …"
    assert reason_of(name="network level") == "GPU of …, …, network level in …: KeyError: …"


def test_no_code_of_a_remark_keeps_a_name() -> None:
    for code, wording in REMARKS.items():
        used = {name for _, name, _, _ in Formatter().parse("".join(wording)) if name}
        fields: dict[str, str | int | float] = {
            one: "acme" if one in NAMES else 1 for one in used - {"action"}
        }
        remark = Remark(code=code, count=1, fields=fields | {"action": "skipped"})

        (changed,) = Pseudonyms.of([]).quality(Quality(remarks=(remark,))).remarks

        assert "acme" not in f"{changed.action} {changed.unit} {changed.reason}"


def test_a_failure_is_reported_without_what_it_quotes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ValueError(f"no such thing as {MARKS['function']}")

    monkeypatch.setattr(PythonProfiles, "read", broken)
    directory = tmp_path / MARKS["job"]
    write(directory, files())

    outcome = pipeline.make_report(directory, tmp_path / "out", Options(formats=["json"], redact=True))

    assert "Python profiles stopped: ValueError" in str(outcome.failure)
    assert leaks(str(outcome.failure)) == {}
    assert leaks((tmp_path / "out" / "report.json").read_text("utf-8")) == {}


def test_placeholders_are_numbers_in_natural_order_and_never_a_name_that_is_kept() -> None:
    names = [("node", "b10"), ("node", "b9"), ("event", "event-1"), ("event", "Acme"), ("event", "TRAIN")]

    pseudonyms = Pseudonyms.of(names)

    assert [pseudonyms("node", one) for one in ("b9", "b10")] == ["node-1", "node-2"]
    assert [pseudonyms("event", one) for one in ("TRAIN", "event-1", "Acme")] == [
        "TRAIN",
        "event-1",
        "event-2",
    ]


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        ("event", "Forward-Acme", "Forward event-1"),
        ("event", "AcmeForward", "event-1"),
        ("event", "acmeCPU", "cpu event-1"),
        ("event", "Step:Acme", "Step event-1"),
        ("tensor", "grads/acme_gpu", "tensor-1"),
        ("tensor", "acme.7.weight", "layer-1.tensor-1"),
        ("tensor", "model.layers.0.mlp.weight", "layer-1.tensor-1"),
        ("scalar", "loss", "loss"),
        ("scalar", "val_accuracy", "val_accuracy"),
        ("scalar", "acme/reward", "scalar-1"),
        ("operator", "IteratorGetNext_acme", "IteratorGetNext operator-1"),
        ("operator", "Acme::Prefetch", "Prefetch operator-1"),
        ("operator", "aten::acme", "aten::operator-1"),
        ("iterator", "_SingleProcessAcmeIter", "SingleProcess iterator-1"),
    ],
)
def test_what_rules_look_for_in_names_is_kept(kind: str, name: str, expected: str) -> None:
    assert Pseudonyms.of([(kind, name)])(kind, name) == expected


def test_devices_change_all_together_since_they_stand_in_the_order_of_their_names() -> None:
    pseudonyms = Pseudonyms.of([("device", "gpu0"), ("device", "gpu10"), ("device", "tachyon")])

    assert [pseudonyms("device", one) for one in ("gpu0", "gpu10", "tachyon")] == [
        "device-1",
        "device-2",
        "device-3",
    ]
    assert Pseudonyms.of([("device", "gpu0")])("device", "gpu0") == "gpu0"


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (("/home/ann/env/lib/python3.9/site-packages/torch/a.py", "run"), ("torch/a.py", "run")),
        (("/usr/lib/python3.9/json/decoder.py", "decode"), ("json/decoder.py", "decode")),
        (("/usr/lib/python3.9/threading.py", "wait"), ("threading.py", "wait")),
        (("/env/lib/python3.9/site-packages/acme/a.py", "acme_run"), ("file-1.py", "function-1")),
        (("/opt/ml/code/train.py", "forward"), ("file-1.py", "forward")),
        (("", "<method 'append' of 'list' objects>"), ("", "<method 'append' of 'list' objects>")),
        (("", "<built-in method acme.run>"), ("", "function-1")),
    ],
)
def test_libraries_stay_and_the_users_own_code_does_not(
    function: tuple[str, str], expected: tuple[str, str]
) -> None:
    file, name = function
    one = Function(file=file, line=1, name=name, calls=1, self_s=1.0, total_s=1.0)
    profile = Profile(
        node="acme-1", rank="1", profiler="cProfile", start_us=1, end_us=2, begin="step 1", end="step 2",
        functions=(one,), count=1, self_s=1.0,
    )  # fmt: skip
    reading = Reading(
        job=JobInParts(name="acme", engine=LocalEngine(1), kept=(), profiles=(profile,)), quality=Quality()
    )

    (changed,) = redacted(reading, reading.quality, load())[0].job.profiles

    assert (changed.functions[0].file, changed.functions[0].name) == expected
    assert (changed.node, changed.rank) == ("node-1", "1")


def test_the_layers_of_a_model_stay_apart_but_have_no_names() -> None:
    names = ("acme.7.q.weight", "acme.7.k.weight", "acme.10.q.weight", "head.weight")
    rows = {
        Tensor(name=name, collection=Collection.GRADIENT, module="AcmeNet"): [{"rms": 1.0}] for name in names
    }
    learning = Learning(
        scalars=(scalars([1.0], logged_as="acme/loss"),),
        tensors=tensors(rows),
        node="acme-1",
        optimizer="AcmeAdam",
        not_recorded=("acme: functional",),
    )
    job = JobInParts(name="acme", engine=LocalEngine(1), kept=(), learning=learning)

    changed = redacted(Reading(job=job, quality=Quality()), Quality(), load())[0].job.learning

    assert changed
    assert changed.tensors
    assert [one.name for one in changed.tensors.tensors] == [
        "layer-1.tensor-2",
        "layer-1.tensor-1",
        "layer-2.tensor-3",
        "layer-3.tensor-4",
    ]
    assert (changed.scalars[0].name, changed.node) == ("loss", "node-1")
    assert not [text for _, text in texts_in(changed) if "acme" in text.lower()]


@pytest.mark.parametrize(
    "name",
    [
        "aten::_convolution", "Step:ModeKeys.TRAIN", "Backward(post-forward)", "gpu_functions-dev:0", "gpu15",
        "_MultiProcessingDataLoaderIter::GetNext", "volta_sgemm_128x64_tn", "Memcpy HtoD (Pinned -> Device)",
        "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>", "I/O", "step_details",
        "gradient_tape/sequential_1/dense_2/MatMul:MatMul", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclWorkElem)",
        "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 64>>", "nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_TNT",
        "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::lau…",
    ],
)  # fmt: skip
def test_names_of_frameworks_are_common(name: str) -> None:
    assert is_common(name)


@pytest.mark.parametrize(
    "name",
    [
        "algo-1",
        "ip-10-0-0-1",
        "acme::op",
        "Träger",
        "aten::conv\u202e",
        "418273645091",
        "10.0.0.1",
        "step 4182-7364-5091",
        "gpu-10-37-214-9",
        "step " * 199,
        "void at::native::elementwise_kernel<4, acm…",
    ],
)
def test_names_of_machines_people_and_projects_are_not(name: str) -> None:
    assert not is_common(name)


def test_every_form_of_an_address_is_found(tmp_path: Path) -> None:
    examples = {
        "ARN": f"arn:aws:sagemaker:eu-west-1:{ACCOUNT}:training-job/x",
        "Storage address": "s3://bucket/key",
        "E-mail address": "ann.lee@example.org",
        "Path with a user name": "/home/ann",
        "IP address": "10.0.3.41",
        "Serial number": "GPU-0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f",
        "Access key": "AKIAABCDEFGHIJKLMNOP",
        "Account number": ACCOUNT,
    }
    assert examples.keys() == FORMS.keys()
    outcome = pipeline.make_report(SAMPLES[1], tmp_path / "out", Options(formats=["json"]))
    for kind, form in examples.items():
        job = replace(outcome.report.job, recorded=(f"recorded ({form}, and more)",))

        found = {one.kind: one for one in identifiers(replace(outcome.report, job=job))}

        assert found[kind].names == (form,)
        assert found[kind].where == ("job",)
        assert found["Job name"].names == (SAMPLES[1].name,)
        assert ("Account number" in found) == (ACCOUNT in form)


@pytest.mark.parametrize("hostile", [".s3" * 2000, "a" * 20_000, "a." * 5000 + "@", "1-" * 10_000])
def test_forms_are_sought_in_a_time_that_follows_the_text(hostile: str) -> None:
    begin = time.process_time()
    is_common(hostile)
    for form in FORMS.values():
        list(re.finditer(form, hostile))
    assert time.process_time() - begin < 1
