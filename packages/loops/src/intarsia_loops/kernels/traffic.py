"""What a kernel moves through memory, for reports and studies."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from intarsia_ir.dtypes import itemsize
from intarsia_ir.records import Origin
from intarsia_ir.where import lines_with_ops
from intarsia_loops.index import Atom, IndexExpr
from intarsia_loops.launches import Launches, LaunchPlan
from intarsia_loops.program import Buffer, Kernel, Program

__all__ = ["KernelSummary", "describe_kernels", "summarise", "summarise_kernel"]


@dataclass(frozen=True, slots=True)
class KernelSummary:
    """One generated kernel. Sizes that are symbols count with the value they had at capture, and 0 where they had none.

    Args:
        writes: Buffers that it makes.
        n_steps: Loop nests that it fuses.
        bytes_read: Bytes of the buffers read, each once.
        bytes_written: Bytes of the buffers written.
        bytes_saved: Bytes that fusion kept out of memory: local results, not written and not read again.
        origins: User lines.
    """

    writes: tuple[str, ...]
    n_steps: int
    bytes_read: int
    bytes_written: int
    bytes_saved: int
    origins: tuple[Origin, ...]

    def where(self) -> str:
        """Return the user lines with the operations on each, such as `"model.py:12 (mul, softmax)"`."""
        located = tuple(origin for origin in self.origins if origin.line)  # an op of autograd's alone has no line
        return lines_with_ops(located or self.origins)


def summarise_kernel(kernel: Kernel, program: Program) -> KernelSummary:
    """Return what `kernel` moves.

    Args:
        kernel: An item of `program`.
        program: Knows the layout of the buffers.
    """

    return _summary(kernel, program.buffers, kernel.writes(), kernel.origins, program.facts.hints)


def describe_kernels(kernels: Sequence[KernelSummary]) -> tuple[str, ...]:
    """Return a table, a line a kernel after a head; nothing for no kernels."""
    if not kernels:
        return ()
    rows = [("kernel", "steps", "KB read", "KB written", "KB saved", "from")]
    for k in kernels:
        read, written, saved = (f"{n / 1024:.1f}" for n in (k.bytes_read, k.bytes_written, k.bytes_saved))
        rows.append((", ".join(k.writes[:2]), str(k.n_steps), read, written, saved, k.where()))
    first, *widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:-1]]

    def line(row: tuple[str, ...]) -> str:
        numbers = (cell.rjust(width) for cell, width in zip(row[1:-1], widths, strict=True))
        return "  " + "  ".join([row[0].ljust(first), *numbers, row[-1]])

    return tuple(map(line, rows))


def summarise(program: Launches | Program) -> tuple[KernelSummary, ...]:
    """Return what each launch moves, all its sets and what its last programs do included.

    Args:
        program: Launches; or kernels that nobody scheduled, each of which counts as one.
    """
    if isinstance(program, Launches):
        return tuple(_of_launch(launch, program.program.facts.hints) for launch in program.launches)
    return tuple(summarise_kernel(item, program) for item in program.items if isinstance(item, Kernel))


def _of_launch(launch: LaunchPlan, hints: Mapping[str, int]) -> KernelSummary:
    asserted = {name for name, _ in launch.asserts}
    kernels = [launch.kernel, *([launch.finish.kernel] if launch.finish is not None else [])]
    one = [
        _summary(k, launch.layouts, tuple(n for n in k.writes() if n not in asserted), launch.origins, hints)
        for k in kernels
    ]
    n = len(launch.sets)
    return KernelSummary(
        tuple(names[int(b[1:])] for names in launch.sets for s in one for b in s.writes),
        n * sum(s.n_steps for s in one),
        n * sum(s.bytes_read for s in one),
        n * sum(s.bytes_written for s in one),
        n * sum(s.bytes_saved for s in one),
        launch.origins,
    )


def _summary(
    kernel: Kernel,
    buffers: Mapping[str, Buffer],
    writes: tuple[str, ...],
    origins: tuple[Origin, ...],
    hints: Mapping[str, int],
) -> KernelSummary:
    def n_bytes(names: Iterable[str]) -> int:
        return sum(bytes_at_capture(buffers[name], hints) for name in names)

    local = [s for s in kernel.steps if s.out in kernel.local]
    return KernelSummary(
        writes,
        len(kernel.steps),
        n_bytes(kernel.reads()),
        n_bytes(writes),
        sum(2 * math.prod(_number(a.extent, hints) for a in s.axes) * itemsize(s.dtype) for s in local),
        origins,
    )


def bytes_at_capture(buffer: Buffer, hints: Mapping[str, int]) -> int:
    """Return the bytes of a buffer's elements, with the values that size symbols had at capture; 0 without them."""
    return math.prod(_number(n, hints) for n in buffer.shape) * itemsize(buffer.dtype)


def _number(size: IndexExpr, hints: Mapping[str, int]) -> int:
    """A size with the values that its symbols had at capture; 0 where one had none."""
    constant = size.const()
    if constant is not None:
        return constant
    return size.value(_values(size, hints)) if size.symbols() <= hints.keys() else 0


def _values(size: IndexExpr, hints: Mapping[str, int]) -> dict[Atom, int]:
    values: dict[Atom, int] = {}
    for atom in size.atoms():
        if atom.kind == "sym":
            values[atom] = hints[atom.key]
        else:
            values |= _values(atom.a, hints) | _values(atom.b, hints)
    return values
