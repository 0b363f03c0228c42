"""Where tests find what is not made by them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: Those with samples as SageMaker stores them, and all, logs of nvidia-smi and PyTorch traces among them.
SYSTEM_SAMPLES = sorted(path.parent for path in (ROOT / "sample_data").glob("*/system"))
_OTHERS = [
    path for name in ("nvidia-smi*", "*.pt.trace.json*") for path in (ROOT / "sample_data").glob(f"*/{name}")
]
SAMPLES = sorted({*SYSTEM_SAMPLES, *(path.parent for path in _OTHERS)})

#: Files of real jobs; they are not part of the repository.
CORPUS = Path(os.environ.get("JOBREPORT_CORPUS", ROOT.parent / "shared" / "corpus"))
needs_corpus = pytest.mark.skipif(
    not CORPUS.is_dir(), reason=f"no real job data at {CORPUS} (set JOBREPORT_CORPUS to a copy)"
)
