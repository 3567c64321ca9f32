"""The node that `torch.SymInt`, `SymFloat` and `SymBool` wrap: one symbolic number, hash-consed by its environment.

torch's C++ adapter and Python magic methods call it by name, so the names are protocol. Arithmetic builds SymPy
expressions, memoised by operands; a question goes to the environment, which answers from facts or records a guard.
The node derives from torch's own SymNode class for `isinstance` checks alone and overrides all of it.
"""

from __future__ import annotations

import builtins
import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from sympy import Integer
from torch.fx.experimental import sym_node as _torch_sym_node
from torch.utils._sympy import functions as fn

from intarsia_shapes.intervals import interval
from intarsia_shapes.layout import LayoutQuestions

__all__ = ["SymNode", "SymTypes"]

SymTypes = (torch.SymInt, torch.SymFloat, torch.SymBool)


# untyped on purpose: nothing of the base is used
_TorchSymNode: Any = _torch_sym_node.SymNode


class SymNode(LayoutQuestions, _TorchSymNode):  # type: ignore[misc]
    """One symbolic number.

    Args:
        expr: SymPy expression.
        shape_env: The environment that owns the symbols.
        pytype: int, float or bool.
        hint: Value at this call; None when only the running program knows it.
    """

    fx_node = None
    _optimized_summation = False  # read by torch's helpers

    def __init__(self, expr: Any, shape_env: Any, pytype: type, hint: Any) -> None:
        self._expr, self.shape_env = expr, shape_env
        self.pytype: Any = pytype
        self.constant: Any = None
        if expr is sympy.true or expr is sympy.false:
            self.constant = bool(expr)
        elif expr.is_number:
            self.constant = pytype(expr)
        self._hint: Any = hint if self.constant is None else self.constant
        self._replaced: tuple[int, Any] = (0, expr)
        self._answer: tuple[int, Any] = (-1, None)
        self._integer: tuple[int, int | None] = (-1, None)

    # ---- value ----------------------------------------------------------------------------------------------

    @property
    def expr(self) -> Any:
        """The expression, with replaced symbols gone."""
        version = self.shape_env.knowledge.replacement_version
        if self.constant is not None or self._replaced[0] == version:
            return self._replaced[1]
        self._replaced = (version, self.shape_env.replace(self._expr))
        return self._replaced[1]

    @property
    def hint(self) -> Any:
        """Value at this call, or None."""
        return self._hint

    def has_hint(self) -> bool:
        return self._hint is not None

    def maybe_as_int(self) -> int | None:
        if self.constant is not None:
            return int(self.constant)
        version = self.shape_env.knowledge.replacement_version
        if self._integer[0] != version:
            expr = self.expr
            self._integer = (version, int(expr) if expr.is_number else None)
        return self._integer[1]

    def maybe_as_float(self) -> float | None:
        expr = self.expr
        return float(expr) if expr.is_number else None

    def maybe_as_bool(self) -> bool | None:
        expr = self.expr
        return bool(expr) if expr in (sympy.true, sympy.false) else None

    def bounds(self) -> tuple[float, float]:
        """Return the least and the largest value that the facts so far allow, infinities where they say nothing."""
        return interval(self.expr, self.shape_env.knowledge.range_of())

    def is_int(self) -> bool:
        return self.pytype is int

    def is_float(self) -> bool:
        return self.pytype is float

    def is_bool(self) -> bool:
        return self.pytype is bool

    def is_nested_int(self) -> bool:
        return False

    def nested_int(self) -> None:
        return None

    def is_symbolic(self) -> bool:
        return True

    def is_constant(self) -> bool:
        # torch's magic methods assert that a float is never a constant
        return self.constant is not None and self.pytype is not float

    def clone(self) -> SymNode:
        return self

    def str(self) -> builtins.str:
        return f"{self.expr}"

    __str__ = __repr__ = str

    def _graph_repr(self) -> builtins.str:
        return self.str()

    def with_shape_env(self, shape_env: Any) -> SymNode:
        return SymNode(self._expr, shape_env, self.pytype, self._hint)

    def _value_eq(self, other: SymNode) -> bool:
        return self._expr == other._expr and self.pytype is other.pytype and self._hint == other._hint

    def _value_hash(self) -> int:
        return hash((self._expr, self.pytype, self._hint))

    # ---- literals -------------------------------------------------------------------------------------------

    def wrap_int(self, num: int) -> SymNode:
        node = self.shape_env.integers.get(num)
        if node is None or type(num) is not int:
            node = self.shape_env.integers[num] = self._new(Integer(num), int, int(num))
        return node  # type: ignore[no-any-return]

    def wrap_float(self, num: float) -> SymNode:
        # not hash-consed: 0.0 and -0.0 are equal expressions
        return SymNode(sympy.Float(num), self.shape_env, float, num)

    def wrap_bool(self, num: bool) -> SymNode:
        return self._new(sympy.true if num else sympy.false, bool, num)

    def _new(self, expr: Any, pytype: type, hint: Any) -> SymNode:
        return self.shape_env.node(expr, pytype, hint)  # type: ignore[no-any-return]

    # ---- questions ------------------------------------------------------------------------------------------

    def evaluate(self, size_oblivious: bool = False) -> Any:
        """Return the value, guarding on it; decided once for each state of the facts."""
        if self.constant is not None:
            return self.constant
        env = self.shape_env
        version, unguarded = env.knowledge.version, env.n_unguarded
        if self._answer[0] == version:
            return self._answer[1]
        answer = env.evaluate(self.expr, self._hint, oblivious=size_oblivious)
        if not size_oblivious and not env.suppressed and env.n_unguarded == unguarded:
            self._answer = (env.knowledge.version, answer)
        return answer

    def guard_int(self, file: Any, line: Any) -> int:
        return int(self.evaluate())

    def guard_float(self, file: Any, line: Any) -> float:
        return float(self.evaluate())

    def guard_bool(self, file: Any, line: Any) -> bool:
        return bool(self.evaluate())

    def int_(self) -> int:
        return int(self.evaluate())

    def bool_(self) -> bool:
        return bool(self.evaluate())

    def guard_size_oblivious(self, file: Any, line: Any) -> bool:
        return bool(self.evaluate(True))

    def guard_or_false(self, file: Any, line: Any) -> bool:
        return bool(self.shape_env.evaluate_sym_node(self, fallback_value=False))

    def guard_or_true(self, file: Any, line: Any) -> bool:
        return bool(self.shape_env.evaluate_sym_node(self, fallback_value=True))

    def statically_known_true(self, file: Any, line: Any) -> bool:
        return self._hint is not False and bool(self.shape_env.knowledge.decide(self.expr))

    def expect_true(self, file: Any, line: Any) -> bool:
        if self.constant is not None:
            return bool(self.constant)
        if self._hint is not None:
            return self.guard_bool(file, line)
        return bool(self.shape_env.guard_or_defer_runtime_assert(self.expr, f"{file}:{line}"))

    # ---- arithmetic that isn't one row of the tables below --------------------------------------------------

    def mod(self, other: SymNode) -> SymNode:
        if bool in (self.pytype, other.pytype):
            return _of_truths("mod", self, other)
        a, b = self.expr, other.expr
        ranges = self.shape_env.knowledge.range_of()
        natural = interval(a, ranges)[0] >= 0 and interval(b, ranges)[0] >= 0
        pytype = float if float in (self.pytype, other.pytype) else int
        return self._new((fn.Mod if natural else fn.PythonMod)(a, b), pytype, _hint(operator.mod, self, other))

    def sym_max(self, other: SymNode) -> SymNode:
        return self._larger(other, True)

    def sym_min(self, other: SymNode) -> SymNode:
        return self._larger(other, False)

    def _larger(self, other: SymNode, larger: bool) -> SymNode:
        """Return the larger or smaller operand: of sizes, the one that it is in this call, which is a guard."""
        if bool in (self.pytype, other.pytype):
            return _of_truths("sym_max" if larger else "sym_min", self, other)
        env = self.shape_env
        key = ("sym_max" if larger else "sym_min", self, other)
        node: SymNode | None = env.remembered().get(key)
        if node is not None:
            return node
        a, b = (self, other) if larger else (other, self)
        ints = self.pytype is other.pytype is int
        if ints and None not in (self._hint, other._hint) and not (env.suppressed or env.closed):
            # strides hold max(1, size), which stands in no index; and an empty tensor is a case of its own
            node = self if a.ge(b).evaluate() else other
        elif ints and (decided := env.knowledge.decide(sympy.Ge(a.expr, b.expr))) is not None:
            node = self if decided else other
        else:
            hint = _hint(max if larger else min, self, other)
            pytype = float if float in (self.pytype, other.pytype) else int
            node = self._new((fn.Max if larger else fn.Min)(self.expr, other.expr), pytype, hint)
        env.remembered()[key] = node
        return node

    def sym_sum(self, args: Sequence[SymNode]) -> SymNode:
        hints = [a.hint for a in args]
        return self._new(sympy.Add(*(a.expr for a in args)), int, None if None in hints else sum(hints))

    def sym_ite(self, then_val: SymNode, else_val: SymNode) -> SymNode:
        expr = sympy.Piecewise((then_val.expr, self.expr), (else_val.expr, True))
        hint = None if self._hint is None else (then_val if self._hint else else_val).hint
        return self._new(expr, then_val.pytype, hint)

    def round(self, ndigits: int | None = None) -> SymNode:
        expr = fn.RoundToInt(self.expr) if ndigits is None else fn.RoundDecimal(self.expr, ndigits)
        hint = None if self._hint is None else builtins.round(self._hint, ndigits)
        return self._new(expr, int if ndigits is None else self.pytype, hint)


def _hint(function: Callable[..., Any], *nodes: SymNode) -> Any:
    hints = [n.hint for n in nodes]
    return None if None in hints else function(*hints)


# ---- operation tables: name -> (on hints, on expressions, result type; None keeps the operands' type) -----------

_BINARY: dict[str, tuple[Callable[..., Any], Callable[..., Any], type | None]] = {
    "add": (operator.add, operator.add, None),
    "sub": (operator.sub, operator.sub, None),
    "mul": (operator.mul, operator.mul, None),
    "int_floordiv": (operator.floordiv, fn.FloorDiv, int),
    "int_truediv": (operator.truediv, fn.IntTrueDiv, float),
    "float_truediv": (operator.truediv, fn.FloatTrueDiv, float),
    "pow_by_natural": (operator.pow, fn.PowByNatural, int),
    "float_pow": (operator.pow, fn.FloatPow, float),
    "and_": (operator.and_, sympy.And, bool),
    "or_": (operator.or_, sympy.Or, bool),
    "xor": (operator.xor, lambda a, b: sympy.Or(sympy.And(a, sympy.Not(b)), sympy.And(sympy.Not(a), b)), bool),
    "lshift": (operator.lshift, fn.LShift, int),
    "rshift": (operator.rshift, fn.RShift, int),
    "bitwise_and": (operator.and_, fn.BitwiseFn_bitwise_and, int),
    "bitwise_or": (operator.or_, fn.BitwiseFn_bitwise_or, int),
    "bitwise_xor": (operator.xor, fn.BitwiseFn_bitwise_xor, int),
    "eq": (operator.eq, functools.lru_cache(4096)(sympy.Eq), bool),
    "ne": (operator.ne, functools.lru_cache(4096)(sympy.Ne), bool),
    "gt": (operator.gt, functools.lru_cache(4096)(sympy.Gt), bool),
    "lt": (operator.lt, functools.lru_cache(4096)(sympy.Lt), bool),
    "ge": (operator.ge, functools.lru_cache(4096)(sympy.Ge), bool),
    "le": (operator.le, functools.lru_cache(4096)(sympy.Le), bool),
}
_UNARY: dict[str, tuple[Callable[..., Any], Callable[..., Any], type | None]] = {
    "abs": (builtins.abs, sympy.Abs, None),
    "pos": (operator.pos, lambda a: a, None),
    "neg": (operator.neg, operator.neg, None),
    "trunc": (math.trunc, fn.TruncToInt, int),
    "floor": (math.floor, fn.FloorToInt, int),
    "ceil": (math.ceil, fn.CeilToInt, int),
    "sym_not": (operator.not_, sympy.Not, bool),
    "sym_float": (float, fn.ToFloat, float),
    "sym_int": (int, fn.TruncToInt, int),
    "is_integer": (lambda x: float(x).is_integer(), lambda a: sympy.Eq(fn.ToFloat(sympy.floor(a)), a), bool),
    **{
        f"sym_{name}": (getattr(math, name), getattr(fn, f"OpaqueUnaryFn_{name}"), float)
        for name in ("sqrt", "cos", "cosh", "sin", "sinh", "tan", "tanh", "asin", "acos", "atan", "log2")
    },
}
_ALIASES = {
    "sym_and": "and_",
    "sym_or": "or_",
    "truediv": "float_truediv",
    "floordiv": "int_floordiv",
    "pow": "float_pow",
}


_LOGIC = {"and_": "bitwise_and", "or_": "bitwise_or", "xor": "bitwise_xor"}  # of truths -> of numbers


def _of_truths(name: str, a: SymNode, b: SymNode) -> SymNode:
    """Return an operation on truths that SymPy has for numbers alone.

    Whether two truths are equal is written in logic. Elsewhere a truth counts as the number that it is in this call,
    which is a guard.
    """
    if a.pytype is b.pytype and name in ("eq", "ne"):
        differ = a.xor(b)  # type: ignore[attr-defined]
        return differ if name == "ne" else differ.sym_not()  # type: ignore[no-any-return]
    numbers = [a.wrap_int(int(n.evaluate())) if n.pytype is bool else n for n in (a, b)]
    return getattr(numbers[0], _LOGIC.get(name, name))(numbers[1])  # type: ignore[no-any-return]


def _binary_method(name: str) -> Callable[[SymNode, SymNode], SymNode]:
    on_hints, on_expressions, result = _BINARY[name]

    def method(self: SymNode, other: SymNode) -> SymNode:
        if bool in (self.pytype, other.pytype) and not (self.pytype is other.pytype and name in _LOGIC):
            return _of_truths(name, self, other)
        memo = self.shape_env.remembered()
        key = (name, self, other)
        node: SymNode | None = memo.get(key)
        if node is None:
            hint = _hint(on_hints, self, other)
            pytype = result or (float if float in (self.pytype, other.pytype) else int)
            # symbols may have become constants since; Python's arithmetic on these has no largest integer
            both = hint is not None and self.expr.is_number and other.expr.is_number
            expr = sympy.sympify(hint) if both else on_expressions(self.expr, other.expr)
            node = memo[key] = self._new(expr, pytype, hint)
        return node

    method.__name__ = name
    return method


def _unary_method(name: str) -> Callable[[SymNode], SymNode]:
    on_hints, on_expressions, result = _UNARY[name]
    identity_on_int = name in ("floor", "ceil", "trunc", "sym_int")

    def method(self: SymNode) -> SymNode:
        if identity_on_int and self.pytype is int:
            return self

        memo = self.shape_env.remembered()
        node: SymNode | None = memo.get((name, self))
        if node is None:
            node = memo[name, self] = self._new(on_expressions(self.expr), result or self.pytype, _hint(on_hints, self))
        return node

    method.__name__ = name
    return method


for _name in _BINARY:
    setattr(SymNode, _name, _binary_method(_name))
for _name in _UNARY:
    setattr(SymNode, _name, _unary_method(_name))
for _name, _target in _ALIASES.items():
    setattr(SymNode, _name, getattr(SymNode, _target))
