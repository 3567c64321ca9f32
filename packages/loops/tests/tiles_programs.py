"""Random tile programs, each with what it must compute: every statement, every row of the monoid table."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from intarsia_ir.records import Target
from intarsia_loops.index import IndexExpr, axis, lift, row_major
from intarsia_loops.launches import Blocks, Loop, Walk
from intarsia_loops.program import Buffer, Nest, TensorRef, Val, const, index_value, load, val
from intarsia_loops.tiles import (
    MONOIDS,
    Acc,
    Bind,
    Check,
    Fold,
    For,
    GridWalk,
    Hold,
    If,
    Last,
    Launch,
    Put,
    Run,
    Statement,
    Take,
    Tiles,
    Turn,
    Update,
    VectorWalk,
)
from intarsia_loops.vectors.steps import Array, Block, Step
from intarsia_loops.vectors.walks import Inner, Rows, Share

DTYPES = {"f32": torch.float32, "f64": torch.float64, "i64": torch.int64, "i32": torch.int32, "b8": torch.bool}
ZERO = lift(0)


@dataclass
class Made:
    """A program, inputs for it, and what it gives."""

    tiles: Tiles
    inputs: tuple[Any, ...]
    expected: tuple[torch.Tensor, ...]


class Maker:
    """Builds programs from a source of choices; names of binds are given out once."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.n_binds = rng, 0
        self.is_gpu = rng.random() < 0.5
        self.target = Target("cuda", "sm_90") if self.is_gpu else Target(isa="avx2", threads=4)

    def binds(self, n: int) -> tuple[tuple[Bind, ...], str]:
        """Return the layout of a tile, and what its ends need over `n` points."""
        kinds = self.rng.choice((("lanes",), ("unroll", "lanes"), ("parts", "lanes"), ("unroll",), ()))
        made, points = [], 1
        for kind in kinds:
            size = self.rng.choice((1, 2, 4))
            made.append(Bind(kind, size, f"b{self.n_binds}"))
            self.n_binds, points = self.n_binds + 1, points * size
        ends = "none" if n % points == 0 and self.rng.random() < 0.5 else self.rng.choice(("mask", "peel", "always"))
        return tuple(made), ends

    def loop(self, name: str, n: int, body: Callable[[IndexExpr], list[Statement]], *, back: bool = True) -> For:
        """A serial loop, laid out and ordered anyhow."""
        variable = axis(name, n)
        binds, ends = self.binds(n)
        inside = tuple(body(lift(variable)))
        backwards = back and self.rng.random() < 0.3
        if self.rng.random() < 0.2 and binds:
            align = 4
            return For(variable, ZERO, (lift(n),), inside, binds=binds, ends="align", align=align, start=lift(3),
                       back=backwards)  # fmt: skip
        return For(variable, ZERO, (lift(n),), inside, binds=binds, ends=ends, back=backwards)

    def outer(self, name: str, n: int, body: Callable[[IndexExpr], list[Statement]]) -> For:
        """A loop whose points run side by side."""
        variable = axis(name, n)
        across = "program" if self.is_gpu else "threads"
        return For(variable, ZERO, (lift(n),), tuple(body(lift(variable))), across)

    def program(self, body: list[Statement], sets: tuple[dict[str, torch.Tensor], ...], made: dict[str, Buffer],
                scratch: dict[str, Buffer] | None = None) -> tuple[Tiles, tuple[torch.Tensor, ...]]:  # fmt: skip
        """One launch over sets of inputs, with results (and scratch) of its own for each."""
        scratch = scratch or {}
        params = (*sets[0], *scratch, *made)
        buffers: dict[str, Buffer] = {}
        names, inputs = [], []
        for k, given in enumerate(sets):
            own = {p: f"{p}{k}" if k else p for p in params}
            names.append(tuple(own[p] for p in params))
            buffers |= {own[p]: layout(t) for p, t in given.items()}
            buffers |= {own[p]: b for p, b in (scratch | made).items()}
            inputs += [(own[p], t) for p, t in given.items()]
        outputs = tuple(
            TensorRef(s[params.index(p)], made[p].shape, made[p].strides, ZERO) for s in names for p in made
        )
        hidden = frozenset(s[params.index(p)] for s in names for p in scratch)
        launch = Launch("all", params, tuple(names), tuple(body), self.rng.choice(("i32", "i64")), 4 * self.is_gpu)
        tiles = Tiles(buffers, tuple(n for n, _ in inputs), (launch,), outputs, self.target, hidden)
        return tiles, tuple(t for _, t in inputs)


def layout(tensor: torch.Tensor) -> Buffer:
    name = next(n for n, t in DTYPES.items() if t == tensor.dtype)
    sizes = tuple(map(lift, tensor.shape))
    return Buffer(sizes, row_major(sizes), name)


def buffer(shape: tuple[int, ...], dtype: str) -> Buffer:
    sizes = tuple(map(lift, shape))
    return Buffer(sizes, row_major(sizes), dtype)


def numbers(shape: tuple[int, ...], dtype: str) -> torch.Tensor:
    if dtype == "b8":
        return torch.rand(shape) < 0.7
    if dtype.startswith("i"):
        return torch.randint(-5, 6, shape).to(DTYPES[dtype])
    return torch.randn(shape).to(DTYPES[dtype])


def op(name: str, *args: Val) -> Val:
    return val(name, *args, dtype="b8" if name in ("lt", "le", "eq") else args[-1].dtype)


REFERENCES: dict[str, Callable[[torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "sum": lambda x: (x.sum(-1).to(x.dtype),),
    "prod": lambda x: (x.prod(-1).to(x.dtype),),
    "max": lambda x: (x.amax(-1),),
    "min": lambda x: (x.amin(-1),),
    "any": lambda x: (x.any(-1),),
    "all": lambda x: (x.all(-1),),
    "argmax": lambda x: (first(x, x.amax(-1)),),
    "argmin": lambda x: (first(x, x.amin(-1)),),
    "sum2": lambda x: (x.sum(-1),),
    "expsum": lambda x: (x.amax(-1), (x - x.amax(-1, keepdim=True)).exp().sum(-1)),
    "squares": lambda x: (
        torch.full(x.shape[:1], float(x.shape[1])).to(x.dtype), x.mean(-1), x.var(-1, correction=0) * x.shape[1]
    ),
}  # fmt: skip


def first(x: torch.Tensor, best: torch.Tensor) -> torch.Tensor:
    """Position of the first best element; a NaN is."""
    same = torch.where(best.isnan()[:, None], x.isnan(), x == best[:, None])
    return same.to(torch.int64).argmax(-1)


def folds(maker: Maker, monoid: str) -> Made:
    """Each row of x folded, in a layout of its own."""
    row = MONOIDS[monoid]
    dtype = maker.rng.choice(sorted(row.types & DTYPES.keys()))
    n, m = maker.rng.randint(1, 4), maker.rng.randint(1, 21)
    inputs = tuple({"x": numbers((n, m), dtype)} for _ in range(maker.rng.choice((1, 2))))
    if dtype.startswith("f") and maker.rng.random() < 0.2 and row.exact:
        inputs[0]["x"][0, m // 2] = float("nan")
    results = row.rules(dtype).finish

    def of_row(i: IndexExpr) -> list[Statement]:
        def point(j: IndexExpr) -> list[Statement]:
            operands = [load("x", (i * m + j,), dtype), index_value(j)][: len(row.operands)]
            return [Fold("a", tuple(operands))]

        walk = maker.loop("j", m, point)
        per = tuple(b.name for b in walk.binds)
        take = Take("a", tuple(f"r{k}" for k in range(len(results))), maker.rng.choice(("tree", "in order")))
        puts = [Put(f"y{k}", (i,), load(f"r{k}", (), v.dtype)) for k, v in enumerate(results)]
        return [Acc("a", monoid, dtype, per), walk, take, *puts]

    made = {f"y{k}": buffer((n,), v.dtype) for k, v in enumerate(results)}
    tiles, flat = maker.program([maker.outer("i", n, of_row)], inputs, made)
    return Made(tiles, flat, tuple(r for given in inputs for r in REFERENCES[monoid](given["x"])))


def kept(maker: Maker) -> Made:
    """e = exp(x) kept for a row, then y = e where it is less than the row's sum of what passes, else 0."""
    n, m = maker.rng.randint(1, 4), maker.rng.randint(1, 21)
    x = numbers((n, m), "f32")

    def of_row(i: IndexExpr) -> list[Statement]:
        def make(j: IndexExpr) -> list[Statement]:
            return [Put("e", (j,), op("exp", load("x", (i * m + j,), "f32")))]

        def fold(j: IndexExpr) -> list[Statement]:
            here = load("e", (j,), "f32")
            return [Fold("s", (here,), op("lt", here, const(1.0, "f32")))]

        def store(j: IndexExpr) -> list[Statement]:
            here, total = load("e", (j,), "f32"), load("t", (), "f32")
            small = op("lt", here, total)
            return [
                Put("y", (i * m + j,), here, small),
                Put("y", (i * m + j,), const(0.0, "f32"), val("not", small, dtype="b8")),
            ]

        walk = maker.loop("q", m, fold)
        space = "reg" if maker.is_gpu else maker.rng.choice(("stack", "heap"))
        acc = Acc("s", "sum", "f32", tuple(b.name for b in walk.binds))
        hold = Hold("e", space, (lift(m),), "f32", maker.rng.choice((0, 8)))
        return [hold, maker.loop("j", m, make), acc, walk, Take("s", ("t",)), maker.loop("k", m, store)]

    tiles, flat = maker.program([maker.outer("i", n, of_row)], ({"x": x},), {"y": buffer((n, m), "f32")})
    e = x.exp()
    total = torch.where(e < 1, e, 0).sum(1, keepdim=True)
    return Made(tiles, flat, (torch.where(e < total, e, 0),))


def scans(maker: Maker) -> Made:
    """Running sums or products of each row."""
    monoid, dtype = maker.rng.choice(("sum", "prod")), maker.rng.choice(("f32", "i64"))
    n, m = maker.rng.randint(1, 4), maker.rng.randint(1, 21)
    x = numbers((n, m), dtype)

    def of_row(i: IndexExpr) -> list[Statement]:
        def point(j: IndexExpr) -> list[Statement]:
            return [Run("a", (load("x", (i * m + j,), dtype),), "p"), Put("y", (i * m + j,), load("p", (), dtype))]

        return [Acc("a", monoid, dtype), maker.loop("j", m, point, back=False)]

    tiles, flat = maker.program([maker.outer("i", n, of_row)], ({"x": x},), {"y": buffer((n, m), dtype)})
    return Made(tiles, flat, (x.cumsum(1) if monoid == "sum" else x.cumprod(1),))


def updates(maker: Maker) -> Made:
    """y[p[r], c] folded with v[r, c], after a check, by threads with columns of their own or in any order."""
    n, m, width = maker.rng.randint(1, 4), maker.rng.randint(1, 9), maker.rng.randint(1, 6)
    monoid = maker.rng.choice(("sum", "max", "min"))
    p, v = torch.randint(0, n, (m,)), numbers((m, width), "f32")
    inside = op("lt", load("p", (lift(axis("r", m)),), "i64"), const(n, "i64"))

    def start(i: IndexExpr) -> list[Statement]:
        return [Put("y", (i,), const(0.0, "f32"))]

    def fold(r: IndexExpr, c: IndexExpr, how: str, own: tuple[Any, ...]) -> Update:
        place = op("add", op("mul", load("p", (r,), "i64"), const(width, "i64")), index_value(c))
        return Update(monoid, "y", place, load("v", (r * width + c,), "f32"), how, own)

    first_launch = maker.outer("z", n * width, start)
    r, c = axis("r", m), axis("c", width)
    if maker.is_gpu:
        body = fold(lift(r), lift(c), "atomic", ())
        points = For(r, ZERO, (lift(m),), (Check(inside, "inside"), maker_loop(c, width, body)), "program")
    else:
        ordered = fold(lift(r), lift(c), maker.rng.choice(("ordered", "vector")), (c,))
        points = For(
            c, ZERO, (lift(width),), (For(r, ZERO, (lift(m),), (Check(inside, "inside"), ordered)),), "threads"
        )
    tiles, flat = maker.program([first_launch, points], ({"p": p, "v": v},), {"y": buffer((n, width), "f32")})
    kind = {"sum": "sum", "max": "amax", "min": "amin"}[monoid]
    expected = torch.zeros(n, width).scatter_reduce(0, p[:, None].expand(m, width), v, kind)
    return Made(tiles, flat, (expected,))


def maker_loop(variable: Any, n: int, body: Statement) -> For:
    return For(variable, ZERO, (lift(n),), (body,))


def turned(maker: Maker) -> Made:
    """y = x transposed, square by square, and what is left point by point."""
    size, blocks = maker.rng.choice((2, 4)), maker.rng.randint(1, 3)
    n = size * blocks + maker.rng.randint(0, 1)
    x = numbers((n, n), "f32")

    def square(a: IndexExpr) -> list[Statement]:
        b, k, j = (lift(axis(name, e)) for name, e in (("b", blocks), ("k", size), ("j", size)))
        rows, columns = axis("k", size), axis("j", size)
        lanes = (Bind("lanes", size, "l"),), (Bind("lanes", size, "m"),)
        read = Put("t", (k, j), load("x", ((b * size + k) * n + a * size + j,), "f32"))
        write = Put("y", ((a * size + k) * n + b * size + j,), load("t", (k, j), "f32"))

        def both(put: Put, binds: tuple[Bind, ...]) -> For:
            inner = For(columns, ZERO, (lift(size),), (put,), binds=binds)
            return For(rows, ZERO, (lift(size),), (inner,))

        hold = Hold("t", "reg", (lift(size), lift(size)), "f32")
        inside = (hold, both(read, lanes[0]), Turn("t"), both(write, lanes[1]))
        return [For(axis("b", blocks), ZERO, (lift(blocks),), inside)]

    done = size * blocks
    i, j = axis("i", n), axis("c", n)
    copy = Put("y", (lift(i) * n + lift(j),), load("x", (lift(j) * n + lift(i),), "f32"))

    def strip(low_i: int, low_j: int, high_i: int) -> For:
        inner = For(j, lift(low_j), (lift(n),), (copy,))
        return For(i, lift(low_i), (lift(high_i),), (inner,))

    left = If(lift(done), "<", lift(n), (strip(0, done, done), strip(done, 0, n)), ())
    tiles, flat = maker.program([maker.outer("a", blocks, square), left], ({"x": x},), {"y": buffer((n, n), "f32")})
    return Made(tiles, flat, (x.t().contiguous(),))


def parts(maker: Maker) -> Made:
    """The sum of x in parts, which the last program to arrive adds."""
    n_parts, length, groups = maker.rng.randint(1, 5), maker.rng.randint(1, 9), maker.rng.randint(1, 3)
    maker.is_gpu, maker.target = True, Target("cuda", "sm_90")
    x = numbers((groups, n_parts * length), "f32")

    def part(g: IndexExpr) -> list[Statement]:
        def point(j: IndexExpr) -> list[Statement]:
            return [Fold("a", (load("x", (g * length + j,), "f32"),))]

        def again(k: IndexExpr) -> list[Statement]:
            return [Fold("z", (load("p", ((g // n_parts) * n_parts + k,), "f32"),))]

        walk, rest = maker.loop("j", length, point), maker.loop("k", n_parts, again)
        per, rest_per = (tuple(b.name for b in w.binds) for w in (walk, rest))
        finish = (
            Acc("z", "sum", "f32", rest_per),
            rest,
            Take("z", ("w",)),
            Put("y", (g // n_parts,), load("w", (), "f32")),
        )
        store = Put("p", (g,), load("t", (), "f32"))
        return [Acc("a", "sum", "f32", per), walk, Take("a", ("t",)), store, Last("c", g // n_parts, n_parts, finish)]

    scratch = {"p": buffer((groups * n_parts,), "f32"), "c": buffer((groups,), "i32")}
    body = [maker.outer("g", groups * n_parts, part)]
    tiles, flat = maker.program(body, ({"x": x},), {"y": buffer((groups,), "f32")}, scratch)
    return Made(tiles, flat, (x.sum(1),))


def walked(maker: Maker) -> Made:
    """Sums of rows, then what each number of a row has beside its row's sum, as vectors and threads walk them."""
    rng, n, m = maker.rng, maker.rng.randint(1, 9), maker.rng.randint(1, 40)
    maker.is_gpu, maker.target = False, Target(isa="avx2", threads=4)
    i, j, lanes = axis("i0", n), axis("r0", m), rng.choice((1, 2, 4, 8))
    start, side_by_side = axis("start", n), rng.random() < 0.5
    block = Block(0, start, lanes * rng.randint(1, 3)) if side_by_side else None
    x, y = numbers((n, m), "f32"), lift(i) - lift(start) if side_by_side else ZERO
    here = lift(i) * m + lift(j)
    total = Step("s", (), (j,), "sum", load("x", (here,), "f32"), y, "f32", False)
    rest = Step("y", (j,), (), "map", op("sub", load("x", (here,), "f32"), load("s", (y,), "f32")), here, "f32", True)
    unroll, chain = (rng.randint(1, 5) if side_by_side else rng.choice((1, 2, 4))), rng.choice((0, 1, 2, 5))
    length = chain * (1 if side_by_side else unroll * lanes)
    shared = Share(rng.randint(2, 4), lift(n * m))
    who, parts = rng.choice(((shared, 1), (None, 1), (None, rng.randint(2, 5))))
    inner = (
        Inner("folds" if side_by_side else "shared", (j,), (total,), (), unroll, chain, length,
              chain > 0 and m > 2 * length, parts, shared if parts > 1 else None),
        Inner("shared", (j,), (rest,)),
    )  # fmt: skip
    arrays = {"s": Array((), (), "f32", block)}
    rows = Rows(lanes, (i,), inner, block, arrays, frozenset(), False, who, 4)
    tiles, flat = maker.program([VectorWalk((rows,), ("y",))], ({"x": x},), {"y": buffer((n, m), "f32")})
    return Made(tiles, flat, (x - x.sum(1, keepdim=True),))


def gridded(maker: Maker) -> Made:
    """Sums of rows, then what each number of a row has beside its row's sum, as the programs of a grid walk them."""
    rng, n, m = maker.rng, maker.rng.randint(1, 9), maker.rng.randint(1, 40)
    maker.is_gpu, maker.target = True, Target("cuda", "sm_90")
    x, i, r, j = numbers((n, m), "f32"), axis("i0", n), axis("r0", m), axis("i1", m)
    total = Nest("s", (i,), (r,), "sum", load("x", (lift(i), lift(r)), "f32"), "f32")
    persistent = rng.random() < 0.3
    there = r if persistent else j
    rest = op("sub", load("x", (lift(i), lift(there)), "f32"), load("s", (lift(i),), "f32"))
    last = Nest("y", (i, there), (), "map", rest, "f32")
    parts = 1 if persistent else rng.choice((1, 2))
    height, width = rng.choice((1, 2, 4)) if parts == 1 else 1, 64 if persistent else rng.choice((4, 8)) * parts
    blocks = Blocks(height, width, 4, persistent, parts)
    loops = (Loop((r,), (total,)), Loop((there,), (last,), back=not persistent and rng.random() < 0.5))
    layouts = (("x", buffer((n, m), "f32")), ("y", buffer((n, m), "f32")))
    walk = GridWalk(Walk("rows", (i,), blocks, loops=loops), frozenset({"s"}), layouts=layouts)
    tiles, flat = maker.program([walk], ({"x": x},), {"y": buffer((n, m), "f32")})
    (launch,) = tiles.items
    tiles = replace(tiles, items=(replace(launch, warps=4, width="i32"),))
    return Made(tiles, flat, (x - x.sum(1, keepdim=True),))


MAKERS: dict[str, Callable[[Maker], Made]] = {
    "kept": kept,
    "scans": scans,
    "updates": updates,
    "turned": turned,
    "parts": parts,
    "walked": walked,
    "gridded": gridded,
    **{f"fold {m}": lambda maker, m=m: folds(maker, m) for m in MONOIDS},
}


def random_program(seed: int, kind: str | None = None) -> Made:
    """Return the program of a seed, of a kind or of any."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    return MAKERS[kind or rng.choice(sorted(MAKERS))](Maker(rng))
