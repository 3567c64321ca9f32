"""The entries of a cache directory, for those who look after it: list, check, remove. Nothing is made, or loaded."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from intarsia_runtime.trust import SCHEMA, payload_of, read_entry, read_secret, refusal

__all__ = ["Entry", "clear", "entries", "is_intact", "problems_of"]

_SHARD = re.compile(r"[0-9a-f]{2}")
_KEY = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry.

    Args:
        key: As `Cache.key` made it.
        path: Where it is.
        n_bytes: Size on disk.
        used_at: When it was written or read last, to a minute, in seconds since the epoch.
    """

    key: str
    path: Path
    n_bytes: int
    used_at: float


def entries(directory: str | os.PathLike[str]) -> Iterator[Entry]:
    """Yield what lies where entries of a cache belong, by key; none where there is no directory.

    Args:
        directory: What `Cache` was given.
    """
    root = Path(directory) / SCHEMA
    for shard in sorted(_names(root)):
        if not _SHARD.fullmatch(shard):
            continue
        for key in sorted(_names(root / shard)):
            path = root / shard / key
            with contextlib.suppress(OSError):  # another process may remove it meanwhile
                status = os.lstat(path)
                if _KEY.fullmatch(key) and key.startswith(shard):
                    yield Entry(key, path, status.st_size, status.st_mtime)


def is_intact(entry: Entry) -> bool:
    """Tell whether an entry would be used: a file that only this user can write, signed for its key."""
    root = entry.path.parent.parent
    content, secret = read_entry(root, entry.path.parent.name, entry.key), read_secret(root)
    return content is not None and secret is not None and payload_of(secret, entry.key, content) is not None


def clear(directory: str | os.PathLike[str]) -> int:
    """Remove all that a cache keeps in a directory; return how many entries that were.

    Raises:
        OSError: Something can't be removed.
    """
    n_entries = sum(1 for _ in entries(directory))
    root = Path(directory) / SCHEMA
    if os.path.lexists(root):
        shutil.rmtree(root) if not root.is_symlink() else root.unlink()
    return n_entries


def problems_of(directory: str | os.PathLike[str]) -> tuple[str, ...]:
    """Say why a directory can't be a cache, or why others could write to it; nothing when all is well.

    One that isn't there yet is no problem where it can be made.
    """
    root = Path(os.path.abspath(os.path.expanduser(directory)))
    there = next(path for path in (root / SCHEMA, root, *root.parents) if os.path.lexists(path))
    status = os.lstat(there)
    problems = []
    if not stat.S_ISDIR(os.stat(there).st_mode if there.exists() else status.st_mode):
        problems.append(f"{there} is no directory")
    elif not os.access(there, os.W_OK | os.X_OK):
        problems.append(f"{there} can't be written by this user")
    if there.name == SCHEMA and (why := refusal(status, closed_to=0o077)):
        problems.append(f"{there} {why}")
    return tuple(problems)


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:  # it isn't there, or isn't a folder
        return []
