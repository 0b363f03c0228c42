"""Where the tables of a job lie: in memory, on disk, in processes, or on a Dask cluster."""
