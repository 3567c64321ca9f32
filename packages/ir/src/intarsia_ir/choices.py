"""Checking what a user gave against what is allowed, with the nearest allowed word in the message."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from intarsia_ir.errors import InvalidArgumentError

__all__ = ["instance_of", "one_of", "refuse_unknown", "suggestion"]


def one_of(what: str, value: Any, choices: tuple[Any, ...], *, hint: str = "") -> None:
    """Check that `value` is one of `choices`.

    Args:
        what: Which argument it is.
        value: What was given.
        choices: What may be.
        hint: What else may be done, for the message.

    Raises:
        InvalidArgumentError: It isn't; the message shows it, the choices, and the nearest one.

    Example:
        >>> one_of("mode", "fsat", ("fast", "slow"))
        Traceback (most recent call last):
        ...
        intarsia_ir.errors.InvalidArgumentError: mode is 'fsat', not one of 'fast', 'slow'; did you mean ...
    """
    # 1 is no True: what is compared must be of the same type
    if not any(value is c or (type(value) is type(c) and value == c) for c in choices):
        listed = ", ".join(map(repr, choices))
        raise InvalidArgumentError(
            f"{what} is {value!r}, not one of {listed}{suggestion(value, choices)}",
            code="options.value",
            hints=(hint,) if hint else (),
        )


def instance_of(what: str, value: Any, *types: type) -> None:
    """Check that `value` is an instance of one of `types`; a bool is no int.

    Raises:
        InvalidArgumentError: It isn't; the message shows it.
    """
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        wanted = " or ".join("None" if t is type(None) else t.__name__ for t in types)
        raise InvalidArgumentError(f"{what} must be {wanted}, not {value!r}", code="options.type")


def refuse_unknown(what: str, given: Iterable[str], known: Iterable[str], *, code: str) -> None:
    """Check that all given names are known.

    Raises:
        InvalidArgumentError: One isn't; the message names the nearest, or all that there are.

    Example:
        >>> refuse_unknown("keyword", ["fulgraph"], ["fullgraph", "dynamic"], code="compile.keyword")
        Traceback (most recent call last):
        ...
        intarsia_ir.errors.InvalidArgumentError: unknown keyword 'fulgraph'; did you mean 'fullgraph'? [compile.keyword]
    """
    known = tuple(known)
    for name in given:
        if name not in known:
            hint = suggestion(name, known) or f"; there are {', '.join(known)}"
            raise InvalidArgumentError(f"unknown {what} {name!r}{hint}", code=code)


def suggestion(name: Any, known: Iterable[Any]) -> str:
    """Return `"; did you mean ...?"` for the nearest known word, or `""`."""
    match = difflib.get_close_matches(str(name), list(map(str, known)), 1)
    return f"; did you mean {match[0]!r}?" if match else ""
