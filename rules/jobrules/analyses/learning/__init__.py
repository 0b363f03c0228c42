"""What the page shows of the training itself."""
