"""What records the training script from within: steps, data loading, passes, and profiles of chosen steps.

Nothing here starts a thread, takes a lock, waits for a device, or calls another rank.
"""
