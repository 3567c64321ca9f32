"""One kernel of the dialect -> the text of one Triton function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from intarsia_ir.records import Machine
from intarsia_loops.index import Atom
from intarsia_loops.program import Buffer, Kernel
from intarsia_triton.blocks import SQUARE, Blocks, across, flat_points, memory_order, trailing
from intarsia_triton.finish import Finish
from intarsia_triton.index import product
from intarsia_triton.ops import POINTED
from intarsia_triton.plan import loops_of
from intarsia_triton.rows import Rows
from intarsia_triton.scan import Scan, is_scan
from intarsia_triton.scatter import Scatter, is_scatter
from intarsia_triton.sets import NO_CHECKS
from intarsia_triton.writer import INDENT, Writer, divides

__all__ = ["Function", "function"]


@dataclass(frozen=True, slots=True)
class Function:
    """The text of one `@triton.jit` function.

    Args:
        text: Definition, under the name it was asked for.
        buffers: Buffers of a set that it takes, in order.
        sizes: Size symbols that it takes after them, sorted.
        grid: Number of programs in each dimension, as text over the size symbols.
        blocks: The tile it was emitted for.
        signature: Type of each parameter, in order, in Triton's spelling: `"*fp32"`, `"i64"`.
        asserts: It contains assertions, which are compiled in on request only.
    """

    text: str
    buffers: tuple[str, ...]
    sizes: tuple[str, ...]
    grid: tuple[str, ...]
    blocks: Blocks
    signature: tuple[tuple[str, str], ...]
    asserts: bool = False


def function(
    kernel: Kernel,
    buffers: Mapping[str, Buffer],
    name: str,
    machine: Machine,
    copies: int = 1,
    checks: Mapping[str, str] = NO_CHECKS,
    finish: Finish | None = None,
) -> Function:
    """Return the Triton function of a kernel that `plan.pieces` gave.

    Args:
        kernel: What to compute.
        buffers: Layout of every buffer in memory.
        name: Name of the function.
        machine: What it will run on.
        copies: Of how many sets of buffers one launch does the work: the second dimension of the grid picks the set.
            More than 1 only for kernels with a grid of one dimension. The function takes all buffers of the first
            set, then those of the second, and so on.
        checks: Outputs of maps that are asserted instead of stored, with the message.
        finish: What the last programs do besides. The function then takes counters after its buffers.
    """
    writer = _writer(kernel, buffers, machine)
    writer.checks = checks
    writer.write()
    sizes, end = writer.sizes, ""
    if finish is not None:
        last = _ending(finish, buffers, writer, machine)
        sizes = tuple(sorted({*sizes, *last.sizes}))
        end = _text(f"{name}_end", ["number", *last.pointers.values(), *sizes], last.blocks, last.lines) + "\n\n"
        writer.lines += _arrival(finish, f"{name}_end", [*last.pointers.values(), *sizes])
    pointers = [n if copies == 1 else f"{n}_{k}" for k in range(copies) for n in writer.pointers.values()]
    types = [f"*{POINTED[buffers[buffer].dtype]}" for buffer in writer.pointers] * copies
    if finish is not None:
        pointers, types = [*pointers, "arrived"], [*types, f"*{POINTED['i32']}"]
    picks = _picks(list(writer.pointers.values()), copies) if copies > 1 else []
    text = end + _text(name, [*pointers, *sizes], writer.blocks, [*picks, *writer.lines])
    signature = (*zip(pointers, types, strict=True), *((size, "i64") for size in sizes))
    grid = (*writer.grid(), str(copies)) if copies > 1 else writer.grid()
    return Function(text, tuple(writer.pointers), sizes, grid, writer.blocks, signature, bool(checks))


def _text(name: str, parameters: Sequence[str], blocks: Blocks, lines: Sequence[str]) -> str:
    constants = [f"{key}: tl.constexpr = {value}" for key, value in blocks.constants().items()]
    head = ["@triton.jit", f"def {name}({', '.join([*parameters, *constants])}):"]
    return "\n".join([*head, *(INDENT + line for line in lines), ""])


def _ending(finish: Finish, buffers: Mapping[str, Buffer], first: Writer, machine: Machine) -> Rows:
    """Return the writer of what the last programs do; it names buffers as `first` does, which learns the others."""
    last = Rows(finish.kernel, buffers, memory_order(finish.kernel, buffers), machine)
    last.number, last.pointers = "number", first.pointers
    last.write()
    return last


def _arrival(finish: Finish, end: str, arguments: Sequence[str]) -> list[str]:
    """Statements that count a program in, after its stores, and let the last one do the rest."""
    return [
        f"number = {finish.number}",
        "tl.debug_barrier()",
        f'if tl.atomic_add(arrived + number, 1, sem="acq_rel") == {finish.arrivals - 1}:',
        f"{INDENT}tl.store(arrived + number, 0)",
        f"{INDENT}{end}(number, {', '.join(arguments)})",
    ]


def _picks(names: Sequence[str], copies: int) -> list[str]:
    """Statements that pick a program's buffers, by the bits of the number of its set."""
    lines = ["copy = tl.program_id(1)"]
    for name in names:
        level, bit = [f"{name}_{k}" for k in range(copies)], 1
        while len(level) > 1:
            pairs = [level[k : k + 2] for k in range(0, len(level), 2)]
            level = [p[0] if len(p) == 1 else f"tl.where((copy & {bit}) != 0, {p[1]}, {p[0]})" for p in pairs]
            bit *= 2
        lines.append(f"{name} = {level[0]}")
    return lines


def _writer(kernel: Kernel, buffers: Mapping[str, Buffer], machine: Machine) -> _Maps | Rows | Scan | Scatter:
    if is_scatter(kernel):
        return Scatter(kernel, buffers, machine)
    if is_scan(kernel):
        return Scan(kernel, buffers, machine)
    axis = across(kernel, buffers)
    if axis is not None:  # each buffer runs along one of two axes
        *others, inner = kernel.rows
        rows = (*(a for a in others if a is not axis), axis)
        return _Maps(kernel, buffers, rows, (inner,), Blocks(SQUARE, SQUARE, 8))
    rows = memory_order(kernel, buffers)
    n = trailing(kernel, buffers) if rows == kernel.rows else 0
    if n:
        return _Maps(kernel, buffers, kernel.rows[:-n], kernel.rows[-n:], Blocks(1, flat_points(buffers)))
    return Rows(kernel, buffers, rows, machine)


class _Maps(Writer):
    """Maps over a tile of rows and inner axes, without a walk: a grid of two dimensions."""

    def __init__(
        self,
        kernel: Kernel,
        buffers: Mapping[str, Buffer],
        rows: tuple[Atom, ...],
        inner: tuple[Atom, ...],
        blocks: Blocks,
    ) -> None:
        super().__init__(kernel, buffers, rows, blocks)
        self.inner, self.loops = inner, loops_of(kernel)

    def grid(self) -> tuple[str, ...]:
        return self._blocked(self.rows, self.blocks.rows), self._blocked(self.inner, self.blocks.inner)

    def write(self) -> None:
        points = self._row_points()
        self.lines.append(f"r = tl.program_id(1){self._wide()} * RBLOCK + tl.arange(0, RBLOCK)[None, :]")
        masked = not divides(self.blocks.inner, product([a.extent for a in self.inner]))
        tile = self._tile(self._with_inner(points, self.inner, masked, self.lines))
        for loop in self.loops:
            for step in loop.steps:
                self._write(tile, step, tile.value(step.body))
        self.lines += tile.lines
