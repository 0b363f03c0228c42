"""Makes up a training job and writes the job directory it would have left behind.

A scenario says what the machine does (curves over time), sensors turn the curves into what they show,
the recorder samples them minute by minute as the platform agent does, a plan of steps becomes what each
training process records of its loop, and the writer makes the files. Memory holds the times of all steps of
one process and one minute of the rest, however long the job is. The same job gives the same bytes everywhere.
"""
