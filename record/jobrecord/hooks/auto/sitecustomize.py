"""Run by Python at its start, since this folder is on PYTHONPATH: the user's own module of this name, then ours."""

import sys
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

_HERE = Path(__file__).parent
_own = PathFinder.find_spec("sitecustomize", [path for path in sys.path if Path(path) != _HERE])
if _own is not None and _own.loader is not None:
    _module = module_from_spec(_own)
    sys.modules["sitecustomize"] = _module
    _own.loader.exec_module(_module)

# The Python of the training may be one without the recorder, or one that the recorder cannot run with.
_made = False
try:
    if find_spec("jobrecord") is None:
        _spec = spec_from_file_location("jobrecord", _HERE.parents[1] / "__init__.py")
        if _spec is not None and _spec.loader is not None:
            _recorder = sys.modules["jobrecord"] = module_from_spec(_spec)
            _made = True
            _spec.loader.exec_module(_recorder)

    from jobrecord.hooks.auto_steps import begin

    begin()
except Exception:  # noqa: BLE001 - the script runs as it would without
    if _made:
        for _name in [name for name in sys.modules if name.partition(".")[0] == "jobrecord"]:
            del sys.modules[_name]
