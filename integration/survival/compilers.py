"""C++ compilers made of shell scripts: one that remembers what it compiled, and notes each unit."""

from __future__ import annotations

import shutil
from pathlib import Path

__all__ = ["Remembering", "script"]

# what is compiled, or linked, is known by its text and by how; a line of the log is a translation unit
REMEMBERING = """\
for word in "$@"; do
  case $word in part*.cpp) sum=$(sha256sum < $word | cut -c1-64); echo $sum >> {folder}/log;; esac
  last=$out; out=$word
  [ "$last" = -o ] && target=$word
done
key=$( (echo "$@"; cat part*.cpp part*.o 2>/dev/null) | sha256sum | cut -c1-64)
[ -e {folder}/$key ] ||
  {{ {real} "$@" -o made.$$ && mv made.$$ {folder}/$key.$$ && mv {folder}/$key.$$ {folder}/$key; }} || exit 1
exec cp {folder}/$key "$target"
"""


def script(path: Path, body: str) -> str:
    """Write a shell script that serves as a compiler, and return its path."""
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


class Remembering:
    """A compiler that compiles each text once, and copies what came of it from then on.

    Args:
        folder: Where it lives and keeps what it made.
    """

    def __init__(self, folder: Path) -> None:
        self._log = folder / "log"
        self._log.touch()
        self.path = script(folder / "remembering", REMEMBERING.format(folder=folder, real=shutil.which("g++")))

    def units(self) -> list[str]:
        """Return the hash of each translation unit that was asked for, in order."""
        return self._log.read_text().split()
