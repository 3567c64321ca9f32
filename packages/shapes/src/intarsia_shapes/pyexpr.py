"""Size relations as Python text: what guards are generated from and what a `SizeFact` holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy
from torch.utils._sympy.functions import (
    CeilToInt,
    FloatPow,
    FloatTrueDiv,
    FloorDiv,
    FloorToInt,
    IntTrueDiv,
    Max,
    Min,
    Mod,
    PowByNatural,
    PythonMod,
    ToFloat,
    TruncToInt,
)

from intarsia_ir.errors import UnsupportedError
from intarsia_ir.records import SizeExpression

__all__ = ["plain_size", "python_text"]

_RELATIONS = {sympy.Eq: "==", sympy.Ne: "!=", sympy.Ge: ">=", sympy.Gt: ">", sympy.Le: "<=", sympy.Lt: "<"}


def _infix(operator: str) -> Callable[[list[str]], str]:
    return lambda args: "(" + f" {operator} ".join(args) + ")"


def _call(name: str) -> Callable[[list[str]], str]:
    return lambda args: f"{name}({', '.join(args)})"


_FORMS: dict[Any, Callable[[list[str]], str]] = {
    sympy.Add: _infix("+"),
    sympy.Mul: _infix("*"),
    sympy.Pow: _infix("**"),
    PowByNatural: _infix("**"),
    FloatPow: _infix("**"),
    FloorDiv: _infix("//"),
    Mod: _infix("%"),
    PythonMod: _infix("%"),
    IntTrueDiv: _infix("/"),
    FloatTrueDiv: _infix("/"),
    sympy.And: _infix("and"),
    sympy.Or: _infix("or"),
    sympy.Not: lambda args: f"(not {args[0]})",
    Max: _call("max"),
    sympy.Max: _call("max"),
    Min: _call("min"),
    sympy.Min: _call("min"),
    sympy.Abs: _call("abs"),
    ToFloat: _call("float"),
    TruncToInt: _call("int"),
    FloorToInt: _call("math.floor"),
    CeilToInt: _call("math.ceil"),
    **{relation: _infix(text) for relation, text in _RELATIONS.items()},
}


def python_text(expr: Any) -> str:
    """Return a Python expression over symbol names that computes `expr`.

    Raises:
        UnsupportedError: A function in `expr` has no Python form.

    Example:
        >>> s = sympy.Symbol("s0", integer=True, positive=True)
        >>> python_text(sympy.Eq(Mod(s, 4), 0))
        '((s0 % 4) == 0)'
    """
    if expr.is_Symbol:
        return str(expr.name)
    if expr is sympy.true or expr is sympy.false:
        return str(bool(expr))
    if expr.is_Integer:
        return str(int(expr)) if expr >= 0 else f"({int(expr)})"
    if expr.is_Float:
        return repr(float(expr))
    if expr.is_Rational:
        return f"({int(expr.p)} / {int(expr.q)})"
    if expr.func is sympy.Piecewise:
        return _piecewise(expr)
    form = _FORMS.get(expr.func)
    if form is None:
        raise UnsupportedError(f"{expr.func.__name__} has no Python form in {expr}", code="shapes.python_text")
    return form([python_text(a) for a in expr.args])


def plain_size(number: Any) -> int | SizeExpression:
    """Return a size as data that outlives the environment of its symbols.

    Example:
        >>> plain_size(3)
        3
    """
    expr = sympy.Integer(number) if type(number) is int else number.node.expr
    return int(expr) if expr.is_Integer else SizeExpression(python_text(expr))


def _piecewise(expr: Any) -> str:
    *branches, last = expr.args
    text = python_text(last.expr)
    for branch in reversed(branches):
        text = f"({python_text(branch.expr)} if {python_text(branch.cond)} else {text})"
    return text
