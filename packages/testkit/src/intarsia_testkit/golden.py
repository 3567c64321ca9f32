"""Golden files: compare a whole output with a file next to the test, and rewrite it on request."""

from __future__ import annotations

import os
from pathlib import Path

from intarsia_testkit._update import compare_or_update

__all__ = ["check_golden"]


def check_golden(text: str, path: str | os.PathLike[str]) -> None:
    """Compare `text` with the file at `path`; `UPDATE_GOLDEN=1` rewrites the file instead.

    Args:
        text: The whole output. A missing newline at its end is added.
        path: The golden file, usually `Path(__file__).parent / "golden" / "name.ir"`.

    Raises:
        AssertionError: They differ; the message shows the diff and names the command that accepts it.
    """
    whole = text if text.endswith("\n") else text + "\n"
    compare_or_update(whole, Path(path), variable="UPDATE_GOLDEN", what="the output")
