"""A job as one file for viewers of traces, such as Perfetto: steps, events, samples, and findings on one clock."""
