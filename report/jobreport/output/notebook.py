"""Run the notebook of the report, and keep what is the same on every machine."""

from __future__ import annotations

import copy
import html
import logging
import math
import queue
import sys
import time
from typing import Any, ClassVar

import nbformat
from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.manager import AsyncKernelManager
from nbformat import NotebookNode

from jobreport import assets
from jobreport.errors import JobReportError
from jobreport.files import REPORT, Product
from jobreport.output.images import with_images
from jobreport.output.kernel import Kernel
from jobreport.output.postponed import postponed
from jobreport.page.figures.live import without_scripts

try:
    with postponed("requests"):  # for notebooks on the web
        import papermill
        from papermill.exceptions import PapermillExecutionError
except ImportError:  # an engine that somebody installed imports a part of it
    import papermill
    from papermill.exceptions import PapermillExecutionError

#: A kernel starts in about a second; a machine under heavy load may need much longer.
START_TIMEOUT_S = 120
_LIVE = "bokeh-load"
#: The interpreter's version would differ from machine to machine.
_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


class _Client(AsyncKernelClient):
    async def wait_for_ready(self, timeout: float | None = None) -> None:
        """Wait until the kernel answers on both channels.

        The base class then waits 0.2 s for messages to discard; papermill skips them anyway.
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
    """A manager of a kernel that runs already, for papermill."""

    running: ClassVar[Kernel]

    @property
    def has_kernel(self) -> bool:
        """True, so that papermill starts none."""
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
        """Stop the kernel at once: all outputs are here."""
        self.running.stop()


def run_notebook(data: bytes, kernel: Kernel | None = None, product: Product = REPORT) -> NotebookNode:
    """The executed notebook of a report or comparison; without a running ``kernel``, one is started."""
    notebook = nbformat.read(assets.notebooks() / product.files["ipynb"], as_version=4)  # type: ignore[no-untyped-call]
    # The cell that makes figures live is for readers of the notebook: run here, it would put BokehJS into the file.
    live = [cell for cell in notebook.cells if _LIVE in cell.metadata.get("tags", ())]
    notebook.cells = [cell for cell in notebook.cells if _LIVE not in cell.metadata.get("tags", ())]
    with kernel or Kernel() as running:
        executed = _cleaned(_execute(notebook, product.files["json"], data, running))
    executed.cells += live
    return executed


def to_text(notebook: NotebookNode) -> str:
    """Content of the notebook's file; equal notebooks give equal text.

    Drawings become images, which viewers show that strip scripts and inline SVG; the text of the output says what they
    show. Running the cells again makes the figures live.
    """
    written = copy.deepcopy(notebook)
    for cell in written.cells:
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "text/html" in data:
                data["text/html"], labels = with_images(without_scripts(data["text/html"]))
                if labels:
                    data["text/plain"] = html.unescape("\n".join(labels))
    # A string for each line would add a tenth to the drawings.
    return str(nbformat.writes(written, split_lines=False))  # type: ignore[no-untyped-call]


def _execute(notebook: NotebookNode, name: str, data: bytes, kernel: Kernel) -> NotebookNode:
    class Manager(_RunningKernel):  # papermill wants a class and makes the manager itself
        running = kernel

    (kernel.work / name).write_bytes(data)
    logging.getLogger("papermill").addHandler(logging.NullHandler())  # what it logs is raised, too
    try:
        executed: NotebookNode = papermill.execute_notebook(
            notebook,
            None,
            kernel_name="python3",
            progress_bar=False,
            start_timeout=START_TIMEOUT_S,
            kernel_manager_class=Manager,
        )
    except PapermillExecutionError as error:
        raise JobReportError(
            f"The notebook failed in the cell `{_last_line(error.source)}`: {error.ename}: {error.evalue}"
        ) from error
    except (RuntimeError, TimeoutError) as error:  # DeadKernelError, or a kernel that never answered
        raise JobReportError(
            f"The notebook's kernel did not run ({error}), perhaps for lack of memory or of open files (`ulimit`). Try `{sys.executable} -m ipykernel_launcher --help`."
        ) from error
    return executed


def _last_line(source: str) -> str:
    lines = source.strip().splitlines()
    return lines[-1] if lines else ""


def _cleaned(notebook: NotebookNode) -> NotebookNode:
    """The notebook in the order of the page, without papermill's times and versions."""
    title = None
    failed = []
    #: Cells with the texts above them, by their place on the page.
    placed: dict[int, list[NotebookNode]] = {}
    texts: list[NotebookNode] = []
    for cell in notebook.cells:
        tags = cell.metadata.get("tags", [])
        cell.metadata = nbformat.from_dict({"tags": tags} if tags else {})  # type: ignore[no-untyped-call]
        texts.append(cell)
        if cell.cell_type != "code":
            continue
        place = -1 if tags else None
        for output in cell.outputs:
            facts = output.get("metadata", {}).pop("text/html", {})
            title = facts.get("title", title)
            failed += [facts["failed"]] if "failed" in facts else []
            place = int(facts.get("place", -1))
        if place is not None:  # the page of this job has the section
            placed.setdefault(place, []).extend(texts)
        texts = []
    notebook.cells = [cell for _, cells in sorted(placed.items()) for cell in cells]
    code = (cell for cell in notebook.cells if cell.cell_type == "code")
    for count, cell in enumerate(code, start=1):
        cell.execution_count = count
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = count
    found = {"title": title, "failed": failed}
    notebook.metadata = nbformat.from_dict(_METADATA | {name: one for name, one in found.items() if one})  # type: ignore[no-untyped-call]
    return notebook
