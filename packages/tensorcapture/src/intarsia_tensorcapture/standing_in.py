"""Python functions with other objects in place of some that they use, for code that runs on fake tensors.

A function is copied with the globals and free variables that lead to such an object, and so are the functions that it
calls; modules of the user are stood for by objects that answer for their attributes. Nothing that exists is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

__all__ = ["StandIns"]

_LEFT_ALONE = frozenset({"torch", "math", "cmath", "operator", "functools", "builtins", "triton"})


class StandIns:
    """Copies functions.

    Args:
        applies: Tells whether an object is to be replaced.
        stand_in: Makes what it is replaced by.

    Example:
        >>> def halve(x):
        ...     return divmod(x, 2)
        >>> halve.__globals__["divmod"] = divmod
        >>> make = StandIns(lambda value: value is divmod, lambda value: lambda x, y: x / y)
        >>> make.of(halve)(3), halve(3)
        (1.5, (1, 1))
    """

    def __init__(self, applies: Callable[[Any], bool], stand_in: Callable[[Any], Any]) -> None:
        self.applies, self.stand_in = applies, stand_in
        self._made: dict[int, Any] = {}
        self._kept: list[Any] = []  # so that no other object gets the address of one that was replaced

    def reaches(self, function: FunctionType) -> bool:
        """Tell whether a function uses an object that is to be replaced, itself or through functions that it calls."""
        return any(self.applies(value) for value in self._used(function, set()))

    def of(self, function: FunctionType) -> FunctionType:
        """Return a function that uses stand-ins; the function itself where it needs none."""
        if not self.reaches(function):
            return function
        found = self._made.get(id(function))
        return self._copy(function) if found is None else found

    def _copy(self, function: FunctionType) -> FunctionType:
        names = dict(function.__globals__)
        cells = tuple(CellType() for _ in function.__closure__ or ())
        copy = FunctionType(function.__code__, names, function.__name__, function.__defaults__, cells or None)
        copy.__kwdefaults__, copy.__qualname__ = function.__kwdefaults__, function.__qualname__
        self._made[id(function)] = copy  # before the others: functions may call each other
        self._kept.append(function)
        for name in _names(function.__code__):
            if name in names:
                names[name] = self._replaced(names[name])
        for cell, old in zip(cells, function.__closure__ or (), strict=True):
            cell.cell_contents = self._replaced(old.cell_contents)
        return copy

    def _replaced(self, value: Any) -> Any:
        if self.applies(value):
            if id(value) not in self._made:
                self._made[id(value)] = self.stand_in(value)
                self._kept.append(value)
            return self._made[id(value)]
        if isinstance(value, FunctionType) and not _is_left_alone(value.__module__):
            return self.of(value)
        if isinstance(value, ModuleType) and not _is_left_alone(value.__name__):
            return _Module(value, self._replaced)
        return value

    def _used(self, function: FunctionType, seen: set[int]) -> Iterator[Any]:
        """Yield what a function uses, and the functions that it calls, each once."""
        seen.add(id(function))
        names = [*_names(function.__code__)]
        found = [function.__globals__[name] for name in names if name in function.__globals__]
        found += [cell.cell_contents for cell in function.__closure__ or ()]
        modules = [value for value in found if isinstance(value, ModuleType) and not _is_left_alone(value.__name__)]
        found += [vars(module)[name] for module in modules for name in names if name in vars(module)]
        for value in found:
            yield value
            if isinstance(value, FunctionType) and id(value) not in seen and not _is_left_alone(value.__module__):
                yield from self._used(value, seen)


class _Module:
    """Stands for a module of the user."""

    def __init__(self, module: ModuleType, replaced: Callable[[Any], Any]) -> None:
        self._module, self._replaced = module, replaced

    def __getattr__(self, name: str) -> Any:
        return self._replaced(getattr(self._module, name))


def _is_left_alone(module: str | None) -> bool:
    return (module or "").partition(".")[0] in _LEFT_ALONE


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
