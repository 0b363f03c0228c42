"""Runs the notebook of the report and keeps of it what is the same on every machine."""

from __future__ import annotations

import copy
import importlib.util
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import papermill
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbformat import NotebookNode
from papermill.exceptions import PapermillExecutionError

from jobreport import assets
from jobreport.errors import JobReportError
from jobreport.figures.live import DATA

if TYPE_CHECKING:
    from collections.abc import Mapping

#: A kernel starts in about a second; a machine under heavy load may need much longer.
START_TIMEOUT_S = 120
#: Paths of sockets end at about 100 characters; the rest of the path takes less than 10.
MOST_SOCKET_PATH = 80
_LIVE = "bokeh-load"
#: Versions of the interpreter differ from machine to machine and say nothing of the report.
_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


class InterpreterKernel(AsyncKernelManager):
    """A kernel of the interpreter that runs us, whatever kernels the user has installed.

    The user's IPython profile is not read: its start-up files could change or break the report.
    """

    @property
    def kernel_spec(self) -> KernelSpec:
        """ipykernel without a history file."""
        return KernelSpec(
            argv=[
                sys.executable,
                "-m",
                "ipykernel_launcher",
                "-f",
                "{connection_file}",
                "--HistoryManager.enabled=False",
                "--log-level=50",
            ],
            display_name="Python 3",
            language="python",
        )

    async def start_kernel(self, **kwargs: Any) -> Any:  # type: ignore[override]  # async there as well
        """Start with our own modules in reach, and with every file and socket in a folder of our own."""
        self._profile = tempfile.TemporaryDirectory(prefix="jobreport-")
        folder = Path(self._profile.name)
        self.connection_file = str(folder / "k.json")
        if os.name == "posix" and len(str(folder)) < MOST_SOCKET_PATH:
            # Sockets in a folder that only this user can enter, not ports that anyone on the machine can reach.
            self.transport, self.ip = "ipc", str(folder / "k")
        environment = kernel_environment(os.environ) | {"IPYTHONDIR": self._profile.name}
        return await super().start_kernel(**kwargs | {"env": environment})

    async def cleanup_resources(self, restart: bool = False) -> None:  # type: ignore[override]
        """Remove the profile with the connection file."""
        await super().cleanup_resources(restart=restart)
        if not restart:
            self._profile.cleanup()


def kernel_environment(base: Mapping[str, str]) -> dict[str, str]:
    """The environment of the kernel: it must find the same jobreport as this process.

    A checkout that is run without being installed is on ``sys.path`` only.
    """
    roots = [_root("jobreport"), _root("jobrules")]
    paths = [*roots, *filter(None, base.get("PYTHONPATH", "").split(os.pathsep))]
    return {
        **base,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }


def _root(package: str) -> str:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise JobReportError(f"The package {package} cannot be found, so the notebook cannot be run.")
    return str(Path(spec.origin).parents[1])


def run_notebook(report_json: Path) -> NotebookNode:
    """The report's notebook, run on a ``report.json`` in the folder of that file."""
    notebook = nbformat.read(assets.notebooks() / "report.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    # The cell that makes figures live is for people: run here it would carry BokehJS into the file.
    live = [(i, cell) for i, cell in enumerate(notebook.cells) if _LIVE in cell.metadata.get("tags", ())]
    notebook.cells = [cell for cell in notebook.cells if _LIVE not in cell.metadata.get("tags", ())]
    executed = _cleaned(_execute(notebook, report_json))
    for i, cell in live:
        executed.cells.insert(i, cell)
    return executed


def to_text(notebook: NotebookNode) -> str:
    """The notebook as a file: the same notebook gives the same text.

    The data of live figures is left out, which halves it: the static drawings stand there, and cells
    that are run again bring the data back.
    """
    told = copy.deepcopy(notebook)
    for cell in told.cells:
        for output in cell.get("outputs", ()):
            if "text/html" in output.get("data", {}):
                output.data["text/html"] = DATA.sub("", output.data["text/html"])
    return str(nbformat.writes(told))  # type: ignore[no-untyped-call]


def _execute(notebook: NotebookNode, report_json: Path) -> NotebookNode:
    try:
        executed: NotebookNode = papermill.execute_notebook(
            notebook,
            None,
            parameters={"report_json": report_json.name},
            kernel_name="python3",
            progress_bar=False,
            start_timeout=START_TIMEOUT_S,
            kernel_manager_class=InterpreterKernel,
            shutdown_kernel="immediate",  # all outputs are here, and nothing is left to be saved
            resources={"metadata": {"path": str(report_json.resolve().parent)}},
        )
    except PapermillExecutionError as error:
        raise JobReportError(
            f"The notebook stopped in the cell `{_last_line(error.source)}`: {error.ename}: {error.evalue}"
        ) from error
    except (RuntimeError, TimeoutError) as error:  # DeadKernelError, or a kernel that never answered
        raise JobReportError(
            f"The notebook's kernel did not run ({error}). Try `{sys.executable} -m ipykernel_launcher --help`."
        ) from error
    return executed


def _last_line(source: str) -> str:
    lines = source.strip().splitlines()
    return lines[-1] if lines else ""


def _cleaned(notebook: NotebookNode) -> NotebookNode:
    """Without papermill's traces, times and versions; the parameter stands in its own cell."""
    injected = [cell for cell in notebook.cells if "injected-parameters" in cell.metadata.get("tags", ())]
    notebook.cells = [cell for cell in notebook.cells if cell not in injected]
    title = None
    for cell in notebook.cells:
        tags = cell.metadata.get("tags", [])
        cell.metadata = nbformat.from_dict({"tags": tags} if tags else {})  # type: ignore[no-untyped-call]
        if cell.cell_type != "code":
            continue
        if "parameters" in tags and injected:
            cell.source = injected[-1].source.removeprefix("# Parameters\n").strip()
        for output in cell.outputs:
            title = output.get("metadata", {}).pop("text/html", {}).get("title", title)
    notebook.metadata = nbformat.from_dict({**_METADATA, **({"title": title} if title else {})})  # type: ignore[no-untyped-call]
    return notebook
