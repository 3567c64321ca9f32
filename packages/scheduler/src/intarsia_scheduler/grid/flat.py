"""Reduced axes that memory runs through as one, as one axis: nothing is divided then to find a point's address.

    sum over q, r of x[p, q, r]   →   sum over f of x[p, f // n, f % n]        where x is f elements from x[p, 0, 0]

Sizes that are symbols are 64 bits wide, and so are the divisions. Side condition: in every load the axes make up one
offset, and no value depends on the number of one of them alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from intarsia_loops.addresses import address, divides_axes, product
from intarsia_loops.index import IndexExpr, lift, unflat
from intarsia_loops.ops import NEST_KINDS
from intarsia_loops.program import Buffer, Kernel, Nest
from intarsia_loops.rewrites import at, postorder
from intarsia_scheduler.grid.split import new_axis

__all__ = ["with_flat_reductions", "with_one_axis"]


def with_flat_reductions(kernel: Kernel, buffers: Mapping[str, Buffer]) -> Kernel:
    """Return a kernel whose reductions over several axes of unknown size have one, where that needs no division.

    Args:
        kernel: What `pieces` gave.
        buffers: Layout of every buffer in memory.
    """
    steps = tuple(_flat(step, buffers) for step in kernel.steps)
    return kernel if steps == kernel.steps else replace(kernel, steps=steps)


def with_one_axis(kernel: Kernel, buffers: Mapping[str, Buffer]) -> Kernel:
    """Return a kernel whose reductions have one axis of known size each; as it is where one can't.

    Parts of such an axis may be of any length, whatever the sizes of a batch and of an image are.

    Args:
        kernel: One of which `cut_steps` gives something.
        buffers: Layout of every buffer in memory.
    """
    steps = tuple(_flat(step, buffers, known=True) for step in kernel.steps)
    is_one = all(len(s.red) < 2 and all(a.extent.const() is not None for a in s.red) for s in steps)
    return replace(kernel, steps=steps) if is_one else kernel


def _flat(step: Nest, buffers: Mapping[str, Buffer], *, known: bool = False) -> Nest:
    extents = [a.extent for a in step.red]
    kind = NEST_KINDS[step.kind]
    if kind.scan or kind.scatter or len(extents) < 2 or not (known or any(n.const() is None for n in extents)):
        return step
    one = new_axis("f0", product(extents), (*step.axes, *step.red))
    body = at(step.body, dict(zip(step.red, unflat(lift(one), extents), strict=True)))
    offsets: list[IndexExpr] = []
    for v in postorder(body):
        if v.op == "load" and v.args[0] in buffers:
            offsets.append(address(v.args[1], buffers[v.args[0]].strides))
        elif v.op in ("load", "gather", "index"):
            entries = v.args if v.op == "index" else v.args[1]
            offsets += [e for e in entries if isinstance(e, IndexExpr)]
    return step if any(map(divides_axes, offsets)) else replace(step, red=(one,), body=body)
