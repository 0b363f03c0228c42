"""Rule results of SageMaker Debugger that are written by hand, and the report of nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jobreport import settings
from jobreport.build import report_of
from jobreport.document import Report
from jobreport.readers.registry import read_directory
from tests.report.readers.samples import write


def built(directory: Path, name: Any = "job", own: Any = (), **rules: Any) -> Report:
    """The report of rule results that are given by the name of their rule; ``own`` are more rules."""
    directory.mkdir(parents=True, exist_ok=True)
    write(directory, {f"{rule}.json": json.dumps(content) for rule, content in rules.items()})
    chosen = settings.load()
    chosen = settings.Settings(rules=(*chosen.rules, *own), options=chosen.options)
    return report_of(read_directory(directory, name=name), chosen, name, strict=not own)[0]
