"""What ``make-report`` is measured beside, each a program of its own: ``peers.py NAME [JOB]``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

SAMPLES, TRACES = "system/incremental/*/*.json", "framework/pevents/*/*.json"
#: What a kernel of a notebook with Bokeh figures usually imports; the goal is set against it.
SOURCE = "import bokeh.plotting, pandas"


def duckdb(directory: str) -> None:
    """Read the samples, and the traces where there are any, and aggregate them by what they are of."""
    import duckdb as library

    job = Path(directory)
    for files, layout, columns, query in (
        (
            SAMPLES,
            "newline_delimited",
            "NodeId: 'VARCHAR', Type: 'VARCHAR', Dimension: 'VARCHAR', Name: 'VARCHAR', Timestamp: 'DOUBLE',"
            " Value: 'DOUBLE'",
            "SELECT NodeId, Type, Dimension, Name, count(*), avg(Value), min(Value), max(Value),"
            " min(Timestamp), max(Timestamp)",
        ),
        (
            TRACES,
            "array",
            "name: 'VARCHAR', pid: 'BIGINT', ph: 'VARCHAR', ts: 'BIGINT', dur: 'BIGINT', args: 'JSON'",
            "SELECT name, pid, ph, count(*), sum(dur), min(ts), max(ts), count(args)",
        ),
    ):
        if any(job.glob(files)):
            source = f"read_json(?, format = '{layout}', columns = {{{columns}}})"
            rows = library.execute(f"{query} FROM {source} GROUP BY ALL", [str(job / files)]).fetchall()
            print(len(rows), "groups")


def polars(directory: str) -> None:
    """Read the samples and aggregate them by what they are of."""
    import polars as pl

    texts = dict.fromkeys(("NodeId", "Type", "Dimension", "Name"), pl.String)
    table = pl.scan_ndjson(
        sorted(Path(directory).glob(SAMPLES)),
        schema={**texts, "Timestamp": pl.Float64, "Value": pl.Float64},
    )
    value, timestamp = pl.col("Value"), pl.col("Timestamp")
    made = table.group_by(*texts).agg(
        pl.len(),
        value.mean().alias("mean"),
        value.min().alias("least"),
        value.max().alias("most"),
        timestamp.min().alias("first"),
        timestamp.max().alias("last"),
    )
    print(made.collect().height, "groups")


def pandas(directory: str) -> None:
    """Read a log of nvidia-smi, with its times as such."""
    import pandas as library

    (log,) = Path(directory).glob("*.csv")
    table = library.read_csv(log, skipinitialspace=True)
    table["timestamp"] = library.to_datetime(table["timestamp"], format="%Y/%m/%d %H:%M:%S.%f")
    print(len(table), "rows")


def hta(directory: str) -> None:
    """Load a trace with HolisticTraceAnalysis, and break the time of its device down."""
    from hta.trace_analysis import TraceAnalysis

    (trace,) = Path(directory).iterdir()
    print(TraceAnalysis(trace_files={0: str(trace)}).get_temporal_breakdown(visualize=False))


def json_load(directory: str) -> None:
    """Load a trace as Python objects, and do nothing with it."""
    (trace,) = Path(directory).iterdir()
    with trace.open("rb") as text:
        print(len(json.load(text)["traceEvents"]), "events")


def papermill() -> None:
    """Run an empty notebook: its kernel starts and imports what a report's would."""
    import papermill as library

    cell: dict[str, object] = {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
        "source": SOURCE,
    }
    kernel = {"name": "python3", "language": "python", "display_name": "Python 3"}
    content = {"cells": [cell], "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 4}
    Path("empty.ipynb").write_text(json.dumps(content), "utf-8")
    library.execute_notebook("empty.ipynb", "run.ipynb", progress_bar=False)


def notebook() -> None:
    """Run the empty notebook and export it with nbconvert's own template."""
    from nbconvert import HTMLExporter

    papermill()
    html, _ = HTMLExporter().from_filename("run.ipynb")  # type: ignore[no-untyped-call]
    Path("run.html").write_text(html, "utf-8")


PEERS = {one.__name__: one for one in (duckdb, polars, pandas, hta, json_load, papermill, notebook)}

if __name__ == "__main__":
    PEERS[sys.argv[1]](*sys.argv[2:])
