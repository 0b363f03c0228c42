"""What rules on the training itself share: robust statistics, evaluations, and counts of classes."""
