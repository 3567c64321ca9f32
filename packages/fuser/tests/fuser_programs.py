"""Loops programs for the fuser's tests: a small builder, well-known shapes, and random ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from hypothesis import strategies as st

import intarsia_loops
from intarsia_ir.records import Origin
from intarsia_loops.index import IndexExpr, axis, lift, mod
from intarsia_loops.program import (
    Buffer,
    Extern,
    Nest,
    Program,
    TensorRef,
    Val,
    cast,
    const,
    index_value,
    load,
    scatter,
    val,
)

aten = torch.ops.aten


def axes_of(shape: Sequence[int], letter: str = "i") -> tuple[Any, ...]:
    return tuple(axis(f"{letter}{k}", n) for k, n in enumerate(shape))


def op(name: str, *args: Val, dtype: str | None = None) -> Val:
    predicate = name in ("lt", "le", "gt", "ge", "eq", "ne")
    return val(name, *args, dtype=dtype or ("b8" if predicate else args[-1].dtype))


@dataclass
class Builder:
    """Collects items; every method that adds one returns the name of the buffer it makes."""

    buffers: dict[str, Buffer] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    items: list[Nest | Extern] = field(default_factory=list)

    def buffer(self, shape: Sequence[int], dtype: str = "f32", name: str | None = None) -> str:
        name = name or f"b{len(self.buffers)}"
        strides, step = [], 1
        for n in reversed(shape):
            strides.append(lift(step))
            step *= max(n, 1)
        self.buffers[name] = Buffer(tuple(map(lift, shape)), tuple(reversed(strides)), dtype)
        return name

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(n.const() for n in self.buffers[name].shape)

    def dtype(self, name: str) -> str:
        return self.buffers[name].dtype

    def input(self, shape: Sequence[int], dtype: str = "f32") -> str:
        self.inputs.append(self.buffer(shape, dtype, f"x{len(self.inputs)}"))
        return self.inputs[-1]

    def load(self, name: str, *index: IndexExpr | int | Val) -> Val:
        return load(name, index, self.dtype(name))

    def map(self, shape: Sequence[int], body: Callable[..., Val], name: str | None = None) -> str:
        return self.nest("map", shape, (), lambda i, r: body(*i), name)

    def reduce(self, kind: str, shape: Sequence[int], red: Sequence[int], body: Callable[..., Val]) -> str:
        return self.nest(kind, shape, red, lambda i, r: body(*i, *r))

    def nest(self, kind: str, shape: Sequence[int], red: Sequence[int], body: Any, name: str | None = None) -> str:
        axes, reduced = axes_of(shape), axes_of(red, "r")
        value = body(tuple(map(lift, axes)), tuple(map(lift, reduced)))
        dtype = "i64" if kind in ("argmax", "argmin") else value.dtype
        out = self.buffer(shape, dtype, name)
        self.items.append(Nest(out, axes, reduced, kind, value, dtype, self.origins()))
        return out

    def scan(self, kind: str, shape: Sequence[int], dim: int, body: Callable[..., Val]) -> str:
        axes = axes_of(shape)
        value = body(*map(lift, axes))
        out = self.buffer(shape, value.dtype)
        self.items.append(Nest(out, axes, (axes[dim],), kind, value, value.dtype, self.origins()))
        return out

    def extern(self, target: Any, shape: Sequence[int], *args: Any, dtype: str = "f32") -> str:
        """Call an ATen op; names of buffers among `args` become whole tensors."""
        out = self.buffer(shape, dtype)
        given = tuple(self.ref(a) if isinstance(a, str) else a for a in args)
        self.items.append(Extern((out,), target, given, (), self.origins()))
        return out

    def ref(self, name: str) -> TensorRef:
        b = self.buffers[name]
        return TensorRef(name, b.shape, b.strides, lift(0))

    def origins(self) -> tuple[Origin, ...]:
        return (Origin("model.py", len(self.items) + 1, "forward", "op"),)

    def program(self, *outputs: str | TensorRef) -> Program:
        refs = tuple(o if isinstance(o, TensorRef) else self.ref(o) for o in outputs)
        return Program(self.buffers, tuple(self.inputs), tuple(self.items), refs)


def run(program: Program, inputs: Sequence[torch.Tensor], dialect: Any) -> tuple[torch.Tensor, ...]:
    """Interpret a program; random ops start from the same seed each time."""
    torch.manual_seed(0)
    return dialect.interpret(intarsia_loops.to_fx(program), *[t.clone() for t in inputs])


def inputs_of(program: Program, seed: int = 0) -> list[torch.Tensor]:
    """Return small whole numbers as inputs, so that sums are exact in any order."""
    generator = torch.Generator().manual_seed(seed)
    types = {"f32": torch.float32, "i64": torch.int64, "bf16": torch.bfloat16}
    made = []
    for name in program.inputs:
        b = program.buffers[name]
        shape = [n.const() for n in b.shape]
        made.append(torch.randint(-3, 4, shape, generator=generator).to(types[b.dtype]))
    return made


# ---- well-known shapes -----------------------------------------------------------------------------------------


def chain(n: int = 5, size: int = 2048, length: int | None = None) -> Program:
    """x + 1, * 2, relu, - 0.5, sigmoid, and so on for `n` maps."""
    b = Builder()
    x = b.input((length or size, size))
    bodies = [
        lambda v: op("add", v, const(1.0, "f32")),
        lambda v: op("mul", v, const(2.0, "f32")),
        lambda v: op("max", v, const(0.0, "f32")),
        lambda v: op("sub", v, const(0.5, "f32")),
        lambda v: op("div", const(1.0, "f32"), op("add", op("exp", op("neg", v)), const(1.0, "f32"))),
    ]
    for k in range(n):
        x = b.map(b.shape(x), lambda i, j, x=x, k=k: bodies[k % 5](b.load(x, i, j)))
    return b.program(x)


def softmax(rows: int = 512, columns: int = 1024) -> Program:
    """softmax(x * 2 + sin(y))."""
    b = Builder()
    x, y = b.input((rows, columns)), b.input((rows, columns))
    s = b.map(
        (rows, columns),
        lambda i, j: op("add", op("mul", b.load(x, i, j), const(2.0, "f32")), op("sin", b.load(y, i, j))),
    )
    m = b.reduce("max", (rows,), (columns,), lambda i, r: b.load(s, i, r))
    e = b.map((rows, columns), lambda i, j: op("exp", op("sub", b.load(s, i, j), b.load(m, i))))
    z = b.reduce("sum", (rows,), (columns,), lambda i, r: b.load(e, i, r))
    return b.program(b.map((rows, columns), lambda i, j: op("div", b.load(e, i, j), b.load(z, i))))


def add_norm(b: Builder, x: str, y: str, w: str, g: str) -> tuple[str, str]:
    """x + y, and its layer norm over the last dimension."""
    *lead, n = b.shape(x)
    h = b.map((*lead, n), lambda *i: op("add", b.load(x, *i), b.load(y, *i)))
    total = b.reduce("sum", lead, (n,), lambda *i: b.load(h, *i))
    mean = b.map(lead, lambda *i: op("mul", b.load(total, *i), const(1 / n, "f32")))

    def centred(*i: IndexExpr) -> Val:
        return op("sub", b.load(h, *i), b.load(mean, *i[:-1]))

    squares = b.reduce("sum", lead, (n,), lambda *i: op("mul", centred(*i), centred(*i)))
    scale = b.map(
        lead, lambda *i: op("rsqrt", op("add", op("mul", b.load(squares, *i), const(1 / n, "f32")), const(1e-5, "f32")))
    )
    out = b.map(
        (*lead, n),
        lambda *i: op(
            "add", op("mul", op("mul", centred(*i), b.load(scale, *i[:-1])), b.load(w, i[-1])), b.load(g, i[-1])
        ),
    )
    return h, out


def residual_layer_norm(rows: int = 512, columns: int = 768) -> Program:
    b = Builder()
    x, y, w, g = b.input((rows, columns)), b.input((rows, columns)), b.input((columns,)), b.input((columns,))
    return b.program(add_norm(b, x, y, w, g)[1])


def conv_norm_relu(channels: int = 64, size: int = 56) -> Program:
    """Batch norm in evaluation mode and relu after an extern call that stands for a convolution."""
    b = Builder()
    shape = (1, channels, size, size)
    x = b.input(shape)
    mean, var, w, g = (b.input((channels,)) for _ in range(4))
    y = b.extern(aten.neg.default, shape, x)
    inv = b.map((channels,), lambda c: op("rsqrt", op("add", op("abs", b.load(var, c)), const(1e-5, "f32"))))
    normed = b.map(
        shape,
        lambda n, c, h, k: op(
            "add",
            op("mul", op("mul", op("sub", b.load(y, n, c, h, k), b.load(mean, c)), b.load(inv, c)), b.load(w, c)),
            b.load(g, c),
        ),
    )
    relu = b.map(shape, lambda *i: op("max", b.load(normed, *i), const(0.0, "f32")))
    return b.program(b.extern(aten.neg.default, shape, relu))


def encoder(layers: int = 2, tokens: int = 16, width: int = 32) -> Program:
    """Layers of (matmul, residual + norm, matmul, gelu, matmul, residual + norm)."""
    b = Builder()
    x = b.input((tokens, width))
    w, g, m = b.input((width,)), b.input((width,)), b.input((width, width))
    half, root = const(0.5, "f32"), const(0.5**0.5, "f32")

    def gelu(v: Val) -> Val:
        return op("mul", op("mul", v, half), op("add", op("erf", op("mul", v, root)), const(1.0, "f32")))

    for _ in range(layers):
        attention = b.extern(aten.mm.default, (tokens, width), x, m)
        _, x = add_norm(b, x, attention, w, g)
        up = b.extern(aten.mm.default, (tokens, width), x, m)
        act = b.map((tokens, width), lambda i, j, up=up: gelu(b.load(up, i, j)))
        down = b.extern(aten.mm.default, (tokens, width), act, m)
        _, x = add_norm(b, x, down, w, g)
    return b.program(x)


def wide(n: int, size: int = 64) -> Program:
    """`n` independent maps of one input, with a result each."""
    b = Builder()
    x = b.input((size, size))
    return b.program(
        *(b.map((size, size), lambda i, j, k=k: op("mul", b.load(x, i, j), const(float(k), "f32"))) for k in range(n))
    )


# ---- random programs -------------------------------------------------------------------------------------------

KINDS = ("map", "map", "map", "map", "row", "row", "reduce", "scan", "arg", "gather", "scatter", "extern", "random")


def programs(max_items: int = 14) -> st.SearchStrategy[Program]:
    """Programs of every kind of nest, with extern calls, random draws, dead items and viewed outputs.

    Drawn as a seed and a length, so that an example costs little and shrinks in length.
    """
    return st.builds(random_program, st.integers(0, 1 << 30), st.integers(1, max_items))


def random_program(seed: int, n_items: int) -> Program:
    rng = random.Random(seed)
    dtype = rng.choice(("f32", "i64", "bf16"))
    extents = rng.choice(((2, 3), (3, 3), (1, 4), (2, 2)))
    b = Builder()
    for _ in range(rng.randint(1, 3)):
        b.input(_shape(rng, extents), dtype)
    for _ in range(n_items):
        _MAKE[rng.choice(KINDS)](rng, b, extents, dtype)
    made = list(b.buffers)[len(b.inputs) :]
    names = rng.sample(list(b.buffers), min(len(b.buffers), rng.randint(0, 2)))
    return b.program(*(_view(rng, b, name) for name in (*names, made[-1])))


def _shape(rng: random.Random, extents: Sequence[int]) -> tuple[int, ...]:
    return tuple(rng.choice(extents) for _ in range(rng.randint(1, 3)))


def _view(rng: random.Random, b: Builder, name: str) -> TensorRef:
    """The whole buffer, or one element of its first dimension."""
    whole = b.ref(name)
    if not b.shape(name) or rng.random() < 0.7:
        return whole
    at = rng.randrange(b.shape(name)[0])
    return TensorRef(name, whole.shape[1:], whole.strides[1:], whole.strides[0] * at)


def _pick(rng: random.Random, b: Builder, dtype: str) -> str:
    """A buffer of a type (bf16: of a float type); recent ones are likelier, so that programs are deep."""
    names = [n for n in b.buffers if b.dtype(n) == dtype or (dtype == "bf16" and b.dtype(n) == "f32")]
    return rng.choice(names[-3:] if rng.random() < 0.7 else names)


def _load(rng: random.Random, b: Builder, name: str, point: Sequence[IndexExpr], extents: Sequence[int]) -> Val:
    """A load at an index made of the loop variables: mostly themselves, in place."""
    index = []
    for d, n in enumerate(b.shape(name)):
        if d < len(point) and extents[d] == n and rng.random() < 0.8:
            index.append(point[d])
        elif point and rng.random() < 0.7:
            index.append(mod(rng.choice(point) + rng.randint(0, 2), lift(n)))
        else:
            index.append(lift(rng.randrange(n)))
    return b.load(name, *index)


def _value(rng: random.Random, b: Builder, point: Sequence[IndexExpr], extents: Sequence[int], dtype: str) -> Val:
    """A small body: one to three loads, a few operations; for bf16 computed, and given, in f32."""
    dtype, stored = ("f32", dtype) if dtype == "bf16" else (dtype, dtype)
    loads = [cast(_load(rng, b, _pick(rng, b, stored), point, extents), dtype) for _ in range(rng.randint(1, 3))]
    value = loads[0]
    for other in loads[1:]:
        value = op(rng.choice(("add", "sub", "max", "min")), value, other)
    how = rng.randrange(6)
    number = const(2 if dtype == "i64" else 2.0, dtype)
    if how == 0:
        value = op("mul", value, number)
    elif how == 1:
        value = op("where", op("lt", value, number), number, value, dtype=dtype)
    elif how == 2 and point:
        here = index_value(point[-1])
        value = op("add", value, here if dtype == "i64" else op("cast", here, dtype=dtype))
    elif how == 3 and dtype == "f32":
        value = op("sin", value)
    return value


def _make_map(rng: random.Random, b: Builder, extents: Sequence[int], dtype: str) -> None:
    shape = b.shape(_pick(rng, b, dtype)) if rng.random() < 0.5 else _shape(rng, extents)
    rounded = "bf16" if dtype == "bf16" and rng.random() < 0.7 else None

    def body(*i: IndexExpr) -> Val:
        value = _value(rng, b, i, shape, dtype)
        return cast(value, rounded or value.dtype)

    b.map(shape, body)


def _make_row(rng: random.Random, b: Builder, extents: Sequence[int], dtype: str) -> None:
    """Fold the last dimension of a recent buffer away."""
    whole = b.shape(_pick(rng, b, dtype)) or (2,)
    b.reduce(rng.choice(("sum", "max")), whole[:-1], whole[-1:], lambda *i: _value(rng, b, i, whole, dtype))


def _make_reduce(rng: random.Random, b: Builder, extents: Sequence[int], dtype: str) -> None:
    shape, red = _shape(rng, extents)[:-1], _shape(rng, extents)[:1]
    b.reduce(rng.choice(("sum", "max", "min")), shape, red, lambda *i: _value(rng, b, i, shape + red, dtype))


def _make_scan(rng: random.Random, b: Builder, extents: Sequence[int], dtype: str) -> None:
    shape = _shape(rng, extents)
    b.scan("cumsum", shape, rng.randrange(len(shape)), lambda *i: _value(rng, b, i, shape, dtype))


def _make_arg(rng: random.Random, b: Builder, extents: Sequence[int], dtype: str) -> None:
    shape, red = _shape(rng, extents)[:-1], _shape(rng, extents)[:1]
    b.reduce("argmax", shape, red, lambda *i: _value(rng, b, i, shape + red, dtype))


def _make_gather(rng: random.Random, b: Builder, extents: Sequence[int], dtype: str) -> None:
    shape = _shape(rng, extents)
    name = rng.choice([n for n in b.buffers if b.dtype(n) == dtype and b.shape(n)])

    def body(*i: IndexExpr) -> Val:
        number = _value(rng, b, i, shape, dtype)
        whole = number if number.dtype == "i64" else op("cast", number, dtype="i64")
        row = op("mod", op("abs", whole), const(b.shape(name)[0], "i64"))
        rest = [mod(i[d], lift(n)) if d < len(i) else lift(0) for d, n in enumerate(b.shape(name))][1:]
        return b.load(name, row, *rest)

    b.map(shape, body)


def _make_scatter(rng: random.Random, b: Builder, extents: Sequence[int], dtype: str) -> None:
    """Fold values into places of which the first is given by data, and others by the points."""
    shape, points = _shape(rng, extents), _shape(rng, extents)

    def body(i: tuple[IndexExpr, ...], r: tuple[IndexExpr, ...]) -> Val:
        initial = _value(rng, b, i, shape, dtype)
        value, number = (_value(rng, b, r, points, dtype) for _ in range(2))
        whole = number if number.dtype == "i64" else op("cast", number, dtype="i64")
        row = op("mod", op("abs", whole), const(shape[0], "i64"))
        rest = [mod(r[d], lift(n)) if d < len(r) else lift(0) for d, n in enumerate(shape)][1:]
        return scatter(initial, value, (row, *rest))

    b.nest(rng.choice(("scatter_sum", "scatter_max", "scatter_min")), shape, points, body)


def _make_extern(rng: random.Random, b: Builder, extents: Sequence[int], dtype: str) -> None:
    name = _pick(rng, b, dtype)
    b.extern(aten.neg.default, b.shape(name), name, dtype=b.dtype(name))


def _make_random(rng: random.Random, b: Builder, extents: Sequence[int], dtype: str) -> None:
    """A draw from the default generator: two of these swapped give other numbers."""
    name = _pick(rng, b, dtype)
    b.extern(aten.randint_like.default, b.shape(name), name, 5, dtype=b.dtype(name))


_MAKE = {
    "map": _make_map,
    "row": _make_row,
    "reduce": _make_reduce,
    "scan": _make_scan,
    "arg": _make_arg,
    "gather": _make_gather,
    "scatter": _make_scatter,
    "extern": _make_extern,
    "random": _make_random,
}
