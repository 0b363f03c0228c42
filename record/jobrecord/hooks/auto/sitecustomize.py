"""Run by Python at its start, since this folder is on PYTHONPATH: the user's own module of this name, then ours."""

import sys
from contextlib import suppress
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

_HERE = Path(__file__).parent
_own = PathFinder.find_spec("sitecustomize", [path for path in sys.path if Path(path) != _HERE])
if _own is not None and _own.loader is not None:
    _module = module_from_spec(_own)
    sys.modules["sitecustomize"] = _module
    _own.loader.exec_module(_module)

# The Python of the training may be another one, without the recorder.
with suppress(Exception):
    from jobrecord.hooks.auto_steps import begin

    begin()
