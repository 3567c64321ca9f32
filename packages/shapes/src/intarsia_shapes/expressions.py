"""Expressions over sizes, read: what Python and SymPy write for them, as SymPy expressions."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import sympy
from torch.utils._sympy import functions
from torch.utils._sympy.functions import CeilToInt, FloorDiv, FloorToInt, Max, Min, Mod, ToFloat, TruncToInt

__all__ = ["CALLS", "expression_of"]

_OPERATORS: Mapping[type[ast.AST], Callable[..., Any]] = MappingProxyType(
    {
        ast.Add: lambda a, b: a + b,
        ast.Sub: lambda a, b: a - b,
        ast.Mult: lambda a, b: a * b,
        ast.Div: lambda a, b: a / b,
        ast.Pow: lambda a, b: a**b,
        ast.FloorDiv: FloorDiv,
        ast.Mod: Mod,
        ast.Eq: sympy.Eq,
        ast.NotEq: sympy.Ne,
        ast.Lt: sympy.Lt,
        ast.LtE: sympy.Le,
        ast.Gt: sympy.Gt,
        ast.GtE: sympy.Ge,
        ast.And: sympy.And,
        ast.Or: sympy.Or,
        ast.BitAnd: sympy.And,
        ast.BitOr: sympy.Or,
        ast.USub: lambda a: -a,
        ast.Not: sympy.Not,
        ast.Invert: sympy.Not,
    }
)
# by torch's own names, as SymPy writes them
_TORCH = (
    "CeilToInt", "FloatPow", "FloatTrueDiv", "FloorDiv", "FloorToInt", "IntTrueDiv", "Max", "Min", "Mod",
    "PowByNatural", "PythonMod", "RoundToInt", "ToFloat", "TruncToFloat", "TruncToInt",
)  # fmt: skip
CALLS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "max": Max,
        "min": Min,
        "abs": sympy.Abs,
        "float": ToFloat,
        "int": TruncToInt,
        "math.floor": FloorToInt,
        "math.ceil": CeilToInt,
        "Abs": sympy.Abs,
        "Eq": sympy.Eq,
        "Ne": sympy.Ne,
        **{name: getattr(functions, name) for name in _TORCH},
    }
)


def expression_of(node: ast.expr, symbols: Mapping[str, Any]) -> Any:
    """Return the SymPy expression that a Python expression stands for.

    Raises:
        KeyError: It has none, or names what is no symbol.

    Example:
        >>> s0 = sympy.Symbol("s0", integer=True)
        >>> expression_of(ast.parse("max(s0 // 2, 1) == 3", mode="eval").body, {"s0": s0})
        Eq(Max(1, (s0//2)), 3)
    """
    match node:
        case ast.Name():
            return symbols[node.id]
        case ast.Constant():
            return sympy.sympify(node.value)
        case ast.UnaryOp():
            return _OPERATORS[type(node.op)](expression_of(node.operand, symbols))
        case ast.BinOp():
            return _OPERATORS[type(node.op)](expression_of(node.left, symbols), expression_of(node.right, symbols))
        case ast.BoolOp():
            return _OPERATORS[type(node.op)](*(expression_of(v, symbols) for v in node.values))
        case ast.Compare(ops=[op], comparators=[right]):
            return _OPERATORS[type(op)](expression_of(node.left, symbols), expression_of(right, symbols))
        case ast.IfExp():
            value, other, condition = (expression_of(n, symbols) for n in (node.body, node.orelse, node.test))
            return sympy.Piecewise((value, condition), (other, True))
        case ast.Call(keywords=[]):
            return CALLS[ast.unparse(node.func)](*(expression_of(a, symbols) for a in node.args))
    raise KeyError(ast.dump(node))
