"""The notebook and the page of a data file."""

from __future__ import annotations

import contextlib
import errno
import importlib
import tempfile
import threading
from typing import TYPE_CHECKING, Any

from jobreport.errors import JobReportError
from jobreport.files import REPORT, Product
from jobreport.progress import stage
from jobrules.text import capitalized, escape_name, join_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from jobreport.options import Options
    from jobreport.output.kernel import Kernel

#: Seconds to wait for an import to end if the run is stopped.
_JOIN_S = 5.0


def pages(
    data: bytes,
    options: Options,
    kernel: Kernel | None,
    product: Product = REPORT,
    about: Mapping[str, Any] | None = None,
) -> tuple[dict[str, bytes], JobReportError | None]:
    """The notebook and the page of a data file, and what failed in making them; a failure costs no other file.

    ``about`` is as in ``export.render_html``.
    """
    files: dict[str, bytes] = {}
    if not {"html", "ipynb"} & set(options.formats):
        return files, None
    # Papermill and nbconvert are slow to import and only needed here.
    from jobreport.output import notebook  # noqa: PLC0415

    stage("Writing the page")
    try:
        with _importing("jobreport.output.export"):
            executed = notebook.run_notebook(data, kernel, product)
        if "ipynb" in options.formats:
            files[product.files["ipynb"]] = notebook.to_text(executed).encode()
        if "html" in options.formats:
            from jobreport.output import export  # noqa: PLC0415

            html = export.render_html(
                executed, static=options.static, product=product, about=about, refresh_s=options.refresh_s
            )
            files[product.files["html"]] = html.encode()
        if failed := executed.metadata.get("failed"):
            raise written_without(failed, product)
    except Exception as error:
        if options.strict:
            raise
        if isinstance(error, JobReportError):
            return files, error
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            place = escape_name(tempfile.gettempdir(), 200)
            return files, JobReportError(
                f"{capitalized(product.noun)} written without the page: no space left in {place}. "
                "Set TMPDIR to another directory."
            )
        if isinstance(error, MemoryError):
            return files, JobReportError(
                f"{capitalized(product.noun)} written without the page: not enough memory."
            )
        return files, written_without([f"the page ({type(error).__name__}: {error})"], product)
    return files, None


@contextlib.contextmanager
def _importing(module: str) -> Iterator[None]:
    """Import a module in a thread while this one waits for the notebook."""

    def load_module() -> None:
        with contextlib.suppress(Exception):  # raised again where the module is used
            importlib.import_module(module)

    thread = threading.Thread(target=load_module, daemon=True)
    thread.start()
    try:
        yield
    finally:
        # At the end of the process, an import would fail with a traceback. But Ctrl-C within an import can leave
        # a lock that is never released.
        thread.join(_JOIN_S)


def written_without(failed: Sequence[str], product: Product = REPORT) -> JobReportError:
    """The error of what failed while the rest was written."""
    return JobReportError(
        f"{capitalized(product.noun)} written without {join_names(failed)}, which failed. Run with --strict to see why."
    )
