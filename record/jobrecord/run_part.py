"""Program of a process of the recorder's own: ``sampler``, or ``uploader``.

Run by its path, not with ``-m``, which would search the job's working directory for modules first.
"""

import signal
import sys
from importlib import import_module
from pathlib import Path

#: A scheduler sends them to every process of a job, long before the job ends.
_IGNORED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")

if __name__ == "__main__":
    for number in (getattr(signal, name) for name in _IGNORED if hasattr(signal, name)):
        signal.signal(number, signal.SIG_IGN)
    here = Path(__file__).resolve().parent
    if sys.path[0] == str(here):
        del sys.path[0]
    sys.path.insert(0, str(here.parent))

    import_module(f"jobrecord.{sys.argv.pop(1)}").main()
