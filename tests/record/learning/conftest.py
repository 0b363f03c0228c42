from __future__ import annotations

from tests.record.hooks.conftest import out

__all__ = ["out"]
