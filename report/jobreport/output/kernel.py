"""The notebook's kernel, a process that starts while the job is still being read.

Its start and the imports of the cells take as long as the rules of a small job. This module imports nothing that is
slow: no Jupyter, which ``jobreport.output.notebook`` needs to talk to the kernel.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Self, cast

from jobreport.errors import JobReportError
from jobreport.scratch import Scratch

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from jupyter_client.connect import KernelConnectionInfo

#: Paths of sockets have at most about 100 characters; the rest of the path takes less than 10.
MAX_SOCKET_FOLDER = 80
_CHANNELS = ("shell", "iopub", "stdin", "control", "hb")
_SERVE = "from jobreport.output.kernel import serve; serve()"


class Kernel:
    """A running kernel of this interpreter, whatever kernels the user has installed.

    It knows nothing of the job: ``run_notebook`` writes ``report.json`` into its folder. The user's IPython profile
    is not read: its start-up files could change or break the report.
    """

    def __init__(self) -> None:
        """Start the process; ``OSError`` if that is not possible."""
        self._folder = Scratch()
        folder = Path(self._folder.name)
        #: Where the cells run.
        self.work = folder / "work"
        try:
            self.work.mkdir()
            #: How to reach it, as in a connection file of Jupyter.
            self.connection = _connection(folder)
            self._process = self._start(folder)
        except BaseException:
            self._folder.cleanup()
            raise

    def _start(self, folder: Path) -> subprocess.Popen[bytes]:
        file = folder / "k.json"
        file.write_text(json.dumps(self.connection))
        options = ["-f", str(file), "--HistoryManager.enabled=False", "--log-level=50"]
        return subprocess.Popen(  # noqa: S603 - this interpreter
            [sys.executable, "-c", _SERVE, *options],
            cwd=self.work,
            env=kernel_environment(os.environ) | {"IPYTHONDIR": str(folder)},
            stdin=subprocess.DEVNULL,
            # If it dies, ``run_notebook`` says so.
            stderr=subprocess.DEVNULL,
            # Ctrl-C would end the kernel with a traceback; this process stops it.
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def stop(self) -> None:
        """End the process at once and remove its folder; does nothing if that is done already."""
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()


def started() -> AbstractContextManager[Kernel | None]:
    """A kernel for a ``with`` block; None if it does not start: ``run_notebook`` then tries again, and raises."""
    try:
        return Kernel()
    except OSError:
        return nullcontext()


def serve() -> None:
    """Run in the kernel's process: import and compile what the cells need, then answer."""
    gc.disable()  # it would take a tenth of the time, and free a few megabytes
    # The import of the debugger is slow, and no cell is debugged here.
    sys.modules["debugpy"] = None  # type: ignore[assignment]  # as the import system wants it
    # Not for the process that starts this one.
    import msgspec  # noqa: PLC0415

    from jobreport import document  # noqa: PLC0415
    from jobreport.page import sections  # noqa: F401, PLC0415 - the first cell imports it
    from jobreport.page.kit import fragment  # noqa: PLC0415

    fragment.compile_templates()
    msgspec.json.Decoder(document.Report)  # finds the types of all fields, once
    from ipykernel.kernelapp import launch_new_instance  # noqa: PLC0415

    launch_new_instance()


def kernel_environment(base: Mapping[str, str]) -> dict[str, str]:
    """The environment of the kernel: it must find the same jobreport as this process.

    A checkout that is run without being installed is on ``sys.path`` only.
    """
    roots = [_root("jobreport"), _root("jobrules")]
    paths = [*roots, *filter(None, base.get("PYTHONPATH", "").split(os.pathsep))]
    found = {**base, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}
    # ipykernel checks every second whether this process still runs; Windows has no such number.
    return found | ({"JPY_PARENT_PID": str(os.getpid())} if os.name == "posix" else {})


def _root(package: str) -> str:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise JobReportError(f"Package {package} not found, so the notebook cannot run.")
    return str(Path(spec.origin).parents[1])


def _connection(folder: Path) -> KernelConnectionInfo:
    """Sockets in a folder that only this user can enter, not ports that anyone on the machine can reach."""
    key = os.urandom(32).hex()
    if os.name == "posix" and len(str(folder)) < MAX_SOCKET_FOLDER:
        addresses = {
            "transport": "ipc",
            "ip": str(folder / "k"),
            "key": key,
            "signature_scheme": "hmac-sha256",
        }
        return cast(
            "KernelConnectionInfo", addresses | {f"{name}_port": i for i, name in enumerate(_CHANNELS, 1)}
        )
    from jupyter_client.connect import write_connection_file  # noqa: PLC0415 - see above

    return write_connection_file(str(folder / "k.json"), key=key.encode())[1]
