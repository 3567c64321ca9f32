"""Short texts of values, for explanations, without asking code of the user."""

from __future__ import annotations

from typing import Any

from intarsia_guards import lookup, meaning

__all__ = ["brief"]


def brief(value: Any) -> str:
    """Return a short text; the user's `__repr__` isn't asked.

    Example:
        >>> brief(int), brief("x" * 100)[-5:]
        ('builtins.int', 'xx...')
    """
    if issubclass(type(value), type):
        return meaning.type_name(value)
    if lookup.is_tensor(value):
        return f"a {meaning.type_name(type(value))} of shape {tuple(value.shape)}"
    try:
        text = repr(value) if lookup.is_shown_by_us(value) else object.__repr__(value)
    except ValueError:  # an int of more digits than Python writes
        text = object.__repr__(value)
    return text if len(text) <= 80 else text[:77] + "..."
