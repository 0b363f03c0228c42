"""From the directory a training job left behind to one self-contained HTML page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jobreport.errors import JobReportError
    from jobreport.library.job import JobFrames
    from jobreport.library.opening import open_job
    from jobreport.timeline.trace import TraceSummary

__version__ = "0.1.0"
__all__ = ["JobFrames", "JobReportError", "TraceSummary", "__version__", "open_job"]

#: Where each name is, which is imported when it is used.
_HOMES = {
    "JobFrames": "jobreport.library.job",
    "JobReportError": "jobreport.errors",
    "TraceSummary": "jobreport.timeline.trace",
    "open_job": "jobreport.library.opening",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - what reads no job needs none of it

    return getattr(import_module(_HOMES[name]), name)
