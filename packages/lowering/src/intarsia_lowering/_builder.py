"""The builder: what a lowering calls to make nests, buffers and extern calls for the node at hand."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from intarsia_ir.dtypes import dtype_from_name, dtype_name
from intarsia_ir.eager import Rounded, rounds
from intarsia_ir.errors import UnsupportedError
from intarsia_ir.records import Origin
from intarsia_loops.index import ONE, ZERO, Atom, IndexExpr, axis, less, lift, row_major
from intarsia_loops.layout import elements_overlap
from intarsia_loops.ops import INTEGERS, NEST_KINDS
from intarsia_loops.program import Buffer, Condition, Extern, Item, Nest, TensorRef, Val, cast, const
from intarsia_lowering._empty import MayBeEmptyError, reads_nothing
from intarsia_lowering._known import known_index, wrapped
from intarsia_lowering._sizes import Sizes
from intarsia_lowering._values import Point, Tensor, compute_type, operand, read

__all__ = ["Builder", "Spec", "rounded_type"]

# They give the strides that they are given, also where elements share memory.
_OF_GIVEN_STRIDES = frozenset({torch.ops.aten.empty_strided.default, torch.ops.aten.new_empty_strided.default})


@dataclass(frozen=True, slots=True)
class Spec:
    """What a result must look like: sizes, eager's strides, element type, device."""

    shape: tuple[IndexExpr, ...]
    strides: tuple[IndexExpr, ...]
    dtype: str
    device: str


class Builder:
    """Collects buffers and items in program order. `begin` sets which node the next ones belong to.

    Args:
        sizes: Translator of sizes.
        taken: Buffer names that must not be made up for intermediates.
        deterministic, nan_gelu: As for `lower`.
    """

    def __init__(
        self, sizes: Sizes, taken: set[str], deterministic: bool = False, nan_gelu: Collection[str] = ()
    ) -> None:
        self.sizes, self.deterministic, self.nan_gelu = sizes, deterministic, frozenset(nan_gelu)
        self.buffers: dict[str, Buffer] = {}
        self.items: list[Item] = []
        self.inputs: set[str] = set()
        self._used: frozenset[int] | None = None
        self._taken = taken
        self._grids: dict[Any, tuple[tuple[Atom, ...], Point]] = {}
        self._maps: dict[str, Nest] = {}
        self._specs: dict[Any, Spec] = {}
        self._name = ""
        self._value: Any = None
        self._origins: tuple[Origin, ...] = ()
        self._named = False
        self._device: str | None = None
        self.meets_nests = True

    def begin(
        self,
        name: str,
        value: Any,
        origins: tuple[Origin, ...],
        used: frozenset[int] | None = None,
        device: str | None = None,
        meets_nests: bool = True,
    ) -> None:
        """Start lowering the node of this name, which produces `value` (fake tensors).

        Args:
            name: The node's name; its buffers are called after it.
            value: Its recorded value.
            origins: Its user lines.
            used: Positions of its results that are used; None: all.
            device: Where its results are in the program; None: where they are in the graph.
            meets_nests: Whether its results, or views of them, are read by what may be a nest too.
        """
        self._device, self.meets_nests = device, meets_nests
        self._name, self._value, self._origins, self._used, self._named = name, value, origins, used, False

    def or_nothing(self, lowering: Callable[[], Any]) -> Any:
        """Return what a lowering of the node at hand gives; None, and nothing is added, where it may read nothing."""
        n_items, names, named, maps = len(self.items), set(self.buffers), self._named, dict(self._maps)
        try:
            return lowering()
        except MayBeEmptyError:
            del self.items[n_items:]
            for name in self.buffers.keys() - names:
                del self.buffers[name]
            self._named, self._maps = named, maps
            return None

    @property
    def n_results(self) -> int:
        """Number of results of a node that returns several."""
        return len(self._value)

    def is_used(self, position: int) -> bool:
        """Tell whether anybody takes result number `position` of a node that returns several."""
        return self._used is None or position in self._used

    # ---- results of the node at hand

    def spec(self, position: int | None = None) -> Spec:
        """Return what result number `position` (None: the only one) of the node must look like."""
        return self.spec_of(self._value if position is None else self._value[position])

    def spec_of(self, value: torch.Tensor) -> Spec:
        """Return sizes, strides, type and device of a fake tensor."""
        shape, strides = self.sizes.each(value.shape), self.sizes.strides(value.stride())
        key = (shape, strides, value.dtype, self._device or value.device)
        spec = self._specs.get(key)
        if spec is None:
            device = self._device or str(value.device)
            spec = self._specs[key] = Spec(shape, strides, dtype_name(value.dtype), device)
        return spec

    def temp_spec(self, shape: Sequence[IndexExpr], dtype: str) -> Spec:
        """Return the spec of a row-major intermediate on the device of the node's first result."""
        value = self._value[0] if isinstance(self._value, (tuple, list)) else self._value
        return Spec(tuple(shape), row_major(shape), dtype, self._device or str(value.device))

    def declare(self, spec: Spec, name: str) -> Tensor:
        """Add a buffer and return it as a tensor."""
        self.buffers[name] = Buffer(spec.shape, spec.strides, spec.dtype, spec.device)
        return Tensor(name, spec.shape, spec.dtype, _same, spec.strides, direct=True)

    def fresh_name(self, role: str = "") -> str:
        """Return a buffer name for the node: its own first, then with a role or number behind."""
        if not role and not self._named:
            self._named = True
            return self._name
        name, k = f"{self._name}_{role}", 0
        while name in self._taken or name in self.buffers:
            k += 1
            name = f"{self._name}_{role}{k}"
        return name

    # ---- nests

    def nest(
        self, kind: str, spec: Spec, red: Sequence[IndexExpr], body: Callable[[Point, Point], Val], role: str = ""
    ) -> Tensor:
        """Add `out[axes] = kind over red of body` and return `out`.

        Args:
            kind: A map, reduction or scatter of the nest kind table.
            spec: The result; the body's type for this kind must fit its element type.
            red: Sizes of the reduced axes, in the order that arg reductions number them; of a scatter's points.
            body: (point of out, point of red) -> value.
            role: Suffix of the buffer's name; "" for the node's result.
        """
        axes, point = self._grid("i", spec.shape)
        reduced, inner = self._grid("r", tuple(red))
        value = body(point, inner)
        if not reduced and kind != "map" and not NEST_KINDS[kind].scatter:
            value = const(0, "i64") if NEST_KINDS[kind].out_type == "i64" else value
            kind = "map"
        return self._add(kind, spec, axes, reduced, value, role)

    def point_of(self, shape: tuple[IndexExpr, ...]) -> Point:
        """Return the point over a shape that `map` calls its body with."""
        return self._grid("i", shape)[1]

    def axes_of(self, shape: tuple[IndexExpr, ...]) -> tuple[Atom, ...]:
        """Return the axes of `point_of` a shape."""
        return self._grid("i", shape)[0]

    def known(self, index: Tensor | None, point: Point, size: IndexExpr, *, may_wrap: bool = True) -> IndexExpr | None:
        """Return an element of an integer tensor, broadcast to `point`, as an index that is provably in [0, size).

        None when it depends on data, or isn't provably in range. `may_wrap`: negative values count from the back.
        """
        if index is None:
            return None
        expr = known_index(read(index, point), self._maps)
        if expr is None:
            return None
        return wrapped(expr, size) if may_wrap else expr if less(expr, size) else None

    def is_mapped(self, tensor: Tensor) -> bool:
        """Tell whether a map of this program makes its elements: what reads them may compute them again."""
        return tensor.buffer in self._maps

    def _grid(self, prefix: str, shape: tuple[IndexExpr, ...]) -> tuple[tuple[Atom, ...], Point]:
        """The axes over a shape, named by position, and the same as a point."""
        grid = self._grids.get((prefix, shape))
        if grid is None:
            axes = tuple([axis(f"{prefix}{k}", n) for k, n in enumerate(shape)])
            grid = self._grids[prefix, shape] = axes, tuple([lift(a) for a in axes])
        return grid

    def _add(
        self, kind: str, spec: Spec, axes: tuple[Atom, ...], red: tuple[Atom, ...], body: Val, role: str
    ) -> Tensor:
        if self.sizes.may_be_zero and reads_nothing(body, (*axes, *red), self.buffers):
            raise MayBeEmptyError
        out = self.declare(spec, self.fresh_name(role))
        nest = Nest(out.buffer, axes, red, kind, body, spec.dtype, self._origins)
        self.items.append(nest)
        if spec.dtype in INTEGERS:
            self._maps[out.buffer] = nest
        return out

    def map(self, body: Callable[[Point], Val], spec: Spec | None = None, role: str = "") -> Tensor:
        """Add `out[point] = body(point)`, converted to the result's type; `spec` None is the node's only result."""
        spec = spec or self.spec()
        return self.nest("map", spec, (), lambda point, _: cast(body(point), spec.dtype), role)

    def pointwise(
        self,
        function: Callable[..., Val],
        *operands: Any,
        compute: str | None = None,
        spec: Spec | None = None,
        role: str = "",
    ) -> Tensor:
        """Add a map of `function` over broadcast tensors and numbers, each first converted to type `compute`.

        None: the type in which arithmetic on elements of the result happens, float32 for the half types.
        """
        compute = compute or compute_type((spec or self.spec()).dtype)
        return self.map(lambda p: function(*[operand(x, p, compute) for x in operands]), spec, role)

    def reduce(
        self,
        kind: str,
        x: Tensor,
        dims: Sequence[int],
        *,
        dtype: str,
        element: str | None = None,
        body: Callable[[Val, Point], Val] | None = None,
        spec: Spec | None = None,
        role: str = "",
    ) -> Tensor:
        """Fold `x` over `dims`; the result has the other dimensions.

        Args:
            kind: A reduction of the nest kind table.
            x: The tensor.
            dims: Reduced dimensions, non-negative; arg reductions number the elements in this order.
            dtype: Type of what is folded.
            element: Type that elements are converted to before `body`; None: the same.
            body: (element, point of x) -> what is folded; None: the element.
            spec: The result; None: a row-major intermediate of the body's type.
            role: Suffix of the buffer's name.
        """
        kept = [d for d in range(len(x.shape)) if d not in dims]
        place = {d: k for k, d in enumerate(kept)} | {d: len(kept) + k for k, d in enumerate(dims)}

        def value(point: Point, red: Point) -> Val:
            both = point + red
            full = tuple([both[place[d]] for d in range(len(place))])
            value = cast(x.at(full), element or dtype)
            return value if body is None else body(value, full)

        out = spec or self.temp_spec([x.shape[d] for d in kept], NEST_KINDS[kind].out_type or dtype)
        return self.nest(kind, out, [x.shape[d] for d in dims], value, role)

    def scan(
        self,
        kind: str,
        x: Tensor,
        dim: int,
        *,
        dtype: str,
        element: str | None = None,
        spec: Spec | None = None,
        role: str = "",
    ) -> Tensor:
        """Run `kind` along dimension `dim` of `x`, whose elements are converted to `element`, then to `dtype`."""
        spec = spec or self.temp_spec(x.shape, dtype)
        axes, point = self._grid("i", spec.shape)
        body = cast(cast(x.at(point), element or dtype), dtype)
        return self._add(kind, spec, axes, (axes[dim],), body, role)

    def keep_dims(self, x: Tensor, dims: Sequence[int]) -> Tensor:
        """Return `x`, which lacks `dims`, as a view that has them with size 1."""
        rank = len(x.shape) + len(dims)
        kept = [d for d in range(rank) if d not in dims]
        shape = [ONE] * rank
        for d, n in zip(kept, x.shape, strict=True):
            shape[d] = n
        return Tensor(x.buffer, tuple(shape), x.dtype, lambda p: x.index(tuple([p[d] for d in kept])))

    # ---- tensors in memory

    def tensor_ref(self, x: Tensor) -> TensorRef:
        """Return `x` as extern calls and outputs need it; copied first when its layout can't be eager's."""
        strides = x.strides or row_major(x.shape)
        ref = self.as_strided(x, strides)
        if ref is None:
            strides = row_major(x.shape) if elements_overlap(x.shape, strides) else strides
            spec = Spec(x.shape, strides, x.dtype, self.buffers[x.buffer].device)
            ref = self.as_strided(self.nest("map", spec, (), lambda p, _: x.at(p), "copy"), strides)
            assert ref is not None, "a fresh copy has the strides it was made with"
        return ref

    def as_strided(self, x: Tensor, strides: tuple[IndexExpr, ...]) -> TensorRef | None:
        """Return `x` over its buffer with these strides; None when its elements don't lie there."""
        buffer = self.buffers[x.buffer]
        if x.direct and strides == buffer.strides:
            return TensorRef(x.buffer, x.shape, strides, ZERO)
        if any(n is ZERO for n in x.shape):
            return TensorRef(x.buffer, x.shape, strides, ZERO)
        axes, point = self._grid("i", x.shape)
        address = ZERO
        for entry, stride in zip(x.index(point), buffer.strides, strict=True):
            address = address + entry * stride
        for a, n, stride in zip(axes, x.shape, strides, strict=True):
            if n is ONE:
                continue
            split = address.coef(a)
            if split is None or split[0] is not stride:
                return None
            address = split[1]
        return None if address.axes() else TensorRef(x.buffer, x.shape, strides, address)

    def extern(self, target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Add a call of an ATen op and return its results as tensors, nested as the op returns them."""
        call_args = tuple([self._argument(a) for a in args])
        call_kwargs = tuple([(k, self._argument(v)) for k, v in sorted(kwargs.items())])
        many = isinstance(self._value, (tuple, list))
        values = list(self._value) if many else [self._value]
        if self._value is None and not target._schema.returns:
            values = []
        results: list[Tensor | None] = []
        for k, value in enumerate(values):
            if isinstance(value, torch.Tensor):
                layout = self.spec_of(value) if target in _OF_GIVEN_STRIDES else self._own_layout(value)
                results.append(self.declare(layout, self.fresh_name(str(k) if many else "")))
            else:
                results.append(None)
        outs = tuple([r.buffer if r is not None else "" for r in results])
        self.items.append(Extern(outs, target, call_args, call_kwargs, self._origins))
        return tuple(results) if many else results[0] if results else ()

    def call(self, target: Any, args: tuple[Any, ...], spec: Spec, role: str) -> Tensor:
        """Add a call of an ATen op that makes a tensor from numbers, and return it."""
        tensor = self.declare(spec, self.fresh_name(role))
        where = (("device", torch.device(spec.device)), ("dtype", dtype_from_name(spec.dtype)))
        self.items.append(Extern((tensor.buffer,), target, args, where, self._origins))
        return tensor

    def number(self, target: Any, args: Sequence[Any], name: str) -> None:
        """Add a call of an ATen op that gives an integer, which is the size symbol of this name from then on."""
        self.items.append(Extern((name,), target, tuple([self._argument(a) for a in args]), (), self._origins))

    def check_sizes(self, condition: Condition, message: str) -> None:
        """Add a check that raises `message` when a relation between sizes doesn't hold."""
        target = torch.ops.aten._assert_scalar.default
        self.items.append(Extern((), target, (condition, message), (), self._origins))

    def check(self, condition: Tensor, message: str) -> None:
        """Add a check that raises `message` when a 0-dim b8 tensor is false."""
        target = torch.ops.aten._assert_async.msg
        self.items.append(Extern((), target, (self.tensor_ref(condition), message), (), self._origins))

    def _own_layout(self, value: torch.Tensor) -> Spec:
        """Eager's layout for a result in memory of its own; row-major for the copy of an overlapping view."""
        spec = self.spec_of(value)
        if elements_overlap(spec.shape, spec.strides):
            spec = Spec(spec.shape, row_major(spec.shape), spec.dtype, spec.device)
        return spec

    def _argument(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self.tensor_ref(value)
        if isinstance(value, (list, tuple)):
            return tuple([self._argument(v) for v in value])
        if isinstance(value, Val):
            raise UnsupportedError(
                "a library operator takes a float that is computed from sizes",
                code="loops.size_expression",
                where=self._origins,
                hints=("mark the dimension as static",),
            )
        return self.sizes(value) if isinstance(value, torch.SymInt) else value


def _same(point: Point) -> Point:
    return point


def rounded_type(b: Builder, op: str, what: Rounded, dtype: str) -> str | None:
    """Return `dtype` if it is a half type to which eager's kernel for an op rounds something here; None otherwise."""
    device = torch.device(b.spec().device).type
    return dtype if rounds(op, what, device, dtype_from_name(dtype)) else None
