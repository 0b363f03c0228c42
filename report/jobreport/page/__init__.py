"""Everything that is seen: figures and sections."""
