"""What a kernel moves through memory, for reports and studies."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from intarsia_ir.dtypes import itemsize
from intarsia_ir.records import Origin
from intarsia_ir.where import lines_with_ops
from intarsia_loops.program import Kernel, Program

__all__ = ["KernelSummary", "summarise_kernel"]


@dataclass(frozen=True, slots=True)
class KernelSummary:
    """One generated kernel.

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
        return lines_with_ops(self.origins)


def summarise_kernel(kernel: Kernel, program: Program) -> KernelSummary:
    """Return what `kernel` moves; symbolic sizes count as nothing.

    Args:
        kernel: An item of `program`.
        program: Knows the layout of the buffers.
    """

    def n_bytes(names: Iterable[str]) -> int:
        buffers = [program.buffers[name] for name in names]
        return sum(math.prod(n.const() or 0 for n in b.shape) * itemsize(b.dtype) for b in buffers)

    local = [s for s in kernel.steps if s.out in kernel.local]
    return KernelSummary(
        kernel.writes(),
        len(kernel.steps),
        n_bytes(kernel.reads()),
        n_bytes(kernel.writes()),
        sum(2 * math.prod(a.extent.const() or 0 for a in s.axes) * itemsize(s.dtype) for s in local),
        kernel.origins,
    )
