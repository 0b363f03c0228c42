"""Scripts that wait at a line, which is marked; each step also keeps a GPU busy, of which a fake NVML tells.

A stall has ``{ms}`` milliseconds, and comes ``{times}`` times before the GPU works for as long as a third of them.
"""

from __future__ import annotations

#: The GPU: microseconds of work so far, and since when it works, for the fake NVML.
HEAD = """
import ctypes, fcntl, hashlib, json, logging, mmap, os, random, select, sys, threading, time, zlib
import jobrecord

jobrecord.start()
random.seed({seed})
memory = mmap.mmap(os.open(os.environ["GPU_FILE"], os.O_RDWR), 16)
cells = (ctypes.c_int64 * 2).from_buffer(memory)


def compute(seconds):
    cells[1] = time.monotonic_ns()
    time.sleep(seconds)
    cells[0], cells[1] = cells[0] + time.monotonic_ns() - cells[1], 0


def stall_s():
    return {ms} / 1000 * random.uniform(0.5, 1.5)


log = logging.getLogger("train")
lock = threading.Lock()
data = os.urandom(1 << 20)
rows = [{{"step": i, "loss": i / 7}} for i in range(400)]
usleep = ctypes.CDLL(None).usleep
held = ctypes.PyDLL(None).usleep
"""
#: By kind: what a step does, with the line that is looked for behind ``# here``.
STALLS = {
    "sleep": """
def stall():
    time.sleep(stall_s())  # here
""",
    "file": """
reading, writing = os.pipe()


def stall():
    select.select([reading], [], [], stall_s())  # here
""",
    "Python": """
def stall():  # here, all of it
    end = time.monotonic() + stall_s()
    total = 0
    while time.monotonic() < end:
        for i in range(500):
            total += i * i % 7
        total = total % 1000
""",
    "C without the lock": """
def stall():
    end = time.monotonic() + stall_s()
    while time.monotonic() < end:
        hashlib.sha256(data).digest()  # here
""",
    "C with the lock": """
def stall():
    held(int(stall_s() * 1e6))  # here
""",
    "lock": """
def other():
    while True:
        time.sleep(stall_s())
        if lock.locked():
            lock.release()


lock.acquire()
threading.Thread(target=other, daemon=True).start()


def stall():
    lock.acquire()  # here
""",
    "logging": """
reading, writing = os.pipe()
fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
log.addHandler(logging.StreamHandler(os.fdopen(writing, "w")))


def read():
    while True:
        time.sleep(stall_s())
        os.read(reading, 4096)


threading.Thread(target=read, daemon=True).start()


def stall():
    log.warning("x" * 4095)  # here
""",
    "json": """
def stall():
    end = time.monotonic() + stall_s()
    while time.monotonic() < end:
        json.dumps(rows, indent=1)  # here
""",
    "item": """
def stall():
    usleep(int(stall_s() * 1e6))  # here
""",
    "fetch": """
def load():
    time.sleep(stall_s())  # here


def batches():
    while True:
        load()
        yield 1


loader = iter(jobrecord.data(batches()))


def stall():
    next(loader)
""",
    "checkpoint": """
def save():
    time.sleep(stall_s())  # here


def stall():
    with jobrecord.phase("Checkpoint"):
        save()
""",
    "healthy": """
def stall():
    compute(stall_s())
""",
    "spread": """
def one():
    time.sleep(stall_s())


def two():
    time.sleep(stall_s())


def three():
    time.sleep(stall_s())


def stall():
    random.choice([one, two, three])()
""",
}
LOOP = """
end = time.monotonic() + {seconds}
while time.monotonic() < end:
    for _ in range({times}):
        stall()
        jobrecord.step()
    compute({times} * {ms} / 1000 * {work})
jobrecord.stop()
"""

#: Loader processes of PyTorch.
WORKERS = """
import torch
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __len__(self):
        return 1 << 20

    def __getitem__(self, i):
        time.sleep(2 * {ms} / 1000)  # here
        return torch.zeros(2)


loader = iter(jobrecord.data(DataLoader(Images(), batch_size=4, num_workers=2)))


def stall():
    next(loader)
"""
FAKE = """
import ctypes, mmap, os, sys, time
from types import SimpleNamespace
import fake_nvml


class Moving(fake_nvml.FakeNVML):
    last = (time.monotonic_ns(), 0)

    def nvmlDeviceGetUtilizationRates(self, gpu):
        memory = mmap.mmap(os.open(os.environ["GPU_FILE"], os.O_RDWR), 16)
        worked, since = (ctypes.c_int64 * 2).from_buffer_copy(memory)
        now = time.monotonic_ns()
        worked += now - since if since else 0
        (before, known), self.last = self.last, (now, worked)
        return SimpleNamespace(gpu=round(min(100, max(0, 100 * (worked - known) / max(1, now - before)))), memory=1)


sys.modules["pynvml"] = Moving({"gpus": [fake_nvml.gpu()]})
"""


def script(kind: str, ms: int, times: int, work: float, seconds: float, seed: int) -> str:
    """The whole script; the GPU works for ``work`` of the time of the stalls."""
    body = WORKERS.format(ms=ms) if kind == "workers" else STALLS[kind]
    values = {"ms": ms, "times": times, "work": work, "seconds": seconds, "seed": seed}
    return HEAD.format(**values) + body + LOOP.format(**values)
