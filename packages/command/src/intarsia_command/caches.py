"""`intarsia cache`: what is kept of compiled kernels, whether it is intact, and how to get rid of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

import intarsia
from intarsia_command.exits import Exit
from intarsia_ir.errors import InvalidArgumentError
from intarsia_runtime.bounds import trim as remove_oldest
from intarsia_runtime.entries import Entry, entries, is_intact
from intarsia_runtime.entries import clear as remove_all
from intarsia_runtime.trust import SCHEMA

__all__ = ["clear", "ls", "stat", "trim", "verify"]

Folder = Annotated[
    Path | None,
    typer.Option("--dir", help="The folder; else $INTARSIA_CACHE_DIR or the user's own.", show_default=False),
]
MIB = 1 << 20


def ls(directory: Folder = None) -> Exit:
    """List the entries: key, size, when they were used last."""
    table = Table("key", "bytes", "used")
    for entry in entries(_folder(directory)):
        table.add_row(entry.key, str(entry.n_bytes), time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.used_at)))
    _console().print(table if table.row_count else f"{_folder(directory)} has no entries")
    return Exit.FINE


def stat(directory: Folder = None) -> Exit:
    """Tell where the cache is, how many entries it has and how much room they take."""
    found = list(entries(_folder(directory)))
    _console().print(f"{_folder(directory)}: {len(found)} entries, {sum(e.n_bytes for e in found) / MIB:.1f} MiB")
    return Exit.FINE


def clear(
    directory: Folder = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
) -> Exit:
    """Remove all entries. Kernels are compiled again when they are needed."""
    folder = _folder(directory)
    if not yes and not typer.confirm(f"Remove all entries of {folder}?"):
        return Exit.FINE
    try:
        _console().print(f"{remove_all(folder)} entries removed from {folder}")
    except OSError as error:
        raise InvalidArgumentError(f"{folder} can't be cleared: {error}", code="command.file") from error
    return Exit.FINE


def trim(
    mebibytes: Annotated[float, typer.Argument(min=0.0, help="Room that may be taken, in MiB.", show_default=False)],
    directory: Folder = None,
) -> Exit:
    """Remove what wasn't used for the longest time, until the rest takes no more than 7/8 of so much."""
    left = remove_oldest(_folder(directory) / SCHEMA, int(mebibytes * MIB))
    _console().print(f"{_folder(directory)}: {left / MIB:.1f} MiB are left")
    return Exit.FINE


def verify(
    directory: Folder = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove what is damaged.")] = False,
) -> Exit:
    """Check that each entry has the content that its header names."""
    found = list(entries(_folder(directory)))
    damaged = [entry for entry in found if not is_intact(entry)]
    for entry in damaged:
        done = _removed(entry) if remove else "it will be made again when it is needed"
        print(f"damaged: {entry.path}: {done}")
    print(f"{len(found) - len(damaged)} of {len(found)} entries are intact")
    return Exit.FOUND if damaged and not remove else Exit.FINE


def _removed(entry: Entry) -> str:
    steps: tuple[Callable[[], None], ...] = (entry.path.unlink, entry.path.rmdir)
    for step in steps:
        try:
            step()
        except OSError as error:
            why = str(error)
        else:
            return "removed"
    return f"it can't be removed: {why}"


def _folder(directory: Path | None) -> Path:
    return directory or intarsia.default_cache_dir()


def _console() -> Console:
    return Console(soft_wrap=True)
