"""Names of symbols, which say what is known of every such symbol."""

from __future__ import annotations

from typing import Any

import sympy

__all__ = ["symbol_named"]

_ASSUMPTIONS: dict[str, dict[str, bool]] = {
    "s": {"integer": True, "positive": True},
    "k": {"integer": True, "nonnegative": True},
    "z": {"real": True},
}


def symbol_named(name: str) -> Any:
    """Return the SymPy symbol of a name: two of one name are equal only with the same assumptions.

    Example:
        >>> symbol_named("s0").is_positive, symbol_named("k0").is_positive, symbol_named("k0").is_nonnegative
        (True, None, True)
    """
    return sympy.Symbol(name, **_ASSUMPTIONS.get(name[:1], {"integer": True}))
