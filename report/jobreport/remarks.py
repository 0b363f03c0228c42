"""What was read, skipped, and corrected on the way from files to tables.

A remark is data: a code, a count, a place, and fields. ``REMARKS`` is the one table that words the codes; whoever
shows a remark asks for its ``action``, ``unit``, and ``reason``.

A name from data is always in one of the fields of ``NAMES``, so redaction replaces fields and never reads words:

* ``node`` and ``device``, as ``sensors.as_name`` makes them;
* ``file``, a path in the job directory or in an archive;
* ``name``, any other name: a sensor, a host, an operator;
* ``error``, the text of an exception, which may quote anything;
* ``row``, a row of a log;
* ``text``, the text at the place of the remark.

All other fields are numbers or words of ours. Names are escaped and shortened when they are worded.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple, TypeAlias

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from jobreport.recordings import Recording  # noqa: TC001 - msgspec reads the annotation
from jobrules.model.names import Name, NodeName, OwnText, PathName
from jobrules.text import escape_name

TEXT = "text"
#: Fields that hold a name from data, and its kind.
NAMES = {
    "node": "node",
    "device": "device",
    "file": "path",
    "name": "sensor",
    "error": "quote",
    "row": "row",
    TEXT: "quote",
}
_FieldText: TypeAlias = Annotated[str, Name(lambda field: NAMES.get(field, ""))]
#: Characters of that text at most.
TEXT_LENGTH = 60


class Wording(NamedTuple):
    """How a code is worded."""

    #: ``failed`` (a reader of ours stopped), ``skipped`` (not read), ``dropped`` (read, not used) or ``corrected``.
    action: str
    #: What is counted, in the plural, unless the remark has a field ``unit``.
    unit: str
    #: Why, as the end of a sentence: "not a complete JSON object"; ``{field}`` stands for a field of the remark.
    reason: str
    #: Code that counts the less frequent remarks of this one, if there may be many; it has no fields.
    rest: str = ""


#: The shortest command whose log is read, and the names of its columns.
RECORD = "nvidia-smi --query-gpu=timestamp,index,utilization.gpu --format=csv -l 1 > gpu.csv"
_NAMED = "--columns timestamp,index,utilization.gpu"
_SYSTEM = "record CPU, memory, disk, and network with: record-job"
_TRACE = "record a trace with torch.profiler"

#: By action, unit, and code. A code is ``<area>.<what>``, and stays when its words change.
_REASONS: dict[tuple[str, str], dict[str, str]] = {
    ("skipped", "files"): {
        "directory.folder": "folder cannot be opened: {reason}",
        "directory.denied": "may not be read: permission denied",
        "directory.link": "link {target}",
        "directory.special": "neither file nor folder",
        "directory.unknown": "format not recognized",
        "archive.limit": "over the limit of {limit}, like all that follow",
        "archive.cut": "the archive is cut short or damaged; what comes before is used",
        "archive.outside": "the path leaves the archive",
        "archive.link": "link or device in the archive",
        "archive.encrypted": "encrypted in the archive",
        "archive.deep": "more than {folders} nested folders",
        "archive.damaged": "damaged in the archive, or in the way of another file",
        "archive.replaced": "a later file of the archive has the same name",
        "storage.not_fetched": "not fetched, {size} in all: no name or beginning of a file that is read",
        "storage.gone": "deleted while the job was fetched",
        "storage.denied": "no permission for the object",
        "storage.archived": "in an archive of the storage; restore the object first",
        "storage.failed": "could not be fetched: {reason}",
        "recognized.lfs": "a Git LFS pointer, not the file; fetch it with: git lfs pull",
        "recognized.excel": "an Excel workbook; save it as CSV; if days and months are unclear, add --date-order",
        "recognized.archive": "an archive; unpack it, or give it to --job-dir",
        "recognized.wandb": (
            "a recording of W&B, which is not read; rename the columns of an exported CSV with: "
            r"sed -E '1s/_timestamp/timestamp/; 1s/system\.gpu\.([0-9]+)\.gpu/gpu\1_util/g' system.csv > gpu.csv"
        ),
        "recognized.stats": f"the output of nvidia-smi stats, which is not read; record with: {RECORD}",
        "recognized.gpu_list": f"the list of nvidia-smi -L, which has no samples; record with: {RECORD}",
        "recognized.gputil": f"the table of GPUtil, which has no times; record with: {RECORD}",
        "recognized.dcgmi": f"the output of dcgmi dmon, which has no times; record with: {RECORD}",
        "recognized.prometheus": f"metrics of Prometheus, which are not read; record with: {RECORD}",
        "recognized.tegrastats": f"the output of tegrastats, which is not read; write time, GPU, and utilization as CSV, and use {_NAMED}",
        "recognized.rocm": f"the output of rocm-smi, which is not read; write time, GPU, and utilization as CSV, and use {_NAMED}",
        "recognized.amd": f"the output of amd-smi, which is not read; write time, GPU, and utilization as CSV, and use {_NAMED}",
        "recognized.codecarbon": f"CodeCarbon's emissions, which are means over a whole task and no samples; record with: {RECORD}",
        "recognized.sysstat": f"the output of iostat, mpstat, pidstat, or sar, which is not read; {_SYSTEM}",
        "recognized.vmstat": f"the output of vmstat, which is not read; {_SYSTEM}",
        "recognized.top": f"the output of top, which is not read; {_SYSTEM}",
        "recognized.dool": f"the CSV of dool or dstat, which is not read; {_SYSTEM}",
        "recognized.megatron": "the log of a training with Megatron, which is not read; jobrecord.start() in the script records steps",
        "recognized.csv": f"a CSV without columns of GPUs, which is not read; for names of its own, add {_NAMED}",
        "recognized.debugger_page": "the page of SageMaker Debugger, which is not read; keep profiler-reports/*.json next to it",
        "recognized.json": f"JSON of a script, which is not read; write its values as CSV with: jq -r '[.]|flatten[]|[.time,.gpu,.gpu_util]|@csv' gpu.json > gpu.csv, and use {_NAMED}",
        "recognized.json_table": f"JSON of a table, which is not read; write its values as CSV with: jq -r '[.time,.gpu,.gpu_util]|map([.[]])|transpose[]|@csv' gpu.json > gpu.csv, and use {_NAMED}",
        "recognized.execution_trace": f"an execution trace of PyTorch, which is not read; {_TRACE}",
        "recognized.memory": f"a timeline or snapshot of PyTorch's memory, which is not read; {_TRACE} and profile_memory=True",
        "recognized.nsys": f"a recording of Nsight Systems, which is not read; {_TRACE}",
        "recognized.no_driver": "nothing but messages that the NVIDIA driver cannot be reached; repair it until nvidia-smi -L lists the GPUs",
        "recognized.chrome": f"a trace of another program than torch.profiler, which is not read; {_TRACE}",
        "recognized.header": f"names of columns without a row; record for as long as the job runs: {RECORD}",
        "file.unreadable": "cannot be read: {reason}",
        "file.cut": "compressed data is cut short or damaged; what comes before is used",
        "file.damaged": "compressed data is damaged",
        "file.empty": "empty",
        "file.unpacked": "larger than the limit of {limit} when unpacked; what comes before is used",
        "file.large": "larger than {mib} MiB",
        "file.not_utf8": "not UTF-8 text",
        "file.not_json": "not complete JSON",
        "file.not_object": "not a JSON object",
        "traces.unreadable": "cannot be read: {error}",
        "traces.empty": "empty",
        "traces.merged": "made from the other traces",
        "traces.flag": "flag for the recording of data loading; it holds no event",
        "traces.summary": "summary of the TensorFlow profiler; only its traces are read",
        "traces.unused_metadata": "gives the time of a trace that is missing",
        "nvidia_smi.several_writers": "each line begins with the name of one of several writers, such as “{row}”; write a file for each, such as with: grep '^0: ' gpu.txt > gpu_0.txt",
        "nvidia_smi.watch": "watch writes to a file only what changes on the screen; use nvidia-smi -l 1 > FILE",
        "kineto.no_events": "a PyTorch trace without events",
        "kineto.cut": "ends within the list of events; the events before the end are used",
        "profiles.page": "rendered page, not the data of a profile",
        "profiles.undated": "neither its path nor its content has a possible time",
        "profiles.no_function": "no usable function",
        "profiles.unreadable": "not a readable profile of {profiler}",
        "facts.unknown": "not the facts of a recording, or those of a newer record-job",
        "facts.not_uploaded": "of the recording and not in storage, as far as its facts tell",
        "learning.no_number": "no number with a step",
        "learning.unknown": "not what jobrecord writes of a training, or that of a newer record-job",
        "events.unknown": "not an event file of TensorFlow",
        "tensorboard.none": "an event file of TensorBoard without scalars",
        "saved_tensors.index": "not an index of saved tensors",
        "stacks.unknown": "not samples of stacks, or those of a newer record-job",
        "config.no_settings": "no settings of the profiler",
        "debugger.no_result": "not the result of a known rule",
        "debugger.own": "a rule result that make-report wrote",
        "debugger.second": "a second result of {rule}; the first by name is used",
        "debugger.older_run": "of another run than the newest, ProfilerReport-{run}",
    },
    ("failed", "files"): {
        "reader.failed": "the reader of {source} stopped: {kind}: {error}",
    },
    ("dropped", "samples"): {
        "node.second_source": "another source has {metric} of {node}",
        "times.implausible": "time lies more than 30 days from most of the node's records, or has no date",
        "times.other_run": "outside of the run that is reported (choose with --run)",
        "times.other_job": "of logs that are not in use, since their times are not those of samples and events",
        "times.no_run": "too few for a run, and a long pause away from all others, or without a date",
        "samples.second": "second value of a device in the same snapshot",
        "samples.devices": "more than {limit} devices of one node",
        "samples.not_available": "no value reported, such as [N/A]",
        "samples.implausible": "no number that a GPU can have, or in a unit of something else",
        "samples.not_finite": "value is NaN or infinite",
        "samples.unknown": "unknown sensor {name}",
        "samples.unknown_rest": "other unknown sensors",
        "samples.repeated": "exact repetition of another sample",
        "stacks.unknown_stack": "of a stack that is missing or damaged",
        "samples.sparse": "nearly every sample has a time of its own; the {devices} devices with most samples are used",
    },
    ("corrected", "samples"): {
        "samples.percent": "percentage outside 0 to 100, set to the nearer bound",
        "samples.value": "value outside 0 to 10^15, set to the nearer bound",
    },
    ("skipped", "lines"): {
        "samples.long": "too long for a sample",
        "samples.no_value": "no usable value of key '{key}'",
        "samples.time": "'Timestamp' is not a time in seconds between 1990 and 2100",
        "traces.not_json": "not complete JSON",
        "kineto.errors": "errors that the profiler itself logged in the trace",
        "learning.line": "not a line that jobrecord writes of a training, or damaged",
        "stacks.line": "not a frame, a stack, or a sample",
    },
    ("corrected", "nodes"): {
        "samples.jobs": "samples in the folders of several jobs, read as one job",
    },
    ("corrected", "files"): {
        "storage.changed": "changed while the job was fetched; the newest version is in use",
        "traces.several_metadata": "node from its name, time from one of several .metadata files",
        "traces.no_metadata": "no .metadata file; times are approximate, from the name of its folder in UTC",
        "traces.damaged_gzip": "compressed data is cut short or damaged; the rows before the damage are in use",
        "traces.no_end": "cut short or still being written; the complete rows are in use",
        "traces.growing": "not closed: the process was killed, or is still writing; the complete rows are in use",
        "learning.epochs": "counts epochs, which stand where steps do",
        "stacks.gap": "stacks were not sampled all the time: the recorder ran out of space, or reached its limit",
        "events.cut": "ends within a record: the process was killed, or is still writing; the records before it are in use",
        "events.damaged": "a record is damaged; the records before it are in use, as in TensorBoard",
        "nvidia_smi.header_of_part": "no header line; the columns are those in {name}",
        "nvidia_smi.same_second": "several samples of a GPU per second; assumed: one machine, equal intervals",
        "nvidia_smi.zone": "no time zone in the log; read as {zone} (change with --timezone)",
        "nvidia_smi.clock_change": "times step by an hour at {at}, as local times do where the clock is set to summer or winter time; give the zone of the log, such as --timezone Europe/Berlin",
        "nvidia_smi.excel_days": "times are numbers of days, as Excel writes dates",
        "nvidia_smi.no_dates": "no dates in the log: its times count from its start",
        "nvidia_smi.assumed_second": "no times in the log; assumed: one second from row to row, the default of the tool",
        "nvidia_smi.in_turn": "no GPU named: the order of the rows numbers the GPUs",
        "nvidia_smi.numbered": "GPUs with UUID or bus id only: the order of their first rows numbers them; assumed: one machine",
        "nvidia_smi.writers_by_identifier": "GPUs of one number with several UUIDs or bus ids: logs of {machines} machines without names, here log-1, log-2, … in the order of their rows",
        "nvidia_smi.uneven": "the time from row to row of a GPU varies; assumed: one machine with an uneven interval; if several machines wrote to the file, write a file for each machine, or record uuid",
        "nvidia_smi.machines": "logs of the same GPUs at the same times: taken as of several machines, named after folders and files; for GPUs of one machine, record index (nvidia-smi --query-gpu=timestamp,index,…) or name the files gpu0.csv, gpu1.csv",
    },
    ("skipped", "bytes"): {
        "traces.rest": "after the last readable row: damaged or cut short",
    },
    ("skipped", "rows"): {
        "traces.odd_row": "not a trace event: a value has an unexpected type",
        "traces.no_type": "has no type (ph)",
        "traces.other_type": "type (ph) is not read",
        "traces.instant": "instant event without a duration",
        "traces.counter": "counter without a duration",
        "traces.flow": "flow event without a duration",
        "traces.async": "asynchronous event; asynchronous events are not read",
        "traces.begin_only": "begin event without an end event in its file",
        "traces.end_only": "end event without a begin event in its file",
        "traces.no_name": "has no name",
        "traces.no_start": "has no start",
        "traces.bad_time": "start or duration is negative, infinite, or too large",
        "nvidia_smi.no_header": "no header line in front; add --columns timestamp,index,utilization.gpu,… with a name for each column",
        "nvidia_smi.column_count": "--columns has {columns} names, but the rows have another number of fields",
        "nvidia_smi.other_fields": "not as many fields as columns: a message, or a damaged row",
        "nvidia_smi.long_line": "a line of more than a million characters",
        "nvidia_smi.cut_line": "the last line has no end: it may be half of a row",
        "nvidia_smi.part_of_row": "incomplete: the log is cut or damaged there",
        "nvidia_smi.undated": "no date and time above them, which the tool writes once for all GPUs",
        "nvidia_smi.one_moment": "one moment only: no shares of time; nvidia-smi -l 1 repeats it",
        "nvidia_smi.no_time": "no time that can be read, such as 2025-03-14 09:21:17 or 1741944077 (--query-gpu=timestamp,… or pmon -o DT writes it; Excel may shorten it)",
        "nvidia_smi.date_order": "dates with the day or the month first, which no date of the file shows; add --date-order day-first or --date-order month-first",
        "nvidia_smi.other_time": "times of another kind than most in the file",
        "nvidia_smi.no_value": "no value that is read",
        "nvidia_smi.no_name": "no {what} named, as in other rows",
        "nvidia_smi.no_number": "no number of a GPU, as in other rows",
        "nvidia_smi.many_nodes": "more than {nodes} nodes, or {gpus} GPUs, in one file",
        "nvidia_smi.other_query": "not samples of GPUs but what --query-{query} lists: processes or memory pages",
        "nvidia_smi.incomplete": "no GPU named, in a moment that does not have the usual {usual} rows: which GPU is missing is unknown",
        "nvidia_smi.lost_gpu": "no GPU named, and not the usual {usual} rows in any moment from {since} to the end: which GPU is missing is unknown; record index or uuid",
        "nvidia_smi.mixed": "from {since} on, several rows of each GPU in one interval: several machines, several loops on one, or a loop faster than its times show, wrote to the file; write a file for each machine, or record uuid (nvidia-smi --query-gpu=timestamp,index,uuid,…)",
        "nvidia_smi.no_writer": "several machines wrote to the file, and the row shows none of them",
        "nvidia_smi.not_joined": "GPUs with UUID or bus id only, while other logs of the machine have numbers; record index and uuid in one log",
    },
    ("skipped", "table rows"): {
        "learning.row": "no step, or not as many fields as columns",
    },
    ("skipped", "time bases"): {
        "traces.time_base": "not a date",
    },
    ("skipped", "tensors"): {
        "saved_tensors.other": "not a weight, a gradient, a loss, labels, predictions, an output of a module named after ReLU, tanh, or sigmoid, or a reduction of them that is read",
        "saved_tensors.large": "larger than 1 GiB",
        "saved_tensors.unreadable": "damaged, or of elements of an unknown type",
        "saved_tensors.many": "of more than 20,000 tensors of a model",
        "saved_tensors.worker": "of another worker than the first; it may be a copy or another part",
        "saved_tensors.evaluation": "saved in evaluation; the tensors of training are read",
    },
    ("dropped", "steps"): {
        "saved_tensors.thinned": "read without their tensors, which are over 8 GB or 250,000 in all; those of the other steps are in use, evenly spread",
    },
    ("corrected", "steps"): {
        "saved_tensors.forward_passes": "forward passes of the model, as SageMaker Debugger counts them: an evaluation without a mode, and each part of a batch, is one",
    },
    ("corrected", "tensors"): {
        "saved_tensors.not_finite": "reductions are NaN or infinite; at least one element is, how many is not known",
    },
    ("skipped", "records"): {
        "events.unreadable": "not an event, or one of more than 4,096 values",
    },
    ("skipped", "values"): {
        "tensorboard.other": "of TensorBoard and no scalar: an image, a histogram, a text",
        "tensorboard.step": "the step is negative or over 10^15",
        "tensorboard.names": "of more than 10,000 names in a file, or of a name with more than 1,000 characters",
    },
    ("dropped", "rows"): {
        "traces.undated": "time is not a date: the file has no time base",
        "traces.repeated": "repetition of an event in another file",
        "nvidia_smi.second_row": "another row of a GPU at the same time; the first value of each column is in use",
        "nvidia_smi.added_process": "another process of the same GPU at the same time, added to the first",
    },
    ("corrected", "rows"): {
        "traces.relative": "time is not a date: the file has no time base; only durations and distances are right",
    },
    ("corrected", "names"): {
        "traces.long_name": "longer than 1,000 characters, shortened",
    },
    ("corrected", "values"): {
        "tensorboard.time": "logged with an impossible time; the time is taken as unknown",
    },
    ("corrected", "series"): {
        "tensorboard.no_steps": "logged without steps; the order of the values numbers them",
        "learning.counted_on": "steps begin again within a file, as if counted in each epoch; they are counted on",
    },
    ("skipped", "logs"): {
        "machines.other_zone": "not in use, recorded at other times than samples and events; for local times try --timezone {offset}",
        "machines.other_times": "not in use, recorded at other times than samples and events, in any time zone",
    },
    ("corrected", "logs"): {
        "machines.joined": "joined to the samples of {node}, the only machine with samples: as many GPUs, overlapping times",
        "machines.several": "a machine of its own: {machines} machines have samples, and the path of the log names none of them",
        "machines.other_gpus": "a machine of its own: GPUs in the log: {found}, in the samples of {node}: {gpus}",
    },
    ("skipped", "documents"): {
        "nvidia_smi.damaged_document": "incomplete, damaged, or larger than 2 MiB: JSON or XML",
    },
    ("dropped", "columns"): {
        "nvidia_smi.equal_column": "another column of the same measure ({metric}); that with the shortest name is in use",
        "nvidia_smi.row_numbers": "more numbers than a node has GPUs: the column numbers rows, not GPUs",
        "nvidia_smi.unclear_unit": "column {name}: no unit in the log, and its values fit several ({scale}); give it a name with a unit in the header line, such as gpu_util_fraction, mem_used_mib, or mem_used_gib",
        "nvidia_smi.mixed_units": "column {name}: some of its numbers have a unit, others none",
        "nvidia_smi.not_activity": "column {name}: not GPU memory activity: its numbers have decimals, which the driver does not write, or are the share of memory in use",
        "nvidia_smi.impossible_unit": "column {name}: over 1 in 100 values cannot be {measure} in {scale}",
    },
    ("corrected", "columns"): {
        "nvidia_smi.fraction": "column {name}: all values are from 0 to 1; read as fractions, times 100",
        "nvidia_smi.assumed_unit": "column {name}: no unit in the log; assumed: {measure} in {scale}",
        "nvidia_smi.use_in_gpu": "column {name}: its values are no numbers of GPUs; read as GPU utilization",
        "nvidia_smi.assumed_activity": "column {name}: assumed: GPU memory activity (share of time), not the share of memory in use",
    },
    ("skipped", "events"): {
        "kineto.no_type": "has no type (ph)",
        "kineto.unreadable": "not a complete JSON object, or a value of an unexpected type",
        "kineto.category": "unknown category “{name}”",
        "kineto.categories": "other unknown categories",
        "kineto.other_type": "type (ph) is not read",
        "kineto.flow": "flow event: launches and kernels are linked by their correlation",
        "kineto.counter": "counter",
        "kineto.instant": "marker without a duration",
        "kineto.naming": "name or position of a row in a viewer",
        "kineto.python_call": "call of a Python function: only counted",
        "kineto.synchronization": "synchronization on a device: no work of the device",
        "kineto.unknown_wait": "synchronization with an event whose record is not in the trace",
        "kineto.no_work": "repetition of a mark, or a summary: no work of the device",
        "kineto.no_name": "has no name",
        "kineto.no_start": "has no start",
        "kineto.zero_time": "a device event without a time (its start is not above 0)",
        "kineto.no_duration": "duration is missing, negative, or not a number",
        "kineto.dropped": "lost by the profiler, as it logged in the trace",
    },
    ("corrected", "events"): {
        "kineto.value": "values that JSON does not have: NaN, inf, and N/A are read as missing, characters replaced",
        "kineto.shortened": "duration is impossible: it covers whole later events of the same stream; cut by {ms} ms together",
    },
    ("dropped", "events"): {
        "learning.events": "more than 100,000 of a training",
        "kineto.long": "lasts more than 7 days",
        "kineto.late": "ends more than an hour after all events of other kinds",
        "kineto.devices": "of more than 256 devices; those with the lowest numbers are used",
        "kineto.repeated": "repetition of an event in the same file",
    },
    ("corrected", "lines"): {
        "learning.bare": "NaN and Infinity, which JSON does not have; read as such",
    },
    ("dropped", "series"): {
        "learning.candidate": "{name}: another series that may be {measure}; the one with more values is in use (change with --scalar {measure}=NAME)",
    },
    ("dropped", "tensor rows"): {
        "learning.unnamed": "of a tensor without a name, of an unknown kind, or over the limit of 120,000 tensors",
        "learning.incomplete": "of tensors of which a shard is missing: a norm over the others would be too low",
        "learning.thinned": "more than 250,000 rows: evenly distributed records are in use",
        "learning.rows_again": "of steps that come again after a restart; the later ones are in use",
        "learning.other_mode": "not of training",
        "learning.other_source": "another source has more records of tensors",
    },
    ("dropped", "trainings"): {
        "learning.other_command": "of a command that is not reported (choose with --run)",
        "learning.not_continued": "a later start of the job begins before their first step",
    },
    ("dropped", "evaluations"): {
        "learning.evaluations": "more counts of classes than are kept; the last evaluations are in use",
    },
    ("dropped", "files"): {
        "learning.other_run": "of an earlier training, which a later file begins again",
        "learning.copy": "the same process as another file",
        "kineto.copy": "the same rank and events as {name}",
        "profiles.repeated": "exact repetition of another profile",
    },
    ("dropped", "stacks"): {
        "stacks.lost": "a caller or a frame is missing, or there are too many",
    },
    ("dropped", "functions"): {
        "profiles.entry": "incomplete, or a value of another type",
        "profiles.second": "second entry of a function",
        "profiles.time": "time is negative, NaN, infinite, or not a number",
    },
    ("dropped", "values"): {
        "learning.again": "of steps that come again after a restart; the later ones are in use",
        "learning.value": "no number, or of more than 1,000 series",
        "learning.thinned_values": "more values than are kept of a series; evenly distributed ones, and all that are not finite, are in use",
        "debugger.value": "incomplete, of another type, NaN, or out of range",
        "tensorboard.again": "of steps that a later file of TensorBoard has again, as after a restart",
        "tensorboard.other_run": "of a folder of TensorBoard with an earlier run, which the newest does not continue",
    },
    ("used", "series"): {
        "learning.no_loss": "none is the loss by its name, such as {name}; choose it with --scalar loss=NAME",
    },
    ("used", "files"): {
        "debugger.in_addition": "where the job's own records lack something",
    },
    ("skipped", "thresholds"): {
        "debugger.thresholds": "no effect on results of SageMaker Debugger",
    },
    ("failed", "rules"): {
        "rules.not_loaded": "a rule that cannot be loaded: {error}",
    },
    ("dropped", "actions"): {
        "action.failed": "did not succeed: {error}",
    },
    ("failed", "sections"): {
        "analysis.failed": "the analysis of {analysis} stopped: {kind}: {error}",
    },
}
#: Code that counts the less frequent remarks of another one, of which there may be many; it has no fields.
_RESTS = {"samples.unknown": "samples.unknown_rest", "kineto.category": "kineto.categories"}

#: Codes of data that the job had, and the report lacks: what is left out on purpose is none.
LOST = frozenset(
    {
        *("archive.limit", "archive.cut", "archive.encrypted", "archive.deep", "archive.damaged"),
        *("directory.folder", "directory.denied", "reader.failed"),
        *("storage.gone", "storage.denied", "storage.archived", "storage.failed"),
        *("file.unreadable", "file.cut", "file.damaged", "file.unpacked", "file.large", "file.not_utf8"),
        *("file.not_json", "file.not_object"),
        *("samples.long", "samples.no_value", "samples.time", "samples.implausible", "samples.not_finite"),
        *("samples.devices", "samples.sparse", "times.implausible"),
        *("traces.unreadable", "traces.damaged_gzip", "traces.not_json", "traces.rest", "traces.odd_row"),
        *("traces.no_name", "traces.no_start", "traces.bad_time"),
        *("nvidia_smi.other_fields", "nvidia_smi.part_of_row", "nvidia_smi.no_time", "nvidia_smi.no_writer"),
        *("nvidia_smi.mixed", "nvidia_smi.incomplete", "nvidia_smi.lost_gpu", "nvidia_smi.many_nodes"),
        *("nvidia_smi.damaged_document",),
        *("learning.unknown", "learning.line", "learning.value", "learning.unnamed"),
        *(
            "events.damaged",
            "events.unreadable",
            "events.unknown",
            "tensorboard.step",
            "tensorboard.names",
            "saved_tensors.large",
            "saved_tensors.unreadable",
            "saved_tensors.many",
            "saved_tensors.index",
        ),
        *("stacks.unknown", "stacks.line", "stacks.unknown_stack", "stacks.lost"),
        *("kineto.cut", "kineto.unreadable", "kineto.dropped", "debugger.value"),
    }
)

#: Codes of files to which the job still writes: each may end within a line.
_OPEN_ENDS = frozenset(
    {
        *("file.not_json", "traces.not_json", "traces.growing", "traces.no_end", "kineto.cut"),
        *("stacks.line", "learning.line", "events.cut", "nvidia_smi.cut_line", "nvidia_smi.part_of_row"),
    }
)

REMARKS = {
    code: Wording(action, unit, reason, _RESTS.get(code, ""))
    for (action, unit), reasons in _REASONS.items()
    for code, reason in reasons.items()
}


class Remark(Struct, frozen=True, kw_only=True):
    """One thing that was left out or changed, counted."""

    #: Key of ``REMARKS``.
    code: OwnText
    #: How many of ``unit``.
    count: int
    #: The first place: a path relative to the job directory, with the line number where there is one.
    place: PathName | None = None
    #: What the wording names: numbers, words of ours, and names from data (``NAMES``).
    fields: dict[OwnText, _FieldText | int | float] = {}

    def __hash__(self) -> int:
        return hash((self.code, self.count, self.place, *self.fields.items()))

    @property
    def action(self) -> str:
        """``failed``, ``skipped``, ``dropped``, ``corrected`` or ``used``."""
        return REMARKS[self.code].action

    @property
    def unit(self) -> str:
        """What is counted, in the plural."""
        return str(self.fields.get("unit", REMARKS[self.code].unit))

    @property
    def reason(self) -> str:
        """Why, as the end of a sentence."""
        shown = {
            key: escape_name(str(value), 120) if key in NAMES else value for key, value in self.fields.items()
        }
        reason = REMARKS[self.code].reason.format_map(shown)
        return f"{reason}: “{shown[TEXT]}”" if TEXT in shown else reason


class Run(Struct, frozen=True, kw_only=True):
    """One run of a recording that a long pause separates from others, or a command of a script."""

    start_us: int
    end_us: int
    #: Whether the report is of it.
    reported: bool
    #: Whether it is a command of a script that has several.
    command: bool | UnsetType = UNSET


class LogFile(Struct, frozen=True, kw_only=True):
    """A log, or the part of it that is of one machine."""

    file: PathName
    node: NodeName
    #: GPUs in use.
    gpus: int
    #: Times of its first and last row.
    first_us: int
    last_us: int
    #: Rows with a time and a value.
    rows: int


class SourceQuality(Struct, frozen=True, kw_only=True):
    """One kind of input file."""

    #: The kind, as the page names it: "system samples".
    source: OwnText
    #: Files that gave at least one row.
    files: int
    #: Rows (samples, events) in use. With those that the remarks count as skipped or dropped they are all rows of
    #: the files: lines that are not blank, values in the list of a trace; the begin and the end of an event are one.
    rows: int
    remarks: tuple[Remark, ...] = ()
    #: Which file is of which machine, where only their content says so.
    logs: tuple[LogFile, ...] = ()
    #: What record-job noted about the recording of each node.
    recordings: tuple[Recording, ...] = ()


class Quality(Struct, frozen=True, kw_only=True):
    """What became of every file of the job directory."""

    sources: tuple[SourceQuality, ...] = ()
    #: Files that no reader recognized or that could not be opened.
    remarks: tuple[Remark, ...] = ()
    #: In the order of time; empty if nothing separates runs.
    runs: tuple[Run, ...] = ()


def without_open_ends(quality: Quality) -> Quality:
    """The quality of a job that runs: without remarks on the open end of a file."""

    def kept(source: SourceQuality) -> tuple[Remark, ...]:
        return tuple(
            one for one in source.remarks if one.code not in _OPEN_ENDS or one.count > max(1, source.files)
        )

    return replace(quality, sources=tuple(replace(one, remarks=kept(one)) for one in quality.sources))
