from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest

import jobrecord.traces
from jobrecord.hooks.places import LIBRARY, OWN, PYTHON, place

_HERE = Path.cwd()


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (str(_HERE / "src" / "train.py"), (OWN, "src/train.py")),
        ("/opt/ml/code/train.py", (OWN, "/opt/ml/code/train.py")),
        # A folder beside the working directory, whose name begins like it.
        (f"{_HERE}-old/train.py", (OWN, f"{_HERE}-old/train.py")),
        ("train.py", (OWN, "train.py")),
        ("<stdin>", (OWN, "<stdin>")),
        ("<string>", (OWN, "<string>")),
        (str(_HERE / "app.pyz" / "train.py"), (OWN, "app.pyz/train.py")),
        ("/tmp/ipykernel_12/3.py", (OWN, "/tmp/ipykernel_12/3.py")),
        ("<ipython-input-3-0a1b>", (OWN, "<ipython-input-3-0a1b>")),
        # A virtual environment below the working directory.
        (
            str(_HERE / ".venv/lib/python3.11/site-packages/torch/nn/functional.py"),
            (LIBRARY, "torch/nn/functional.py"),
        ),
        ("/usr/lib/python3/dist-packages/PIL/Image.py", (LIBRARY, "PIL/Image.py")),
        ("/tmp/torchinductor_me/ab/cab.py", (LIBRARY, "torchinductor/ab/cab.py")),
        ("<eval_with_key>.3", (LIBRARY, "<eval_with_key>.3")),
        (np.__file__, (LIBRARY, "numpy/__init__.py")),
        (jobrecord.traces.__file__, (LIBRARY, "jobrecord/traces.py")),
        (threading.__file__, (PYTHON, "threading.py")),
        (os.path.__file__, (PYTHON, "posixpath.py")),
        ("<frozen importlib._bootstrap>", (PYTHON, "<frozen importlib._bootstrap>")),
        ("", (OWN, "")),
    ],
)
def test_own_code_is_what_is_neither_installed_nor_of_python(file: str, expected: tuple[str, str]) -> None:
    assert place(file) == expected
