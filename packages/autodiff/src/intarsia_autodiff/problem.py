"""What a partition policy sees: the values of a joint graph that don't depend on tangents, as plain data.

A *choice* is a set of names of values to save. It is legal if the backward pass gets everything that it reads: each
needed value is saved, or can be computed again from values for which that holds as well.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

__all__ = ["Problem", "Recompute", "Value"]


class Recompute(enum.Enum):
    """What computing a value a second time takes."""

    NEVER = "never"  # inputs, random numbers
    CHEAP = "cheap"  # a view, or one pass over memory that fuses with what reads it
    COSTLY = "costly"  # a reduction, a library call


@dataclass(frozen=True, slots=True)
class Value:
    """One value that the forward pass has or could have.

    Args:
        name: Name of its node.
        n_bytes: What saving it costs, in bytes; 0 for what is alive anyway, such as a parameter.
        operands: Names of the values that it is computed from.
        recompute: Whether it can be computed again.
        saveable: Whether it can be saved; views and lists can't, what they are made of can.
        needed: Whether the backward pass reads it.
        flops: Rough number of operations to compute it.
        is_forward: Whether the program itself computes it; False: only the backward pass has a use for it.
    """

    name: str
    n_bytes: int
    operands: tuple[str, ...] = ()
    recompute: Recompute = Recompute.CHEAP
    saveable: bool = True
    needed: bool = False
    flops: int = 0
    is_forward: bool = True


@dataclass(frozen=True, slots=True)
class Problem:
    """All values, operands first.

    Example:
        >>> x = Value("x", 40, recompute=Recompute.NEVER)
        >>> problem = Problem((x, Value("y", 40, ("x",), needed=True)))
        >>> problem.missing({"y"}), problem.missing(set()), problem.recomputed({"x"})
        ((), ('x',), ('y',))
    """

    values: tuple[Value, ...]
    _by_name: Mapping[str, Value] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {value.name: value for value in self.values})

    def __getitem__(self, name: str) -> Value:
        return self._by_name[name]

    def n_bytes(self, saved: Iterable[str]) -> int:
        """Return what saving these values costs."""
        return sum(self[name].n_bytes for name in saved)

    def recomputed(self, saved: Iterable[str]) -> tuple[str, ...]:
        """Return the values that the backward pass computes again, in program order."""
        return self._walk(saved)[0]

    def missing(self, saved: Iterable[str]) -> tuple[str, ...]:
        """Return what makes a choice illegal: values neither saved nor computable, and saved ones that can't be."""
        saved = set(saved)
        wrong = {name for name in saved if name not in self._by_name or not self[name].saveable}
        return tuple(sorted({*self._walk(saved)[1], *wrong}))

    def _walk(self, saved: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        saved = set(saved)
        seen: set[str] = set()
        missing: list[str] = []
        pending = [value.name for value in self.values if value.needed]
        while pending:
            name = pending.pop()
            if name in seen or name in saved:
                continue
            seen.add(name)
            if self[name].recompute is Recompute.NEVER:
                missing.append(name)
            pending += self[name].operands
        order = [value.name for value in self.values if value.name in seen and value.name not in missing]
        return tuple(order), tuple(missing)
