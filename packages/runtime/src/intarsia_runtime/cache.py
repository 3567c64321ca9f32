"""A private on-disk map from keys to bytes that survives deletion, corruption and races.

Layout below `directory/v2` (mode 0700, owned by this user):

    ab/<key>        an entry: one header line, then the payload; `ab` are the first two digits of the key
    secret          what entries are signed with
    locks/ab        what processes hold while they make an entry that starts with these digits
    tmp/            files being written, and private copies being loaded; leftovers go after an hour
    failed/         sources that the compiler refused, for people to read

Invariants:
    - An entry is written aside and renamed into place, so a reader sees all of it or nothing.
    - The header names the key and a keyed hash of key and payload. What doesn't match counts as absent, whatever is
      there: short, flipped, swapped or forged files, links, directories, pipes, files that others can write.
    - It is bounded: beyond a limit, what wasn't used for the longest time is removed.
    - Nothing is unpickled or executed here. Locks only save work: without them results are the same.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, time

import filelock

from intarsia_ir.errors import InvalidArgumentError, UnsupportedError
from intarsia_ir.where import warn_user
from intarsia_runtime.bounds import note_use, trim
from intarsia_runtime.trust import (
    SCHEMA,
    clear_folder,
    make_private_folder,
    payload_of,
    read_entry,
    read_secret,
    secret_of,
    signed,
)
from intarsia_runtime.waiting import waits

__all__ = ["Cache", "cache_folder_of_user", "check_room"]

LIMIT_BYTES = 1 << 30
LEFTOVER_SECONDS = 3600.0
ROOM = 1 << 18  # bytes; a unit takes less
TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")  # the last one is memory
_KEY = re.compile(r"[0-9a-f]{64}")
_log = logging.getLogger("intarsia.runtime.cache")


class Cache:
    """Content-addressed entries below one directory, shared by any number of threads and processes.

    Args:
        directory: Where entries live; made when missing. When it can't be used, from the beginning or later, one
            warning says why, and a temporary directory serves for the rest of the life of this object.
        limit_bytes: Room that entries may take. Each process that writes looks once it wrote a sixteenth of it, so that
            many that write at once may go beyond it by as much for a while.

    Attributes:
        directory: The private directory in use.
        temporary: Whether that is a temporary one.

    Raises:
        UnsupportedError: Neither `directory` nor a temporary directory can be written.

    Example:
        >>> import tempfile
        >>> cache = Cache(tempfile.mkdtemp())
        >>> cache.get_or_make(Cache.key("some text"), lambda: b"made")
        b'made'
        >>> cache.get(Cache.key("some text"))
        b'made'
    """

    def __init__(self, directory: str | os.PathLike[str], *, limit_bytes: int = LIMIT_BYTES) -> None:
        self.temporary, self._has_warned = False, False
        self._limit_bytes, self._unseen_bytes = limit_bytes, limit_bytes  # the first entry is reason to look
        self.directory = Path(directory) / SCHEMA
        try:
            self.directory = Path(os.path.abspath(os.path.expanduser(directory))) / SCHEMA
            _make_private(self.directory)
            _sweep(self.directory / "tmp")
        except OSError as error:
            self._move(error)

    def recover(self, error: OSError) -> None:
        """After work in `scratch` failed by `error`: see to it that there is a directory with room for it.

        One that was deleted is made again. Where that doesn't help, a temporary directory serves from now on.

        Raises:
            UnsupportedError: `runtime.no_directory`: no directory can be written.
        """
        try:
            _make_private(self.directory)
        except OSError:
            self._move(error)

    def _move(self, error: OSError) -> None:
        try:
            root = _temporary_root()
        except OSError as second:
            raise UnsupportedError(
                f"neither the cache directory {self.directory} nor a temporary directory can be written: "
                f"{error}; {second}",
                code="runtime.no_directory",
                hints=("set TMPDIR to a directory that this user can write",),
            ) from second
        self._warn_once(error)
        self.directory, self.temporary = root, True
        weakref.finalize(self, _remove_own, root.parent, os.getpid())

    def _warn_once(self, error: OSError) -> None:
        if not self._has_warned:
            self._has_warned = True
            warn_user(
                f"the cache directory {self.directory} can't be used ({error}); compiled kernels won't outlive this "
                "process",
                RuntimeWarning,
            )

    @staticmethod
    def key(*parts: str) -> str:
        """Return the key for everything an entry depends on; lengths keep `("ab", "c")` and `("a", "bc")` apart."""
        digest = hashlib.sha256()
        for part in parts:
            encoded = part.encode()
            digest.update(b"%d:" % len(encoded) + encoded)
        return digest.hexdigest()

    def get(self, key: str) -> bytes | None:
        """Return the payload stored under `key`, or None when there is no intact entry.

        Raises:
            InvalidArgumentError: `key` isn't one that `Cache.key` returns.
        """
        path = self._path(key)
        content, secret = self._read(path)
        if (content is None or secret is None) and os.path.lexists(path):
            content, secret = self._read(path)  # another process may have written it meanwhile
        if content is None or secret is None:
            if os.path.lexists(path):
                _log.warning("cache entry %s is refused and will be made again", key[:16])
            return None
        payload = payload_of(secret, key, content)
        if payload is None:
            _log.warning("cache entry %s is damaged and will be made again", key[:16])
            return None
        note_use(path)
        return payload

    def _read(self, path: Path) -> tuple[bytes | None, bytes | None]:
        """Return an entry, where it is one to trust, and the secret that signs it."""
        return read_entry(self.directory, path.parent.name, path.name), read_secret(self.directory)

    def put(self, key: str, payload: bytes) -> bool:
        """Store `payload` under `key`, replacing whatever is there. Return False when the disk refuses (told once)."""
        path = self._path(key)
        try:
            self._folder(path.parent.name)
            with self.scratch() as folder:
                descriptor, aside = tempfile.mkstemp(dir=folder)  # of mode 600, whatever the umask
                with os.fdopen(descriptor, "wb") as file:
                    file.write(signed(secret_of(self.directory, folder), key, payload))
                clear_folder(path)
                os.replace(aside, path)
        except OSError as error:
            self._warn_once(error)
            return False
        self._keep_bounds(len(payload))
        return True

    def _keep_bounds(self, n_bytes: int) -> None:
        self._unseen_bytes += n_bytes
        if self._unseen_bytes > self._limit_bytes // 16:
            self._unseen_bytes = 0
            trim(self.directory, self._limit_bytes)

    def get_or_make(self, key: str, make: Callable[[], bytes], *, patience_s: float = 300.0) -> bytes:
        """Return the entry under `key`; when absent, call `make` and store what it returns.

        Args:
            key: As returned by `Cache.key`.
            make: Slow; runs while no other process that waits for its lock makes an entry of the same lock.
            patience_s: Seconds to wait for another maker before making the entry here as well.
        """
        payload = self.get(key)
        if payload is not None:
            return payload
        with self.lock(key, patience_s=patience_s):
            payload = self.get(key)
            if payload is None:
                payload = make()
                self.put(key, payload)
        return payload

    @contextlib.contextmanager
    def lock(self, key: str, *, patience_s: float = 300.0) -> Iterator[bool]:
        """Hold the lock of `key`; yields False when it couldn't be had in time, or not at all."""
        path = self.directory / "locks" / self._path(key).parent.name
        file_lock = filelock.FileLock(path, mode=0o600)
        try:
            self._folder("locks")
            _acquire(file_lock, monotonic() + patience_s)
        except (OSError, NotImplementedError) as error:  # Timeout is an OSError
            _log.warning("working without the cache lock: %s", error)
        try:
            yield file_lock.is_locked
        finally:
            file_lock.release()

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """Give a private folder that is removed afterwards.

        Raises:
            OSError: The disk is full or has become read-only; `recover` may help.
        """
        folder = tempfile.mkdtemp(dir=self._folder("tmp"))
        try:
            yield Path(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def keep_failed(self, key: str, text: str) -> Path | None:
        """Keep a source text that can't be compiled. Return its path, or None when the disk refuses."""
        try:
            path = self._folder("failed") / f"{key[:16]}.cpp"
            path.write_text(text)
        except OSError as error:
            _log.warning("the failing source can't be kept: %s", error)
            return None
        return path

    def _folder(self, name: str) -> Path:
        """Return a private folder below the directory; both are made again when someone deleted them."""
        self.directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        make_private_folder(self.directory)
        make_private_folder(self.directory / name)
        return self.directory / name

    def _path(self, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise InvalidArgumentError(f"{key!r} is not a cache key", code="runtime.cache_key")
        return self.directory / key[:2] / key

    def __repr__(self) -> str:
        return f"Cache({str(self.directory.parent)!r})"


def _acquire(lock: filelock.BaseFileLock, deadline: float) -> None:
    """Wait for a lock, and for interrupts meanwhile.

    Raises:
        OSError: It can't be had, or not in time.
    """
    for wait_s in waits(deadline):
        with contextlib.suppress(filelock.Timeout):
            lock.acquire(timeout=wait_s)
            return
    raise filelock.Timeout(lock.lock_file)


def cache_folder_of_user() -> Path:
    """Return where an application keeps what it can make again, by the rules of the system; nothing is made."""
    home = os.path.expanduser("~")
    if not os.path.isabs(home):  # of a user without one
        home = os.path.join(tempfile.gettempdir(), f"intarsia-{os.getuid()}")
    named = os.environ.get("XDG_CACHE_HOME", "")
    return Path(named if os.path.isabs(named) else os.path.join(home, ".cache"))


def _make_private(root: Path) -> None:
    """Make `root` a directory that only this user can enter, and check that there is room for files in it."""
    root.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    make_private_folder(root)
    make_private_folder(root / "tmp")
    check_room(root / "tmp")


def check_room(folder: Path) -> None:
    """Check that a file of the size of a small unit can be written.

    Raises:
        OSError: It can't, and why.
    """
    descriptor, probe = tempfile.mkstemp(dir=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(bytes(ROOM))
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(probe)


def _temporary_root() -> Path:
    """Return a new private directory where there is room: in the user's place for such, the system's, or in memory.

    Raises:
        OSError: There is none.
    """
    problems = []
    for place in (None, *TEMPORARY):
        try:
            folder = tempfile.mkdtemp(prefix="intarsia-", dir=place)
        except OSError as error:
            problems.append(error)
            continue
        root = Path(folder) / SCHEMA
        try:
            _make_private(root)
        except OSError as error:
            problems.append(error)
            shutil.rmtree(folder, ignore_errors=True)
            continue
        return root
    raise problems[0]


def _remove_own(folder: Path, process: int) -> None:
    if os.getpid() == process:  # a forked process ends, and its parent goes on
        shutil.rmtree(folder, ignore_errors=True)


def _sweep(folder: Path) -> None:
    """Remove what killed processes left behind."""
    oldest = time() - LEFTOVER_SECONDS
    for entry in os.scandir(folder):
        with contextlib.suppress(OSError):
            if entry.stat(follow_symlinks=False).st_mtime < oldest:
                clear_folder(Path(entry.path))
                if os.path.lexists(entry.path):
                    os.unlink(entry.path)
