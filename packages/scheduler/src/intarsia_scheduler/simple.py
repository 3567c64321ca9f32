"""`Simple`: one way to run each kind of kernel, right for all of them. Nothing is merged, split or aligned.

On a grid, a pointwise kernel has its lanes along the axis that its last result lies along in memory; a kernel with
folds or scans has them along the inner axes of each step. The longest of the other rows is given to programs. On a CPU,
every question has its plain answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from intarsia_ir.dtypes import itemsize
from intarsia_ir.records import Target
from intarsia_loops.index import Atom, IndexExpr
from intarsia_loops.program import Buffer, Kernel, Nest, scatter_of
from intarsia_scheduler.plan import Choice

__all__ = ["Simple", "is_pointwise"]


def is_pointwise(kernel: Kernel) -> bool:
    """Tell whether every step is a map over the rows and nothing else."""
    return all(s.kind == "map" and len(s.axes) == len(kernel.rows) for s in kernel.steps)


@dataclass(frozen=True, slots=True)
class Simple:
    """The policy."""

    name = "simple"
    version = "1"

    def choose(self, kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> Mapping[str, Choice]:
        """Return a choice for each word of `CHOICES` on a grid; on a CPU, leave all of them plain."""
        if not target.is_gpu:
            return {}
        return {
            "order": self._order(kernel, buffers),
            "across": Choice("program", "a GPU has nothing but programs"),
            "lanes": self._lanes(kernel, target),
            "unroll": Choice(1, "other lanes hide how long an operation takes", (2, 4)),
            "space": self._space(kernel, target),
            "update": self._update(kernel),
        }

    def apart(self, kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> Choice:
        """Keep it in one launch."""
        return Choice("launch", "points in any order need nothing else")

    def spread(self, kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> Choice:
        """Keep its walks in one launch."""
        return Choice("launch", "nothing is split", ("launches",))

    def cut(self, kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> Choice:
        """Keep its reductions whole."""
        return Choice("whole", "nothing is split", ("0 16",))

    def chunk(self, kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> Choice:
        """Keep a scan whole."""
        return Choice(0, "nothing is split", (16,))

    def finish(self, kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> Choice:
        """Finish in a launch."""
        return Choice("launch", "nobody waits for anybody")

    def merge(self, kernel: Kernel, inner: Sequence[Atom], buffers: Mapping[str, Buffer], target: Target) -> Choice:
        """Merge nothing."""
        return Choice(0, "what is one kernel was decided before")

    def check(self, kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> Choice:
        """Leave checks to the calls that they are."""
        return Choice(0, "what is one kernel was decided before")

    def sets(self, target: Target) -> Choice:
        """Launch every kernel by itself."""
        return Choice(1, "kernels over other buffers are launches of their own")

    def _order(self, kernel: Kernel, buffers: Mapping[str, Buffer]) -> Choice:
        """Positions of the rows, outermost first, as text."""
        rows = list(range(len(kernel.rows)))
        if not rows:
            return Choice("", "it has no rows")
        if is_pointwise(kernel):
            along = _contiguous(kernel, buffers)
            outer = sorted((k for k in rows if k != along), key=lambda k: -_size(kernel.rows[k]))
            return Choice(_text([*outer, along]), "lanes are neighbours in the last result's memory", _orders(rows))
        longest = max(rows, key=lambda k: _size(kernel.rows[k]))
        order = [longest, *(k for k in rows if k != longest)]
        return Choice(_text(order), "the longest row axis has the most for whoever shares it", _orders(rows))

    def _lanes(self, kernel: Kernel, target: Target) -> Choice:
        machine = target.machine
        n = machine.lanes * (4 if is_pointwise(kernel) else 1)
        return Choice(n, f"{machine.lanes} lanes run in step", (n // 2, 2 * n, 4 * n))

    def _space(self, kernel: Kernel, target: Target) -> Choice:
        arrays = [s for s in kernel.steps if s.out in kernel.local and len(s.axes) > len(kernel.rows)]
        sizes = [_bytes(s, len(kernel.rows)) for s in arrays]
        if not arrays:
            return Choice("reg", "a row keeps numbers only")
        if any(n is None for n in sizes):
            return Choice("heap", "a row's length is known at run time only")
        total = sum(n for n in sizes if n is not None)
        most = target.machine.register_bytes // 2
        if total > most:
            return Choice("heap", f"{total} bytes of a row are more than {most}")
        return Choice("reg", f"{total} bytes of a row fit", ("heap",))

    def _update(self, kernel: Kernel) -> Choice:
        if scatter_of(kernel.steps[-1]) is None:
            return Choice("none", "it is no scatter")
        return Choice("atomic", "points of a grid have no order")


def _contiguous(kernel: Kernel, buffers: Mapping[str, Buffer]) -> int:
    """Position of the row axis along which the last result in memory is contiguous; the last one where none is."""
    stored = [s for s in kernel.steps if s.out not in kernel.local]
    strides = buffers[(stored or kernel.steps)[-1].out].strides
    known = [k for k, s in enumerate(strides) if s.const() == 1 and kernel.rows[k].extent.const() != 1]
    return known[-1] if known else len(kernel.rows) - 1


def _size(axis: Atom) -> int:
    known = axis.extent.const()
    return known if known is not None else 1 << 20


def _bytes(step: Nest, depth: int) -> int | None:
    total = itemsize(step.dtype)
    for extent in (a.extent for a in step.axes[depth:]):
        size = _const(extent)
        if size is None:
            return None
        total *= size
    return total


def _const(extent: IndexExpr) -> int | None:
    return extent.const()


def _text(order: list[int]) -> str:
    return " ".join(map(str, order))


def _orders(rows: list[int]) -> tuple[str, ...]:
    """The rotations of the rows: each axis innermost once."""
    return tuple(_text(rows[k:] + rows[:k]) for k in rows)
