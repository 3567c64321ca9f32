"""Libraries that a page carries: what they are, their scripts, and the licences under which they are passed on."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from dataclasses import dataclass
from importlib import resources

__all__ = ["Library", "digest_of", "libraries", "own_scripts"]


@dataclass(frozen=True, slots=True)
class Library:
    """A library that is shipped in a page.

    Args:
        name: As its package is called.
        version: Of it.
        licence: SPDX expression.
        use: What the page does with it.
        script: Its text, as its authors made it.
        licence_text: The whole licence, which goes with each copy.
    """

    name: str
    version: str
    licence: str
    use: str
    script: str
    licence_text: str


@functools.cache
def libraries() -> tuple[Library, ...]:
    """Return the libraries of a page, in the order in which it runs them; `vendored/libraries.json` lists them."""
    rows = json.loads(_text("vendored", "libraries.json"))
    return tuple(
        Library(
            row["name"],
            row["version"],
            row["licence"],
            row["use"],
            _without_map(_text("vendored", row["folder"], row["file"])),
            _text("vendored", row["folder"], "LICENSE"),
        )
        for row in rows
    )


@functools.cache
def own_scripts() -> tuple[str, ...]:
    """Return the scripts of the page itself, which use the libraries, in the order in which it runs them."""
    return tuple(_text("templates", name) for name in ("page.js", "viewer.js", "drawing.js"))


def digest_of(script: str) -> str:
    """Return what a page's policy calls a script that may run."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _without_map(script: str) -> str:
    """Leave out the line that names a file for debuggers, which they would look for beside the page."""
    return "\n".join(line for line in script.splitlines() if not line.startswith("//# sourceMappingURL="))


def _text(*path: str) -> str:
    return resources.files("intarsia_report").joinpath(*path).read_text(encoding="utf-8")
