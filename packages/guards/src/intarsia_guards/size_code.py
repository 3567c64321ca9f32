"""Size relations as code of the native check: integer arithmetic on a small stack, checked for overflow.

What it can't say (division, powers, math functions, conditionals) leaves the relations to a Python function.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["size_code", "size_function"]

_MAX_DEPTH = 30  # tensors.c keeps MAX_STACK values
_BINARY = {ast.Add: "ADD", ast.Sub: "SUB", ast.Mult: "MUL", ast.FloorDiv: "FLOORDIV", ast.Mod: "MOD"}
_COMPARE = {ast.Lt: "LT", ast.LtE: "LE", ast.Gt: "GT", ast.GtE: "GE", ast.Eq: "EQ", ast.NotEq: "NE"}
_UNARY: dict[type[ast.unaryop], str] = {ast.USub: "NEG", ast.Not: "NOT"}
_FOLDED = {"max": "MAX", "min": "MIN"}


def size_function(
    n_values: int, definitions: Sequence[tuple[str, str]], relations: Sequence[str]
) -> Callable[..., Any]:
    """Return a Python function of the values `v0`, `v1`, ... that tells whether all relations hold.

    Args:
        n_values: How many values.
        definitions: (symbol, text over the values).
        relations: Texts over the symbols.

    Example:
        >>> fits = size_function(1, [("s0", "v0[0]")], ["s0 > 1", "s0 % 2 == 0"])
        >>> fits([4]), fits([3])
        (True, False)
    """
    parameters = ", ".join(f"v{i}" for i in range(n_values))
    lines = [f"    {symbol} = {text}" for symbol, text in definitions]
    condition = " and ".join(f"({relation})" for relation in relations)
    space: dict[str, Any] = {"math": math}
    exec("\n".join([f"def sizes({parameters}):", *lines, f"    return bool({condition})"]), space)
    function: Callable[..., Any] = space["sizes"]
    return function


def size_code(
    numbers: Mapping[str, int], read_int: int, definitions: Sequence[tuple[str, str]], relations: Sequence[str]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return (reads, code) for `SIZES`, or None when Python has to check the relations.

    Args:
        numbers: `_native.SIZE_OPERATIONS`.
        read_int: `_native.READ_INT`.
        definitions: (symbol, text over the values `v0`, `v1`, ...).
        relations: Texts over the symbols.

    Returns:
        For each symbol the number of its value and how to read it; and pairs of operation and operand.
    """
    try:
        reads = [number for _, text in definitions for number in _read(text, read_int)]
        writer = _Writer(numbers, {symbol: i for i, (symbol, _) in enumerate(definitions)})
        for relation in relations:
            writer.expression(ast.parse(relation, mode="eval").body)
            writer.put("REQUIRE", 0, -1)
    except _InPythonError:
        return None
    return (tuple(reads), tuple(writer.code)) if writer.deepest <= _MAX_DEPTH else None


class _InPythonError(Exception):
    """There is no native operation for it."""


def _read(text: str, read_int: int) -> tuple[int, int]:
    """Return (number of the value, how) for `v0`, `v0.size(1)`, `v0.shape[1]` or `v0.stride(1)`."""
    match ast.parse(text, mode="eval").body:
        case ast.Name(id=name):
            return int(name[1:]), read_int
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=what), args=[ast.Constant(value=int(dim))]):
            pass
        case ast.Subscript(ast.Attribute(value=ast.Name(id=name), attr=what), slice=ast.Constant(value=int(dim))):
            pass
        case _:
            raise _InPythonError
    if what not in ("size", "shape", "stride") or not 0 <= dim < 64:
        raise _InPythonError
    return int(name[1:]), -1 - dim if what == "stride" else dim


class _Writer:
    def __init__(self, numbers: Mapping[str, int], symbols: Mapping[str, int]) -> None:
        self.numbers, self.symbols = numbers, symbols
        self.code: list[int] = []
        self.depth = self.deepest = 0

    def put(self, name: str, operand: int, growth: int) -> None:
        self.code += [self.numbers[name], operand]
        self.depth += growth
        self.deepest = max(self.deepest, self.depth)

    def expression(self, node: ast.AST) -> None:
        match node:
            case ast.Constant(value=bool() | int() as value) if abs(value) < 2**63:
                self.put("NUMBER", int(value), 1)
            case ast.Name(id=name) if name in self.symbols:
                self.put("SYMBOL", self.symbols[name], 1)
            case ast.BinOp(op=op) if type(op) in _BINARY:
                self.expression(node.left)
                self.expression(node.right)
                self.put(_BINARY[type(op)], 0, -1)
            case ast.UnaryOp(op=op) if type(op) in _UNARY:
                self.expression(node.operand)
                self.put(_UNARY[type(op)], 0, 0)
            case ast.BoolOp(op=op):
                self._folded("AND" if isinstance(op, ast.And) else "OR", node.values)
            case ast.Compare(left=left, ops=ops, comparators=others):
                self._compare([left, *others], ops)
            case ast.Call(func=ast.Name(id=name), args=[_, _, *_] as arguments, keywords=[]) if name in _FOLDED:
                self._folded(_FOLDED[name], arguments)
            case ast.Call(func=ast.Name(id="abs"), args=[argument], keywords=[]):
                self.expression(argument)
                self.put("ABS", 0, 0)
            case _:
                raise _InPythonError

    def _folded(self, name: str, nodes: Sequence[ast.expr]) -> None:
        self.expression(nodes[0])
        for node in nodes[1:]:
            self.expression(node)
            self.put(name, 0, -1)

    def _compare(self, values: Sequence[ast.expr], ops: Sequence[ast.cmpop]) -> None:
        """A chain is the conjunction of its links: nothing has effects, so a value may be computed twice."""
        for i, op in enumerate(ops):
            if type(op) not in _COMPARE:
                raise _InPythonError
            self.expression(values[i])
            self.expression(values[i + 1])
            self.put(_COMPARE[type(op)], 0, -1)
            if i:
                self.put("AND", 0, -1)
