"""The one way in which tests rewrite expected files: an environment variable, named in the failure message."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

__all__ = ["compare_or_update"]


def compare_or_update(text: str, path: Path, *, variable: str, what: str) -> None:
    """Compare `text` with the file, or write it when the environment variable `variable` is set to 1.

    Args:
        text: What the program gives now.
        path: The file that holds what is expected.
        variable: Name of the environment variable that asks for an update.
        what: What the file holds, in a few words, for the message.

    Raises:
        AssertionError: They differ; the message is a diff and the command that accepts it.
    """
    if os.environ.get(variable) == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return
    expected = path.read_text(encoding="utf-8") if path.exists() else ""
    if text == expected:
        return
    state = "differs from" if path.exists() else "has no file yet at"
    changes = difflib.unified_diff(expected.splitlines(), text.splitlines(), "expected", "now", lineterm="", n=2)
    diff = "\n".join(changes)
    raise AssertionError(f"{what} {state} {path.name}:\n{diff}\naccept it with: {update_command(variable)}")


def update_command(variable: str) -> str:
    """Return the shell command that reruns the current test with the update switch on."""
    current = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
    return f"{variable}=1 python -m pytest {current!r}" if current else f"{variable}=1 python -m pytest"
