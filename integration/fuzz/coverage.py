"""Counts what the tracer did: instructions evaluated by name, value models made by class."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import intarsia_tensorcapture.plugin  # noqa: F401  (defines value models)
from intarsia_pyeval.evaluate import EvaluatedFrame, Opcode
from intarsia_pyeval.opcodes import breaks, table
from intarsia_pyeval.values.base import Value

__all__ = ["OPCODES", "VALUES", "count_coverage", "expected_opcodes", "expected_values", "text"]

OPCODES: Counter[str] = Counter()
VALUES: Counter[str] = Counter()


def count_coverage() -> None:
    """Count from here on, in this process."""
    run = EvaluatedFrame.run

    def counting_run(self: EvaluatedFrame, handlers: Mapping[str, Opcode], exception: Value | None = None) -> Any:
        return run(self, _Counting(handlers), exception)

    def new(cls: type[Value], /, *args: Any, **keywords: Any) -> Value:
        VALUES[cls.__name__] += 1
        return object.__new__(cls)

    EvaluatedFrame.run = counting_run  # type: ignore[method-assign]
    Value.__new__ = new  # type: ignore[assignment, method-assign]


# bases of other models, and the one empty stack slot, made once at import
_NOT_MADE = ("Value", "Items", "Iterator", "PythonFunction", "Reference", "Null")


class _Counting(Mapping[str, Opcode]):
    """A table of handlers that counts the look-ups."""

    def __init__(self, handlers: Mapping[str, Opcode]) -> None:
        self.handlers = handlers

    def __getitem__(self, name: str) -> Opcode:
        OPCODES[name] += 1
        return self.handlers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.handlers)

    def __len__(self) -> int:
        return len(self.handlers)


def expected_opcodes() -> tuple[str, ...]:
    """Return the instructions that the tracer evaluates on this interpreter."""
    return tuple(sorted(set(table()) - set(breaks())))


def expected_values() -> tuple[str, ...]:
    """Return the value models that are made: all that aren't the base of others only."""
    found: list[str] = []
    todo = [Value]
    while todo:
        cls = todo.pop()
        todo += cls.__subclasses__()
        if cls.__module__.startswith(("intarsia_pyeval", "intarsia_tensorcapture")) and cls.__name__ not in _NOT_MADE:
            found.append(cls.__name__)
    return tuple(sorted(found))


def text(title: str, counts: Mapping[str, int], expected: tuple[str, ...], rows: int = 8) -> str:
    """Return the least used names with their counts."""
    ranked = sorted((counts.get(name, 0), name) for name in expected)
    version = ".".join(map(str, sys.version_info[:2]))
    never = sum(count == 0 for count, _ in ranked)
    shown = ", ".join(f"{name} {count}" for count, name in ranked[:rows])
    return f"{title} on CPython {version}: {len(ranked)} known, {never} never fired; least used: {shown}"
