"""``make-report --watch``: reports of a job that runs."""
