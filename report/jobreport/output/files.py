"""Names of the files of a report, by the names that ``--formats`` knows them by."""

FILES = {"html": "report.html", "ipynb": "report.ipynb", "json": "report.json", "md": "summary.md"}
