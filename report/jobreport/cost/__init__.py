"""What jobs cost, and which machines could run them: of one job, and of the variants of a comparison."""
