"""The model of a Python number that isn't a constant: a size, or what is computed from sizes.

Arithmetic stays symbolic. What must be known (a branch, a length, a text, a key) is decided by the shape environment,
which answers for this call and notes the fact with the user's line; the guards check it at later calls.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils._sympy.functions import IntTrueDiv

from intarsia_ir.records import Source
from intarsia_pyeval import codegen, do
from intarsia_pyeval.breaks import Break, Unreconstructable
from intarsia_pyeval.semantics import folding, operators, special
from intarsia_pyeval.semantics.opening import OPERATORS, opened, widened
from intarsia_pyeval.values.base import Keywords, NotConstantError, Value
from intarsia_pyeval.values.bound import BoundBuiltin
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.numbers import COMPARISONS, Bounds, ChangingNumber, OpenNumber
from intarsia_shapes import confine, python_text

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer

__all__ = ["SYMBOLIC", "SymbolicNumber"]


SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
}
_BY_NAME = frozenset({"add", "sub", "mul", "truediv", "floordiv", "mod", "pow"})
_ORDER = frozenset({"__lt__", "__le__", "__eq__", "__ne__", "__gt__", "__ge__"})
_LARGE = 1 << 62
_EXACT = 1 << 53  # quotients of integers below it are never rounded to the next integer


class NumberMaker(Protocol):
    """What makes models of numbers: the symbols of a capture.

    Attributes:
        env: The environment of the symbols.
        symbol_sources: Symbol -> where it is found.
        shown: Symbol that depends on data -> the result of the graph that has it: as that size, or as its one number.
    """

    env: Any
    symbol_sources: dict[Any, Source]
    shown: dict[Any, tuple[Any, int | None]]

    def model(self, number: Any) -> Value:
        """Return the model of a number; of one that isn't open, a constant."""

    def is_tensor(self, value: Value) -> bool:
        """Tell whether a value is a tensor, which takes the operator over."""

    def beyond_one(self, number: Any) -> bool:
        """Rely on the integers that a number is computed of to be at least 2, if all are; tell whether it is new."""

    def limit(self, number: Any) -> None:
        """Rely on symbols that data decides to be small enough to compute with."""


class SymbolicNumber(ChangingNumber):
    """An int, float or bool that differs from call to call.

    Args:
        sizes: The symbols of this capture.
        number: The symbolic number.
        source: Where the number itself is found, when it is an argument or the like.
    """

    __slots__ = ("number", "sizes")
    shared = False

    def __init__(self, sizes: NumberMaker, number: Any, source: Source | None = None) -> None:
        self.sizes = sizes
        self.number = number
        self.source = source

    def type(self) -> Any:
        """Return int, float or bool."""
        return self.number.node.pytype

    def describe(self) -> str:
        """Return a few words for messages."""
        return f"the {self.type().__name__} {self.number}, which differs from call to call"

    def now(self) -> Any:
        """Return what it is in this call, without relying on it; None when only the running program knows."""
        return self.number.node.hint

    def bounds(self) -> Bounds | None:
        """Return the least and the largest number that it can be by what is relied on so far."""
        low, high = self.number.node.bounds()
        if self.type() is float:  # bounds of exact arithmetic, and floats round at each step
            low, high = widened(low, high)
        return (low, high) if low > -math.inf else None

    def key(self) -> Hashable:
        """Return what equal computations have in common."""
        return self.type(), self.number.node.expr

    def rounded(self, function: Callable[..., Any]) -> Value | None:
        """Keep a quotient of integers that is rounded a size: as long as it is exact, rounding is integer division."""
        if function not in (math.floor, math.ceil, math.trunc, int):
            return None
        if self.type() is int:
            return self
        quotient = self.number.node.expr
        if not isinstance(quotient, IntTrueDiv) or not quotient.args[1].is_Integer or quotient.args[1] < 1:
            return None
        env = self.number.node.shape_env
        above, below = env.create_symintnode(quotient.args[0], hint=env.size_hint(quotient.args[0])), quotient.args[1]
        if not isinstance(above, torch.SymInt) or not -_EXACT < env.size_hint(quotient.args[0]) < _EXACT:
            return None
        low, _ = above.node.bounds()
        if low < 0 and (function in (math.trunc, int) or not bool(above > -_EXACT)):
            return None
        bool(above < _EXACT)  # relied on
        up = function is math.ceil
        return self._ask(lambda: -(-above // int(below)) if up else above // int(below))

    def narrow(self) -> bool:
        """Rely on an integer of the call being none of 0 and 1, where it isn't in this call."""
        return self.type() is int and self.sizes.beyond_one(self.number)

    # -- deciding ------------------------------------------------------------------------------------------------

    def settled(self) -> Const:
        """Return the constant that this is in this call; later calls must have the same."""
        return Const(self.as_python())

    def as_python(self) -> Any:
        """Return the value of this call, which later calls must have too.

        Raises:
            NotConstantError: Only the running program knows it.
        """
        try:
            return self.type()(self.number)
        except GuardOnDataDependentSymNode:
            raise NotConstantError(f"{self.number}, which depends on data") from None

    def _constant(self) -> Const:
        """Return the constant, or break."""
        try:
            return self.settled()
        except NotConstantError as unknown:
            raise Break("tracer.data_dependent", f"{unknown} is needed while tracing") from None

    # -- attributes and methods ----------------------------------------------------------------------------------

    # -- operators -----------------------------------------------------------------------------------------------

    def _operand(self, other: Value) -> Any:
        """Return the other number of an operator, or None."""
        if isinstance(other, SymbolicNumber):
            return other.number if other.type() is not bool else other._constant().value
        if isinstance(other, Const) and type(other.value) in (int, float, bool) and abs(other.value) < _LARGE:
            return other.value if type(other.value) is not bool else int(other.value)
        return None

    def _ask(self, function: Callable[[], Any]) -> Value:
        """Model the result of an operator."""
        try:
            return self.sizes.model(function())
        except GuardOnDataDependentSymNode as error:
            raise Break("tracer.data_dependent", f"an answer about {self.number} depends on data ({error})") from None

    # -- building ------------------------------------------------------------------------------------------------


@do.truth.rule(SymbolicNumber)
def truth_symbolic_number(tx: Tracer, number: SymbolicNumber) -> bool:
    """Decide the truth."""
    try:
        return bool(number.number != 0 if number.type() is not bool else number.number)
    except GuardOnDataDependentSymNode:
        raise Break("tracer.data_dependent", f"the truth of {number.number} depends on data") from None


@do.hash_key.rule(SymbolicNumber)
def hash_key_symbolic_number(tx: Tracer, number: SymbolicNumber) -> Hashable:
    """Keys must be known."""
    return do.hash_key(tx, number._constant())


@do.convert.rule(SymbolicNumber)
def convert_symbolic_number(tx: Tracer, number: SymbolicNumber, cls: Any) -> Value | None:
    """Model `int` and `float`; other classes, such as `bytes`, take the constant."""
    if cls is int and number.type() is not bool:
        found = opened(tx.guards, int, (number,))
        if found is not None:
            return found
    convert: Any = {int: torch.sym_int, float: torch.sym_float}.get(cls)
    if convert is None or number.type() is bool:
        return tx.live.from_python(folding.real(tx, cls, number._constant().value))
    return number.sizes.model(convert(number.number))


@do.get_attribute.rule(SymbolicNumber)
def get_attribute_symbolic_number(tx: Tracer, number: SymbolicNumber, name: str) -> Value:
    """Ask the constant; operators stay symbolic."""
    if name.startswith("__") and name != "__class__":
        return BoundBuiltin(number, name)
    return do.get_attribute(tx, number._constant(), name)


@do.call_method.rule(SymbolicNumber)
def call_method_symbolic_number(
    tx: Tracer, number: SymbolicNumber, name: str, args: Sequence[Value], keywords: Keywords
) -> Value:
    """Model an operator by its name."""
    plain = name.strip("_")
    if plain in _BY_NAME or (plain[:1] == "r" and plain[1:] in _BY_NAME) or name in _ORDER:
        return special.operator_method(tx, number, name, args, keywords)
    return do.call_method(tx, number._constant(), name, args, keywords)


@do.binary.rule(SymbolicNumber)
def binary_symbolic_number(tx: Tracer, number: SymbolicNumber, op: str, other: Value, swapped: bool) -> Value | None:
    """Compute with another number; what isn't a number meets the constant."""
    operand = number._operand(other)
    if isinstance(other, OpenNumber):
        return do.binary(tx, other, op, number, not swapped)
    if operand is None:
        return _with_other(tx, number, op, other, swapped)
    if number.type() is bool:  # torch's symbols have no arithmetic of truths
        return _with_constant(tx, number, op, other, swapped)
    written, operand = _as_arithmetic(op, operand, swapped)
    function = _BINARY.get(written)
    # SymPy may reorder sums and products of floats
    exact = number.type() is not float or written not in ("+", "-", "*")
    zero = written in ("/", "//", "%") and not _is_divisor(number.number if swapped else operand)
    if function is None or zero or not exact or (written == "**" and not _power(number.number, operand, swapped)):
        both = (other, number) if swapped else (number, other)
        found = opened(tx.guards, OPERATORS[op], both) if op in OPERATORS else None
        return found if found is not None else _with_constant(tx, number, op, other, swapped)
    first, second = (operand, number.number) if swapped else (number.number, operand)
    try:
        found = number._ask(lambda: function(first, second))
    except (ArithmeticError, ValueError):  # for the numbers of this call: so it does on the constants
        return _with_constant(tx, number, op, other, swapped)
    if isinstance(found, SymbolicNumber) and found.type() is int:
        number.sizes.limit(found.number)
    if isinstance(found, SymbolicNumber) and found.type() is int and not confine(found.number):
        return _with_constant(tx, number, op, other, swapped)  # kernels have integers of 64 bits
    return found


def _is_divisor(number: Any) -> bool:
    """Tell whether a number divides others at every call that is compiled alike; relies on a symbol being positive."""
    if not isinstance(number, SYMBOLIC):
        return bool(number != 0)
    symbol: Any = number
    return symbol.node.hint is not None and bool(symbol > 0)


def _with_constant(tx: Tracer, number: SymbolicNumber, op: str, other: Value, swapped: bool) -> Value:
    """Compute with the constant that this is in this call."""
    constant = number._constant()
    return operators.binary(tx, op, other, constant) if swapped else operators.binary(tx, op, constant, other)


def _with_other(tx: Tracer, number: SymbolicNumber, op: str, other: Value, swapped: bool) -> Value | None:
    """Meet a tensor, which decides itself, or something like a list or a string."""
    if number.sizes.is_tensor(other) or (op == "%" and other.type() is str):
        return None
    return _with_constant(tx, number, op, other, swapped)


@do.compare.rule(SymbolicNumber)
def compare_symbolic_number(tx: Tracer, number: SymbolicNumber, op: str, other: Value) -> Value | None:
    """Compare with another number; the answer is a fact once it is looked at."""
    operand = number._operand(other)
    if operand is None:
        return None
    if number.type() is bool:
        return operators.compare(tx, op, number._constant(), other)
    return number._ask(lambda: COMPARISONS[op](number.number, operand))


@do.unary.rule(SymbolicNumber)
def unary_symbolic_number(tx: Tracer, number: SymbolicNumber, op: str) -> Value:
    """Negate."""
    if op == "~" or number.type() is bool:
        return do.unary(tx, number._constant(), op)
    return number._ask(lambda: -number.number if op == "-" else number.number)


@codegen.reconstruct.rule(SymbolicNumber)
def reconstruct_symbolic_number(out: Builder, number: SymbolicNumber) -> None:
    """Compute the number from the sizes of this call."""
    expr = number.number.node.expr
    if not expr.free_symbols:
        out.constant(number.type()(number.number))
        return
    symbols = sorted(expr.free_symbols, key=str)
    places = {str(s): number.sizes.symbol_sources.get(s) or number.sizes.shown.get(s) for s in symbols}
    if None in places.values():
        raise Unreconstructable(f"{number.number} depends on data, and is used outside of the graph")
    text = f"{number.type().__name__}({python_text(expr)})" if not expr.is_Symbol else str(expr)
    _emit(out, ast.parse(text, mode="eval").body, places)


def _read(out: Builder, place: Any) -> None:
    """Push a symbol: from where the call has it, or from a result of the graph."""
    if not isinstance(place, tuple):
        out.load_source(place)
        return
    tensor, dim = place
    out.load(tensor)
    out.call_method("item" if dim is None else "size", [] if dim is None else [lambda: out.constant(dim)])


_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Mult: operator.mul,
    ast.Pow: operator.pow,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Div: operator.truediv,
    ast.And: operator.and_,
    ast.Or: operator.or_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Not: operator.not_,
    ast.USub: operator.neg,
}
_FUNCTIONS: dict[str, Any] = {f.__name__: f for f in (max, min, abs, float, int, bool, math.floor, math.ceil)}


def _emit(out: Builder, node: ast.expr, places: Mapping[str, Any]) -> None:
    """Push what an expression over symbols gives: by calls of C functions, which no frame hook sees."""
    match node:
        case ast.Name(id=name):
            _read(out, places[name])
            return
        case ast.Constant(value=value):
            out.constant(value)
            return
        case ast.BinOp(left=left, op=op, right=right) | ast.Compare(left=left, ops=[op], comparators=[right]):
            function, parts = _OPERATORS[type(op)], [left, right]
        case ast.BoolOp(op=op, values=[first, *others]):
            rest = others[0] if len(others) == 1 else ast.BoolOp(op, others)
            function, parts = _OPERATORS[type(op)], [first, rest]
        case ast.UnaryOp(op=op, operand=operand):
            function, parts = _OPERATORS[type(op)], [operand]
        case ast.IfExp(test=test, body=body, orelse=other):
            function, parts = operator.getitem, [ast.Tuple([other, body], ast.Load()), test]
        case ast.Tuple(elts=elements):
            for element in elements:
                _emit(out, element, places)
            out.emit("BUILD_TUPLE", len(elements))
            return
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=arguments):
            function, parts = _FUNCTIONS[name], arguments
        case _:
            raise Unreconstructable(f"{ast.unparse(node)} can't be computed by bytecode")
    out.call(lambda: out.emit("LOAD_CONST", function), [partial(_emit, out, part, places) for part in parts])


def _as_arithmetic(op: str, operand: Any, swapped: bool) -> tuple[str, Any]:
    """Write shifts and masks by known numbers as arithmetic, which sizes know: `n << 2` is `n * 4`, for any sign."""
    if swapped or type(operand) is not int or operand < 0:
        return op, operand
    if op in ("<<", ">>") and operand <= 16:
        return "*" if op == "<<" else "//", 1 << operand
    if op == "&" and operand & (operand + 1) == 0:
        return "%", operand + 1
    return op, operand


def _power(number: Any, operand: Any, swapped: bool) -> bool:
    """Tell whether a power is one of an integer to a small natural number."""
    return not swapped and type(operand) is int and 0 <= operand <= 8 and isinstance(number, torch.SymInt)
