"""Kernels -> Triton text: one kernel to read, or all kernels of a program in one module."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from torch.fx import GraphModule

from intarsia_ir.records import KernelSource, Launch, Machine, Target
from intarsia_loops.graph import from_fx
from intarsia_loops.index import lift
from intarsia_loops.program import Buffer, Kernel, Program
from intarsia_triton.finish import Finish, finish_of
from intarsia_triton.flat import with_flat_reductions
from intarsia_triton.kernel import Function, function
from intarsia_triton.merge import joined
from intarsia_triton.plan import pieces
from intarsia_triton.prelude import PRELUDE
from intarsia_triton.scan import is_scan, scan_launches
from intarsia_triton.scatter import is_scatter, scatter_launches
from intarsia_triton.sets import Part, part_of, side_by_side
from intarsia_triton.split import split_reductions, spread

__all__ = ["emit", "emit_unit"]

# passed always: Triton's own defaults differ between versions; subnormal numbers are kept, as in eager
OPTIONS = {"enable_fp_fusion": False, "enable_reflect_ftz": False, "num_stages": 1}
# assertions are compiled in; those that Triton would add of its own accord, against overflow, are not
ASSERTING = {"debug": True, "sanitize_overflow": False}


def emit(kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> KernelSource:
    """Return the Triton module of one kernel.

    Args:
        kernel: What to compute.
        buffers: Layout of every buffer that it reads or writes.
        target: Device; its threads and instruction set don't matter here.

    Returns:
        Text of a Python module; one launch, or several when the kernel can't be one tile loop (see `plan`).

    Raises:
        UnsupportedError: An op has no Triton form.

    Example:
        >>> from intarsia_loops.index import axis, lift
        >>> from intarsia_loops.program import Nest, const, load, val
        >>> i, layout = axis("i0", 100), Buffer((lift(100),), (lift(1),), "f32")
        >>> body = val("add", load("x", (lift(i),), "f32"), const(1.0, "f32"), dtype="f32")
        >>> kernel = Kernel((i,), (Nest("y", (i,), (), "map", body, "f32"),))
        >>> source = emit(kernel, {"x": layout, "y": layout}, Target("cuda", "sm_90"))
        >>> [(launch.entry, launch.buffers, launch.grid) for launch in source.launches]
        [('kernel0', ('x', 'y'), ('(100 + 127) // 128',))]
    """
    program = Program(dict(buffers), (), (kernel,), ())
    return emit_unit(program, target)


def emit_unit(kernels: GraphModule | Program, target: Target) -> KernelSource:
    """Return the Triton module of all kernels of a program; equal kernels become one function.

    Args:
        kernels: FX(kernels), or the `Program` that it shows.
        target: Device.

    Raises:
        UnsupportedError: An op has no Triton form.
    """
    program = kernels if isinstance(kernels, Program) else from_fx(kernels)
    functions: dict[object, tuple[str, Function]] = {}
    parts: list[Part] = []
    scratch: dict[str, Buffer] = {}
    n_kernels = 0
    machine = target.machine
    for joint in joined(program, machine):
        seen = {**program.buffers, **joint.views}
        for piece in pieces(joint.kernel):
            n_kernels += 1
            parts += [
                part_of(kernel, joint.items, layouts, joint.checks, finish)
                for kernel, layouts, finish in _spread(piece, seen, scratch, machine)
            ]
    arena = program.placement.offsets if program.placement is not None else {}
    counters = _counters(parts, {*program.buffers, *scratch}, scratch)
    launches = tuple(_launch(group, functions, counters, machine) for group in side_by_side(parts, arena))
    made = dict(functions.values())
    text = PRELUDE + "".join(f"\n\n{f.text}" for f in made.values()) + _table(made)
    return KernelSource(
        text, "triton", "", (), launches, n_kernels, len(made), scratch=tuple(scratch.items()), counters=counters
    )


def _counters(parts: Sequence[Part], taken: Collection[str], scratch: dict[str, Buffer]) -> str:
    """Add the counters that all launches share to `scratch`, and return their name; "" where none counts."""
    n = max((part.finish.counters for part in parts if part.finish is not None), default=0)
    if not n:
        return ""
    name = "arrived"
    while name in taken:
        name += "_"
    scratch[name] = Buffer((lift(n),), (lift(1),), "i32")
    return name


def _spread(
    kernel: Kernel, buffers: Mapping[str, Buffer], scratch: dict[str, Buffer], machine: Machine
) -> Iterator[tuple[Kernel, Mapping[str, Buffer], Finish | None]]:
    """Yield the launches of a kernel, each with the layouts it needs; `scratch` grows by what they share."""
    if is_scatter(kernel) or is_scan(kernel):
        found = scatter_launches(kernel, buffers) if is_scatter(kernel) else scan_launches(kernel, buffers, machine)
        scratch.update(found.scratch)
        yield from ((part, {**buffers, **found.scratch}, None) for part in found.kernels)
        return
    walks = spread(kernel, buffers, machine)
    layouts = {**buffers, **walks.scratch}
    scratch.update(walks.scratch)
    for walk in walks.kernels:
        parts = split_reductions(walk, layouts, machine)
        scratch.update(parts.scratch)
        inside = {**layouts, **parts.scratch}
        finish = finish_of(*parts.kernels, inside, machine) if len(parts.kernels) == 2 else None
        if finish is not None:
            yield parts.kernels[0], inside, finish
            continue
        for part in parts.kernels:
            yield with_flat_reductions(part, inside), inside, None


def _table(functions: Mapping[str, Function]) -> str:
    """Return the table from which a builder compiles the module's kernels without seeing the program."""
    lines = ["", "", "KERNELS = {"]
    for name, f in functions.items():
        constants = {"XBLOCK": f.blocks.rows, "RBLOCK": f.blocks.inner}
        row = {
            "signature": dict(f.signature),
            "constants": constants,
            "options": {**OPTIONS, **(ASSERTING if f.asserts else {}), "num_warps": f.blocks.warps},
        }
        lines += [f'    "{name}": {{', *(f'        "{key}": {value!r},' for key, value in row.items()), "    },"]
    return "\n".join([*lines, "}", ""])


def _launch(
    group: Sequence[Part], functions: dict[object, tuple[str, Function]], counters: str, machine: Machine
) -> Launch:
    """A launch of the function for these equal kernels, which is emitted unless an equal one was."""
    first, copies = group[0], len(group)
    key = (first.key, copies)
    if key not in functions:
        name = f"kernel{len(functions)}"
        functions[key] = (
            name,
            function(first.form, first.layouts, name, machine, copies, dict(first.checks), first.finish),
        )
    name, made = functions[key]
    taken = tuple(part.names[int(b[1:])] for part in group for b in made.buffers)
    if first.finish is not None:
        taken = (*taken, counters)
    return Launch(name, taken, made.sizes, (first.items[0], group[-1].items[1]), made.grid)
