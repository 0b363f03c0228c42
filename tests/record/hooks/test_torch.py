"""With PyTorch itself: what ends a step, loaders and their processes, passes, operators, ranks."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import jobrecord
from tests.record.hooks.written import Event, events, hook_facts, steps

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.filterwarnings("default")

from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, IterableDataset, TensorDataset  # noqa: E402

ROOT = Path(__file__).parents[3]


def net(width: int = 8) -> Any:
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))


def batch(width: int = 8) -> Any:
    return torch.randn(4, width)


def train(model: Any, optimizer: Any, steps: int) -> None:
    for _ in range(steps):

        def closure() -> Any:
            optimizer.zero_grad()
            loss = model(batch()).square().mean()
            loss.backward()
            return loss

        if isinstance(optimizer, torch.optim.LBFGS):
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()


class OwnOptimizer(torch.optim.Optimizer):  # type: ignore[misc, name-defined]
    def __init__(self, parameters: Any, lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.data.add_(parameter.grad, alpha=-group["lr"])


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "LBFGS", "own"])
def test_each_optimizer_step_is_a_step(out: Path, name: str) -> None:
    model = net()
    jobrecord.start()
    kind = OwnOptimizer if name == "own" else getattr(torch.optim, name)
    optimizer = kind(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2) if name != "own" else None
    for _ in range(5):
        train(model, optimizer, 1)
        if scheduler:
            scheduler.step()
    jobrecord.stop()

    assert [event.step for event in steps(out)] == [0, 1, 2, 3, 4]


def test_skipped_step_of_the_scaler_belongs_to_the_next_one(out: Path) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    jobrecord.start()
    for i in range(6):
        scaler.scale(model(batch()).sum() * (float("inf") if i in (2, 3) else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    jobrecord.stop()

    assert len(steps(out)) == 4


def test_optimizers_that_step_in_the_backward_pass(out: Path) -> None:
    model = net()
    optimizers = {parameter: torch.optim.SGD([parameter], lr=0.01) for parameter in model.parameters()}
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda one: optimizers[one].step())
    jobrecord.start()
    for _ in range(3):
        model(batch()).sum().backward()
    jobrecord.stop()

    assert len(optimizers) == 4
    assert len(steps(out)) == 3


def test_steps_agree_with_a_stopwatch(out: Path) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    train(model, optimizer, 1)
    jobrecord.start()
    began = time.monotonic()
    for _ in jobrecord.data(range(101)):
        time.sleep(0.02)
        train(model, optimizer, 1)
    taken = time.monotonic() - began
    jobrecord.stop()

    recorded = [(event.end_us - event.start_us) / 1e6 for event in steps(out)]
    assert len(recorded) == 101
    assert sum(recorded) == pytest.approx(taken, rel=0.02)


def load(out: Path, epochs: int, **options: Any) -> None:
    loader = DataLoader(TensorDataset(torch.randn(40, 8)), batch_size=8, **options)
    jobrecord.start()
    for _ in range(epochs):
        for _ in jobrecord.data(loader):
            time.sleep(0.01)
    jobrecord.stop()


def test_loader_in_the_training_process(out: Path) -> None:
    load(out, 2, num_workers=0)

    set_up = events(out, "DataLoaderIterInitialize")
    assert [event.name for event in set_up] == ["_SingleProcessDataLoaderIter.__init__"] * 2
    assert [(event.args["num_workers"], event.args["pin_memory"]) for event in set_up] == [(0, False)] * 2
    assert [event.name for event in events(out, "DataLoaderIter")] == [
        "_SingleProcessDataLoaderIter::DataLoaderIter::GetNext"
    ] * 10
    assert not events(out, "DataLoaderWorker")


@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("persistent", [False, True])
def test_loader_processes_have_a_row_each_for_as_long_as_they_live(
    out: Path, context: str, persistent: bool
) -> None:
    load(out, 2, num_workers=2, multiprocessing_context=context, persistent_workers=persistent)

    lives = events(out, "DataLoaderWorker")
    assert sorted(event.args["worker_id"] for event in lives) == ([0, 1] if persistent else [0, 0, 1, 1])
    assert len({event.args["pid"] for event in lives}) == len(lives)
    assert os.getpid() not in {event.args["pid"] for event in lives}
    fetches = events(out, "DataLoaderIter")
    assert len(fetches) == 10
    assert max(event.end_us for event in lives) >= fetches[-1].end_us
    if not persistent:
        assert lives[0].end_us < fetches[-1].start_us
    assert not list(out.glob("jobrecord/workers/*"))
    assert len(list(out.glob("framework/pevents/*/*"))) == 1


def _own_init(worker_id: int) -> None:
    torch.manual_seed(100 + worker_id)


class Seeds(IterableDataset):  # type: ignore[misc]
    def __iter__(self) -> Any:
        yield torch.initial_seed()


def test_init_function_of_the_user_is_called_and_a_loop_left_early_ends_the_processes(out: Path) -> None:
    loader = DataLoader(Seeds(), num_workers=2, worker_init_fn=_own_init)
    jobrecord.start()
    assert sorted(int(seed) for seed in jobrecord.data(loader)) == [100, 101]
    for _ in jobrecord.data(loader):
        break
    with jobrecord.phase("left"):
        pass
    jobrecord.stop()

    lives = events(out, "DataLoaderWorker")
    assert len(lives) == 4
    (left,) = events(out, "left")
    assert all(event.end_us <= left.start_us for event in lives)


def passes(out: Path) -> list[Event]:
    lanes = ("Forward", "Backward(post-forward)", "Optimizer")
    return [event for event in events(out) if event.lane in lanes]


def test_watch_records_forward_backward_and_optimizer(out: Path) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    jobrecord.start()
    jobrecord.watch(model)
    for _ in range(3):
        train(model, optimizer, 1)
    with torch.no_grad():
        model(batch())
    jobrecord.stop()
    model(batch())

    found = [(event.lane, event.name, event.step) for event in passes(out)]
    assert found == [
        row
        for step in range(3)
        for row in (
            ("Forward", "Sequential", step),
            ("Backward(post-forward)", "Sequential", step),
            ("Optimizer", "SGD", step),
        )
    ] + [("Forward", "Sequential", 3)]
    for earlier, later in zip(passes(out), passes(out)[1:], strict=False):
        assert earlier.end_us <= later.start_us


def test_accumulated_gradients_have_a_pass_each(out: Path) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    jobrecord.start()
    jobrecord.watch(model)
    for i in range(6):
        model(batch()).sum().backward()
        if i % 3 == 2:
            optimizer.step()
    jobrecord.stop()

    assert len(steps(out)) == 2
    lanes = [event.lane for event in passes(out)]
    assert lanes == [*["Forward", "Backward(post-forward)"] * 3, "Optimizer"] * 2


class Nested(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.inner = net()

    def forward(self, x: Any) -> Any:
        return {"loss": [None, (self.inner(x).sum(),)], "size": 3}


def test_outputs_in_containers_begin_the_backward_pass(out: Path) -> None:
    model = Nested()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    jobrecord.start()
    jobrecord.watch(model)
    model(batch())["loss"][1][0].backward()
    optimizer.step()
    jobrecord.stop()

    assert [event.lane for event in passes(out)] == ["Forward", "Backward(post-forward)", "Optimizer"]


@pytest.mark.parametrize("reentrant", [False, True])
def test_forward_pass_within_the_backward_pass_is_none(out: Path, reentrant: bool) -> None:
    from torch.utils.checkpoint import checkpoint  # noqa: PLC0415

    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    jobrecord.start()
    jobrecord.watch(model)
    for _ in range(3):
        checkpoint(model, batch().requires_grad_(), use_reentrant=reentrant).sum().backward()
        optimizer.step()
    jobrecord.stop()

    assert [event.lane for event in passes(out)] == ["Forward", "Backward(post-forward)", "Optimizer"] * 3


def test_copies_of_a_watched_model_have_none_of_the_recorder(out: Path) -> None:
    model = net()
    jobrecord.start()
    jobrecord.watch(model)
    train(copy.deepcopy(model), torch.optim.SGD(model.parameters(), lr=1e-3), 1)
    kept = pickle.dumps(model)
    jobrecord.stop()

    assert not [event for event in events(out) if event.lane == "Forward"]
    use = "import pickle, sys, torch; pickle.load(sys.stdin.buffer)(torch.ones(1, 8)); sys.exit('jobrecord' in sys.modules)"
    subprocess.run([sys.executable, "-c", use], input=kept, check=True)


def test_compiled_model_has_no_graph_break_by_watch(out: Path) -> None:
    model = net()
    compiled = torch.compile(model, backend="eager")
    jobrecord.start()
    jobrecord.watch(compiled)
    torch._dynamo.utils.counters.clear()
    optimizer = torch.optim.SGD(compiled.parameters(), lr=0.01)
    train(compiled, optimizer, 3)
    jobrecord.stop()

    assert not torch._dynamo.utils.counters["graph_break"]
    assert [event.lane for event in passes(out)] == ["Forward", "Backward(post-forward)", "Optimizer"] * 3
    assert {event.name for event in events(out, "Forward")} == {"Sequential"}


def test_model_that_is_compiled_after_watch_stays_one_graph(out: Path) -> None:
    model = net()
    jobrecord.start()
    jobrecord.watch(model)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    train(compiled, optimizer, 3)
    jobrecord.stop()

    assert len(steps(out)) == 3
    assert not events(out, "Forward")


@pytest.mark.filterwarnings("error:Dynamo does not know")
def test_compiled_step_of_an_optimizer_is_a_step(out: Path) -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(0.01))
    jobrecord.start()

    @torch.compile(backend="eager")  # type: ignore[untyped-decorator]
    def step() -> None:
        optimizer.step()

    for _ in range(4):
        model(batch()).sum().backward()
        step()
    jobrecord.stop()

    assert len(steps(out)) == 4


def test_model_compiled_in_place_is_not_watched(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = net()
    model.compile(backend="eager")
    jobrecord.start()
    jobrecord.watch(model)
    assert "it is not watched" in capsys.readouterr().err


def test_operators_of_chosen_steps(out: Path) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with jobrecord.record(operators=(3, 4)):
        for _ in range(8):
            train(model, optimizer, 1)

    operators = events(out, "cpu_functions")
    by_step = {step: [event for event in operators if event.step == step] for step in (3, 4)}
    assert len(operators) == sum(map(len, by_step.values()))
    for step in steps(out)[3:5]:
        assert step.args["profiled"] == "operators"
        assert {"aten::addmm", "Optimizer.step#SGD.step"} <= {event.name for event in by_step[step.step]}
        for event in (event for event in by_step[step.step] if event.name.startswith("aten::")):
            assert step.start_us - 100 <= event.start_us
            assert event.end_us <= step.end_us + 100
    assert [event.step for event in steps(out) if "profiled" in event.args] == [2, 3, 4]


def test_profiler_of_the_script_goes_first(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with torch.profiler.profile() as own, jobrecord.record(operators=(2,)):
        train(model, optimizer, 5)

    assert own.events()
    assert not events(out, "cpu_functions")
    assert capsys.readouterr().err.count("profiler of its own") == 1


def run(out: Path, tmp_path: Path, script: str, *command: str) -> None:
    (tmp_path / "train.py").write_text(script)
    paths = os.pathsep.join(map(str, [*filter(None, [os.environ.get("PYTHONPATH")]), ROOT / "record"]))
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [sys.executable, *command, tmp_path / "train.py"], env=environment, check=True, cwd=tmp_path
    )


RANK = """
import jobrecord, torch
import torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
jobrecord.start()
jobrecord.watch(model)
for _ in jobrecord.data(range(20)):
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
dist.destroy_process_group()
"""


def test_two_ranks_have_a_file_each(out: Path, tmp_path: Path) -> None:
    run(out, tmp_path, RANK, "-m", "torch.distributed.run", "--nproc-per-node", "2")

    files = sorted(file.name.partition("_")[2] for file in out.glob("framework/pevents/*/*"))
    assert files == ["0-node-1_pythontimeline.json", "1-node-1_pythontimeline.json"]
    assert len(steps(out)) == 40
    assert len(events(out, "Backward(post-forward)")) == 40
    assert {event.name for event in events(out, "Forward")} == {"DistributedDataParallel"}


UNTOUCHED = """
import os, sys
assert os.environ.get("OWN") == "yes", "the user's own sitecustomize did not run"
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(7):
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
"""


def test_steps_of_an_untouched_script(out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from jobrecord.hooks import auto_steps  # noqa: PLC0415

    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import os; os.environ['OWN'] = 'yes'")
    for name, text in auto_steps.variables({"PYTHONPATH": str(own)}).items():
        monkeypatch.setenv(name, text)
    run(out, tmp_path, UNTOUCHED)

    assert len(steps(out)) == 7
    assert steps(out)[0].args["cut"] is True
    assert hook_facts(out)["steps"] == 7


def test_operations_of_one_step_are_counted_once_and_that_step_is_marked(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other tests compile.
    monkeypatch.setitem(torch._dynamo.utils.counters["frames"], "ok", 0)
    model = nn.Sequential(nn.Linear(64, 128), nn.Linear(128, 32))
    jobrecord.start()
    jobrecord.watch(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(10):
        jobrecord.flops("count")
        # Two batches for one step.
        for _ in range(2):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = model(torch.randn(16, 64)).float().square().mean()
            loss.backward()
        optimizer.step()
    jobrecord.stop()

    facts = hook_facts(out)
    # Forward and the gradients of weights of both, those of inputs of the second: 2 for each multiplication.
    once = 2 * 16 * (2 * 64 * 128 + 3 * 128 * 32)
    assert facts["flops"] == {"per_step": 2 * once, "source": "counted"}
    assert facts["parameters"] == 64 * 128 + 128 + 128 * 32 + 32
    assert facts["precision"] == "bfloat16"
    assert [event.args.get("profiled") for event in steps(out)].count("flops") == 1
    assert not torch.utils._python_dispatch._len_torch_dispatch_stack()


def test_compiled_code_is_not_counted(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(torch._dynamo.utils.counters["frames"], "ok", 1)
    jobrecord.start()
    jobrecord.flops("count")
    model = net()
    train(model, torch.optim.SGD(model.parameters(), lr=0.01), 10)
    jobrecord.stop()

    assert hook_facts(out)["flops"] == {}
    assert "compiled code cannot be counted" in capsys.readouterr().err


def frozen(model: Any) -> Any:
    """All but the last layer, as with adapters."""
    for parameter in [*model.parameters()][:2]:
        parameter.requires_grad_(False)
    return model


class Experts(nn.Linear):  # type: ignore[misc]
    class config:  # noqa: N801 - as that of transformers
        num_experts = 8


@pytest.mark.parametrize(
    ("model", "parameters", "precision"),
    [
        (net, 81, "float32"),
        (lambda: net().bfloat16(), 81, "bfloat16"),
        (lambda: frozen(net()), None, "float32"),
        (lambda: Experts(8, 1), None, "float32"),
    ],
    ids=["float32", "bfloat16", "frozen", "experts"],
)
def test_what_a_watched_model_is(out: Path, model: Any, parameters: int | None, precision: str) -> None:
    jobrecord.start()
    made = model()
    jobrecord.watch(made)
    with torch.no_grad():
        made(batch().to(next(made.parameters()).dtype))
    made(batch().to(next(made.parameters()).dtype)).sum().backward()
    jobrecord.step()
    jobrecord.step()
    jobrecord.stop()

    facts = hook_facts(out)
    assert (facts["parameters"], facts["precision"]) == (parameters, precision)
