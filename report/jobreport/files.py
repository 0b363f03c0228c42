"""Names of the files that are written, by the names that ``--formats`` knows them by."""

from __future__ import annotations

from typing import NamedTuple

FILES = {"html": "report.html", "ipynb": "report.ipynb", "json": "report.json", "md": "summary.md"}


class Product(NamedTuple):
    """What a command writes into a folder; the data file is always written, and page and notebook are made from it."""

    #: The command.
    maker: str
    noun: str
    files: dict[str, str]
    #: Style sheets of the page in addition to those of a report.
    styles: tuple[str, ...] = ()


REPORT = Product(maker="make-report", noun="report", files=FILES)
COMPARISON = Product(
    maker="compare-reports",
    noun="comparison",
    files={name: f"comparison.{name}" for name in FILES},
    styles=("style/comparison.css",),
)
