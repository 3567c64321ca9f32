"""What is taken from a cache directory: files that only this user can have written, signed by a secret beside them.

A process with this user's id is trusted: it could change the program itself. Everybody else isn't: a directory or file
that is another user's, or that others can write, is refused, whatever it holds. What is taken was read through
descriptors that were looked at after they were opened, so nothing can be exchanged in between. The threat model is
written down in docs/threat-model.md.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = [
    "SCHEMA",
    "clear_folder",
    "make_private_folder",
    "payload_of",
    "read_entry",
    "read_secret",
    "refusal",
    "secret_of",
    "signed",
]

SCHEMA = "v2"
MAGIC = "intarsia-cache"
SECRET = "secret"
_SECRET_BYTES = 32
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC


def refusal(status: os.stat_result, *, closed_to: int = 0o022) -> str:
    """Say why what has this status is refused; "" when it isn't.

    Args:
        status: Of an open file, or of a name.
        closed_to: The permissions that nobody else may have.
    """
    if status.st_uid != os.getuid():
        return f"belongs to user {status.st_uid}, not to {os.getuid()}"
    if status.st_mode & closed_to:
        what = "written" if status.st_mode & closed_to & 0o022 else "read"
        return f"can be {what} by other users (mode {stat.S_IMODE(status.st_mode):o})"
    return ""


def read_entry(root: Path, shard: str, name: str) -> bytes | None:
    """Return the content of a file of this user's in one of its folders; None for anything else.

    Never follows a link or waits. Other users can write neither the directory, nor the folder, nor the file.
    """
    try:
        with _opened(root, _FOLDER) as top, _opened(shard, _FOLDER, top) as folder:
            return _read(name, folder, closed_to=0o022)
    except OSError:  # absent, of another kind, or refused
        return None


def read_secret(root: Path) -> bytes | None:
    """Return the secret of a directory; None when there is none that others can't read or write."""
    try:
        with _opened(root, _FOLDER) as top:
            secret = _read(SECRET, top, closed_to=0o077)
    except OSError:
        return None
    return secret if secret is not None and len(secret) == _SECRET_BYTES else None


def secret_of(root: Path, aside: Path) -> bytes:
    """Return the secret of a directory, made when there is none that can be used; what it signed before is lost then.

    Args:
        root: The directory.
        aside: A private folder in it.

    Raises:
        OSError: It can't be written.
    """
    secret = read_secret(root)
    if secret is not None:
        return secret
    descriptor, path = tempfile.mkstemp(dir=aside)  # of mode 600
    drawn = secrets.token_bytes(_SECRET_BYTES)
    with os.fdopen(descriptor, "wb") as file:
        file.write(drawn)
    try:
        os.link(path, root / SECRET)  # of several processes that make one, the first one's stays
        return drawn
    except OSError:  # one is there, or the file system has no links
        secret = read_secret(root)
        if secret is not None:
            return secret
        clear_folder(root / SECRET)
        os.replace(path, root / SECRET)
        return drawn
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def signed(secret: bytes, key: str, payload: bytes) -> bytes:
    """Return the content of an entry: a line with the key and the keyed hash of both, then the payload."""
    tag = hmac.digest(secret, f"{SCHEMA} {key} ".encode() + payload, "sha256").hex()
    return f"{MAGIC} {SCHEMA} {key} {tag}\n".encode() + payload


def payload_of(secret: bytes, key: str, content: bytes) -> bytes | None:
    """Return the payload in the content of an entry; None unless it was signed with this secret for this key."""
    payload = content.partition(b"\n")[2]
    return payload if hmac.compare_digest(signed(secret, key, payload), content) else None


def make_private_folder(path: Path) -> None:
    """Make `path` a private directory. A file or link of ours with that name is removed.

    Raises:
        PermissionError: It is another user's, or others can write it.
        OSError: It can't be made.
    """
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        with contextlib.suppress(FileExistsError):  # another process was faster
            os.mkdir(path, 0o700)
        status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode):
        os.unlink(path)
        os.mkdir(path, 0o700)
        status = os.lstat(path)
    if why := refusal(status):
        raise PermissionError(f"{path} {why}; remove it, or set another directory")
    if status.st_mode & 0o077:
        os.chmod(path, 0o700)


def clear_folder(path: Path) -> None:
    """Remove a directory that stands where a file belongs (renaming replaces everything else)."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def _opened(name: str | Path, flags: int, folder: int | None = None) -> Iterator[int]:
    """Open what others can't write.

    Raises:
        OSError: It isn't there, or is refused.
    """
    descriptor = os.open(name, flags, dir_fd=folder)
    try:
        if why := refusal(os.fstat(descriptor)):
            raise PermissionError(f"{name} {why}")
        yield descriptor
    finally:
        os.close(descriptor)


def _read(name: str, folder: int, *, closed_to: int) -> bytes | None:
    descriptor = os.open(name, _FILE, dir_fd=folder)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or refusal(status, closed_to=closed_to):
            return None
        return file.read()
