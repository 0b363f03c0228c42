"""Names of the files that are written, by the names that ``--formats`` knows them by."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection

FILES = {"html": "report.html", "ipynb": "report.ipynb", "json": "report.json", "md": "summary.md"}
#: What is written unless ``--formats`` says otherwise.
DEFAULT = tuple(FILES)
#: What systems of CI read.
FILES |= {"junit": "junit.xml", "github": "github.md"}


class Product(NamedTuple):
    """What a command writes into a folder; the data file is always written, and page and notebook are made from it."""

    #: The command.
    maker: str
    noun: str
    files: dict[str, str]
    #: What the test suites of ``junit.xml`` are called.
    suites: str
    #: Style sheets of the page in addition to those of a report.
    styles: tuple[str, ...] = ()

    @property
    def junit_head(self) -> bytes:
        """What ``junit.xml`` begins with; one of another program, which has the same name, does not."""
        return f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="{self.suites}"'.encode()

    def main_file(self, written: Collection[str]) -> str:
        """The page, or the next best of the files that were written."""
        return next(self.files[one] for one in ("html", "ipynb", "md", "json") if self.files[one] in written)


REPORT = Product(maker="make-report", noun="report", files=FILES, suites="jobreport")
COMPARISON = Product(
    maker="compare-reports",
    noun="comparison",
    files=FILES | {name: f"comparison.{name}" for name in DEFAULT},
    suites="jobreport.compare",
    styles=("style/comparison.css",),
)
