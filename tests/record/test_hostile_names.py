"""Names that a script or a user chose, as text on the page."""

from __future__ import annotations

import html
import json
import os
import sys
from pathlib import Path

import pytest

from tests.record.recordings import PYTHON, facts, record, rows
from tests.record.reports import remarks, report

MARKUP = "</script><img src=x onerror=alert(1)>"
HOSTILE = (
    MARKUP,
    "../../etc/passwd",
    "a\u202eb",
    "%s%n{}",
    "line\nbreak",
    "\x00\x1b[31m",
    "\ud800",
    "🤖",
    "'; drop table",
    "{{ 7 * 7 }}",
    "long " * 100,
    "",
)
TRAIN = """
import json, sys, time, jobrecord
from tests.record.hooks.fake_torch import Loader

names = json.loads(sys.argv[1])
jobrecord.start()
for step in range(100):
    name = names[step % len(names)]
    # The class of an iterator is its name.
    class Loading(Loader):
        def __iter__(self):
            return type(repr(name), (object,), {"__iter__": iter, "__next__": lambda self: None})()
    next(iter(jobrecord.data(Loading(3))))
    with jobrecord.phase(name):
        time.sleep(0.01)
    jobrecord.step()
"""


@pytest.mark.slow
def test_names_are_text_from_the_recorder_to_the_page(tmp_path: Path) -> None:
    out = tmp_path / "job"
    (tmp_path / "train.py").write_text(TRAIN)
    labels = [
        part
        for number, name in enumerate(HOSTILE)
        if name.isprintable()
        for part in ("--label", f"l{number}={name}")
    ]
    command = [PYTHON, "train.py", json.dumps(HOSTILE)]
    path = os.pathsep.join(sys.path)

    done = record(out, "--node", MARKUP, *labels, "--interval", "100ms", command=command, PYTHONPATH=path)
    found = report(out, "html", "md")

    assert done.returncode == 0, done.stderr
    assert facts(out)["labels"]["l0"] == MARKUP
    assert {row["NodeId"] for row in rows(out)} == {"--script--img-src-x-onerror-alert-1--"}
    assert remarks(found) == set()
    assert found["steps"]["count"] == 100
    names = {one["name"] for one in found["framework"]["event_types"]}
    assert {MARKUP, "../../etc/passwd", "🤖", "{{ 7 * 7 }}", "unnamed"} <= names
    page = (tmp_path / "report" / "report.html").read_text()
    assert html.escape(MARKUP, quote=False) in page
    assert "{{ 7 * 7 }}" in page
    for raw in ("<img src=x", "\u202e", "\x1b", "\x00"):
        assert raw not in page
