"""Loop programs as frozen values: what flows from lowering through fusion to the emitters.

Val      interned scalar expression DAG; equality is identity; a load has one index per dimension
Nest     out[axes] = kind over red of body
Kernel   for rows: step; step; ...   a step is a Nest whose leading axes are `rows`; `local` never reaches memory
Extern   a call of an ATen op on whole tensors
Program  buffers, inputs, items (Nest | Kernel | Extern), outputs, and, below launches, the placement of buffers
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import Origin, SizeFacts
from intarsia_loops._interning import InternTable
from intarsia_loops.index import IndexExpr, lift

__all__ = [
    "Buffer",
    "Condition",
    "Extern",
    "Item",
    "Kernel",
    "Nest",
    "Placement",
    "Program",
    "Refused",
    "Scatter",
    "TensorRef",
    "Val",
    "cast",
    "const",
    "index_value",
    "load",
    "scatter",
    "scatter_of",
    "val",
]

SCHEMA = 2  # 1, where each nest has the user's lines in whole, is read as well


class Val:
    """A scalar value: `op(args): dtype`. Built only by `val` and its helpers, which intern it.

    Leaves: `load(buffer, (index, ...))`, `const(number)`, `index(IndexExpr)`. An index of a `gather` may itself be
    a Val of type i64 (data-dependent); an index of a `load` is always an IndexExpr.

    Attributes:
        op: Row of the scalar op table.
        args: Operands: Vals, or for leaves what the leaf needs.
        dtype: Short element type name of the result.
        loads: Every load and gather below (and including) this value.
        size: Number of nodes counted as a tree.
        form: A hash of all but the names of buffers and axes: values that are equal up to these have the same one.

    `+ - * /` of values of one type, or with numbers, are `add`, `sub`, `mul`, `div` of that type.
    """

    __slots__ = ("__weakref__", "args", "dtype", "form", "loads", "op", "size")

    op: str
    args: tuple[Any, ...]
    dtype: str
    loads: frozenset[Val]
    size: int
    form: int

    def __repr__(self) -> str:
        from intarsia_loops._text import value_text  # the text of programs needs programs

        return value_text(self) if self.size < 1000 else f"<{self.op} of {self.size} values>"

    def __add__(self, other: Val | float) -> Val:
        return _arithmetic("add", self, other)

    def __radd__(self, other: float) -> Val:
        return _arithmetic("add", other, self)

    def __sub__(self, other: Val | float) -> Val:
        return _arithmetic("sub", self, other)

    def __rsub__(self, other: float) -> Val:
        return _arithmetic("sub", other, self)

    def __mul__(self, other: Val | float) -> Val:
        return _arithmetic("mul", self, other)

    def __rmul__(self, other: float) -> Val:
        return _arithmetic("mul", other, self)

    def __truediv__(self, other: Val | float) -> Val:
        return _arithmetic("div", self, other)

    def __rtruediv__(self, other: float) -> Val:
        return _arithmetic("div", other, self)

    def __neg__(self) -> Val:
        return val("neg", self, dtype=self.dtype)

    def __copy__(self) -> Val:
        return self

    def __deepcopy__(self, memo: Any) -> Val:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self.op, self.args, self.dtype)


_vals: InternTable[Val] = InternTable()


def val(op: str, *args: Any, dtype: str) -> Val:
    """Return the one value `op(args): dtype`."""
    # -0.0 == 0.0 and True == 1 == 1.0: a constant's key needs its type and its text as well
    key = (op, args, dtype) if op != "const" else (op, type(args[0]), repr(args[0]), dtype)
    ref = _vals.refs.get(key)
    interned = ref() if ref is not None else None
    return interned if interned is not None else _new(key, op, args, dtype)


def _new(key: tuple[Any, ...], op: str, args: tuple[Any, ...], dtype: str) -> Val:
    v = Val()
    v.op, v.args, v.dtype = op, args, dtype
    is_read = op in ("load", "gather")
    operands = [a for a in (args[1] if is_read else args) if type(a) is Val]
    v.size = 1 + sum([a.size for a in operands])
    sets = {a.loads for a in operands if a.loads}
    below = next(iter(sets)) if len(sets) == 1 else frozenset[Val]().union(*sets)
    v.loads = below | {v} if is_read else below
    v.form = hash((op, dtype, *[_form(a) for a in (args[1] if is_read else args)]))
    return _vals.keep(key, v)


def _form(operand: Any) -> Any:
    """Something hashable that operands share which are equal up to the names of buffers and axes."""
    if type(operand) is Val:
        return operand.form
    if type(operand) is IndexExpr:
        return tuple(sorted([(len(monomial), factor) for monomial, factor in operand.terms]))
    return repr(operand)


def _arithmetic(op: str, a: Val | float, b: Val | float) -> Val:
    """Return `op(a, b)`; a number becomes a constant of the other one's type."""
    dtype = a.dtype if isinstance(a, Val) else b.dtype if isinstance(b, Val) else ""
    first, second = [v if isinstance(v, Val) else const(_number(v, dtype), dtype) for v in (a, b)]
    if first.dtype != second.dtype:
        raise InvalidArgumentError(
            f"{op} of a {first.dtype} and a {second.dtype}",
            code="loops.mixed_types",
            hints=(f"convert one: cast(value, {first.dtype!r})",),
        )
    return val(op, first, second, dtype=dtype)


def _number(value: float, dtype: str) -> bool | int | float:
    return bool(value) if dtype == "b8" else float(value) if dtype.startswith("f") else int(value)


def _rebuilt(op: str, args: tuple[Any, ...], dtype: str) -> Val:
    return val(op, *args, dtype=dtype)


def load(buffer: str, index: tuple[IndexExpr | int | Val, ...], dtype: str) -> Val:
    """Return the element of `buffer` at `index` (one entry per dimension; a Val entry makes it a gather)."""
    entries = tuple([i if isinstance(i, Val) else lift(i) for i in index])
    op = "gather" if any(type(i) is Val for i in entries) else "load"
    return val(op, buffer, entries, dtype=dtype)


def const(number: bool | int | float | complex, dtype: str) -> Val:
    """Return a constant."""
    return val("const", number, dtype=dtype)


def index_value(expr: IndexExpr, dtype: str = "i64") -> Val:
    """Return the number that an index expression has at the current point."""
    return val("index", lift(expr), dtype=dtype)


def cast(v: Val, dtype: str) -> Val:
    """Return `v` converted to `dtype` as ATen converts; `v` itself when it has that type."""
    return v if v.dtype == dtype else val("cast", v, dtype=dtype)


def scatter(initial: Val, value: Val, places: Sequence[IndexExpr | Val]) -> Val:
    """Return the body of a scatter nest: what the output holds first, what each point adds to it, and where.

    Args:
        initial: Over the nest's `axes`.
        value: Over its `red`.
        places: Over its `red`: one entry per dimension of the output, an i64 Val where it depends on data.
    """
    entries = [p if isinstance(p, Val) else index_value(p) for p in places]
    return val("scatter", initial, value, *entries, dtype=value.dtype)


@dataclass(frozen=True, slots=True)
class Scatter:
    """The body of a scatter nest, taken apart.

    Args:
        initial: What the output holds first, over the nest's `axes`.
        value: What a point adds to the element at its place, over the nest's `red`.
        places: The place, one i64 Val per dimension of the output, over the nest's `red`.
    """

    initial: Val
    value: Val
    places: tuple[Val, ...]

    @property
    def index(self) -> tuple[IndexExpr | Val, ...]:
        """The place as an index, with what doesn't depend on data as index expressions."""
        return tuple(p.args[0] if p.op == "index" else p for p in self.places)


def scatter_of(nest: Nest) -> Scatter | None:
    """Return the parts of a scatter's body; None for nests of other kinds."""
    if nest.body.op != "scatter":
        return None
    initial, value, *places = nest.body.args
    return Scatter(initial, value, tuple(places))


@dataclass(frozen=True, slots=True)
class Buffer:
    """A tensor in memory: sizes and strides in elements, symbolic expressions even when constant."""

    shape: tuple[IndexExpr, ...]
    strides: tuple[IndexExpr, ...]
    dtype: str
    device: str = "cpu"


@dataclass(frozen=True, slots=True)
class Nest:
    """`out[axes] = kind over red of body`.

    A scatter writes at places that it computes: out = initial; for each point of red: fold value into out[place].

    Args:
        out: Buffer written; its index is exactly `axes`, in order.
        axes: One loop variable per dimension of `out`.
        red: Reduced (or scanned) loop variables, the points of a scatter; empty for a map.
        kind: Row of the nest kind table: map, sum, prod, max, min, any, all, argmax, argmin, ...
        body: Value at one point of `axes` x `red`. For `map` its dtype is the buffer's. For scatters, see `scatter`.
        dtype: Element type of `out`.
        origins: User lines; not part of equality, so equal layers are equal nests.
    """

    out: str
    axes: tuple[Any, ...]
    red: tuple[Any, ...]
    kind: str
    body: Val
    dtype: str
    origins: tuple[Origin, ...] = field(default=(), compare=False)

    def reads(self) -> frozenset[str]:
        """Return the buffers that the body loads from."""
        return frozenset(v.args[0] for v in self.body.loads)


@dataclass(frozen=True, slots=True)
class Kernel:
    """For every point of `rows`, in any order: run `steps` in order. A row sees only what it made itself.

    Args:
        rows: Loop variables that every step's `axes` start with.
        steps: The nests.
        local: Outputs of steps that never reach memory.
    """

    rows: tuple[Any, ...]
    steps: tuple[Nest, ...]
    local: frozenset[str] = frozenset()

    @property
    def origins(self) -> tuple[Origin, ...]:
        """User lines of all steps, without repeats."""
        return tuple(dict.fromkeys(o for s in self.steps for o in s.origins))

    def writes(self) -> tuple[str, ...]:
        """Return the buffers that reach memory, in step order."""
        return tuple(s.out for s in self.steps if s.out not in self.local)

    def reads(self) -> frozenset[str]:
        """Return the buffers read from memory: loaded by some step and not made by an earlier one."""
        written: set[str] = set()
        read: set[str] = set()
        for step in self.steps:
            read |= step.reads() - written
            written.add(step.out)
        return frozenset(read)


@dataclass(frozen=True, slots=True)
class TensorRef:
    """A buffer seen as a strided tensor, as extern calls and outputs need it: `as_strided(buffer, ...)`.

    `offset` is in elements from the start of the buffer.
    """

    buffer: str
    shape: tuple[IndexExpr, ...]
    strides: tuple[IndexExpr, ...]
    offset: IndexExpr


@dataclass(frozen=True, slots=True)
class Condition:
    """`left op right`, as an operand of a check: nothing that is known of sizes may answer it before it ran.

    Args:
        op: `"=="`, `"!="`, `"<"`, `"<="`, `">"` or `">="`.
        left: Over size symbols, without the ranges of the facts.
        right: The same.
    """

    op: str
    left: IndexExpr
    right: IndexExpr


@dataclass(frozen=True, slots=True)
class Extern:
    """A call of an ATen overload, or of a higher-order op, on whole tensors.

    Args:
        outs: Buffers that take the results, one per tensor result in order ("" for a result that is None or unused);
            the size symbol of a result that is a number.
        target: The OpOverload, or the `HigherOrderOp`, whose graphs are FX(aten) without values.
        args: Positional arguments; tensors are TensorRefs, also inside tuples; symbolic sizes are IndexExprs; what a
            check of sizes asks is a Condition.
        kwargs: Keyword arguments as sorted pairs.
        origins: User lines; not part of equality.
    """

    outs: tuple[str, ...]
    target: Any
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...] = ()
    origins: tuple[Origin, ...] = field(default=(), compare=False)

    def refs(self) -> tuple[TensorRef, ...]:
        """Return every tensor operand, in order."""
        refs: list[TensorRef] = []

        def walk(value: Any) -> None:
            if isinstance(value, TensorRef):
                refs.append(value)
            elif isinstance(value, (tuple, list)):
                for v in value:
                    walk(v)

        walk(self.args)
        walk(tuple(v for _, v in self.kwargs))
        return tuple(refs)

    def reads(self) -> frozenset[str]:
        """Return the buffers that the operands are views of."""
        return frozenset(r.buffer for r in self.refs())


Item = Nest | Kernel | Extern


@dataclass(frozen=True, slots=True)
class Placement:
    """Where planned intermediates live: one arena a call, byte offsets aligned to 64.

    Buffers that are inputs, graph outputs, or results of extern calls are not in it.

    Args:
        arena_bytes: Size of the arena.
        offsets: Buffer -> byte offset in the arena.
        lower_bound_bytes: Largest sum of bytes alive at once; what no plan can undercut.
    """

    arena_bytes: int
    offsets: Mapping[str, int]
    lower_bound_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Program:
    """A whole graph at the loops level (items are Nest | Extern) or the kernels level (Kernel | Extern).

    Args:
        buffers: Every buffer by name.
        inputs: Buffers (and size symbols) that the caller passes, in order.
        items: In execution order.
        outputs: What the caller gets, in order: TensorRefs of buffers, or Python constants.
        facts: Size facts that the program relies on.
        placement: Memory plan; None before launches are made.
        constants: Buffers whose tensors are fixed at compile time (0-dim literals and the like).
    """

    buffers: Mapping[str, Buffer]
    inputs: tuple[str, ...]
    items: tuple[Item, ...]
    outputs: tuple[Any, ...]
    facts: SizeFacts = field(default_factory=SizeFacts)
    placement: Placement | None = None
    constants: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Refused:
    """A rewrite that is not legal here; falsy, so `rewrite(...) or keep` reads well.

    Args:
        code: Stable identifier such as `"fuse.crosses_rows"`.
        why: One sentence with the values in it.
    """

    code: str
    why: str

    def __bool__(self) -> bool:
        return False
