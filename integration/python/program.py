"""A row of the corpus, and the decorators that make one of a function."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch.utils.hooks import RemovableHandle

from integration.python.items import ITEMS

__all__ = ["PROGRAMS", "Program", "made", "program"]

PROGRAMS: dict[str, Program] = {}


@dataclass(frozen=True, slots=True)
class Program:
    """A small program and what is expected of its capture.

    Args:
        name: Unique; the name of its function.
        item: The entry of `ITEMS` that it belongs to.
        make: Makes the callable, fresh: a function, a closure or a module.
        inputs: Makes the positional arguments of a call, fresh; tensors have other values each time.
        keywords: Makes the keyword arguments.
        graphs: Number of graphs that one call is captured as.
        breaks: Codes of the breaks of the first call, in order; () means that it must be one piece.
        refused: Code of the error where nothing of it can be captured; "" for a program of which something is.
        calls: How often it is called.
        recompiles: Versions compiled after the first call: 0, or 1 for a program that finds a number changed (2 if
            it was 0 and then 1). Then the number is a symbol, and every later call is a hit.
        globals: Name -> initial value of the globals that it changes.
        file: Where it is written.
    """

    name: str
    item: str
    make: Callable[[], Callable[..., Any]]
    inputs: Callable[[], tuple[Any, ...]]
    keywords: Callable[[], dict[str, Any]] = dict
    graphs: int = 1
    breaks: tuple[str, ...] = ()
    refused: str = ""
    calls: int = 2
    recompiles: int = 0
    globals: Mapping[str, Any] = field(default_factory=dict)
    file: str = ""

    def reset_globals(self) -> dict[str, Any]:
        """Give the globals that the program changes their initial values; return the namespace that holds them."""
        RemovableHandle.next_id = 0  # hooks are numbered through a process, and a module keeps the numbers
        names = vars(sys.modules[self.make.__module__])
        names.update(copy.deepcopy(dict(self.globals)))
        return names


def program(item: str, inputs: Callable[[], tuple[Any, ...]], **expected: Any) -> Callable[[Any], Any]:
    """Register the decorated function as a program; `expected` are fields of `Program`."""

    def register(function: Any) -> Any:
        def make() -> Any:
            return function

        make.__module__ = function.__module__
        _add(function, item, make, inputs, expected)
        return function

    return register


def made(item: str, inputs: Callable[[], tuple[Any, ...]], **expected: Any) -> Callable[[Any], Any]:
    """Register what the decorated function returns, made anew for every run, as a program."""

    def register(make: Any) -> Any:
        _add(make, item, make, inputs, expected)
        return make

    return register


def _add(function: Any, item: str, make: Any, inputs: Any, expected: dict[str, Any]) -> None:
    name = function.__name__
    if name in PROGRAMS:
        raise ValueError(f"two programs are called {name}")
    if not any(item in items for items in ITEMS.values()):
        raise ValueError(f"{name}: no item {item!r} in the list")
    PROGRAMS[name] = Program(name, item, make, inputs, file=function.__code__.co_filename, **expected)
