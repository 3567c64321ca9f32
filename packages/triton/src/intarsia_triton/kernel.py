"""One launch -> the text of one Triton function, and of what its last programs do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from intarsia_loops.addresses import product
from intarsia_loops.grid import COUNTERS, Ending, GridWalk
from intarsia_loops.launches import Blocks
from intarsia_loops.program import Buffer
from intarsia_triton.ops import POINTED
from intarsia_triton.rows import Rows
from intarsia_triton.scan import Scan
from intarsia_triton.scatter import Scatter
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


def function(given: GridWalk, copies: int, name: str) -> Function:
    """Return the Triton function of a launch.

    Args:
        given: How the programs of a grid do it. Where they count, the function takes counters after its buffers.
        copies: Sets of buffers. Of several the second dimension of the grid picks one; the function takes all buffers
            of the first set, then those of the second, and so on.
        name: Name of the function.
    """
    ending, buffers = given.ending, dict(given.layouts)
    writer = _writer(given, buffers)
    writer.write()
    sizes, end = writer.sizes, ""
    if ending is not None:
        last = _last(ending, buffers, writer)
        sizes = tuple(sorted({*sizes, *last.sizes}))
        end = _text(f"{name}_end", ["number", *last.pointers.values(), *sizes], last.blocks, last.lines) + "\n\n"
        writer.lines += _arrival(ending, f"{name}_end", [*last.pointers.values(), *sizes])
    pointers = [n if copies == 1 else f"{n}_{k}" for k in range(copies) for n in writer.pointers.values()]
    types = [f"*{POINTED[buffers[buffer].dtype]}" for buffer in writer.pointers] * copies
    if ending is not None:
        pointers, types = [*pointers, COUNTERS], [*types, f"*{POINTED['i32']}"]
    picks = _picks(list(writer.pointers.values()), copies) if copies > 1 else []
    text = end + _text(name, [*pointers, *sizes], writer.blocks, [*picks, *writer.lines])
    signature = (*zip(pointers, types, strict=True), *((size, "i64") for size in sizes))
    grid = (*writer.grid(), str(copies)) if copies > 1 else writer.grid()
    return Function(text, tuple(writer.pointers), sizes, grid, writer.blocks, signature, bool(given.asserts))


def _constants(blocks: Blocks) -> dict[str, int]:
    """Return the compile-time parameters of the function."""
    return {"XBLOCK": blocks.rows, "RBLOCK": blocks.inner}


def _text(name: str, parameters: Sequence[str], blocks: Blocks, lines: Sequence[str]) -> str:
    constants = [f"{key}: tl.constexpr = {value}" for key, value in _constants(blocks).items()]
    head = ["@triton.jit", f"def {name}({', '.join([*parameters, *constants])}):"]
    return "\n".join([*head, *(INDENT + line for line in lines), ""])


def _last(ending: Ending, buffers: Mapping[str, Buffer], first: Writer) -> Rows:
    """Return the writer of what the last programs do; it names buffers as `first` does, which learns the others."""
    last = Rows(ending.walk, buffers)
    last.number, last.pointers = "number", first.pointers
    last.write()
    return last


def _arrival(ending: Ending, end: str, arguments: Sequence[str]) -> list[str]:
    """Statements that count a program in, after its stores, and let the last one do the rest."""
    number = f"tl.program_id(0) % {ending.modulus} // {ending.width}" if ending.modulus else "0"
    return [
        f"number = {number}",
        "tl.debug_barrier()",
        f'if tl.atomic_add({COUNTERS} + number, 1, sem="acq_rel") == {ending.arrivals - 1}:',
        f"{INDENT}tl.store({COUNTERS} + number, 0)",
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


def _writer(given: GridWalk, buffers: Mapping[str, Buffer]) -> Rows | _Maps | Scan | Scatter:
    kinds: Mapping[str, type[Rows | _Maps | Scan | Scatter]] = {
        "rows": Rows, "points": _Maps, "scan": Scan, "scatter": Scatter,
    }  # fmt: skip
    return kinds[given.walk.kind](given, buffers)


class _Maps(Writer):
    """Maps over a tile of rows and inner axes, without a walk: a grid of two dimensions."""

    def grid(self) -> tuple[str, ...]:
        return self._blocked(self.rows, self.blocks.rows), self._blocked(self.walk.inner, self.blocks.inner)

    def write(self) -> None:
        points = self._row_points()
        self.lines.append(f"r = tl.program_id(1){self._wide()} * RBLOCK + tl.arange(0, RBLOCK)[None, :]")
        masked = not divides(self.blocks.inner, product([a.extent for a in self.walk.inner]))
        tile = self._tile(self._with_inner(points, self.walk.inner, masked, self.lines))
        for loop in self.walk.loops:
            for step in loop.steps:
                self._write(tile, step, tile.value(step.body))
        self.lines += tile.lines
