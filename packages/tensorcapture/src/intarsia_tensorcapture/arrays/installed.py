"""numpy, where the user has it: everything works without."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["np"]


def _numpy() -> Any:
    """Return the module, or None: there is none, or one with other rules for the types of results (before 2.0)."""
    try:
        found = importlib.import_module("numpy")
    except ImportError:
        return None
    return found if int(found.__version__.partition(".")[0]) >= 2 else None


np: Any = _numpy()
