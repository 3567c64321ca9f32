"""Symbolic sizes as graph nodes: a SymPy expression becomes nodes on demand, each expression once.

The recorder doesn't trace arithmetic on sizes. An argument that holds a symbolic size holds its expression, and this
table writes the expression in nodes when an op needs it: symbols are read from placeholders (`aten.sym_size.int`) or
from the op that made them, sums and products become `operator` calls in a canonical order.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
import torch.fx as fx

from intarsia_ir import meta
from intarsia_ir.errors import InternalError, UnsupportedError
from intarsia_ir.records import Origin
from intarsia_recorder.environment import ShapeEnvironment

__all__ = ["SymbolTable", "apart_from_symbols"]

aten = torch.ops.aten
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_GIVEN = ("s", "k")  # first letters of symbols that a call has
_SYMBOL_NAME = re.compile(r"(?:s|k|u|z[a-z]{0,2})\d+")

# by class name: the classes live in torch.utils._sympy and in intarsia_shapes
_BINARY: dict[str, Callable[..., Any]] = {
    "And": operator.and_,
    "Equality": operator.eq,
    "FloatPow": operator.pow,
    "FloatTrueDiv": operator.truediv,
    "FloorDiv": operator.floordiv,
    "GreaterThan": operator.ge,
    "IntTrueDiv": operator.truediv,
    "LessThan": operator.le,
    "Max": torch.sym_max,
    "Min": torch.sym_min,
    "Mod": operator.mod,
    "Or": operator.or_,
    "Pow": operator.pow,
    "PowByNatural": operator.pow,
    "PythonMod": operator.mod,
    "StrictGreaterThan": operator.gt,
    "StrictLessThan": operator.lt,
    "Unequality": operator.ne,
}
_UNARY: dict[str, Callable[..., Any]] = {
    "CeilToInt": math.ceil,
    "FloorToInt": math.floor,
    "Not": torch.sym_not,
    "ToFloat": torch.sym_float,
    "TruncToInt": torch.sym_int,
}
_READS: dict[str, Any] = {
    "offset": aten.sym_storage_offset.default,
    "size": aten.sym_size.int,
    "stride": aten.sym_stride.int,
}


def apart_from_symbols(name: str) -> str:
    """Return a name that no symbol of a shape environment has: in a kernel, and in what calls it, both are variables.

    Example:
        >>> apart_from_symbols("k0"), apart_from_symbols("zuf1"), apart_from_symbols("sin_1"), apart_from_symbols("x0")
        ('k0_', 'zuf1_', 'sin_1', 'x0')
    """
    return f"{name}_" if _SYMBOL_NAME.fullmatch(name) else name


class SymbolTable:
    """Turns symbolic numbers into nodes of one graph.

    Args:
        graph: Where nodes are added, at its insertion point.
        env: The environment of the symbols; torch's own serves for integers; None: sizes are static.
    """

    def __init__(self, graph: fx.Graph, env: object) -> None:
        self.graph = graph
        self._foreign: Any = env
        self.env = env if isinstance(env, ShapeEnvironment) else None
        self.where: tuple[Origin, ...] = ()
        self._nodes: dict[Any, fx.Node] = {}
        self._last_read: fx.Node | None = None
        self._sources: dict[Any, tuple[fx.Node, str, int]] = {}

    def bind(self, value: Any, node: fx.Node) -> None:
        """Remember which symbols can be read from `node`, which produces `value`."""
        if isinstance(value, _SYMBOLIC):
            expression = value.node.expr
            if expression.is_Relational and expression.lhs.is_Symbol:  # a truth value that depends on data
                self._sources.setdefault(expression.lhs, (node, "itself", 0))
            if expression.is_Symbol:
                self._sources.setdefault(expression, (node, "itself", 0))
        elif isinstance(value, torch.Tensor) and value.layout is torch.strided:
            metadata = (("size", value.shape), ("stride", value.stride()), ("offset", (value.storage_offset(),)))
            for kind, numbers in metadata:
                for dim, number in enumerate(numbers):
                    if isinstance(number, torch.SymInt) and number.node.expr.is_Symbol:
                        self._sources.setdefault(number.node.expr, (node, kind, dim))

    def knows(self, expression: Any) -> bool:
        """Tell whether every symbol of `expression` can be read from some node."""
        return all(symbol in self._sources for symbol in expression.free_symbols)

    def node(self, number: Any) -> fx.Node | int | float | bool:
        """Return the node, or the plain number, that stands for a symbolic number or a SymPy expression.

        Raises:
            UnsupportedError: The expression has a symbol for a size inside of an operation, which no node yields.
            InternalError: It has another symbol, or a function, that no node can produce.
        """
        if isinstance(number, _SYMBOLIC):
            if number.node.constant is not None:
                return number.node.constant  # type: ignore[no-any-return]
            number = number.node.expr
        if number.is_Integer:
            return int(number)
        if number.is_Float or number.is_Rational:
            return float(number)
        if number is sympy.true or number is sympy.false:
            return bool(number)
        node = self._nodes.get(number)
        if node is None:
            node = self._nodes[number] = self._emit(number)
        return node

    def _emit(self, expression: Any) -> fx.Node:
        """Write one expression in nodes."""
        if expression.is_Symbol:
            return self._read(expression)
        if expression.is_Add or expression.is_Mul:
            function = operator.add if expression.is_Add else operator.mul
            terms = sorted(expression.args, key=lambda term: (term.is_number, str(term)))
            return self._fold(function, terms, expression.func)
        name = type(expression).__name__
        if name in _BINARY:
            return self._fold(_BINARY[name], expression.args, type(expression))
        if name in _UNARY:
            return self._call(_UNARY[name], (self.node(expression.args[0]),), expression)
        what = f"no node computes {expression} ({name})"
        if not all(symbol.name.startswith(_GIVEN) for symbol in expression.free_symbols):  # a question about data
            raise UnsupportedError(what, code="recorder.data_dependent", where=self.where)
        raise InternalError(what, code="recorder.symbol", where=self.where)

    def _fold(self, function: Callable[..., Any], terms: Sequence[Any], rebuild: Callable[..., Any]) -> fx.Node:
        """Apply a two-argument function from left to right."""
        folded = terms[0]
        result = self.node(folded)
        for term in terms[1:]:
            folded = rebuild(folded, term)
            result = self._call(function, (result, self.node(term)), folded)
        assert isinstance(result, fx.Node)
        return result

    def _read(self, symbol: Any) -> fx.Node:
        """Return the node that yields a symbol; reads of placeholders stand behind the last placeholder."""
        if symbol not in self._sources and not symbol.name.startswith(_GIVEN):
            what = f"the size {symbol}, which an operation made for itself, is needed"
            raise UnsupportedError(what, code="recorder.data_dependent", where=self.where)
        if symbol not in self._sources:
            raise InternalError(f"no node yields the size {symbol}", code="recorder.symbol", where=self.where)
        node, kind, dim = self._sources[symbol]
        if kind == "itself":
            return node
        args = (node,) if kind == "offset" else (node, dim)
        if node.op != "placeholder":
            return self._call(_READS[kind], args, symbol)
        last = self._last_read or [other for other in self.graph.nodes if other.op == "placeholder"][-1]
        with self.graph.inserting_after(last):
            self._last_read = self._call(_READS[kind], args, symbol)
        return self._last_read

    def _call(self, function: Callable[..., Any], args: tuple[Any, ...], expression: Any) -> fx.Node:
        node = self.graph.call_function(function, args)
        meta.set_value(node, self.number(expression))
        meta.set_origins(node, self.where)
        return node

    def number(self, expression: Any) -> Any:
        """Return the symbolic number of an expression."""
        if self.env is None:
            # behind fake tensors of another front end: torch's environment, which makes integers only
            return self._foreign.create_symintnode(expression, hint=None)
        hint = self.env.guarding_hint_or_throw(expression) if self.env.has_guarding_hint(expression) else None
        if expression.is_Boolean or expression.is_Relational:
            return torch.SymBool(self.env.node(expression, bool, hint))
        if expression.is_integer:
            return torch.SymInt(self.env.node(expression, int, hint))
        return torch.SymFloat(self.env.node(expression, float, hint))
