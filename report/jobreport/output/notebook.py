"""Runs the notebook of the report and keeps of it what is the same on every machine."""

from __future__ import annotations

import copy
import math
import queue
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any, ClassVar

import nbformat
import papermill
from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.manager import AsyncKernelManager
from nbformat import NotebookNode
from papermill.exceptions import PapermillExecutionError

from jobreport import assets
from jobreport.errors import JobReportError
from jobreport.figures.live import DATA
from jobreport.output.kernel import Kernel

if TYPE_CHECKING:
    from pathlib import Path

#: A kernel starts in about a second; a machine under heavy load may need much longer.
START_TIMEOUT_S = 120
_LIVE = "bokeh-load"
#: Versions of the interpreter differ from machine to machine and say nothing of the report.
_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


class _Client(AsyncKernelClient):
    async def wait_for_ready(self, timeout: float | None = None) -> None:
        """Until the kernel answers on both channels.

        The base class then waits 0.2 s for messages to throw away; papermill passes over them anyway.
        """
        end = time.monotonic() + (timeout or math.inf)
        while True:
            self.kernel_info()
            try:
                await self.get_shell_msg(timeout=1)
                await self.get_iopub_msg(timeout=0.2)
            except queue.Empty:
                if not await self.is_alive():
                    raise RuntimeError("it died before it answered") from None
                if time.monotonic() > end:
                    raise RuntimeError(f"no answer within {timeout:g} s") from None
            else:
                return


class _RunningKernel(AsyncKernelManager):
    """What papermill sees of a kernel that runs already."""

    running: ClassVar[Kernel]

    @property
    def has_kernel(self) -> bool:
        """So that papermill starts none."""
        return True

    def client(self, **kwargs: Any) -> Any:
        """A client with the addresses of the kernel."""
        self.load_connection_info(self.running.connection)
        self.client_factory = _Client
        return super().client(**kwargs)

    async def _async_is_alive(self) -> bool:
        return self.running.alive()

    is_alive = _async_is_alive

    async def shutdown_kernel(self, **_: Any) -> None:  # type: ignore[override]  # async there as well
        """At once: all outputs are here, and nothing is left to be saved."""
        self.running.stop()


def run_notebook(report_json: Path, kernel: Kernel | None = None) -> NotebookNode:
    """The report's notebook, run on a copy of ``report.json`` by a kernel that runs already, or by one of its own."""
    notebook = nbformat.read(assets.notebooks() / "report.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    # The cell that makes figures live is for people: run here it would carry BokehJS into the file.
    live = [(i, cell) for i, cell in enumerate(notebook.cells) if _LIVE in cell.metadata.get("tags", ())]
    notebook.cells = [cell for cell in notebook.cells if _LIVE not in cell.metadata.get("tags", ())]
    with kernel or Kernel() as running:
        executed = _cleaned(_execute(notebook, report_json, running))
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


def _execute(notebook: NotebookNode, report_json: Path, kernel: Kernel) -> NotebookNode:
    class Manager(_RunningKernel):  # papermill wants a class and makes the manager itself
        running = kernel

    shutil.copy(report_json, kernel.work)
    try:
        executed: NotebookNode = papermill.execute_notebook(
            notebook,
            None,
            parameters={"report_json": report_json.name},
            kernel_name="python3",
            progress_bar=False,
            start_timeout=START_TIMEOUT_S,
            kernel_manager_class=Manager,
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
    failed = []
    for cell in notebook.cells:
        tags = cell.metadata.get("tags", [])
        cell.metadata = nbformat.from_dict({"tags": tags} if tags else {})  # type: ignore[no-untyped-call]
        if cell.cell_type != "code":
            continue
        if "parameters" in tags and injected:
            cell.source = injected[-1].source.removeprefix("# Parameters\n").strip()
        for output in cell.outputs:
            facts = output.get("metadata", {}).pop("text/html", {})
            title = facts.get("title", title)
            failed += [facts["failed"]] if "failed" in facts else []
    told = {"title": title, "failed": failed}
    notebook.metadata = nbformat.from_dict(_METADATA | {name: one for name, one in told.items() if one})  # type: ignore[no-untyped-call]
    return notebook
