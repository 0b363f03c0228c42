"""The rules: a file each, over samples, conditions, and traces."""
