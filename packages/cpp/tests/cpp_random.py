"""Random kernels of every shape, with inputs on which float arithmetic is exact, so that any order of sums agrees."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from cpp_harness import Case, contiguous

from intarsia_ir.dtypes import dtype_from_name
from intarsia_loops.index import Atom, IndexExpr, axis, floordiv, lift, mod, size_symbol
from intarsia_loops.ops import NEST_KINDS
from intarsia_loops.program import Buffer, Kernel, Nest, Val, cast, const, index_value, load, scatter, val

EXTENTS = (1, 2, 3, 5, 7, 16, 17, 33, 40, 64, 70)
BIG = (130, 257, 600)
COMPUTE = ("f32", "f32", "f32", "i64", "i32", "f64", "i8", "u8", "i16")
SCATTERS = ("scatter_sum", "scatter_max", "scatter_min")
MAP, FOLDS = "map", ("sum", "max", "min", "argmax", "argmin", "any", "all", "prod")


@dataclass
class Builder:
    """Draws one kernel; everything comes from `rng`."""

    rng: random.Random
    symbolic: bool = False
    inputs: dict[str, torch.Tensor] = field(default_factory=dict)
    outputs: dict[str, Buffer] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    steps: list[Nest] = field(default_factory=list)

    def axis(self, name: str, extent: int) -> Atom:
        """A loop variable; its extent is sometimes a size symbol."""
        if self.symbolic and extent > 1 and self.rng.random() < 0.6:
            symbol = f"s{extent}"
            self.sizes[symbol] = extent
            return axis(name, size_symbol(symbol))
        return axis(name, extent)

    def extent(self, atom: Atom) -> int:
        """The number behind an extent."""
        constant = atom.extent.const()
        return constant if constant is not None else self.sizes[repr(atom.extent)]

    def input(self, axes: list[Atom], dtype: str) -> Val:
        """A read of a new input: broadcast, permuted, shifted, flipped, strided, or through an index tensor."""
        rng = self.rng
        used = [a for a in axes if rng.random() < 0.8]
        rng.shuffle(used) if rng.random() < 0.3 else None
        shape, index = [], []
        for a in used:
            n, how = self.extent(a), rng.random()
            if how < 0.75:
                shape.append(n)
                index.append(lift(a))
            elif how < 0.82:
                shape.append(n + 3)
                index.append(lift(a) + 2)
            elif how < 0.88 and a.extent.const() is not None:
                shape.append(n)
                index.append(lift(n - 1) - lift(a))
            elif how < 0.94:
                shape.append(2 * n)
                index.append(lift(a) * 2)
            elif a.extent.const() is not None:
                shape += [-(-n // 4), 4]
                index += [floordiv(lift(a), lift(4)), mod(lift(a), lift(4))]
            else:
                shape.append(n)
                index.append(lift(a))
        name = f"x{len(self.inputs)}"
        if used and rng.random() < 0.1:
            return self._gather(name, shape, index, used[0], dtype)
        self.inputs[name] = self.tensor(shape, dtype)
        return load(name, tuple(index), dtype)

    def _gather(self, name: str, shape: list[int], index: list[IndexExpr], a: Atom, dtype: str) -> Val:
        where = f"{name}i"
        n = self.extent(a)
        self.inputs[where] = torch.randint(0, 9, (n,), generator=self.generator())
        self.inputs[name] = self.tensor([9, *shape], dtype)
        return load(name, (load(where, (lift(a),), "i64"), *index), dtype)

    def generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.rng.randrange(1 << 30))

    def tensor(self, shape: list[int], dtype: str) -> torch.Tensor:
        """Small whole numbers, in memory with gaps or permuted strides now and then."""
        rng, t = self.rng, dtype_from_name(dtype)
        low = 0 if dtype in ("u8", "b8") else -2
        values = torch.randint(low, 2 if dtype == "b8" else 3, tuple(shape), generator=self.generator()).to(t)
        if len(shape) > 1 and rng.random() < 0.25:
            order = list(range(len(shape)))
            rng.shuffle(order)
            values = values.permute(order).contiguous().permute([order.index(k) for k in range(len(shape))])
        if shape and rng.random() < 0.2:
            wide = torch.zeros((*values.shape[:-1], values.shape[-1] + 5), dtype=t)
            wide[..., : values.shape[-1]] = values
            values = wide[..., : values.shape[-1]]
        return values

    def made(self, rows: list[Atom], axes: list[Atom], dtype: str) -> Iterator[Val]:
        """Reads of what earlier steps made, in the own row, at a fitting point."""
        for step in self.steps:
            inner = step.axes[len(rows) :]
            rest = axes[len(rows) :]
            candidates = []
            for a in inner:
                fits = [b for b in rest if b.extent is a.extent]
                if not fits:
                    break
                candidates.append(lift(self.rng.choice(fits)))
            else:
                found = load(step.out, (*map(lift, rows), *candidates), step.dtype)
                yield found if step.dtype == dtype else cast(found, dtype)

    def value(self, rows: list[Atom], axes: list[Atom], dtype: str, depth: int = 3) -> Val:
        """A body of this type over these axes."""
        rng = self.rng
        if depth == 0 or rng.random() < 0.2:
            return self._leaf(rows, axes, dtype)
        if dtype == "b8":
            other = rng.choice(("f32", "i64", "i32"))
            if rng.random() < 0.4:
                return val(
                    rng.choice(("and", "or", "xor")),
                    *(self.value(rows, axes, "b8", depth - 1) for _ in "ab"),
                    dtype="b8",
                )
            return val(
                rng.choice(("lt", "le", "eq", "ne")),
                *(self.value(rows, axes, other, depth - 1) for _ in "ab"),
                dtype="b8",
            )
        pick = rng.random()
        if pick < 0.12:
            return val(
                "where",
                self.value(rows, axes, "b8", depth - 1),
                *(self.value(rows, axes, dtype, depth - 1) for _ in "ab"),
                dtype=dtype,
            )
        if pick < 0.2:
            return cast(self.value(rows, axes, rng.choice(("f32", "i32", "b8")), depth - 1), dtype)
        if pick < 0.3:
            return val("neg", self.value(rows, axes, dtype, depth - 1), dtype=dtype)
        op = rng.choice(("add", "sub", "max", "min", "add"))
        return val(op, *(self.value(rows, axes, dtype, depth - 1) for _ in "ab"), dtype=dtype)

    def _leaf(self, rows: list[Atom], axes: list[Atom], dtype: str) -> Val:
        rng = self.rng
        made = list(self.made(rows, axes, dtype)) if rng.random() < 0.7 else []
        if made:
            return rng.choice(made[-3:])
        pick = rng.random()
        if pick < 0.1:
            return const(rng.choice((True, False)) if dtype == "b8" else rng.randrange(3), dtype)
        if pick < 0.2 and axes and dtype != "b8":
            return cast(index_value(lift(rng.choice(axes))), dtype)
        if pick < 0.3 and dtype == "f32":
            return cast(self.input(axes, rng.choice(("bf16", "f16", "b8", "u8"))), dtype)
        return self.input(axes, dtype)

    def step(self, rows: list[Atom], inner: list[int]) -> None:
        """Append one step over the rows and some inner axes."""
        rng, k = self.rng, len(self.steps)
        dtype = rng.choice(COMPUTE)
        out, pick = f"o{k}", rng.random()
        free = [self.axis(f"i{len(rows) + d}", n) for d, n in enumerate(inner)]
        red = [self.axis(f"r{d}", n) for d, n in enumerate(inner)]
        if not inner or pick < 0.45:
            kind, axes, over = "map", [*rows, *free], []
            stored = dtype if rng.random() < 0.8 or dtype != "f32" else rng.choice(("bf16", "f16"))
        elif pick < 0.55:
            kind, axes, over = rng.choice(("cumsum", "cumprod")), [*rows, *free], [rng.choice(free)]
        elif pick < 0.65 and len(inner) > 1:
            kind, axes, over = self._fold_kind(dtype), [*rows, free[0]], [red[1]]
            if rng.random() < 0.5:
                axes, over = [*rows, self.axis(f"i{len(rows)}", inner[1])], [red[0]]
        else:
            kind, axes, over = self._fold_kind(dtype), rows, red
        if kind in ("any", "all"):
            dtype = "b8"
        if kind in ("prod", "cumprod"):
            body = (
                val(
                    "where",
                    self.value(rows, [*axes, *(r for r in over if r not in axes)], "b8", 1),
                    const(-1, dtype),
                    const(1, dtype),
                    dtype=dtype,
                )
                if dtype != "u8"
                else const(1, "u8")
            )
        else:
            body = self.value(rows, [*axes, *(r for r in over if r not in axes)], dtype)
        if kind == "map":
            body = cast(body, stored)
        result = NEST_KINDS[kind].out_type or body.dtype
        self.steps.append(Nest(out, tuple(axes), tuple(over), kind, body, result))

    def scatter(self, kind: str) -> None:
        """The one step of a scatter: places are the points' own indices, data, or numbers."""
        rng, dtype = self.rng, self.rng.choice(COMPUTE)
        axes = [self.axis(f"i{d}", rng.choice(EXTENTS)) for d in range(rng.choice((1, 2, 2, 3)))]
        points: list[Atom] = []
        places: list[IndexExpr | Val] = []
        for a in axes:
            if rng.random() < 0.5:
                points.append(axis(f"r{len(points)}", a.extent))
                places.append(lift(points[-1]))
            else:
                places.append(lift(0))
        points += [self.axis(f"r{len(points) + k}", rng.choice(EXTENTS)) for k in range(rng.choice((0, 1, 1, 2)))]
        order = rng.sample(points, len(points)) if rng.random() < 0.4 else points
        for d, a in enumerate(axes):
            if places[d] is lift(0) and rng.random() < 0.9:
                places[d] = self._place(d, self.extent(a), [p for p in order if rng.random() < 0.6])
        body = scatter(self.value([], axes, dtype, 2), self.value([], order, dtype, 2), places)
        self.steps.append(Nest("o0", tuple(axes), tuple(order), kind, body, dtype))

    def _place(self, d: int, n: int, over: list[Atom]) -> Val:
        """An element of a new tensor of indices."""
        shape = [self.extent(p) for p in over]
        self.inputs[f"p{d}"] = torch.randint(0, n, shape, generator=self.generator())
        return load(f"p{d}", tuple(map(lift, over)), "i64")

    def _fold_kind(self, dtype: str) -> str:
        return self.rng.choice(FOLDS)


def random_case(seed: int, symbolic: bool = False) -> Case:
    """Return the kernel number `seed`."""
    rng = random.Random(seed)
    b = Builder(rng, symbolic)
    if seed % 7 == 5:
        b.scatter(SCATTERS[seed // 7 % 3])  # in turn, so that a few kernels already have each
        (step,) = b.steps
        outputs = {step.out: _permuted(rng, tuple(a.extent for a in step.axes), step.dtype)}
        return Case(f"seed {seed}", Kernel((), (step,)), b.inputs, outputs, b.sizes)
    pool = EXTENTS if rng.random() < 0.85 else BIG
    rows = [b.axis(f"i{k}", rng.choice(EXTENTS)) for k in range(rng.choice((0, 1, 1, 2, 2, 3)))]
    inner = [rng.choice(pool if k == 0 else (2, 3, 5, 16)) for k in range(rng.choice((0, 1, 1, 1, 2)))]
    if rng.random() < 0.3:
        inner.reverse()
    for _ in range(rng.choice((1, 2, 3, 4, 5))):
        b.step(rows, inner)
    outs = [s.out for s in b.steps]
    read = {v.args[0] for s in b.steps for v in s.body.loads}
    local = frozenset(o for o in outs[:-1] if o in read and rng.random() < 0.7)
    for s in b.steps:
        b.outputs[s.out] = _permuted(rng, tuple(a.extent for a in s.axes), s.dtype)
    return Case(f"seed {seed}", Kernel(tuple(rows), tuple(b.steps), local), b.inputs, b.outputs, b.sizes)


def _permuted(rng: random.Random, shape: tuple[IndexExpr, ...], dtype: str) -> Buffer:
    """A layout that is dense in some order of the dimensions, sometimes with gaps."""
    order = list(range(len(shape)))
    if rng.random() < 0.25:
        rng.shuffle(order)
    dense = contiguous(tuple(shape[k] for k in order), dtype)
    factor = 2 if shape and rng.random() < 0.1 else 1
    strides = [lift(0)] * len(shape)
    for k, s in zip(order, dense.strides, strict=True):
        strides[k] = s * factor
    return Buffer(shape, tuple(strides), dtype)
