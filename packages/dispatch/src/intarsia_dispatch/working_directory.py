"""A working directory for the compiler where the user's was deleted: torch asks for it when it imports its parts."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

__all__ = ["some_working_directory"]

_READ_ONLY = "/proc/self"  # what another thread writes meanwhile, by a relative path, fails as it did


@contextlib.contextmanager
def some_working_directory() -> Iterator[None]:
    """Have the process work somewhere, where its directory is gone; it is back there afterwards.

    Example:
        >>> here = os.getcwd()
        >>> with some_working_directory():
        ...     os.getcwd() == here
        True
    """
    try:
        os.getcwd()
    except FileNotFoundError:
        deleted = os.open(".", os.O_PATH)
    else:
        yield
        return
    try:
        os.chdir(_READ_ONLY)
        yield
    finally:
        os.fchdir(deleted)
        os.close(deleted)
