"""What can happen to a file of the cache, each kind a function of its path."""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

__all__ = ["KINDS", "Kind", "kinds"]

Kind = Callable[[Path, Path, random.Random], None]
"""`(path of an entry, path of another entry, numbers)`: damage the first."""


def truncated(path: Path, other: Path, numbers: random.Random) -> None:
    os.truncate(path, numbers.randrange(1, path.stat().st_size))


def flipped(path: Path, other: Path, numbers: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[numbers.randrange(len(content))] ^= 1 << numbers.randrange(8)
    path.write_bytes(content)


def empty(path: Path, other: Path, numbers: random.Random) -> None:
    path.write_bytes(b"")


def swapped(path: Path, other: Path, numbers: random.Random) -> None:
    mine, theirs = path.read_bytes(), other.read_bytes()
    path.write_bytes(theirs)
    other.write_bytes(mine)


def other_version(path: Path, other: Path, numbers: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(re.sub(rb" v\d+ ", b" v%d " % numbers.randrange(3, 99), content, count=1))


def linked(path: Path, other: Path, numbers: random.Random) -> None:
    shutil.move(path, path.with_name("moved"))
    path.symlink_to(path.with_name("moved"))


def linked_to_nothing(path: Path, other: Path, numbers: random.Random) -> None:
    path.unlink()
    path.symlink_to(path)


def directory(path: Path, other: Path, numbers: random.Random) -> None:
    path.unlink()
    path.mkdir()
    (path / "file").write_text("x")


def pipe(path: Path, other: Path, numbers: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def unreadable(path: Path, other: Path, numbers: random.Random) -> None:
    path.chmod(0)


def absent(path: Path, other: Path, numbers: random.Random) -> None:
    path.unlink()


def noise(path: Path, other: Path, numbers: random.Random) -> None:
    path.write_bytes(numbers.randbytes(path.stat().st_size))


def grown(path: Path, other: Path, numbers: random.Random) -> None:
    with path.open("ab") as file:
        file.write(numbers.randbytes(numbers.randrange(1, 99)))


KINDS: tuple[Kind, ...] = (
    truncated,
    flipped,
    empty,
    swapped,
    other_version,
    linked,
    linked_to_nothing,
    directory,
    pipe,
    unreadable,
    absent,
    noise,
    grown,
)


def kinds() -> tuple[Kind, ...]:
    """Return the kinds that are damage for this user: root reads what nobody may read."""
    return tuple(kind for kind in KINDS if kind is not unreadable or os.getuid() != 0)
