"""Where the user's program is: the line that a message without a line of its own points to."""

from __future__ import annotations

import functools
import os
import sys
import warnings
from collections.abc import Iterable
from types import FrameType

import torch

from intarsia_ir.records import Origin
from intarsia_ir.tested import TORCHES, newer_than_tested

__all__ = ["lines_with_ops", "user_frame", "warn_of_untested", "warn_user"]

_OURS = ("intarsia", "torch", "importlib")


def user_frame() -> FrameType:
    """Return the innermost running frame that is neither Intarsia's nor torch's; the outermost when all are."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame):
        frame = frame.f_back
    return frame


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn, and point to the line of the user's program that led here."""
    frame = user_frame()
    warnings.warn_explicit(message, category, frame.f_code.co_filename, frame.f_lineno)


def lines_with_ops(origins: Iterable[Origin]) -> str:
    """Return user lines with the operations on each.

    Example:
        >>> lines_with_ops([Origin("/a/model.py", 12, "f", op) for op in ("mul", "softmax")])
        'model.py:12 (mul, softmax)'
    """
    lines: dict[str, dict[str, None]] = {}
    for origin in origins:
        lines.setdefault(f"{os.path.basename(origin.file)}:{origin.line}", {})[origin.op] = None
    named = {line: ", ".join(op for op in ops if op) for line, ops in lines.items()}
    return ", ".join(f"{line} ({ops})" if ops else line for line, ops in named.items())


@functools.cache
def warn_of_untested() -> None:
    """Warn of a torch that nothing was tested with: once, at the line that compiles first."""
    version = torch.__version__
    if not newer_than_tested(version):
        return
    warn_user(
        f"torch {version} is newer than torch {TORCHES[-1]}, the newest that this intarsia was tested with; "
        "where torch's internals have changed, compiling may fail or differ: compare with eager, "
        "or install a tested torch",
        RuntimeWarning,
    )


def _is_ours(frame: FrameType) -> bool:
    if frame.f_code.co_filename.startswith("<intarsia "):  # generated
        return True
    return str(frame.f_globals.get("__name__", "")).partition(".")[0].startswith(_OURS)
