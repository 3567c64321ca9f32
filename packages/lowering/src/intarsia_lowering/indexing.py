"""Lowerings of ops that move elements: joining, padding, rolling, masks of positions.

Both arms of `where` are evaluated, so a load under a condition on the position takes its index modulo the size: the
value is only used where the remainder changes nothing, and the load is always inside the buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from intarsia_ir.errors import LOOKUP_OUT_OF_RANGE
from intarsia_loops.index import ONE, ZERO, IndexExpr, lift
from intarsia_loops.index import less as is_below
from intarsia_loops.positions import is_computable, placed
from intarsia_loops.program import Val, cast, index_value, load, val
from intarsia_lowering import _math as m
from intarsia_lowering._builder import Builder
from intarsia_lowering._table import DECLINED, Table
from intarsia_lowering._values import Point, Tensor, compute_type, constant, read
from intarsia_lowering.views import first_of_slice, from_front

__all__ = ["TABLE", "check_range", "entry", "in_range", "less"]

aten: Any = torch.ops.aten
TABLE = Table("indexing")


# ---- conditions on positions --------------------------------------------------------------------------------


def less(a: IndexExpr, b: IndexExpr | int) -> Val:
    """Return the condition a < b, decided now where the ranges allow."""
    gap = lift(b) - a  # a < b  is  gap >= 1
    if gap.lo >= 1:
        return constant(True, "b8")
    if gap.hi <= 0:
        return constant(False, "b8")
    if is_below(a, lift(b)):
        return constant(True, "b8")
    return val("lt", index_value(a), index_value(lift(b)), dtype="b8")


def in_range(i: IndexExpr, low: IndexExpr | int, high: IndexExpr | int) -> Val:
    """Return the condition low <= i < high."""
    return m.and_(m.not_(below) if (below := less(i, low)).op != "const" else _opposite(below), less(i, high))


def _opposite(value: Val) -> Val:
    return constant(not value.args[0], "b8")


def _inside(i: IndexExpr, size: IndexExpr) -> IndexExpr:
    """i, made to lie in [0, size) where it doesn't; unchanged where it does."""
    return ZERO if size is ZERO else i % size


# ---- joining ------------------------------------------------------------------------------------------------


@TABLE.add(aten.cat.default)
def _cat(b: Builder, tensors: Sequence[Tensor], dim: int = 0) -> Any:
    spec = b.spec()
    parts = [t for t in tensors if len(t.shape) == len(spec.shape)]  # ATen skips empty 1-dim tensors in others
    parts = [t for t in parts if not any(n is ZERO for n in t.shape)]
    dim = dim % len(spec.shape)
    dtype = compute_type(spec.dtype)
    if not parts:
        return b.map(lambda _: constant(0, dtype))

    def body(p: Point) -> Val:
        ends, position = [], ZERO
        for t in parts:
            position = position + t.shape[dim]
            ends.append(position)
        value = _part(parts[-1], p, dim, ends[-1] - parts[-1].shape[dim], dtype)
        for t, end in reversed(list(zip(parts[:-1], ends[:-1], strict=True))):
            value = m.select(less(p[dim], end), _part(t, p, dim, end - t.shape[dim], dtype), value)
        return value

    return b.map(body)


def _part(t: Tensor, p: Point, dim: int, start: IndexExpr, dtype: str) -> Val:
    return cast(t.at((*p[:dim], _inside(p[dim] - start, t.shape[dim]), *p[dim + 1 :])), dtype)


@TABLE.add(aten.stack.default)
def _stack(b: Builder, tensors: Sequence[Tensor], dim: int = 0) -> Any:
    dim = dim % len(b.spec().shape)
    dtype = compute_type(b.spec().dtype)

    def body(p: Point) -> Val:
        inner = (*p[:dim], *p[dim + 1 :])
        value = cast(tensors[-1].at(inner), dtype)
        for k in range(len(tensors) - 2, -1, -1):
            value = m.select(less(p[dim], k + 1), cast(tensors[k].at(inner), dtype), value)
        return value

    return b.map(body)


# ---- padding, rolling, repeating ----------------------------------------------------------------------------


@TABLE.add(aten.constant_pad_nd.default)
def _constant_pad(b: Builder, self: Tensor, pad: Sequence[Any], value: bool | int | float = 0) -> Any:
    dtype, rank = compute_type(self.dtype), len(self.shape)
    before = {rank - 1 - k: lift(b.sizes(pad[2 * k])) for k in range(len(pad) // 2)}
    filler = constant(value, dtype)

    def body(p: Point) -> Val:
        inner = [p[d] - before.get(d, ZERO) for d in range(rank)]
        inside = constant(True, "b8")
        for d in before:
            inside = m.and_(inside, in_range(inner[d], 0, self.shape[d]))
        if any(n is ZERO for n in self.shape):
            return filler
        return m.select(
            inside, cast(self.at(tuple(_inside(i, n) for i, n in zip(inner, self.shape, strict=True))), dtype), filler
        )

    return b.map(body)


@TABLE.add(aten.flip.default)
def _flip(b: Builder, self: Tensor, dims: Sequence[int]) -> Any:
    flipped = {d % len(self.shape) for d in dims} if self.shape else set()
    return b.map(
        lambda p: self.at(
            tuple([n - 1 - i if d in flipped else i for d, (i, n) in enumerate(zip(p, self.shape, strict=True))])
        )
    )


@TABLE.add(aten.roll.default)
def _roll(b: Builder, self: Tensor, shifts: Any, dims: Any = ()) -> Any:
    shifts = [shifts] if isinstance(shifts, int) else list(shifts)
    dims = [dims] if isinstance(dims, int) else [d % len(self.shape) for d in dims]
    if len(dims) != len(shifts):
        return DECLINED  # no dims: the flattened tensor is rolled
    moved = dict.fromkeys(dims, 0)
    for d, s in zip(dims, shifts, strict=True):
        moved[d] += s
    return b.map(lambda p: self.at(tuple([_inside(i - moved.get(d, 0), self.shape[d]) for d, i in enumerate(p)])))


@TABLE.add(aten.repeat.default)
def _repeat(b: Builder, self: Tensor, repeats: Sequence[Any]) -> Any:
    extra = len(repeats) - len(self.shape)
    return b.map(lambda p: self.at(tuple([_inside(i, n) for i, n in zip(p[extra:], self.shape, strict=True)])))


# ---- indexing by tensors ------------------------------------------------------------------------------------
# Positions that are provably in range become loads. Others become gathers: a check of the whole index tensor comes
# first, which raises like any extern call (the frame then runs again in eager, which raises eager's own error), and
# the gather keeps its index inside the buffer whatever the check will say.


@TABLE.add(aten.index.Tensor, aten._unsafe_index.Tensor)
def _index(b: Builder, self: Tensor, indices: Sequence[Tensor | None]) -> Any:
    """x[i, :, j]: the indices' broadcast shape stands where they are, in front when they are apart."""
    dims = [d for d, t in enumerate(indices) if t is not None]
    given = [t for t in indices if t is not None]
    if any(t.dtype in ("b8", "u8") for t in given):
        return DECLINED  # masks: the result's size depends on data
    rank = max((len(t.shape) for t in given), default=0)
    together = dims == list(range(dims[0], dims[0] + len(dims))) if dims else True
    start = dims[0] if dims and together else 0

    def position(p: Point) -> Position:
        inner, rest = p[start : start + rank], iter((*p[:start], *p[start + rank :]))
        return tuple(
            [
                entry(b, indices[d], inner, n, may_wrap=True) if d in dims else next(rest)
                for d, n in enumerate(self.shape)
            ]
        )

    return _loaded(b, self, position, {d: t for d, t in enumerate(indices) if t is not None}, may_wrap=True)


Position = tuple[IndexExpr | Val, ...]


def entry(b: Builder, index: Tensor | None, p: Point, size: IndexExpr, *, may_wrap: bool) -> IndexExpr | Val:
    """Return an element of an index tensor as a position in [0, size): an index expression when that is provable."""
    index_expr = b.known(index, p, size, may_wrap=may_wrap)
    if index_expr is not None or index is None:
        return ZERO if index_expr is None else index_expr
    i, zero, n = cast(read(index, p), "i64"), constant(0, "i64"), index_value(size)
    if may_wrap:
        wraps = val("lt", i, zero, dtype="b8")
        i = val("where", wraps, val("add", i, n, dtype="i64"), i, dtype="i64")
    last = val("sub", n, constant(1, "i64"), dtype="i64")
    return val("min", val("max", i, zero, dtype="i64"), last, dtype="i64")


def _loaded(
    b: Builder,
    x: Tensor,
    position: Callable[[Point], Position],
    given: Mapping[int, Tensor],
    *,
    may_wrap: bool,
    said: str = "index out of range",
) -> Any:
    """Map over elements of `x` at positions; `given` are the index tensors by dimension of `x`.

    `said` is what the check of the indices says where one is none.

    Declined for empty tensors, and for data-dependent positions in a view, which has no index map for them.
    """
    if any(n is ZERO for n in (*x.shape, *b.spec().shape)):
        return DECLINED
    sample = position(b.point_of(b.spec().shape))
    if not any(isinstance(i, Val) for i in sample):
        return b.map(lambda p: x.at(tuple([i for i in position(p) if isinstance(i, IndexExpr)])))
    if any(n is ZERO for t in given.values() for n in t.shape):
        return DECLINED
    through = _through_view(b, x)
    if through is None:
        return DECLINED
    for d, index in given.items():
        if isinstance(sample[d], Val):
            check_range(b, index, x.shape[d], may_wrap=may_wrap, said=said)
    return b.map(lambda p: load(x.buffer, through(position(p)), x.dtype))


def _through_view(b: Builder, x: Tensor) -> Callable[[Position], Position] | None:
    """The index map of `x` for positions that depend on data; None when it divides by something not known now."""

    def single(position: Position) -> Position:
        """Data can't choose among one: a kernel may hold that element in a register."""
        sized = zip(position, x.shape, strict=True)
        return tuple([ZERO if n is ONE and isinstance(i, Val) else i for i, n in sized])

    if x.direct:
        return single
    axes = b.axes_of(x.shape)
    entries = x.index(b.point_of(x.shape))
    if not is_computable(entries):
        return None

    def through(position: Position) -> Position:
        places = dict(zip(axes, single(position), strict=True))
        return tuple([placed(e, places) for e in entries])

    return through


def check_range(
    b: Builder, index: Tensor, size: IndexExpr, *, may_wrap: bool, said: str = "index out of range"
) -> None:
    """Add a check that every element of `index` is a position in a dimension of this size; `said` if not."""

    def inside(_: Point, p: Point) -> Val:
        i, n = cast(read(index, p), "i64"), index_value(size)
        least = val("neg", n, dtype="i64") if may_wrap else constant(0, "i64")
        return m.and_(val("le", least, i, dtype="b8"), val("lt", i, n, dtype="b8"))

    # an element that stands for many, as in an expanded tensor, is looked at once
    repeated = [stride is ZERO for stride in index.strides or ()] or [False] * len(index.shape)
    shape = [ONE if again and n.const() else n for n, again in zip(index.shape, repeated, strict=True)]
    valid = b.nest("all", b.temp_spec((), "b8"), shape, inside, "valid")
    b.check(valid, said)


@TABLE.add(aten.index_select.default)
def _index_select(b: Builder, self: Tensor, dim: int, index: Tensor) -> Any:
    if not self.shape or not index.shape:
        return DECLINED
    dim = dim % len(self.shape)

    def position(p: Point) -> Position:
        return (*p[:dim], entry(b, index, (p[dim],), self.shape[dim], may_wrap=False), *p[dim + 1 :])

    return _loaded(b, self, position, {dim: index}, may_wrap=False)


@TABLE.add(aten.gather.default)
def _gather(b: Builder, self: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Any:
    if not self.shape or not index.shape:
        return DECLINED
    dim = dim % len(self.shape)

    def position(p: Point) -> Position:
        return (*p[:dim], entry(b, index, p, self.shape[dim], may_wrap=False), *p[dim + 1 :])

    return _loaded(b, self, position, {dim: index}, may_wrap=False)


@TABLE.add(aten.embedding.default)
def _embedding(
    b: Builder,
    weight: Tensor,
    indices: Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    # A call copies whole rows as fast as a kernel does and checks them on the way: by itself it stays one on the CPU.
    # So it does where the indices are computed, which fused kernels would do for every row again.
    on_cpu = torch.device(b.spec().device).type == "cpu"
    gains = not on_cpu or (b.meets_nests and not b.is_mapped(indices))
    if not gains and not _is_known(b, weight, indices):
        return DECLINED

    def position(p: Point) -> Position:
        return entry(b, indices, p[:-1], weight.shape[0], may_wrap=False), p[-1]

    return _loaded(b, weight, position, {0: indices}, may_wrap=False, said=LOOKUP_OUT_OF_RANGE)


def _is_known(b: Builder, weight: Tensor, indices: Tensor) -> bool:
    """Whether the rows that an embedding looks up are an index expression."""
    place = b.point_of(b.spec().shape)[:-1]
    return b.known(indices, place, weight.shape[0], may_wrap=False) is not None


# ---- triangles ----------------------------------------------------------------------------------------------


def _triangle(b: Builder, self: Tensor, diagonal: int, *, lower: bool) -> Tensor:
    dtype = compute_type(self.dtype)

    def body(p: Point) -> Val:
        above = less(p[-2] + diagonal, p[-1])  # the column is right of the diagonal
        if not lower:
            above = less(p[-2] + diagonal - 1, p[-1])
        value, zero = cast(self.at(p), dtype), constant(0, dtype)
        return m.select(above, zero, value) if lower else m.select(above, value, zero)

    return b.map(body)


@TABLE.add(aten.tril.default)
def _tril(b: Builder, self: Tensor, diagonal: int = 0) -> Tensor:
    return _triangle(b, self, diagonal, lower=True)


@TABLE.add(aten.triu.default)
def _triu(b: Builder, self: Tensor, diagonal: int = 0) -> Tensor:
    return _triangle(b, self, diagonal, lower=False)


# ---- writing into a view, functionally ----------------------------------------------------------------------


@TABLE.add(aten.slice_scatter.default)
def _slice_scatter(
    b: Builder, self: Tensor, src: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Any:
    dim, dtype = dim % len(self.shape), compute_type(self.dtype)
    length = src.shape[dim]
    begin, stop = (None if number is None else b.sizes(number) for number in (start, end))
    first = first_of_slice(begin, stop, step, self.shape[dim], length)
    if first is None:
        return DECLINED
    if length is ZERO or (step != 1 and length.const() is None):
        return b.map(self.at) if length is ZERO else DECLINED

    def body(p: Point) -> Val:
        place = p[dim] - first
        written = in_range(place, 0, (length - 1) * step + 1)
        if step != 1:
            on_step = val("eq", index_value(place % step), index_value(ZERO), dtype="b8")
            written = m.and_(written, on_step)
        source = (*p[:dim], _inside(place // step if step != 1 else place, length), *p[dim + 1 :])
        return m.select(written, cast(src.at(source), dtype), cast(self.at(p), dtype))

    if step != 1 and first.const() != 0:
        return DECLINED  # the quotient of a negative place: index expressions divide non-negative numbers only
    return b.map(body)


@TABLE.add(aten.select_scatter.default)
def _select_scatter(b: Builder, self: Tensor, src: Tensor, dim: int, index: Any) -> Any:
    dim, dtype = dim % len(self.shape), compute_type(self.dtype)
    position = from_front(b.sizes(index), self.shape[dim])
    if position is None:
        return DECLINED

    def body(p: Point) -> Val:
        here = in_range(p[dim], position, position + 1)
        return m.select(here, cast(src.at((*p[:dim], *p[dim + 1 :])), dtype), cast(self.at(p), dtype))

    return b.map(body)


# ---- nearest upsampling -------------------------------------------------------------------------------------


def _upsample(b: Builder, x: Tensor, scales: Sequence[float | None], shift: float = 0.0) -> Any:
    """Each result element copies the input element at floor((i + shift) * scale), in float32 as ATen computes it."""
    if any(n is ZERO for n in (*x.shape, *b.spec().shape)):
        return DECLINED
    through = _through_view(b, x)
    if through is None:
        return DECLINED
    sizes = list(zip(x.shape[2:], b.spec().shape[2:], scales, strict=True))
    # exact ones look at the scale on the CPU alone
    exact_on_cpu = shift and torch.device(b.spec().device).type == "cpu"
    if not exact_on_cpu and any(_may_ignore_scale(*size) for size in sizes):
        return DECLINED

    def position(p: Point) -> Position:
        return p[0], p[1], *[_nearest(i, *size, shift) for i, size in zip(p[2:], sizes, strict=True)]

    def body(p: Point) -> Val:
        place = position(p)
        indices = tuple([i for i in place if isinstance(i, IndexExpr)])
        return x.at(indices) if len(indices) == len(place) else load(x.buffer, through(place), x.dtype)

    return b.map(body)


def _may_ignore_scale(n: IndexExpr, wanted: IndexExpr, scale: float | None) -> bool:
    """Tell whether eager may look at the sizes alone: it does for a side that is kept, on the CPU for a doubled one."""
    if scale is None or scale in (1.0, 2.0):
        return False
    constant, size = n.const(), wanted.const()
    if constant is None or size is None:  # kept sides have a scale below 2, doubled ones below 3
        return 1 < scale < 3
    return size in (constant, 2 * constant)


def _nearest(i: IndexExpr, n: IndexExpr, wanted: IndexExpr, scale: float | None, shift: float) -> IndexExpr | Val:
    fixed, size = n.const(), wanted.const()
    if scale is None and n is wanted:
        return i
    if fixed and size and size % fixed == 0 and (scale is None or scale == size // fixed):
        factor = size // fixed
        if factor & (factor - 1) == 0:  # the rounded 1/factor is exact
            return i // factor
    if scale is not None and scale > 0:
        ratio = constant(float(torch.tensor(1.0 / scale, dtype=torch.float32)), "f32")
    else:
        ratio = val("div", *[cast(index_value(e), "f32") for e in (n, wanted)], dtype="f32")
    start = cast(index_value(i), "f32")
    start = val("add", start, constant(shift, "f32"), dtype="f32") if shift else start
    place = cast(val("floor", val("mul", start, ratio, dtype="f32"), dtype="f32"), "i64")
    return val("min", place, index_value(n - 1), dtype="i64")


def _upsampling(shift: float) -> Callable[..., Any]:
    def lowering(b: Builder, self: Tensor, output_size: Any, *scales: float | None, **named: float | None) -> Any:
        rank = len(self.shape) - 2
        given = [*scales, *[named.get(f"scales_{d}", named.get("scales")) for d in "dhw"[3 - rank + len(scales) :]]]
        return _upsample(b, self, given, shift)

    return lowering


def _upsampling_vec(shift: float) -> Callable[..., Any]:
    def lowering(b: Builder, input: Tensor, output_size: Any, scale_factors: Any) -> Any:
        return _upsample(b, input, scale_factors or [None] * (len(input.shape) - 2), shift)

    return lowering


for _rank in (1, 2, 3):
    for _name, _shift in ((f"upsample_nearest{_rank}d", 0.0), (f"_upsample_nearest_exact{_rank}d", 0.5)):
        TABLE.put([getattr(aten, _name).default], _upsampling(_shift))
        TABLE.put([getattr(aten, _name).vec], _upsampling_vec(_shift))
