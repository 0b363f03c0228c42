"""Files of a report: report.json, summary.md, notebook, and page."""
