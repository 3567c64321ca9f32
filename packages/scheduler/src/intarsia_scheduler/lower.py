"""One launch and what was chosen for it -> tiles: every buffer flat, every step a loop nest.

A launch does what its walk says, which an emitter prints, over the buffers' canonical names. Where nobody said how a
grid walks it, its points are walked by plain choices:

    map      for inner axes: put out[..] = body; or check body
    fold     for inner axes: acc; for reduced axes: fold body; take; put
    scan     for the other inner axes: acc; for the scanned axis: run body; put
    scatter  a launch that stores the initial value, unless there is one; a launch that updates at every point
    chunk    for the chunks of a scan: acc; fold what came before; for the chunk's points: run body; put

What only the kernel sees is held: an array over a step's inner axes, or a number where it has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from intarsia_ir.errors import InvalidArgumentError
from intarsia_loops.addresses import address
from intarsia_loops.grid import COUNTERS, grid_walk
from intarsia_loops.index import ZERO, Atom, IndexExpr, axis, flat, lift
from intarsia_loops.launches import LaunchPlan, Walk
from intarsia_loops.ops import NEST_KINDS
from intarsia_loops.program import Buffer, Kernel, Nest, Val, index_value, load, scatter_of
from intarsia_loops.rewrites import at, rename_buffers
from intarsia_loops.tiles import (
    Acc,
    Bind,
    Check,
    Fold,
    For,
    Hold,
    Launch,
    Put,
    Run,
    Statement,
    Take,
    Update,
    index_width,
    touched,
)
from intarsia_loops.tiles.values import element_number, flat_value
from intarsia_loops.vectors.walks import VectorWalk
from intarsia_scheduler.grid.walk import rows_of_chunks
from intarsia_scheduler.plan import KernelPlan
from intarsia_scheduler.simple import is_pointwise

__all__ = ["gridded_launch", "launches_of", "walked_launch"]

UPDATES = {"scatter_sum": "sum", "scatter_max": "max", "scatter_min": "min"}
ACROSS = ("serial", "threads", "program")


def launches_of(plan: LaunchPlan, chosen: KernelPlan, name: str) -> tuple[Launch, ...]:
    """Return the launches of tiles that do the work of a launch.

    Args:
        plan: The launch.
        chosen: What was chosen for its kernel.
        name: Of the launch; of several, the first word of their names.

    Raises:
        InvalidArgumentError: `schedule.choice`: a choice isn't one of this kernel's.
    """
    _checked(plan.kernel, chosen)
    alone = _named(plan)
    body = _Kernel(alone.kernel, alone.layouts, chosen, dict(alone.asserts))
    step = alone.kernel.steps[-1]
    if scatter_of(step) is not None:
        parts = [*([body.initial(step)] if plan.initial else []), body.points(step)]
    elif plan.chunk:
        parts = [body.chunks(rows_of_chunks(alone.kernel, alone.layouts), plan.chunk)]
    else:
        parts = [body.rows()]
    names = [name] if len(parts) == 1 else [f"{name}_{k}" for k in range(len(parts))]
    return tuple(_launch(part, alone, n) for part, n in zip(parts, names, strict=True))


def walked_launch(plan: LaunchPlan, walk: VectorWalk, name: str) -> Launch:
    """Return the launch of a kernel that vectors and threads walk.

    Args:
        plan: The launch.
        walk: What it does.
        name: Of the launch.
    """
    used = set().union(*walk.touched())
    kept = [k for k in range(len(plan.sets[0])) if f"b{k}" in used]
    sets = tuple(tuple(names[k] for k in kept) for names in plan.sets)
    return Launch(name, tuple(f"b{k}" for k in kept), sets, (walk,), "i64", 0, plan.origins)


def gridded_launch(plan: LaunchPlan, walk: Walk, counters: str, name: str) -> Launch:
    """Return the launch of what the programs of a grid walk.

    Args:
        plan: The launch.
        walk: How its points are walked.
        counters: The buffer that its programs count themselves in with, if they do.
        name: Of the launch.
    """
    given = grid_walk(plan, walk)
    used = set().union(*given.touched())
    kept = [k for k in range(len(plan.sets[0])) if f"b{k}" in used]
    params, sets = tuple(f"b{k}" for k in kept), tuple(tuple(names[k] for k in kept) for names in plan.sets)
    if given.ending is not None:
        params, sets = (*params, COUNTERS), tuple((*names, counters) for names in sets)
    wide = walk.wide or (given.ending is not None and given.ending.walk.walk.wide)
    return Launch(name, params, sets, (given,), "i64" if wide else "i32", walk.blocks.warps, plan.origins)


def _named(plan: LaunchPlan) -> LaunchPlan:
    """A launch for one set of buffers over these buffers themselves."""
    (names,) = plan.sets
    real = {f"b{k}": name for k, name in enumerate(names)}
    steps = tuple(rename_buffers(step, real) for step in plan.kernel.steps)
    kernel = Kernel(plan.kernel.rows, steps, frozenset(real[b] for b in plan.kernel.local))
    layouts = {real[b]: layout for b, layout in plan.layouts.items()}
    return replace(plan, kernel=kernel, layouts=layouts, asserts=tuple((real[b], text) for b, text in plan.asserts))


def _launch(body: Sequence[Statement], plan: LaunchPlan, name: str) -> Launch:
    made = Launch(name, (), ((),), tuple(body))
    params = tuple(sorted(set().union(*touched(made))))
    return Launch(name, params, (params,), made.body, index_width(made.body), 0, plan.origins)


def _checked(kernel: Kernel, plan: KernelPlan) -> None:
    order = sorted(map(int, plan.word("order").split()))
    scatter = scatter_of(kernel.steps[-1]) is not None
    sound = (
        order == list(range(len(kernel.rows)))
        and plan.word("across") in ACROSS
        and plan.number("lanes") > 0
        and plan.number("unroll") > 0
        and plan.word("space") in ("reg", "stack", "heap")
        and plan.word("update") in (("ordered", "atomic") if scatter else ("none",))
    )
    if not sound:
        chosen = {name: choice.value for name, choice in plan.choices.items()}
        raise InvalidArgumentError(f"kernel {plan.key} can't run as {chosen}", code="schedule.choice")


@dataclass(slots=True)
class _Kernel:
    """One kernel while its statements are made; names of binds are given out once."""

    kernel: Kernel
    buffers: Mapping[str, Buffer]
    plan: KernelPlan
    asserts: Mapping[str, str]
    n_binds: int = 0
    held: dict[str, int] = field(default_factory=dict)  # what is held, with its dimensions

    def rows(self) -> list[Statement]:
        """The loops over rows, with every step in them."""
        order = [self.kernel.rows[int(k)] for k in self.plan.word("order").split()]
        across = self.plan.word("across")
        body = [s for step in self.kernel.steps for s in self.step(step)]
        if is_pointwise(self.kernel) and order:
            *outer, inner = order
            walk = self.walk(inner, body, "lanes", across="serial" if outer else across)
            return self.around(outer, [walk], across)
        return self.around(order, body, across)

    def around(self, axes: Sequence[Atom], body: list[Statement], across: str = "serial") -> list[Statement]:
        """Loops over axes, the outermost of which is shared."""
        for k, a in reversed(list(enumerate(axes))):
            body = [For(a, ZERO, (a.extent,), tuple(body), across if k == 0 else "serial")]
        return body

    def walk(self, axis: Atom, body: Sequence[Statement], *kinds: str, across: str = "serial") -> For:
        """A loop in tiles of these kinds of binds."""
        binds = tuple(Bind(kind, self.plan.number(kind), self.bind()) for kind in kinds)
        binds = tuple(b for b in binds if b.size > 1)
        points = 1
        for b in binds:
            points *= b.size
        known = axis.extent.const()
        ends = "none" if points == 1 or (known is not None and known % points == 0) else "mask"
        return For(axis, ZERO, (axis.extent,), tuple(body), across, binds=binds, ends=ends)

    def bind(self) -> str:
        self.n_binds += 1
        return f"l{self.n_binds}"

    # ---- steps

    def step(self, step: Nest) -> list[Statement]:
        inner = step.axes[len(self.kernel.rows) :]
        if step.out in self.asserts:
            return self.around(inner, [self.check(step)])
        local = step.out in self.kernel.local
        made: list[Statement] = []
        if local and inner:
            made.append(Hold(step.out, self.plan.word("space"), tuple(a.extent for a in inner), step.dtype))
        body = self.value(step.body)
        if local:
            self.held[step.out] = len(inner)
        if step.kind == "map":
            return [*made, *self.map(step, inner, body)]
        if NEST_KINDS[step.kind].scan:
            return [*made, *self.scan(step, inner, body)]
        return [*made, *self.fold(step, inner, body)]

    def check(self, step: Nest) -> Statement:
        return Check(self.value(step.body), self.asserts[step.out])

    def map(self, step: Nest, inner: Sequence[Atom], body: Val) -> list[Statement]:
        if not inner:
            return self.store(step, body)
        *outer, last = inner
        return self.around(outer, [self.walk(last, self.store(step, body), "lanes")])

    def fold(self, step: Nest, inner: Sequence[Atom], body: Val) -> list[Statement]:
        acc, name = f"{step.out}_acc", f"{step.out}_all" if step.out not in self.numbers() else step.out
        position = flat([lift(a) for a in step.red], [a.extent for a in step.red])
        operands = (body, index_value(position)) if step.kind.startswith("arg") else (body,)
        *outer, last = step.red
        walk = self.walk(last, [Fold(acc, operands)], "unroll", "lanes")
        statements: list[Statement] = [
            Acc(acc, step.kind, step.body.dtype, tuple(b.name for b in walk.binds)),
            *self.around(outer, [walk]),
            Take(acc, (name,), "tree"),
        ]
        if name != step.out:
            statements += self.store(step, load(name, (), step.dtype))
        return self.around(inner, statements)

    def scan(self, step: Nest, inner: Sequence[Atom], body: Val) -> list[Statement]:
        (scanned,) = step.red
        acc, name = f"{step.out}_acc", f"{step.out}_run"
        run = [Run(acc, (body,), name), *self.store(step, load(name, (), step.dtype))]
        walk = For(scanned, ZERO, (scanned.extent,), tuple(run))
        monoid = Acc(acc, step.kind.removeprefix("cum"), step.body.dtype)
        return self.around([a for a in inner if a is not scanned], [monoid, walk])

    def chunks(self, rows: Sequence[Atom], length: int) -> list[Statement]:
        """The chunks of a scan, of which the kernel's first step says what each starts from."""
        start, step = self.kernel.steps
        (scanned,), acc, name = step.red, f"{step.out}_acc", f"{step.out}_run"
        follows, before, _ = at(start.body, dict(zip(start.axes, map(lift, rows), strict=True))).args
        within, begin = axis("q0", length), lift(rows[0]) * length
        here = {scanned: begin + lift(within)}
        place = address([here.get(a, lift(a)) for a in step.axes], self.buffers[step.out].strides)
        run = (
            Run(acc, (self.value(at(step.body, here)),), name),
            Put(step.out, (place,), load(name, (), step.dtype)),
        )
        statements: list[Statement] = [
            Acc(acc, step.kind.removeprefix("cum"), step.body.dtype),
            Fold(acc, (self.value(before),), self.value(follows)),
            For(within, ZERO, (lift(length), scanned.extent - begin), run),
        ]
        return self.around(rows, statements, self.plan.word("across"))

    def numbers(self) -> set[str]:
        return {name for name, rank in self.held.items() if rank == 0}

    def store(self, step: Nest, value: Val) -> list[Statement]:
        """Keep a value where the step's result is: in a number, in an array of the row, or in memory."""
        if step.out in self.numbers():
            return [Hold(step.out, "reg", (), step.dtype, 0, value)]
        here = tuple(map(lift, step.axes))
        if step.out in self.held:
            return [Put(step.out, here[len(self.kernel.rows) :], value)]
        return [Put(step.out, (address(here, self.buffers[step.out].strides),), value)]

    # ---- scatters

    def initial(self, step: Nest) -> list[Statement]:
        """Store the initial value."""
        parts = scatter_of(step)
        assert parts is not None, "not a scatter"
        *outer, last = step.axes
        across = self.plan.word("across")
        body = self.store(step, self.value(parts.initial))
        walk = self.walk(last, body, "lanes", across="serial" if outer else across)
        return self.around(outer, [walk], across)

    def points(self, step: Nest) -> list[Statement]:
        """Update at every point; in order, they are all one thread's."""
        parts = scatter_of(step)
        assert parts is not None, "not a scatter"
        strides = self.buffers[step.out].strides
        place = self.address(tuple(parts.index), strides)
        how = self.plan.word("update")
        body: list[Statement] = []
        for check in self.kernel.steps[:-1]:
            env = dict(zip(check.axes, map(lift, step.red), strict=False))
            body.append(self.check(replace(check, body=at(check.body, env))))
        body.append(Update(UPDATES[step.kind], step.out, place, self.value(parts.value), how))
        across = self.plan.word("across") if how == "atomic" else "serial"
        return self.around(step.red, body, across)

    # ---- values

    def value(self, body: Val) -> Val:
        """The value over flat element numbers, and over what is held."""

        def held(v: Val) -> Val | None:
            name, entries = v.args
            return load(name, entries[len(self.kernel.rows) :], v.dtype) if name in self.held else None

        return flat_value(body, {}, self.buffers, held)

    def address(self, entries: Sequence[IndexExpr | Val], strides: Sequence[IndexExpr]) -> IndexExpr | Val:
        """The element number of an index; a value where it depends on data."""
        return element_number([e if isinstance(e, IndexExpr) else self.value(e) for e in entries], strides)
