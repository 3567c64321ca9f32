"""Numbers for symbolic sizes: costs need one, legality never does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from intarsia_loops.index import Atom, IndexExpr

__all__ = ["Sizes"]

UNKNOWN = 128  # a size nobody gave a hint for: neither tiny nor large


class Sizes:
    """Evaluates sizes with the values that symbols had at capture.

    Args:
        hints: Size symbol -> value.
    """

    def __init__(self, hints: Mapping[str, int]) -> None:
        self._hints = hints
        self._known: dict[IndexExpr, int] = {}

    def __call__(self, expr: IndexExpr) -> int:
        """Return the value of an expression over size symbols, or of an upper bound where axes occur."""
        number = self._known.get(expr)
        if number is None:
            constant = expr.const()
            number = constant if constant is not None else expr.value(self._environment(expr))
            self._known[expr] = number
        return number

    def product(self, axes: Iterable[Atom]) -> int:
        """Return the number of points of an iteration space."""
        points = 1
        for axis in axes:
            points *= self(axis.extent)
        return points

    def elements(self, shape: Iterable[IndexExpr]) -> int:
        """Return the number of elements of a shape."""
        number = 1
        for extent in shape:
            number *= self(extent)
        return number

    def _environment(self, expr: IndexExpr) -> dict[Atom, int]:
        env: dict[Atom, int] = {}
        for atom in expr.atoms():
            if atom.kind == "sym":
                env[atom] = self._hints.get(atom.key, max(atom.lo, UNKNOWN))
            elif atom.kind == "axis":
                env[atom] = max(self(atom.extent) - 1, 0)
            else:
                env.update(self._environment(atom.a))
                env.update(self._environment(atom.b))
        return env
