"""Equal kernels over different buffers, side by side in one launch: an optimizer's step over many tensors.

    kernel0(x0, y0); kernel0(x1, y1); ...      →      kernel0(x0, y0, x1, y1, ...) with a second dimension in its grid

Legal where no kernel writes what another one reads or writes: they then run in any order. Buffers in the arena may
share memory once their lives are over in program order, so kernels that write there stay apart.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from intarsia_loops.program import Buffer, Kernel
from intarsia_loops.rewrites import canonical, rename_buffers
from intarsia_triton.blocks import across, trailing
from intarsia_triton.finish import Finish

__all__ = ["Part", "part_of", "side_by_side"]

# each program picks its pointers out of as many sets, which costs an instruction a set and pointer
MOST = 8
NO_CHECKS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Part:
    """One kernel that is to be launched.

    Args:
        form: Its canonical form, over buffers `b0, b1, ...`.
        names: Their real names.
        items: First and one past the last position of what it does in the program.
        layouts: Layouts of the buffers of the form.
        key: Equal for kernels that are one function.
        reads: Real names of buffers read from memory.
        writes: Real names of buffers written to memory.
        checks: Outputs of steps of the form that are asserted, with the message.
        finish: What its last programs do besides, over the same buffers.
    """

    form: Kernel
    names: tuple[str, ...]
    items: tuple[int, int]
    layouts: Mapping[str, Buffer]
    key: object
    reads: frozenset[str]
    writes: frozenset[str]
    checks: tuple[tuple[str, str], ...] = ()
    finish: Finish | None = None


def part_of(
    kernel: Kernel,
    items: tuple[int, int],
    buffers: Mapping[str, Buffer],
    checks: Mapping[str, str] = NO_CHECKS,
    finish: Finish | None = None,
) -> Part:
    """Return a kernel, with what its last programs do besides, as a part of a unit."""
    form, names = canonical(kernel)
    if finish is not None:
        last, names = _same_names(finish.kernel, names)
        finish = replace(finish, kernel=last)
    layouts = {f"b{k}": buffers[b] for k, b in enumerate(names) if b in buffers}
    asserted = tuple((f"b{k}", checks[b]) for k, b in enumerate(names) if b in checks)
    key = (form, asserted, finish, tuple((n, b.shape, b.strides, b.dtype) for n, b in layouts.items()))
    writes = frozenset(kernel.writes()) - {*checks}
    return Part(form, names, items, layouts, key, kernel.reads(), writes, asserted, finish)


def _same_names(kernel: Kernel, names: tuple[str, ...]) -> tuple[Kernel, tuple[str, ...]]:
    """Return the canonical form of a kernel over buffers of which the first have these real names, and all names."""
    form, own = canonical(kernel)
    names = tuple(dict.fromkeys((*names, *own)))
    new = {f"b{k}": f"b{names.index(name)}" for k, name in enumerate(own)}
    steps = tuple(rename_buffers(step, new) for step in form.steps)
    return Kernel(form.rows, steps, frozenset(new[b] for b in form.local)), names


def side_by_side(parts: Iterable[Part], arena: Collection[str]) -> list[list[Part]]:
    """Return the parts in order, grouped into launches.

    Args:
        parts: In program order.
        arena: Buffers that may share memory with others.
    """
    groups: list[list[Part]] = []
    for part in parts:
        if groups and len(groups[-1]) < MOST and _joins(groups[-1], part, arena):
            groups[-1].append(part)
        else:
            groups.append([part])
    return groups


def _joins(group: list[Part], part: Part, arena: Collection[str]) -> bool:
    last = group[-1]
    if last.key != part.key or last.items[1] != part.items[0] or part.finish is not None:
        return False
    if any(name in arena for one in (last, part) for name in one.writes):
        return False
    apart = all(p.writes.isdisjoint(part.reads | part.writes) and part.writes.isdisjoint(p.reads) for p in group)
    flat = across(part.form, part.layouts) is None and not trailing(part.form, part.layouts)
    return apart and flat  # the grid's second dimension is free
