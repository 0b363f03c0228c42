"""What a job learns: statistics of gradients, weights, updates, and activations; counts of classes.

Nothing here talks to other ranks, changes a number of the training, or raises into it.
"""
