"""Rules on the training itself: whether the model learns."""
