"""Loading the compiled extension, with advice when it isn't there."""

from __future__ import annotations

import importlib
from types import ModuleType

__all__ = ["extension"]


def extension() -> ModuleType:
    """Return the compiled extension.

    Raises:
        ImportError: It hasn't been built; the message names the command.
    """
    try:
        return importlib.import_module("intarsia_framehook._hook")
    except ModuleNotFoundError as error:
        raise ImportError(
            "intarsia_framehook's C extension isn't built for this interpreter; "
            "run `python -m intarsia_framehook.build` once (it needs a C compiler)"
        ) from error
