"""Kernels -> launches, as a plan or a policy says: what is merged, spread, cut, finished, run side by side.

    items of the program
      →  parts      a kernel that isn't one launch of tiles is taken apart
      →  joints     a reduction with the map that reads it, a check with the kernel that relies on it
      →  launches   rows spread over walks, reductions cut into parts, scans into chunks; who finishes
      →  sets       equal neighbours over different buffers
      →  memory     where what launches make for each other lies

A CPU's kernels are a launch each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from intarsia_ir.errors import InvalidArgumentError
from intarsia_loops.addresses import product
from intarsia_loops.index import lift
from intarsia_loops.launches import Finish, Launches, LaunchPlan, Walk
from intarsia_loops.program import Buffer, Extern, Item, Kernel, Program, scatter_of
from intarsia_loops.rewrites import canonical, rename_buffers
from intarsia_scheduler.decide import Decide, kind_of
from intarsia_scheduler.grid.finish import finish_of
from intarsia_scheduler.grid.flat import with_flat_reductions, with_one_axis
from intarsia_scheduler.grid.loops import is_scan, is_scatter, is_tiled, pieces
from intarsia_scheduler.grid.merge import Joint, joined
from intarsia_scheduler.grid.scan import in_chunks
from intarsia_scheduler.grid.scatter import scatter_launches
from intarsia_scheduler.grid.sets import side_by_side
from intarsia_scheduler.grid.split import Cut, cut_steps, in_parts, spread, spreads
from intarsia_scheduler.grid.walk import walk_of
from intarsia_scheduler.grid.width import is_wide
from intarsia_scheduler.memory import place

__all__ = ["arranged", "joints_of"]


def arranged(program: Program, decide: Decide) -> Launches:
    """Return the launches of a program.

    Args:
        program: Items are kernels, lone nests and extern calls.
        decide: Who answers.
    """
    joints = joints_of(program, decide)
    scratch: dict[str, Buffer] = {}
    launches: list[LaunchPlan] = []
    for joint in joints:
        unit = _Unit({**program.buffers, **joint.views}, decide, scratch, joint)
        launches += unit.launches()
    together = side_by_side(launches, decide.sets())
    counters = _counters(together, {*program.buffers, *scratch}, scratch)
    made = Launches(program, decide.target, together, len(joints), MappingProxyType(scratch), counters)
    return replace(made, program=replace(program, placement=place(made)))


def joints_of(program: Program, decide: Decide) -> list[Joint]:
    """Return the kernels of a program, taken apart and put together, before any is split."""
    parts: list[tuple[int, Kernel | Extern]] = []
    for k, item in enumerate(program.items):
        parts += [(k, part) for part in _parts(item, program.buffers, decide)]
    if decide.target.is_gpu:
        return list(joined(program, parts, decide))
    return [Joint(part, (k, k + 1), (n, n + 1)) for n, (k, part) in enumerate(parts) if isinstance(part, Kernel)]


def _parts(item: Item, buffers: Mapping[str, Buffer], decide: Decide) -> tuple[Kernel | Extern, ...]:
    if isinstance(item, Extern):
        return (item,)
    kernel = item
    if not isinstance(kernel, Kernel):
        step = kernel
        n_rows = next((k for k, a in enumerate(step.axes) if a in step.red or scatter_of(step)), len(step.axes))
        kernel = Kernel(step.axes[:n_rows], (step,))
    if not decide.target.is_gpu or not kernel.steps:
        return (kernel,)
    form, layouts, _ = kind_of(kernel, buffers)
    if not is_tiled(kernel) and decide.of("apart", form, layouts) == "launch":
        return (kernel,)
    return pieces(kernel)


def _counters(launches: Collection[LaunchPlan], taken: Collection[str], scratch: dict[str, Buffer]) -> str:
    """Add the counters that all launches share to `scratch`, and return their name; "" where none counts."""
    n = max((launch.finish.counters for launch in launches if launch.finish is not None), default=0)
    if not n:
        return ""
    name = "arrived"
    while name in taken:
        name += "_"
    scratch[name] = Buffer((lift(n),), (lift(1),), "i32")
    return name


class _Unit:
    """One kernel while its launches are made; `scratch` grows by what these share."""

    def __init__(self, buffers: Mapping[str, Buffer], decide: Decide, scratch: dict[str, Buffer], joint: Joint) -> None:
        self.buffers, self.decide, self.scratch, self.joint = dict(buffers), decide, scratch, joint

    def launches(self) -> Iterator[LaunchPlan]:
        """Yield the launches, in order."""
        kernel, grid = self.joint.kernel, self.decide.target.is_gpu
        if not grid:
            launch = self.launch(kernel)
            yield replace(launch, walk=self.decide.vectors(launch.kernel, launch.layouts))
        elif not is_tiled(kernel):
            yield self.launch(kernel, walked=False)
        elif is_scatter(kernel):
            yield from self.scatter(kernel)
        elif is_scan(kernel):
            yield from self.scan(kernel)
        elif self.joint.checks:  # what they guard comes after them, in the same launch
            yield self.launch(with_flat_reductions(kernel, self.buffers))
        else:
            for walk in self.spread(kernel):
                yield from self.cut(walk)

    def of(self, word: str, kernel: Kernel) -> str | int:
        form, layouts, _ = kind_of(kernel, self.buffers)
        return self.decide.of(word, form, layouts)

    def shared(self, layouts: Mapping[str, Buffer]) -> None:
        self.scratch.update(layouts)
        self.buffers.update(layouts)

    def scatter(self, kernel: Kernel) -> Iterator[LaunchPlan]:
        if self.of("apart", kernel) == "launch":
            yield self.launch(kernel, walked=False)  # tiles have its points only
            return
        found = scatter_launches(kernel, self.buffers)
        self.shared(found.scratch)
        for part in found.kernels:
            yield replace(self.launch(part), initial=not is_scatter(part))

    def scan(self, kernel: Kernel) -> Iterator[LaunchPlan]:
        length = int(self.of("chunk", kernel))
        if not length:
            yield self.launch(kernel)
            return
        found = in_chunks(kernel, length, self.buffers)
        self.shared(found.scratch)
        *others, last = found.kernels
        yield from map(self.launch, others)
        yield replace(self.launch(last), chunk=length)

    def spread(self, kernel: Kernel) -> tuple[Kernel, ...]:
        if not spreads(kernel) or self.of("spread", kernel) == "launch":
            return (kernel,)
        found = spread(kernel)
        self.shared(found.scratch)
        return found.kernels

    def cut(self, kernel: Kernel) -> Iterator[LaunchPlan]:
        to_cut = with_one_axis(kernel, self.buffers) if cut_steps(kernel) else kernel
        steps = cut_steps(to_cut)
        said = str(self.of("cut", to_cut)) if steps else "whole"
        if said == "whole":
            yield self.launch(with_flat_reductions(kernel, self.buffers))
            return
        cut = _cut(said, len(steps[0].red))
        found = in_parts(to_cut, cut, self.buffers)
        self.shared(found.scratch)
        both = self.finished(*found.kernels)
        if both is not None and self.of("finish", to_cut) == "last program":
            yield both
            return
        for part in found.kernels:
            yield self.launch(with_flat_reductions(part, self.buffers))

    def launch(self, kernel: Kernel, *, walked: bool = True) -> LaunchPlan:
        form, layouts, names = kind_of(kernel, self.buffers)
        plan = self.decide.walk(form, layouts)
        walk = walk_of(form, layouts, plan) if walked and "walk" in plan.choices else None
        checks = self.joint.checks
        asserts = tuple((f"b{k}", checks[b]) for k, b in enumerate(names) if b in checks)
        key = (form, asserts, None, _layout_key(layouts))
        return LaunchPlan(form, walk, layouts, (names,), self.joint.items, asserts, key=key, origins=kernel.origins)

    def finished(self, first: Kernel, last: Kernel) -> LaunchPlan | None:
        """Return one launch for both; None where it can't be."""
        if any(product([a.extent for a in k.rows]).const() is None for k in (first, last)):
            return None
        launch = self.launch(first)
        form, own, _ = kind_of(last, self.buffers)
        plan = self.decide.walk(form, own)
        kernel, names = _same_names(last, launch.sets[0])
        layouts = {f"b{k}": self.buffers[b] for k, b in enumerate(names) if b in self.buffers}
        if not isinstance(launch.walk, Walk) or "walk" not in plan.choices:
            return None
        finish = finish_of(launch.kernel, launch.walk, kernel, walk_of(kernel, layouts, plan))
        if finish is None:
            return None
        walk = replace(launch.walk, wide=is_wide(launch.kernel, layouts))
        key = (launch.kernel, (), _finish_key(finish), _layout_key(layouts))
        return replace(launch, walk=walk, layouts=layouts, sets=(names,), finish=finish, key=key)


def _cut(text: str, n_axes: int) -> Cut:
    words = text.split()
    if len(words) == 2 and all(w.isdecimal() for w in words) and int(words[0]) < n_axes and int(words[1]) > 0:
        return Cut(int(words[0]), int(words[1]))
    raise InvalidArgumentError(f"a reduction over {n_axes} axes can't be cut as {text!r}", code="schedule.choice")


def _finish_key(finish: Finish | None) -> object:
    return finish and (finish.kernel, finish.modulus, finish.width, finish.arrivals, finish.walk.blocks)


def _layout_key(layouts: Mapping[str, Buffer]) -> object:
    return tuple((n, b.shape, b.strides, b.dtype) for n, b in layouts.items())


def _same_names(kernel: Kernel, names: tuple[str, ...]) -> tuple[Kernel, tuple[str, ...]]:
    """Return the canonical form of a kernel over buffers of which the first have these real names, and all names."""
    form, own = canonical(kernel)
    names = tuple(dict.fromkeys((*names, *own)))
    new = {f"b{k}": f"b{names.index(name)}" for k, name in enumerate(own)}
    steps = tuple(rename_buffers(step, new) for step in form.steps)
    return Kernel(form.rows, steps, frozenset(new[b] for b in form.local)), names
