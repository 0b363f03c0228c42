"""Jobs that are read from object storage, and reports that are written there."""
