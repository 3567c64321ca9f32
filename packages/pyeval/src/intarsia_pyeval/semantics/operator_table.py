"""The operators of Python: symbols, functions and special methods."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NoReturn

from intarsia_pyeval.breaks import Break
from intarsia_pyeval.values.base import Value

__all__ = ["BINARY", "BINARY_BY_NAME", "COMPARE", "COMPARE_BY_NAME", "OPERATOR_METHODS", "UNARY", "unsupported"]


BINARY: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "+": (operator.add, "add"),
    "&": (operator.and_, "and"),
    "//": (operator.floordiv, "floordiv"),
    "<<": (operator.lshift, "lshift"),
    "@": (operator.matmul, "matmul"),
    "*": (operator.mul, "mul"),
    "%": (operator.mod, "mod"),
    "|": (operator.or_, "or"),
    "**": (operator.pow, "pow"),
    ">>": (operator.rshift, "rshift"),
    "-": (operator.sub, "sub"),
    "/": (operator.truediv, "truediv"),
    "^": (operator.xor, "xor"),
}


UNARY: dict[str, Callable[[Any], Any]] = {"-": operator.neg, "+": operator.pos, "~": operator.invert}


COMPARE: dict[str, tuple[Callable[[Any, Any], Any], str, str]] = {
    "<": (operator.lt, "__lt__", ">"),
    "<=": (operator.le, "__le__", ">="),
    "==": (operator.eq, "__eq__", "=="),
    "!=": (operator.ne, "__ne__", "!="),
    ">": (operator.gt, "__gt__", "<"),
    ">=": (operator.ge, "__ge__", "<="),
}


BINARY_BY_NAME = {name: op for op, (_, name) in BINARY.items()}


COMPARE_BY_NAME = {name: op for op, (_, name, _) in COMPARE.items()}


OPERATOR_METHODS = frozenset(
    [
        *(f"__{prefix}{name}__" for _, name in BINARY.values() for prefix in ("", "r", "i")),
        *(n for _, n, _ in COMPARE.values()),
    ]
)


def unsupported(op: str, a: Value, b: Value) -> NoReturn:
    """Break where CPython raises TypeError: its messages differ too much to guess them."""
    raise Break("tracer.exception", f"unsupported operand types for {op}: {a.describe()} and {b.describe()}")
