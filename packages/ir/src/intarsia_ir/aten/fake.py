"""Running operations on fake tensors without torch printing about those that raise."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

__all__ = ["quiet_fake_mode"]


@contextlib.contextmanager
def quiet_fake_mode() -> Iterator[None]:
    """Keep torch from printing a traceback for an op that raises: the error itself reaches the caller."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")

    def is_wanted(entry: logging.LogRecord) -> bool:
        return not str(entry.msg).startswith("failed while attempting to run meta")

    logger.addFilter(is_wanted)
    try:
        yield
    finally:
        logger.removeFilter(is_wanted)
