"""Meaning of nests, kernels and extern calls on torch tensors: what both dialects' interpreters and FX targets run.

A nest is evaluated on its whole index grid at once: dimension k of every grid tensor is its k-th axis, axes first,
then reduced ones. A value that doesn't depend on an axis has size 1 there.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import torch

from intarsia_ir.dtypes import dtype_from_name
from intarsia_ir.errors import RuntimeFault
from intarsia_loops.index import Atom, IndexExpr
from intarsia_loops.ops import NEST_KINDS, SCALAR_OPS, identity_of
from intarsia_loops.program import Buffer, Condition, Extern, Kernel, Nest, TensorRef, Val, scatter_of
from intarsia_loops.rewrites import postorder
from intarsia_loops.shown import Shown, shown_by

__all__ = [
    "allocate",
    "call_extern",
    "called",
    "laid_out",
    "on",
    "read_size",
    "run_kernel",
    "run_nest",
    "size_of",
    "tensor_of",
]

Sizes = Mapping[str, int]
_COMPARISONS = MappingProxyType(
    {
        "==": operator.eq,
        "!=": operator.ne,
        "<": operator.lt,
        "<=": operator.le,
        ">": operator.gt,
        ">=": operator.ge,
    }
)


def on(device: str) -> AbstractContextManager[Any]:
    """Return the context in which new tensors are on a device."""
    return nullcontext() if device == "cpu" else torch.device(device)


def size_of(expr: IndexExpr, sizes: Sizes) -> int:
    """Return the number that a size expression has for these values of the size symbols."""
    constant = expr.const()
    return constant if constant is not None else int(_index(expr, {}, sizes))


def allocate(buffer: Buffer, sizes: Sizes) -> torch.Tensor:
    """Return an uninitialised tensor for a buffer."""
    shape = [size_of(n, sizes) for n in buffer.shape]
    strides = [size_of(n, sizes) for n in buffer.strides]
    return torch.empty_strided(shape, strides, dtype=dtype_from_name(buffer.dtype), device=buffer.device)


def run_nest(nest: Nest, buffer: Buffer, memory: Mapping[str, torch.Tensor], sizes: Sizes) -> torch.Tensor:
    """Return what a nest writes, given the buffers that it reads."""
    return _run(nest, (), frozenset(), memory, sizes, buffer)


def run_kernel(
    kernel: Kernel, buffers: Mapping[str, Buffer], memory: Mapping[str, torch.Tensor], sizes: Sizes
) -> dict[str, torch.Tensor]:
    """Return every buffer that the steps of a kernel write, local ones included.

    All rows are run at once, step by step. That means the same as row by row in any order, because a step that reads
    what another row made is a fault here.

    Raises:
        RuntimeFault: A step reads what the kernel made in another row, or what it hasn't made yet.
    """
    results: dict[str, torch.Tensor] = {}
    all_made = frozenset(s.out for s in kernel.steps)
    depth = len(kernel.rows)
    for step in kernel.steps:
        missing = (step.reads() & all_made) - results.keys()
        if missing:
            raise RuntimeFault(f"{step.out} reads {min(missing)} before it is made", code="kernels.order")
        rows = step.axes[:depth]
        results[step.out] = _run(step, rows, frozenset(results), {**memory, **results}, sizes, buffers[step.out])
    return results


def _run(
    nest: Nest,
    rows: Sequence[Atom],
    results: frozenset[str],
    memory: Mapping[str, torch.Tensor],
    sizes: Sizes,
    buffer: Buffer,
) -> torch.Tensor:
    """What a nest writes; of what is in `made` it may read its own row only."""
    with on(buffer.device):
        return _run_here(nest, rows, results, memory, sizes, buffer)


def _run_here(
    nest: Nest,
    rows: Sequence[Atom],
    results: frozenset[str],
    memory: Mapping[str, torch.Tensor],
    sizes: Sizes,
    buffer: Buffer,
) -> torch.Tensor:
    parts = scatter_of(nest)
    if parts is None:
        return _Grid(nest, rows, results, memory, sizes).run(buffer)
    start = replace(nest, red=(), kind="map", body=parts.initial)
    out = _Grid(start, rows, results, memory, sizes).run(buffer)
    points = _Grid(replace(nest, axes=nest.red, red=(), kind="map", body=parts.value), (), results, memory, sizes)
    place = torch.zeros(points.extents, dtype=torch.int64)
    for entry, n in zip(parts.places, out.shape, strict=True):
        index = points.value_of(entry).expand(points.extents)
        if _outside(index, n):
            raise RuntimeFault(f"{nest.out} is written out of bounds", code="loops.bounds")
        place = place * n + index
    values = points.value_of(parts.value).expand(points.extents)
    if values.numel():
        flat = NEST_KINDS[nest.kind].reference(out.flatten(), place.flatten(), values.flatten())
        out.copy_(flat.reshape(out.shape))
    return out


class _Grid:
    """The index grid of one nest, and the evaluation of its body on it."""

    def __init__(
        self,
        nest: Nest,
        rows: Sequence[Atom],
        made: frozenset[str],
        memory: Mapping[str, torch.Tensor],
        sizes: Sizes,
    ) -> None:
        self.nest, self.rows, self.made, self.memory, self.sizes = nest, rows, made, memory, sizes
        scan = NEST_KINDS[nest.kind].scan
        self.dims = nest.axes if scan else nest.axes + nest.red
        self.extents = [size_of(a.extent, sizes) for a in self.dims]
        self.points: dict[Atom, torch.Tensor] = {}
        for k, (axis, n) in enumerate(zip(self.dims, self.extents, strict=True)):
            shape = [1] * len(self.dims)
            shape[k] = n
            self.points[axis] = torch.arange(n).reshape(shape)

    def run(self, buffer: Buffer) -> torch.Tensor:
        out = allocate(buffer, self.sizes)
        if out.numel():
            place, value = out, self._fold(self.value_of(self.nest.body)).expand(out.shape)
            for d, stride in enumerate(out.stride()):
                if stride == 0:  # all points along it write one place, and one value
                    place, value = place.narrow(d, 0, 1), value.narrow(d, 0, 1)
            place.copy_(value)
        return out

    def _fold(self, values: torch.Tensor) -> torch.Tensor:
        row = NEST_KINDS[self.nest.kind]
        full = values.expand(self.extents)
        if row.scan:
            return row.reference(full, self.nest.axes.index(self.nest.red[0]))
        n_reduced = len(self.nest.red)
        if n_reduced and 0 in self.extents[len(self.extents) - n_reduced :]:
            kept = self.extents[: len(self.extents) - n_reduced]
            return torch.full(kept, identity_of(self.nest.kind, self.nest.body.dtype))
        return row.reference(full, n_reduced)

    def value_of(self, body: Val) -> torch.Tensor:
        """Return a value at every point of the grid."""
        memo: dict[Val, torch.Tensor] = {}
        for v in postorder(body):
            memo[v] = self._value(v, memo)
        return memo[body]

    def _value(self, v: Val, memo: Mapping[Val, torch.Tensor]) -> torch.Tensor:
        dtype = dtype_from_name(v.dtype)
        flat = [1] * len(self.dims)
        if v.op == "const":
            return torch.full(flat, v.args[0], dtype=dtype)
        if v.op == "index":
            return _grid_index(v.args[0], self.points, self.sizes, flat).to(dtype)
        if v.op in ("load", "gather"):
            return self._load(v, memo, flat)
        if v.op == "cast":
            return memo[v.args[0]].to(dtype)
        reference = SCALAR_OPS[v.op].reference
        assert reference is not None, f"{v.op} has no meaning of its own"
        return reference(*[memo[a] for a in v.args])

    def _load(self, v: Val, memo: Mapping[Val, torch.Tensor], flat: list[int]) -> torch.Tensor:
        name, entries = v.args
        index = tuple(memo[e] if type(e) is Val else _grid_index(e, self.points, self.sizes, flat) for e in entries)
        if name in self.made:
            self._check_row(name, index)
        source = self.memory[name]
        if not index:
            return source.reshape(flat)
        for i, n in zip(index, source.shape, strict=True):
            if _outside(i, n):
                raise RuntimeFault(f"{self.nest.out} reads {name} out of bounds", code="loops.bounds")
        return source[index]

    def _check_row(self, name: str, index: tuple[torch.Tensor, ...]) -> None:
        for axis, i in zip(self.rows, index, strict=False):
            if _has_data(i) and not bool((i == self.points[axis]).all()):
                raise RuntimeFault(f"{self.nest.out} reads {name} of another row along {axis.key}", code="kernels.row")


def _outside(index: torch.Tensor, n: int) -> bool:
    """Tell whether an index is known to leave its dimension."""
    return _has_data(index) and index.numel() > 0 and (int(index.min()) < 0 or int(index.max()) >= n)


def _has_data(index: torch.Tensor) -> bool:
    # while another compiler traces an interpreted graph, its tensors are of classes of its own, and can't be looked at
    return type(index) is torch.Tensor


def _grid_index(expr: IndexExpr, points: Mapping[Atom, torch.Tensor], sizes: Sizes, flat: list[int]) -> torch.Tensor:
    value = _index(expr, points, sizes)
    return value if isinstance(value, torch.Tensor) else torch.full(flat, value)


def _index(expr: IndexExpr, points: Mapping[Atom, torch.Tensor], sizes: Sizes) -> Any:
    """Value of an index expression: a number, or a tensor on the grid when it depends on axes."""
    total: Any = 0
    for monomial, factor in expr.terms:
        product: Any = factor
        for atom in monomial:
            product = product * _atom(atom, points, sizes)
        total = total + product
    return total


def _atom(atom: Atom, points: Mapping[Atom, torch.Tensor], sizes: Sizes) -> Any:
    if atom.kind == "axis":
        return points[atom]
    if atom.kind == "sym":
        return sizes[atom.key]
    a, b = _index(atom.a, points, sizes), _index(atom.b, points, sizes)
    return a // b if atom.kind == "/" else a % b


# ---- extern calls -------------------------------------------------------------------------------------------


def tensor_of(ref: TensorRef, memory: Mapping[str, torch.Tensor], sizes: Sizes) -> torch.Tensor:
    """Return the strided tensor that a reference stands for."""
    base = memory[ref.buffer]
    shape = [size_of(n, sizes) for n in ref.shape]
    strides = [size_of(n, sizes) for n in ref.strides]
    return base.as_strided(shape, strides, base.storage_offset() + size_of(ref.offset, sizes))


def called(extern: Extern, memory: Mapping[str, torch.Tensor], sizes: Sizes) -> dict[str, Any]:
    """Run an extern call and return what it gives by name, as ATen laid it out."""

    def argument(value: Any) -> Any:
        if isinstance(value, TensorRef):
            return tensor_of(value, memory, sizes)
        if isinstance(value, IndexExpr):
            return size_of(value, sizes)
        if isinstance(value, Condition):
            return _COMPARISONS[value.op](size_of(value.left, sizes), size_of(value.right, sizes))
        if isinstance(value, tuple):
            return [argument(v) for v in value]
        return value

    result = extern.target(*[argument(a) for a in extern.args], **{k: argument(v) for k, v in extern.kwargs})
    results = result if isinstance(result, (tuple, list)) else [result] if extern.outs else []
    return {name: given for name, given in zip(extern.outs, results, strict=True) if name}


def call_extern(
    extern: Extern, buffers: Mapping[str, Buffer], memory: Mapping[str, torch.Tensor], sizes: Sizes
) -> dict[str, Any]:
    """Run an extern call and return what it gives by name: tensors laid out as the buffers say, and numbers."""
    result = called(extern, memory, sizes)
    sizes = {**sizes}
    for shown in shown_by(extern.outs, buffers):
        sizes.setdefault(shown.symbol, read_size(shown, result[shown.name]))
    return {name: laid_out(given, buffers[name], sizes) if name in buffers else given for name, given in result.items()}


def read_size(shown: Shown, given: Any) -> int:
    """Return the value of a size symbol from what shows it."""
    if shown.kind == "itself":
        return int(given)
    return int((given.shape if shown.kind == "size" else given.stride())[shown.dim])


def laid_out(tensor: torch.Tensor, buffer: Buffer, sizes: Sizes) -> torch.Tensor:
    """Return a tensor in the layout of a buffer; itself, where it has that."""
    wanted = allocate(buffer, sizes) if tensor.numel() else tensor
    if tensor.stride() == wanted.stride() and tensor.dtype == wanted.dtype:
        return tensor
    return wanted.copy_(tensor)
