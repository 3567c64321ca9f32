"""`thawed`: an environment that knows what frozen facts say, for values that are read from text.

It is the inverse of `freeze`: `freeze` of it gives the facts again, before anything is learnt. Symbols that the facts
don't declare (those that only a running program knows) are made where they are first read.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable
from typing import Any

import torch
from sympy import Integer
from torch._subclasses import FakeTensorMode

from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import SizeFacts
from intarsia_shapes.env import Relation, ShapeEnv
from intarsia_shapes.expressions import CALLS, expression_of
from intarsia_shapes.fake import fake_mode
from intarsia_shapes.intervals import INF
from intarsia_shapes.names import symbol_named

__all__ = ["thawed"]


def thawed(
    facts: SizeFacts, *, symbolic: bool = True, kind: type[FakeTensorMode] = FakeTensorMode
) -> tuple[FakeTensorMode, Callable[[str, str], Any]]:
    """Return a mode over an environment that holds `facts`, and a function that makes symbolic numbers in it.

    Args:
        facts: What `freeze` or `join_facts` gave.
        symbolic: The mode has an environment from the start. Otherwise, as for a program of static sizes, it has one
            once a first number is made: composite ops come apart otherwise over one.
        kind: The class of the mode.

    Returns:
        The mode, even without symbols in the facts: a program may make some. The function takes an expression and
        `"int"`, `"float"`, `"bool"`, or `"size"`, an integer that isn't negative.

    Raises:
        InvalidArgumentError: `shapes.text`: a relation or expression can't be read.

    Example:
        >>> from intarsia_shapes import freeze
        >>> facts = SizeFacts({"s0": "x.size(0)"}, {"s0": (2, None)}, hints={"s0": 6})
        >>> mode, symbols = thawed(facts)
        >>> symbols("s0*2", "size"), freeze(mode.shape_env) == facts
        (2*s0, True)
    """
    env = ShapeEnv()
    symbols = _Symbols(env)
    names = [name for name in facts.symbols if name in facts.ranges or name in facts.hints]
    for name in names:
        _declare(env, symbols.named(name), name, facts)
    for name in facts.ranges.keys() - facts.symbols.keys():  # the program makes it
        low, high = _range(name, facts)
        env.knowledge.ranges[symbols.named(name)] = low, high
        if low >= 0:
            env.knowledge.size_like.add(symbols.named(name))
    others = {name: source for name, source in facts.symbols.items() if name not in names}
    for fact in facts.facts:
        left, _, right = fact.relation.partition(" == ")
        if left in others and left.startswith("t"):
            env.strides[others[left]] = symbols.expression(right)
        elif left in others:
            env.sources[symbols.named(right)].append(others[left])
        else:
            relation = Relation(symbols.expression(fact.relation), fact.origin)
            env.guards.append(relation)
            env.knowledge.learn(relation.expr)
    mode = fake_mode(env, kind=kind)
    if not symbolic:
        static = fake_mode(kind=kind)
        return static, functools.partial(_first_number, symbols, static, mode)
    return mode, symbols.number


def _first_number(symbols: _Symbols, static: FakeTensorMode, mode: FakeTensorMode, text: str, kind: str) -> Any:
    """Return a symbolic number, over the environment of `mode`, which is from now on that of `static`."""
    static.shape_env = mode.shape_env
    static.allow_scalar_outputs, static.cache_enabled = mode.allow_scalar_outputs, mode.cache_enabled
    return symbols.number(text, kind)


def _declare(env: ShapeEnv, symbol: Any, name: str, facts: SizeFacts) -> None:
    env.sources[symbol] = [facts.symbols[name]]
    env.knowledge.ranges[symbol] = _range(name, facts)
    if name in facts.hints:
        env.backed_var_to_val[symbol] = Integer(facts.hints[name])
    if name.startswith("u"):
        env.knowledge.size_like.add(symbol)


def _range(name: str, facts: SizeFacts) -> tuple[float, float]:
    low, high = facts.ranges.get(name, (None, None))
    return -INF if low is None else low, INF if high is None else high


_KINDS: dict[str, tuple[type, Any]] = {
    "int": (int, torch.SymInt),
    "float": (float, torch.SymFloat),
    "bool": (bool, torch.SymBool),
}


class _Symbols:
    """The symbols of an environment by name, and expressions over them."""

    def __init__(self, env: ShapeEnv) -> None:
        self._env = env
        self._symbols: dict[str, Any] = {}

    def named(self, name: str) -> Any:
        """Return the symbol of a name, made when it isn't known."""
        if name not in self._symbols:
            self._symbols[name] = symbol_named(name)
            self._env.knowledge.ranges.setdefault(self._symbols[name], (-INF, INF))
            self._env.reserve(name)
        return self._symbols[name]

    def expression(self, text: str) -> Any:
        """Return the SymPy expression of a text, as Python or SymPy writes it."""
        try:
            tree = ast.parse(text, mode="eval").body
            names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} - CALLS.keys() - {"math"}
            return expression_of(tree, {name: self.named(name) for name in names})
        except (SyntaxError, KeyError):
            raise InvalidArgumentError(f"{text!r} is no expression over sizes", code="shapes.text") from None

    def number(self, text: str, kind: str) -> Any:
        """Return the symbolic number of an expression."""
        expr = self.expression(text)
        if kind == "size":
            for symbol in expr.free_symbols:
                if symbol.name.startswith("u") and symbol not in self._env.knowledge.size_like:
                    self._env.knowledge.size_like.add(symbol)
                    self._env.knowledge.narrow(symbol, 0, INF)
        pytype, wrapped = _KINDS.get(kind, _KINDS["int"])
        return wrapped(self._env.node(expr, pytype, self._env.size_hint(expr, allow_none=True)))
