"""The options of `compile`, validated with the nearest known name in the message."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from intarsia_ir.errors import InvalidArgumentError

__all__ = ["Options", "one_of"]

_CHOICES: dict[str, tuple[str, ...]] = {
    "on_error": ("eager", "raise"),
    "rng": ("eager",),
    "numerics": ("default",),
}


@dataclass(frozen=True, slots=True)
class Options:
    """What `compile(options=...)` takes.

    Args:
        on_error: `"eager"`: what can't be compiled runs in eager, with one warning a frame; `"raise"`: it raises.
        rng: `"eager"`: random ops draw the very numbers that eager draws.
        numerics: `"default"`: half types are computed in float32 inside a kernel.
        verify_each: Verify the program after every stage.
        dump_dir: Folder that takes the text of the program after every stage, one subfolder a graph; None: no dumps.
    """

    on_error: str = "eager"
    rng: str = "eager"
    numerics: str = "default"
    verify_each: bool = False
    dump_dir: str | None = None

    @staticmethod
    def parse(given: Mapping[str, Any] | None) -> Options:
        """Return the options for a user's mapping.

        Raises:
            InvalidArgumentError: An unknown key, or a value outside a key's choices.
        """
        given = dict(given or {})
        known = [f.name for f in fields(Options)]
        for key, value in given.items():
            if key not in known:
                raise InvalidArgumentError(f"unknown option {key!r}{_near(key, known)}", code="options.unknown")
            if key in _CHOICES:
                one_of(f"option {key}", value, _CHOICES[key])
        return Options(**given)


def one_of(what: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Check that `value` is one of `choices`.

    Raises:
        InvalidArgumentError: It isn't; the message shows it and the nearest choice.
    """
    if value not in choices:
        near = _near(str(value), [str(c) for c in choices])
        listed = ", ".join(map(repr, choices))
        raise InvalidArgumentError(f"{what} is {value!r}, not one of {listed}{near}", code="options.value")


def _near(name: str, known: list[str]) -> str:
    match = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {match[0]!r}?" if match else f"; there are {', '.join(known)}"
