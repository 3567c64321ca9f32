"""The shape environment behind `torch.SymInt`: makes symbols, decides questions about them, records why.

`ShapeEnv` is ours from the ground up; what it shares with torch is a protocol: the names that FakeTensorMode, meta
functions and the C++ side ask an environment for. Names of that protocol are torch's, so some start with an
underscore although torch calls them. Symbol names are protocol too: sizes start with "s", unbacked integers with
"u", unbacked floats with "zuf". Ours alone are "k", integers from 0 on that a call has and that are no sizes so far.

Differs from torch's environment: no sources, no symbolic contexts, no FX tracking of sizes; inputs are made by
`intarsia_shapes.fakeify`. The environment is open while tracing or recording and then frozen (`freeze`).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from sympy import Integer
from torch import _meta_registrations
from torch._subclasses import fake_impls
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils._sympy.functions import Mod, PythonMod

from intarsia_ir.errors import NeedsFact
from intarsia_ir.records import Origin
from intarsia_shapes.intervals import INF
from intarsia_shapes.knowledge import Knowledge
from intarsia_shapes.names import symbol_named
from intarsia_shapes.node import SymNode, SymTypes

__all__ = ["Relation", "Settings", "ShapeEnv"]

_TORCH = os.path.dirname(torch.__file__)
_HERE = os.path.dirname(os.path.abspath(__file__))
_CONVOLUTION = fake_impls.conv.__code__
_POOLED_SIZE = _meta_registrations.div_rtn.__code__
_THRESHOLDS = (sympy.Gt, sympy.Ge, sympy.Lt, sympy.Le)


@dataclass(frozen=True, slots=True)
class Relation:
    """Something that must hold, and the user line that needed it.

    Args:
        expr: SymPy Boolean over symbols.
        origin: The user line, when one was on the stack.
    """

    expr: Any
    origin: Origin | None


@dataclass(frozen=True, slots=True)
class Settings:
    """How an environment makes symbols; hashable, since FakeTensorMode puts it in its cache key.

    Args:
        specialize_zero_one: Sizes 0 and 1 become constants, since broadcasting treats them apart.
        duck_shape: Equal sizes at first sight share a symbol.
    """

    specialize_zero_one: bool = True
    duck_shape: bool = True
    allow_scalar_outputs: bool = True
    allow_dynamic_output_shape_ops: bool = True


class ShapeEnv:
    """An open shape environment.

    Args:
        specialize_zero_one: See `Settings`.
        duck_shape: See `Settings`.

    Attributes:
        guards: Relations over input sizes that recording relied on; they must hold at every call.
        asserts: Relations over unbacked symbols, to be checked while the program runs.
        closed: Nothing is learnt any more: what isn't known raises `NeedsFact`.
        locate: Tells the user line that a question comes from; None: the Python stack does.

    Example:
        >>> env = ShapeEnv()
        >>> n = env.create_size(6, "x.size(0)")
        >>> bool(n % 2 == 0)
        True
        >>> [str(g.expr) for g in env.guards]
        ['Eq(Mod(s0, 2), 0)']
    """

    # protocol: features of torch's environment that this one doesn't have
    real_tensor_prop_unbacked_vals: dict[Any, Any] = {}  # noqa: RUF012  (read by torch, never written)
    prefer_deferred_runtime_asserts_over_guards = False
    runtime_asserts_frozen = False
    allow_scalar_outputs = True
    allow_dynamic_output_shape_ops = True

    def __init__(self, *, specialize_zero_one: bool = True, duck_shape: bool = True) -> None:
        self.settings = Settings(specialize_zero_one, duck_shape)
        self.knowledge = Knowledge()
        self.guards: list[Relation] = []
        self.asserts: list[Relation] = []
        self.sources: dict[Any, list[str]] = {}
        self.strides: dict[str, Any] = {}  # text that reads a stride -> what it is made of
        self.promises: list[tuple[str, Any, int | None, int | None]] = []  # source, size, bounds, by the user
        self.promised: list[Relation] = []
        self.locate: Callable[[], Origin | None] | None = None
        self.backed_var_to_val: dict[Any, Any] = {}
        self.pending_fresh_unbacked_symbols: list[Any] = []
        self.ignorable_fresh_unbacked_symbols: list[Any] = []
        self.fake_tensor_cache: dict[Any, Any] = {}
        self.unbacked_renamings: dict[Any, Any] = {}
        self.memo: dict[Any, SymNode] = {}
        self.integers: dict[int, SymNode] = {}
        self._memo_version = 0
        self._nodes: dict[tuple[Any, type], SymNode] = {}
        self._duck: dict[int, Any] = {}
        self._names = {prefix: itertools.count() for prefix in ("s", "k", "u", "zuf")}
        self.closed = False
        self.suppressed = 0
        self.n_unguarded = 0  # answers that nothing relies on: they must not be remembered
        self._ignoring_unbacked = 0

    # ---- symbols --------------------------------------------------------------------------------------------

    def create_size(
        self,
        value: int,
        source: str,
        *,
        dynamic: bool = True,
        unbacked: bool = False,
        duck: bool = True,
        apart: Collection[Any] = (),
    ) -> int | torch.SymInt:
        """Return one input dimension: a constant, or a symbol whose value at this call is `value`.

        Args:
            value: Size or stride in elements.
            source: Python text that reads it from the inputs, such as `"x.size(0)"`.
            dynamic: False makes it a constant.
            unbacked: A symbol without a known value, for sizes that nothing may specialise on.
            duck: Whether it may share the symbol of an equal size.
            apart: Symbols that it doesn't share.
        """
        if not dynamic:
            return int(value)
        if unbacked:
            symbol = self._fresh("u")
            self._constrain_range_for_size(symbol)
            self.sources[symbol] = [source]
            return torch.SymInt(self.node(symbol, int, None))
        if self.settings.specialize_zero_one and value in (0, 1):
            return int(value)
        duck = duck and self.settings.duck_shape
        symbol = self._duck.get(value) if duck else None
        if symbol is None or symbol in apart:
            symbol = self._given("s", value, self.smallest_size)
            if duck:
                self._duck.setdefault(value, symbol)
        self.sources[symbol].append(source)
        return torch.SymInt(self.node(symbol, int, value))

    def create_number(self, value: int, source: str) -> torch.SymInt:
        """Return an integer of a call that isn't negative, and may be 0 or 1: a size only once it `is_size`.

        Args:
            value: What it is at this call.
            source: Python text that reads it from the inputs, such as `"step"`.
        """
        symbol = self._given("k", value, 0)
        self.sources[symbol].append(source)
        return torch.SymInt(self.node(symbol, int, value))

    def _given(self, prefix: str, value: int, low: int) -> Any:
        """Return a new symbol that has a value at this call."""
        symbol = symbol_named(f"{prefix}{next(self._names[prefix])}")
        self.backed_var_to_val[symbol] = Integer(value)
        self.knowledge.ranges[symbol] = (low, INF)
        self.sources[symbol] = []
        return symbol

    def is_size(self, number: Any) -> None:
        """Rely on the numbers that something is computed of to be at least 2, as sizes are; 0 and 1 become constants.

        Args:
            number: A SymInt, or anything else, of which nothing is relied on.

        Example:
            >>> env = ShapeEnv()
            >>> one, many = env.create_number(1, "n"), env.create_number(7, "m")
            >>> env.is_size(one + many)
            >>> one + many, [str(g.expr) for g in env.guards]
            (k1 + 1, ['Eq(k0, 1)', 'k1 >= 2'])
        """
        for symbol in self.small_numbers(number):
            now = self.backed_var_to_val[symbol]
            self.evaluate(symbol >= self.smallest_size if now >= self.smallest_size else sympy.Eq(symbol, now))

    def small_numbers(self, number: Any) -> list[Any]:
        """Return the symbols of a SymInt that may be less than a size by what is relied on, sorted; none of others."""
        if not isinstance(number, SymTypes):
            return []
        names = [s for s in sorted(number.node.expr.free_symbols, key=str) if str(s).startswith("k")]
        ranges, values = self.knowledge.ranges, self.backed_var_to_val
        return [s for s in names if s in values and ranges[s][0] < self.smallest_size]

    @property
    def smallest_size(self) -> int:
        """The least value that a size symbol can have."""
        return 2 if self.settings.specialize_zero_one else 0

    def node(self, expr: Any, pytype: type, hint: Any) -> SymNode:
        """Return the one node for `expr` as a Python `pytype`."""
        key = (expr, pytype)
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = SymNode(expr, self, pytype, hint)
        return node

    def promise(self, source: str, size: int | torch.SymInt, low: int | None = None, high: int | None = None) -> None:
        """Note that a user promised that the size at `source` varies, in `[low, high]`; see `check_marks`."""
        self.promises.append((source, size, low, high))
        if isinstance(size, torch.SymInt):
            n_before = len(self.guards)
            self.mark_range(size, low, high)
            self.promised += self.guards[n_before:]

    def mark_range(self, size: torch.SymInt, low: int | None = None, high: int | None = None) -> None:
        """Take `size` to lie in `[low, high]`, which is a guard as well."""
        symbol = size.node.expr
        for bound, relation in ((low, sympy.Ge), (high, sympy.Le)):
            if bound is not None and not self.knowledge.decide(relation(symbol, bound)):
                self.guards.append(Relation(relation(symbol, bound), self.user_line()))
                self.knowledge.learn(relation(symbol, bound))

    def create_unbacked_symint(self, source: Any = None) -> torch.SymInt:
        """Return a new integer whose value only the running program knows."""
        return torch.SymInt(self.node(self._pending(self._fresh("u")), int, None))

    def create_unbacked_symfloat(self) -> torch.SymFloat:
        """Return a new float whose value only the running program knows."""
        return torch.SymFloat(self.node(self._pending(self._fresh("zuf")), float, None))

    def create_unbacked_symbool(self) -> torch.SymBool:
        """Return a new truth value that only the running program knows."""
        symbol = self._fresh("u")
        self.knowledge.ranges[symbol] = (0, 1)
        self._pending(symbol)
        return torch.SymBool(self.node(sympy.Eq(symbol, 1), bool, None))

    def create_symintnode(self, sym: Any, *, hint: Any, source: Any = None) -> int | torch.SymInt:
        """Return `sym` as an int or SymInt."""
        if isinstance(sym, int) or getattr(sym, "is_Integer", False):
            return int(sym)
        return torch.SymInt(self.node(sym, int, hint))

    def is_unbacked_symint(self, symbol: Any) -> bool:
        """Tell whether a symbol has no value at entry."""
        return str(symbol.name).startswith("u")

    def unbacked_integers(self) -> list[Any]:
        """Return the symbols of integers that no input has, in order."""
        symbols = [s for s in self.knowledge.ranges if s not in self.sources and self.is_unbacked_symint(s)]
        return sorted(symbols, key=lambda s: int(s.name[1:]))

    def _fresh(self, prefix: str) -> Any:
        assumptions = {"real": True} if prefix == "zuf" else {"integer": True}
        symbol = sympy.Symbol(f"{prefix}{next(self._names[prefix])}", **assumptions)
        self.knowledge.ranges[symbol] = (-INF, INF)
        return symbol

    def reserve(self, name: str) -> None:
        """Make no symbol of this name: one that was read from text has it."""
        prefix = name.rstrip("0123456789")
        if prefix in self._names and name != prefix:
            self._names[prefix] = itertools.count(max(next(self._names[prefix]), int(name[len(prefix) :]) + 1))

    def _pending(self, symbol: Any) -> Any:
        if not self._ignoring_unbacked:
            self.pending_fresh_unbacked_symbols.append(symbol)
        return symbol

    # ---- questions ------------------------------------------------------------------------------------------

    def evaluate(self, expr: Any, hint: Any = None, *, oblivious: bool = False, fallback: bool | None = None) -> Any:
        """Return the value of `expr`; what isn't known for all sizes becomes a guard.

        Args:
            expr: SymPy expression.
            hint: Its value at this call, when the caller has it.
            oblivious: Take unbacked sizes to be at least 2.
            fallback: Answer for data-dependent questions instead of raising.

        Raises:
            GuardOnDataDependentSymNode: `expr` depends on an unbacked symbol, and there is no fallback. (torch's
                own class, which torch's own code catches.)
        """
        if expr is sympy.true or expr is sympy.false:
            return bool(expr)
        if expr.is_number:
            return expr
        decided = self.knowledge.decide(expr, oblivious=oblivious)
        if decided is not None:
            return decided
        if not self._backed(expr):
            expr = self.knowledge.simplify(expr)
            if not self._backed(expr):
                if fallback is not None:
                    return fallback
                where = self.user_line()
                raise GuardOnDataDependentSymNode(expr, f"can't decide {expr}, which depends on data, at {where}")
        value = hint if hint is not None and not isinstance(hint, SymTypes) else self._hint_of(expr)
        if _is_needless(expr):
            self.n_unguarded += 1
            return value
        self._guard(expr, value)
        return value

    def _guard(self, expr: Any, value: Any) -> None:
        if self.suppressed:
            return
        if self.closed:
            origin = self.user_line()
            raise NeedsFact(str(expr), where=(origin,) if origin else ())
        if isinstance(value, bool):
            relation = expr if value else sympy.Not(expr)
        else:
            relation = sympy.Eq(expr, value)
        self.guards.append(Relation(_expanded(relation), self.user_line()))
        self.knowledge.learn(relation)

    def evaluate_sym_node(self, node: SymNode, size_oblivious: bool = False, fallback_value: bool | None = None) -> Any:
        """Protocol: `evaluate` for a node."""
        if fallback_value is None or node.hint is None:
            return self.evaluate(node.expr, node.hint, oblivious=size_oblivious, fallback=fallback_value)
        return node.evaluate(size_oblivious)

    def guard_or_defer_runtime_assert(self, expr: Any, msg: str, fx_node: Any = None) -> bool:
        """Protocol: take `expr` as true; a question about data becomes an assert of the running program."""
        decided = self.knowledge.decide(expr)
        if decided is not None:
            return bool(decided)
        if self._backed(expr):
            return bool(self.evaluate(expr))
        self.asserts.append(Relation(expr, self.user_line()))
        self.knowledge.learn(expr)
        return True

    def user_line(self) -> Origin | None:
        """Return the user line that is being looked at."""
        origin = self.locate() if self.locate is not None else None
        return origin or user_line()

    def _backed(self, expr: Any) -> bool:
        return bool(expr.free_symbols <= self.backed_var_to_val.keys())

    def _maybe_evaluate_static(
        self, expr: Any, *, compute_hint: bool = False, size_oblivious: bool = False, **_: Any
    ) -> Any:
        return self._hint_of(expr) if compute_hint else self.knowledge.decide(expr, oblivious=size_oblivious)

    def _hint_of(self, expr: Any) -> Any:
        if isinstance(expr, int):
            return expr
        result = self.knowledge.replace(expr).xreplace(self.backed_var_to_val)
        if result is sympy.true or result is sympy.false:
            return bool(result)
        if result.is_number:
            return int(result) if result.is_integer else float(result)
        return None

    # ---- protocol: constraints ------------------------------------------------------------------------------

    def _constrain_range(self, expr: Any, min: Any, max: Any) -> None:
        if expr.is_Symbol:
            self.knowledge.narrow(expr, _bound(min), _bound(max))

    def _constrain_range_for_size(self, sym: Any, min: int | None = None, max: int | None = None) -> None:
        self.knowledge.size_like.add(sym)
        high = INF if max is None or max >= sys.maxsize - 1 else int(max)
        self.knowledge.narrow(sym, int(min or 0), high)

    def _constrain_is_bounded(self, sym: Any, upper_bound: int) -> None:
        self.knowledge.narrow(sym, -INF, upper_bound)

    def _constrain_unify(self, a: Any, b: Any) -> None:
        left, right = _expr_of(a), _expr_of(b)
        if left != right:
            self.knowledge.learn(sympy.Eq(left, right))

    # ---- protocol: views of what is known -------------------------------------------------------------------

    def replace(self, expr: Any) -> Any:
        """Return `expr` with every replaced symbol gone."""
        return self.knowledge.replace(expr)

    def simplify(self, expr: Any) -> Any:
        """Return `expr` without what the facts decide."""
        return self.knowledge.simplify(expr)

    @property
    def var_to_range(self) -> dict[Any, Any]:
        """Ranges in torch's own form."""
        from torch.utils._sympy.numbers import int_oo
        from torch.utils._sympy.value_ranges import ValueRanges

        def end(v: float) -> Any:
            return int_oo if v == INF else -int_oo if v == -INF else int(v)

        ranges = self.knowledge.ranges.items()
        return {s: ValueRanges(end(a), end(b)) for s, (a, b) in ranges if not s.name.startswith("z")}

    def bound_sympy(self, expr: Any, size_oblivious: bool = False) -> Any:
        """Return torch's ValueRanges of an expression."""
        from torch.utils._sympy.value_ranges import bound_sympy

        return bound_sympy(expr, self.var_to_range)

    def guarding_hint_or_throw(self, expr: Any) -> Any:
        """Return the value of `expr` at this call.

        Raises:
            GuardOnDataDependentSymNode: It has none.
        """
        hint = self._hint_of(expr)
        if hint is None:
            raise GuardOnDataDependentSymNode(expr, f"{expr} has no value at entry")
        return hint

    def optimization_hint(self, expr: Any, fallback: int | None = None) -> Any:
        """Return the value at this call, or a guess that no result depends on."""
        hint = self._hint_of(expr)
        return hint if hint is not None else 8192 if fallback is None else fallback

    def has_guarding_hint(self, expr: Any) -> bool:
        """Tell whether `expr` has a value at entry."""
        return self._hint_of(expr) is not None

    @property
    def var_to_val(self) -> dict[Any, Any]:
        """Older name of `backed_var_to_val`."""
        return self.backed_var_to_val

    def size_hint(self, expr: Any, *, allow_none: bool = False) -> Any:
        """Older name of the value at this call."""
        return self._hint_of(expr)

    def suppress_guards(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which answers leave no guards."""
        return self._counting("suppressed")

    def ignore_fresh_unbacked_symbols(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which new unbacked symbols need not be bound."""
        return self._counting("_ignoring_unbacked")

    @contextlib.contextmanager
    def _counting(self, name: str) -> Iterator[None]:
        setattr(self, name, getattr(self, name) + 1)
        try:
            yield
        finally:
            setattr(self, name, getattr(self, name) - 1)

    def cleanup(self) -> None:
        """Protocol: nothing to release."""

    def remember(self, key: Any, make: Callable[[], SymNode]) -> SymNode:
        """Return the node for `key`, made once for each state of the replacements."""
        memo = self.remembered()
        node = memo.get(key)
        if node is None:
            node = memo[key] = make()
        return node

    def remembered(self) -> dict[Any, SymNode]:
        """Return the results of node operations so far, which hold until a symbol is replaced."""
        if self._memo_version != self.knowledge.replacement_version:
            self.memo.clear()
            self._memo_version = self.knowledge.replacement_version
        return self.memo


def _expanded(relation: Any) -> Any:
    """Return a relation between sums of products: one text, however the sizes in it were computed."""
    if relation.is_Relational:
        return relation.func(*map(sympy.expand, relation.args))
    if isinstance(relation, sympy.And | sympy.Or | sympy.Not):
        return relation.func(*map(_expanded, relation.args))
    return relation


def _is_needless(expr: Any) -> bool:
    """Tell whether torch asks a question where either answer gives the same result, so that none needs a guard.

    Its choice of a convolution kernel, made for the layout of the result, has thresholds (such as 20,480 elements), but
    the kernels on both sides of them give the same layout. The size of a pooled image is a quotient rounded down, of
    which torch before 2.13 asks whether there is a remainder, to round down again what Python has rounded down already.
    """
    threshold, remainder = isinstance(expr, _THRESHOLDS), expr.has(Mod, PythonMod)
    if not threshold and not remainder:
        return False
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith((_HERE, torch.__file__)):
        frame = frame.f_back  # type: ignore[assignment]
    code = None if frame is None else frame.f_code
    return (code is _CONVOLUTION and threshold) or (code is _POOLED_SIZE and remainder)


def user_line() -> Origin | None:
    """Return the innermost frame that is neither torch's nor this package's."""
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        name = code.co_filename
        if not (name.startswith((_TORCH, _HERE, "<")) or name.endswith("/contextlib.py")):
            return Origin(name, frame.f_lineno, code.co_qualname)
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _bound(value: Any) -> float:
    """Return an end of a range; torch writes infinities as huge integers."""
    if getattr(value, "is_infinite", False) or abs(value) >= 2**63 - 2:
        return INF if value > 0 else -INF
    return int(value)


def _expr_of(value: Any) -> Any:
    return value.node.expr if isinstance(value, SymTypes) else sympy.sympify(value)
