"""How much a cache directory may take: beyond that, what wasn't used for the longest time goes first."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from time import time

__all__ = ["USED_SECONDS", "note_use", "trim"]

USED_SECONDS = 60.0  # how finely times of use are kept
_KEPT_FOLDER = re.compile(r"[0-9a-f]{2}|failed")


def note_use(path: Path) -> None:
    """Have the time of a file say that it was used now, unless it says so already or the disk can't be written."""
    with contextlib.suppress(OSError):
        if time() - os.lstat(path).st_mtime > USED_SECONDS:
            os.utime(path, follow_symlinks=False)


def trim(root: Path, limit_bytes: int) -> int:
    """Where entries and failed sources take more than `limit_bytes`: remove until they take 7/8 of that.

    Args:
        root: The private directory of a cache.
        limit_bytes: Room on disk, in bytes.

    Returns:
        What is left, in bytes. Something that can't be removed stays, and counts.
    """
    files = sorted(_files(root))
    total = sum(n_bytes for _, n_bytes, _ in files)
    if total <= limit_bytes:
        return total
    for _, n_bytes, path in files:
        if total <= limit_bytes - limit_bytes // 8:
            break
        with contextlib.suppress(OSError):  # another process was faster, or it can't be removed
            os.unlink(path)
            total -= n_bytes
    return total


def _files(root: Path) -> Iterator[tuple[float, int, str]]:
    """Yield when a file was used last, its bytes and its path."""
    for folder in _scanned(root):
        if not _KEPT_FOLDER.fullmatch(folder.name):
            continue
        for file in _scanned(Path(folder.path)):
            with contextlib.suppress(OSError):
                status = file.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    yield status.st_mtime, status.st_size, file.path


def _scanned(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:  # it isn't there, or isn't a folder
        return []
