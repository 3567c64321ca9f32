"""What a nest and a kernel cost: bytes, operations, points; and a model that turns these into predicted time.

The counts are facts about the program; the time is an opinion, so the model is an argument. `Roofline` is the shipped
one: a kernel takes as long as its slower half, moving bytes or computing, plus a fixed overhead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from intarsia_fuser.emitted import Emitted
from intarsia_ir.dtypes import itemsize
from intarsia_ir.records import Target
from intarsia_loops.index import Atom, lift
from intarsia_loops.ops import NEST_KINDS
from intarsia_loops.program import Buffer, Kernel, Nest, Program, Val, scatter_of
from intarsia_loops.rewrites import postorder
from intarsia_loops.sizes import Sizes

__all__ = [
    "CostModel",
    "KernelCostModel",
    "KernelWork",
    "NestWork",
    "Roofline",
    "domain",
    "evaluations",
    "footprints",
    "is_heavy",
    "nest_work",
    "points_of",
    "written_bytes",
]

# Vector instructions per element, relative to an addition; from the micro measurements of the C++ emitter's recipe.
WEIGHTS = {
    "div": 4, "floordiv": 8, "mod": 8, "truncdiv": 8, "fmod": 8, "sqrt": 4, "rsqrt": 5, "hypot": 8,
    "exp": 8, "exp2": 8, "expm1": 12, "log": 12, "log2": 12, "log10": 12, "log1p": 14,
    "sin": 14, "cos": 14, "tan": 18, "asin": 16, "acos": 16, "atan": 16, "atan2": 20,
    "sinh": 14, "cosh": 14, "tanh": 12, "asinh": 20, "acosh": 20, "atanh": 20,
    "erf": 10, "erfc": 16, "pow": 30, "gather": 8,
}  # fmt: skip
_FREE = frozenset({"load", "const"})


@dataclass(frozen=True, slots=True)
class NestWork:
    """Counts of one nest.

    Args:
        points: Times the body is evaluated.
        reads: Buffer -> bytes of it that are touched, each counted once.
        written: Bytes of its result.
        flops: Weighted scalar operations of all points (an addition is 1).
        nodes: Distinct scalar operations in the body.
        wide: Loads that differ along the innermost loop: what one more evaluation of the body costs in memory.
        heavy: Whether the body has an operation that is much dearer than a load.
    """

    points: int
    reads: Mapping[str, int]
    written: int
    flops: int
    nodes: int
    wide: int
    heavy: bool


@dataclass(frozen=True, slots=True)
class KernelWork:
    """Counts of one kernel.

    Args:
        bytes_read: Bytes that come from memory, each once.
        bytes_written: Bytes of the results that reach memory.
        flops: Weighted scalar operations.
        points: Body evaluations of all steps.
        parallel: Points of its rows: what can run at once.
        emitted: Counts of the code that emitters make of it; None where only the counts above are known.
    """

    bytes_read: int
    bytes_written: int
    flops: int
    points: int
    parallel: int
    emitted: Emitted | None = None

    @property
    def operations(self) -> float:
        """Additions that its arithmetic and its walks through memory take as long as."""
        return self.flops if self.emitted is None else self.emitted.operations


class CostModel(Protocol):
    """Predicts how long a kernel takes. Give your own to `plan(..., cost=)`."""

    @property
    def name(self) -> str:
        """Identifier kept in plans."""

    def kernel_us(self, work: KernelWork) -> float:
        """Return the predicted time in microseconds."""


@runtime_checkable
class KernelCostModel(CostModel, Protocol):
    """A cost model that is shown the kernels themselves, to schedule them for instance.

    It is asked for every kernel that a policy weighs, so it should remember what it said of equal ones; `kernel_us` is
    asked of work that is no kernel, such as evaluating a body again.
    """

    def predicted_us(self, kernel: Kernel, program: Program) -> float:
        """Return the predicted time in microseconds.

        Args:
            kernel: With its local buffers, as `apply` would build it now.
            program: The loops program that it is of: layouts of its buffers, facts about its sizes.
        """


@dataclass(frozen=True, slots=True)
class Roofline:
    """max(bytes / bandwidth, operations / rate) + overhead.

    Args:
        gb_per_s: Memory bandwidth of all processors together.
        gflop_per_s: Weighted operations of all processors together, in 1e9 per second.
        overhead_us: Starting one kernel (for a parallel region mostly waking the threads).
        processors: How many rows run at once; a kernel with fewer rows gets its share only.
        cache_bytes: What the last cache level holds: a kernel that moves less finds its operands there.
        cache_gb_per_s: Bandwidth of that level; 0: as memory.
    """

    gb_per_s: float
    gflop_per_s: float
    overhead_us: float
    processors: int
    cache_bytes: int = 0
    cache_gb_per_s: float = 0.0

    @classmethod
    def of(cls, target: Target) -> Roofline:
        """Return the model of a machine; of a CPU, as many of its cores as there are threads.

        Example:
            >>> Roofline.of(Target("cuda", "sm_90")).name
            'roofline(4800 GB/s, 33500 Gflop/s, 3 us)'
        """
        machine = target.machine if target.is_gpu else target.machine.scaled(target.threads)
        rates = machine.gb_per_s, machine.gflop_per_s, machine.launch_us
        return cls(*rates, machine.processors, machine.l2_bytes, machine.l2_gb_per_s)

    @property
    def name(self) -> str:
        """Identifier kept in plans."""
        return f"roofline({self.gb_per_s:g} GB/s, {self.gflop_per_s:g} Gflop/s, {self.overhead_us:g} us)"

    def kernel_us(self, work: KernelWork) -> float:
        """Return the predicted time in microseconds.

        Example:
            >>> Roofline(10.0, 50.0, 1.0, 2).kernel_us(KernelWork(10_000, 10_000, 0, 2500, 2500))
            3.0
        """
        share = min(max(work.parallel, 1), self.processors) / self.processors
        moved = work.bytes_read + work.bytes_written
        cached = moved <= self.cache_bytes and self.cache_gb_per_s > 0
        moving = moved / ((self.cache_gb_per_s if cached else self.gb_per_s) * 1e3)
        computing = work.operations / (self.gflop_per_s * 1e3)
        return max(moving, computing) / share + self.overhead_us


def is_heavy(op: str) -> bool:
    """Tell whether a scalar op is much dearer than a load from the first-level cache."""
    return WEIGHTS.get(op, 1) >= 4


def footprints(nest: Nest, buffers: Mapping[str, Buffer], sizes: Sizes) -> dict[str, int]:
    """Return buffer -> bytes that a nest touches of it, by name.

    A load touches as many elements as its index has distinct axes' points, and never more than the buffer has; a
    data-dependent index may touch any.
    """
    found: dict[str, int] = {}
    for v in nest.body.loads:
        buffer = buffers[v.args[0]]
        touched = min(sizes.product(_index_axes(v, domain(nest, v))), sizes.elements(buffer.shape))
        found[v.args[0]] = max(touched * itemsize(v.dtype), found.get(v.args[0], 0))
    return dict(sorted(found.items()))


def nest_work(nest: Nest, reads: Mapping[str, int], sizes: Sizes) -> NestWork:
    """Count one nest; `reads` are its footprints."""
    points = points_of(nest, sizes)
    innermost = (nest.red or nest.axes)[-1:]
    flops = 0 if nest.kind == "map" else 1
    nodes = 0
    heavy = False
    for v in postorder(nest.body):
        if v.op in _FREE or v.op == "scatter":
            continue
        flops += WEIGHTS.get(v.op, 1)
        nodes += 1
        heavy = heavy or (is_heavy(v.op) and v.op != "gather")
    wide = sum(not _index_axes(v, domain(nest, v)).keys().isdisjoint(innermost) for v in nest.body.loads)
    return NestWork(points, reads, written_bytes(nest, sizes), flops * points, nodes, wide, heavy)


def written_bytes(nest: Nest, sizes: Sizes) -> int:
    """Return the bytes of a nest's result."""
    return sizes.product(nest.axes) * itemsize(nest.dtype)


def points_of(nest: Nest, sizes: Sizes) -> int:
    """Return how often the body is evaluated; for a scatter, its two parts together."""
    if NEST_KINDS[nest.kind].scatter:
        return sizes.product(nest.axes) + sizes.product(nest.red)
    return sizes.product(_all_axes(nest))


def evaluations(reader: Nest, buffer: str, sizes: Sizes) -> int:
    """Return how often a nest reads a buffer; what is constant along its innermost loop counts once a loop."""
    total = 0
    for v in reader.body.loads:
        if v.args[0] != buffer:
            continue
        around = domain(reader, v)
        points = sizes.product(around)
        innermost = around[-1:] if NEST_KINDS[reader.kind].scatter else (reader.red or reader.axes)[-1:]
        reached = _index_axes(v, around)
        varies = any(a in reached for a in innermost)
        total += points if varies or not innermost else -(-points // max(sizes.product(innermost), 1))
    return total


def domain(nest: Nest, read: Val) -> tuple[Atom, ...]:
    """Return the loop variables around a load: in a scatter, those of the initial value or those of its points."""
    parts = scatter_of(nest)
    if parts is None:
        return _all_axes(nest)
    return nest.red if any(read in v.loads for v in (parts.value, *parts.places)) else nest.axes


def _all_axes(nest: Nest) -> tuple[Atom, ...]:
    """Every loop variable of a nest once; a scanned axis is among `axes` and `red`."""
    return nest.axes if NEST_KINDS[nest.kind].scan else nest.axes + nest.red


def _index_axes(v: Val, every: tuple[Atom, ...]) -> dict[Atom, None]:
    """The axes that an index depends on; all of them where it depends on data."""
    if v.op == "gather":
        return dict.fromkeys(every)
    found = {a for entry in v.args[1] for a in lift(entry).axes()}
    return {a: None for a in every if a in found}
