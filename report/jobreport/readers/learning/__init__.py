"""What jobrecord writes about the training itself, and the joining of what several sources say about it."""
