"""A kernel and the answers to what has to be chosen for it -> how it is walked on a CPU."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from intarsia_ir.dtypes import itemsize
from intarsia_ir.records import Target
from intarsia_loops.addresses import product
from intarsia_loops.index import ONE, ZERO, Atom, IndexExpr, axis, lift
from intarsia_loops.program import Buffer, Kernel, Nest, Scatter, Val, index_value, scatter_of, val
from intarsia_loops.rewrites import at, postorder
from intarsia_loops.vectors.axes import collapse, separate
from intarsia_loops.vectors.exact import rounded_once
from intarsia_loops.vectors.groups import Group, group_steps
from intarsia_loops.vectors.narrow import narrowed
from intarsia_loops.vectors.reads import reading
from intarsia_loops.vectors.steps import Array, Block, Step, accesses, flat_steps, lanes_of, local_arrays
from intarsia_loops.vectors.walks import Inner, Manner, Maps, Part, Points, Rows, Share, Tiling, VectorWalk
from intarsia_loops.vectors.work import work_of
from intarsia_scheduler.vectors.inner import Nests
from intarsia_scheduler.vectors.questions import (
    Ask,
    Gather,
    Hoist,
    Keep,
    Least,
    Narrow,
    Order,
    Pieces,
    PointLane,
    Shape,
    Split,
    Tile,
    Vector,
    Who,
)

__all__ = ["vector_walk"]


def vector_walk(kernel: Kernel, buffers: Mapping[str, Buffer], target: Target, ask: Ask) -> VectorWalk:
    """Return how a kernel is walked.

    Args:
        kernel: In canonical form.
        buffers: Layout of every buffer in memory.
        target: What for.
        ask: Who answers, once for each word.
    """
    outs = kernel.writes()
    kernel = rounded_once(kernel)
    if ask("narrow", Narrow(kernel)):
        kernel = narrowed(kernel)
    made = _Walk(kernel, buffers, target, ask)
    return VectorWalk(tuple(made.parts()), outs)


class _Walk:
    """One kernel while its walk is made."""

    def __init__(self, kernel: Kernel, buffers: Mapping[str, Buffer], target: Target, ask: Ask) -> None:
        self.kernel, self.buffers, self.target, self.ask = kernel, buffers, target, ask
        self.threads = target.threads
        self.least = int(ask("least", Least()))

    def parts(self) -> Iterator[Part]:
        """Yield what is done, in order."""
        kernel, step = self.kernel, self.kernel.steps[-1]
        scatter = scatter_of(step)
        if _is_empty(kernel.rows):
            return
        if scatter is not None:
            yield from self.scatter(step, scatter)
            return
        arrays = local_arrays(kernel)
        steps = flat_steps(kernel, self.buffers, arrays)
        lanes = self.lanes("vector", kernel)
        if all(s.kind == "map" and not s.inner for s in steps):
            yield self.maps(kernel.rows, steps, lanes, 0)
        else:
            yield self.rows(steps, arrays, lanes)

    def lanes(self, word: str, kernel: Kernel) -> int:
        return int(self.ask(word, Vector(lanes_of(kernel, self.target.machine.vector_bytes))))

    def share(self, points: IndexExpr, work: int) -> Share | None:
        """Whether threads share points of so much work each."""
        known = points.const()
        if self.threads == 1 or (known is not None and known * work < self.least):
            return None
        return Share(self.threads, points, 0 if known is not None else -(-self.least // work))

    # ---- maps

    def maps(self, rows: Sequence[Atom], steps: tuple[Step, ...], lanes: int, number: int) -> Maps:
        """One pass over memory."""
        loops, steps = self.ordered(rows, steps, lanes, number)
        tiling = self.tiling(loops, steps, lanes, number) if len(loops) > 1 else None
        loops = loops or (axis("i0", 1),)
        points, work = product(tuple(a.extent for a in loops)), work_of(steps)
        if tiling is not None:
            turned = {v.args[1][0] for v in tiling.loads}
            manner = self.manner(number, [s.body for s in steps], loops[-1], lanes, turned)
            return Maps(lanes, loops, steps, 0, tiling, self.share(points, 2 * work), manner)
        others = product(tuple(a.extent for a in loops[:-1])).const()
        pieces = int(self.ask(f"pieces {number}", Pieces(others, self.threads)))
        manner = self.manner(number, [s.body for s in steps], loops[-1], lanes)
        return Maps(lanes, loops, steps, pieces, None, self.share(points, work), manner)

    def ordered(
        self, rows: Sequence[Atom], steps: tuple[Step, ...], lanes: int, number: int
    ) -> tuple[tuple[Atom, ...], tuple[Step, ...]]:
        """The loops in their order, merged where memory walks them as one, and the steps over them."""
        addresses = [e for s in steps for e in s.addresses()]
        axes = [a for a in rows if a.extent is not ONE]
        env: dict[Atom, IndexExpr] = {a: ZERO for a in rows if a.extent is ONE}
        axes, parts = separate(axes, addresses)
        if parts:
            env |= parts
            steps = tuple(s.substituted(parts) for s in steps)
            addresses = [e for s in steps for e in s.addresses()]
        written = [s.address for s in steps if s.in_memory] or [steps[0].address]
        said = self.ask(f"loops {number}", Order(tuple(axes), steps, lanes, written[0]))
        axes = [axes[int(k)] for k in str(said).split()]
        merged, more = collapse(axes, [e.subst(env) for e in addresses])
        env |= more
        return merged, tuple(s.substituted(env) for s in steps)

    def tiling(self, loops: Sequence[Atom], steps: Sequence[Step], lanes: int, number: int) -> Tiling | None:
        """What is transposed, if anything would be the better for it."""
        found = _strided(loops, steps, lanes)
        said = str(self.ask(f"tile {number}", Tile(found, lanes))) if found else "none"
        if said == "none":
            return None
        across, square = map(int, said.split())
        ours = found[across]
        loads, stores = (tuple(x for x in ours if isinstance(x, kind)) for kind in (Val, str))
        return Tiling(loops[across], loads, stores, square)  # type: ignore[arg-type]

    # ---- rows

    def rows(self, steps: tuple[Step, ...], arrays: Mapping[str, Array], lanes: int) -> Rows:
        """Rows, one after the other or side by side."""
        kernel, groups, block = self.kernel, group_steps(steps), None
        shape = Shape(kernel.rows, steps, groups, arrays, lanes, self.threads, self.target.machine)
        kind, *numbers = str(self.ask("shape", shape)).split()
        if kind == "columns":
            position, width = map(int, numbers)
            block = Block(position, axis("start", kernel.rows[position].extent), width)
            arrays = local_arrays(kernel, block)
            groups = group_steps(flat_steps(kernel, self.buffers, arrays))
        stored = _stored(groups)
        points, work = _work(kernel.rows, groups)
        known = points.const()
        all_work, folds = None if known is None else known * work, all(map(_folds_only, groups))
        count = _count(kernel.rows, block)
        question = Who(count, all_work, self.least, self.threads, block is not None, folds)
        who = str(self.ask("share", question))
        nests = Nests(kernel.rows, block, lanes, self.threads, self.least, who, self.ask, self.share)
        inner = tuple(nests.inner(k, group) for k, group in enumerate(groups))
        kept = [a for b, a in arrays.items() if b in stored]
        heap = bool(kept) and self.ask("arrays", Keep(_bytes(kept, lanes), self.target.machine)) == "heap"
        share = self.share(points, work) if who == "rows" and kernel.rows else None
        manner = self.manner_of_rows(inner, None if block is None else kernel.rows[block.position], lanes)
        return Rows(lanes, kernel.rows, inner, block, arrays, stored, heap, share, self.threads, manner)

    def manner_of_rows(self, inner: Sequence[Inner], row: Atom | None, lanes: int) -> Manner:
        """How the values of rows are had; `row`: the axis that lanes run along, if not one of the loops inside."""
        apart = 0
        for nest in inner:
            lane = row or (nest.outer if nest.kind == "across" else nest.loops or (None,))[-1]
            apart += _apart([s.body for s in nest.steps], lane, lanes, frozenset())
        return self.said_manner(0, apart)

    # ---- how values are had

    def manner(
        self, number: int, bodies: Sequence[Val], lane: Atom, lanes: int, turned: Collection[IndexExpr] = ()
    ) -> Manner:
        """How the values of one part are had; what is `turned` lies along another loop."""
        return self.said_manner(number, _apart(bodies, lane, lanes, turned))

    def said_manner(self, number: int, apart: int) -> Manner:
        """What is said of a part that reads so many operands whose elements lie apart."""
        hoist = bool(self.ask(f"hoist {number}", Hoist()))
        return Manner(hoist, bool(self.ask(f"gather {number}", Gather(apart))) if apart else True)

    # ---- scatters

    def scatter(self, step: Nest, parts: Scatter) -> Iterator[Part]:
        """The initial value, then every point."""
        if _is_empty(step.axes):
            return
        start = Kernel(step.axes, (replace(step, red=(), kind="map", body=parts.initial),))
        yield self.maps(start.rows, flat_steps(start, self.buffers, {}), self.lanes("vector 0", start), 0)
        if not _is_empty(step.red):
            yield self.points(step)

    def points(self, nest: Nest) -> Points:
        """Every point, in the order of those that may fold into one element."""
        lanes = self.lanes("vector 1", self.kernel)
        (step,) = flat_steps(self.kernel, self.buffers, {})
        made, own = _points(step, self.buffers[nest.out], lanes)
        data = frozenset[Atom]() if made.moving is None else _axes_of(made.moving)
        near = frozenset(k for k, a in enumerate(made.loops) if a in own - data and _steps_by_one(made.fixed, a))
        lane_at = int(self.ask("lane 1", PointLane(made.loops, near)))
        lane = made.loops[lane_at] if made.loops else axis("r0", 1)
        mine = frozenset(k for k, a in enumerate(made.loops) if a in own)
        said = int(self.ask("split 1", Split(made.loops, mine, lane_at, lanes, self.threads))) if mine else -1
        split = None if said == -1 else made.loops[said]
        share = self.share(product(tuple(a.extent for a in made.loops)), work_of((step,))) if split else None
        bodies = [made.value, *([made.moving] if made.moving is not None else [])]
        return replace(
            made, lane=lane, neighbours=lane_at in near, split=split, share=share, threads=self.threads,
            manner=self.manner(1, bodies, lane, lanes),
        )  # fmt: skip


def _apart(bodies: Sequence[Val], lane: Atom | None, lanes: int, turned: Collection[IndexExpr]) -> int:
    """Operands whose elements lie apart along the lanes and may be read at once, without those that are turned."""
    found = {address for body in bodies for v, address, _ in accesses(body) if v.op == "load"} - {*turned}
    return sum(reading(address, lane, lanes).kind in ("apart", "wrapping") for address in found)


def _is_empty(axes: Sequence[Atom]) -> bool:
    return product(tuple(a.extent for a in axes)).const() == 0


# ---- maps -------------------------------------------------------------------------------------------------------


def _strided(loops: Sequence[Atom], steps: Sequence[Step], lanes: int) -> dict[int, tuple[Val | str, ...]]:
    """What the innermost loop strides over that lies along another one, by the position of that."""
    *outer, lane = loops
    if not _long_enough(lane, lanes):
        return {}
    made = {s.out for s in steps}
    loads = dict.fromkeys(u for s in steps for u in postorder(s.body) if u.op == "load" and u.args[0] not in made)
    accesses: list[tuple[Val | str, IndexExpr]] = [(v, v.args[1][0]) for v in loads if v.dtype != "b8"]
    accesses += [(s.out, s.address) for s in steps if s.in_memory and s.dtype != "b8"]
    found: dict[int, list[Val | str]] = {}
    for access, address in accesses:
        split = address.coef(lane)
        if split is None or split[0] is ONE or split[0] is ZERO:
            continue
        for k, a in enumerate(outer):
            if _steps_by_one(address, a) and _long_enough(a, lanes):
                found.setdefault(k, []).append(access)
    return {k: tuple(names) for k, names in found.items()}


def _long_enough(a: Atom, lanes: int) -> bool:
    extent = a.extent.const()
    return extent is None or extent >= lanes


def _steps_by_one(address: IndexExpr, a: Atom) -> bool:
    split = address.coef(a)
    return split is not None and split[0] is ONE


# ---- rows -------------------------------------------------------------------------------------------------------


def _stored(groups: Sequence[Group]) -> frozenset[str]:
    """The local buffers that need an array: made in one loop, read in a later one (or at another point)."""
    found = set()
    for k, group in enumerate(groups):
        for step in group.steps:
            if step.in_memory or not step.inner:
                continue
            later = any(v.args[0] == step.out for g in groups[k + 1 :] for s in g.steps for v in s.body.loads)
            if later or step.is_scan or step.is_fold:
                found.add(step.out)
    return frozenset(found)


def _count(rows: Sequence[Atom], block: Block | None) -> int | None:
    """Rows, or blocks of them; None where that isn't known."""
    if block is None:
        return product(tuple(a.extent for a in rows)).const()
    others = product(tuple(a.extent for k, a in enumerate(rows) if k != block.position)).const()
    extent = rows[block.position].extent.const()
    return None if extent is None or others is None else others * -(-extent // block.width)


def _folds_only(group: Group) -> bool:
    """Whether all of a group's loops' work is reductions over points of a row, none of them a search."""
    one_each = all(s.is_fold and not s.inner and not s.kind.startswith("arg") for s in group.steps)
    return not group.loops or (one_each and all(a.extent.const() != 0 for a in group.loops))


def _bytes(arrays: Sequence[Array], lanes: int) -> int | None:
    """Bytes of arrays, each with room for a vector at its end; None where a length isn't known."""
    lengths = [(a.length.const(), itemsize(a.dtype)) for a in arrays]
    if any(n is None for n, _ in lengths):
        return None
    return sum((n + lanes) * w for n, w in lengths if n is not None)


def _work(rows: Sequence[Atom], groups: Sequence[Group]) -> tuple[IndexExpr, int]:
    """Points of the largest loop over all rows, and the cost of one point of all loops that are about as large."""
    n_rows = product(tuple(a.extent for a in rows))
    sizes = [product(tuple(a.extent for a in g.loops)) for g in groups]
    widest = max(sizes, key=lambda e: e.hi)
    cost = sum(work_of(g.steps) for g, size in zip(groups, sizes, strict=True) if size.hi * 4 >= widest.hi)
    return n_rows * widest, cost


# ---- scatters ---------------------------------------------------------------------------------------------------


def _points(step: Step, layout: Buffer, lanes: int) -> tuple[Points, frozenset[Atom]]:
    """The points with one element number instead of an index, and the loops each value of which has its own elements.

    Neighbouring loops are merged where every access walks them as one: both are such loops, or neither is.
    """
    _, value, *places = step.body.args
    fixed, moving, own = ZERO, None, set()
    for place, stride in zip(places, layout.strides, strict=True):
        if place.op == "index":
            fixed = fixed + place.args[0] * stride
            own |= {a for a in step.red if place.args[0] is lift(a)}
            continue
        term = place if stride is ONE else val("mul", place, index_value(stride), dtype="i64")
        moving = term if moving is None else val("add", moving, term, dtype="i64")
    addresses = [fixed]
    for body in (value, *([moving] if moving is not None else [])):
        for v in postorder(body):
            entries = v.args if v.op == "index" else v.args[1] if v.op in ("load", "gather") else ()
            addresses += [e for e in entries if isinstance(e, IndexExpr)]
    loops, env = collapse(step.red, addresses)
    ours = {a for a in loops if a in own} | {a for old in own for a in env.get(old, ZERO).axes()}
    moving = None if moving is None else at(moving, env)
    lane = loops[-1] if loops else axis("r0", 1)
    return Points(lanes, step, loops, at(value, env), moving, fixed.subst(env), lane, False), frozenset(ours)


def _axes_of(body: Val) -> frozenset[Atom]:
    found: set[Atom] = set()
    for v in postorder(body):
        entries = v.args if v.op == "index" else v.args[1] if v.op in ("load", "gather") else ()
        found.update(*(e.axes() for e in entries if isinstance(e, IndexExpr)))
    return frozenset(found)
