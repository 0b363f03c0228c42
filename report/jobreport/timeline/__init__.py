"""A job as one file for viewers of traces, such as Perfetto: steps, events, samples, and findings on one clock."""

#: What is drawn of the samples if nothing else is asked for; rows of a file.
METRICS = ("gpu_utilization", "cpu_utilization", "io_wait")
LIMIT = 2_000_000
