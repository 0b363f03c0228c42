"""Facts that record-job writes about each node."""
