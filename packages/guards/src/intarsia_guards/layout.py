"""What both writers of predicates share: the values that one is called with, the order of guards, and classes' rules.

Guards are ordered by how deep their source is, so that an object is checked before anything is fetched from it, and
among equals by cost.

Attributes of modules are read past `__getattr__`: where a guard before has fixed the exact class of an object, and
that class is a `torch.nn.Module` with the usual attribute lookup and has no class attribute of the name, the value lies
in the instance's dictionary or in the parameters, buffers or submodules in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from intarsia_guards import meaning
from intarsia_guards.kinds.tensors import HeldTensor
from intarsia_guards.rows import HeldGuard
from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import Source

__all__ = ["SET_BY_MODULE", "Layout", "apart_check", "looks_up_as_module", "order", "position"]


@dataclass(frozen=True, slots=True)
class Layout:
    """The values that a predicate is called with, in order: arguments, free variables, and globals where wanted."""

    arguments: tuple[str, ...]
    cells: tuple[str, ...] = ()


def order(guards: Iterable[HeldGuard[Any]]) -> tuple[HeldGuard[Any], ...]:
    """Return the guards in the order in which they are checked."""
    depths: dict[int, int] = {}

    def rank(guard: HeldGuard[Any]) -> tuple[int, int]:
        return max((_depth(source, depths) for source in guard.sources()), default=1), guard.cost

    return tuple(sorted(guards, key=rank))


def _depth(source: Source | None, depths: dict[int, int]) -> int:
    """Return how many sources there are from `source` to the outermost object; `depths`: of others, by identity."""
    new: list[Source] = []
    while source is not None and id(source) not in depths:
        new.append(source)
        source = getattr(source, "base", None)
    depth = depths[id(source)] if source is not None else 0
    for above in reversed(new):
        depth = depths[id(above)] = depth + 1
    return depth


def position(what: str, name: str, names: tuple[str, ...]) -> int:
    """Return where a parameter or free variable is among those of a layout.

    Raises:
        InvalidArgumentError: It's none of them.
    """
    if name not in names:
        raise InvalidArgumentError(
            f"a guard looks at the {what} {name!r}; the function has {', '.join(names) or 'none'}",
            code="guards.source",
        )
    return names.index(name)


def apart_check(
    groups: Sequence[tuple[Source, ...]], guards: Iterable[HeldGuard[Any]]
) -> tuple[Callable[..., bool], tuple[Source, ...]]:
    """Return one check for all guards against overlaps, and the sources of the tensors that it takes.

    Args:
        groups: Of each guard the source of its tensor, then those of the others.
        guards: All of the set: those on tensors tell how many bytes each spans.
    """
    numbers: dict[Source, int] = {}
    pairs: list[tuple[int, tuple[int, ...]]] = []
    for group in groups:
        first, *others = [numbers.setdefault(source, len(numbers)) for source in group]
        pairs.append((first, tuple(others)))
    lengths = {guard.source: meaning.bytes_of(guard.facts) for guard in guards if isinstance(guard, HeldTensor)}
    return meaning.all_apart(pairs, [lengths.get(source) for source in numbers]), tuple(numbers)


# what every module has in its instance dictionary; when it's missing there, the guard fails
SET_BY_MODULE = frozenset(vars(torch.nn.Module()))


def looks_up_as_module(cls: Any, name: str) -> bool:
    """Whether an attribute of an instance that isn't in its dictionary comes from `torch.nn.Module.__getattr__`."""
    module = torch.nn.Module
    return (
        isinstance(cls, type)
        and issubclass(cls, module)
        and cls.__getattr__ is module.__getattr__
        and cls.__getattribute__ is object.__getattribute__
        and not any(name in vars(parent) for parent in cls.__mro__)
    )
