"""`Measured`: how kernels run well, by rules from measurements.

Those for a GPU are from an H200, scaled to the target's machine, those for a CPU from AVX2 and AVX-512.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from intarsia_ir.dtypes import itemsize
from intarsia_ir.records import Machine, Target
from intarsia_loops.addresses import product
from intarsia_loops.index import Atom, IndexExpr
from intarsia_loops.launches import Blocks
from intarsia_loops.program import Buffer, Kernel, Val
from intarsia_scheduler.grid.flat import with_one_axis
from intarsia_scheduler.grid.loops import is_scan, is_scatter, is_tiled
from intarsia_scheduler.grid.split import cut_steps, spreads
from intarsia_scheduler.measured.blocks import (
    SQUARE,
    across,
    blocks_of,
    flat_points,
    memory_order,
    trailing,
)
from intarsia_scheduler.measured.cuts import chunk_of, cut_of, is_idle, only_meet
from intarsia_scheduler.measured.limits import rows_bytes
from intarsia_scheduler.measured.others import other_chunks, other_cuts, other_tiles
from intarsia_scheduler.measured.vectors import vector_rule
from intarsia_scheduler.plan import Choice
from intarsia_scheduler.simple import Simple
from intarsia_scheduler.vectors.answers import chosen
from intarsia_scheduler.vectors.questions import Question

__all__ = ["Measured"]


@dataclass(frozen=True, slots=True)
class Measured:
    """The policy.

    Args:
        merges: Whether kernels may be merged; without, there are no fewer launches than kernels.
        most_sets: Sets of buffers of a launch: each program picks its pointers out of as many, which costs an
            instruction a set and pointer.
        simple: Decides what has no rule here.
    """

    merges: bool = True
    most_sets: int = 8
    simple: Simple = field(default_factory=Simple)

    name = "measured"
    version = "1"

    def choose(self, kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> Mapping[str, Choice]:
        """Return a choice for each word of `CHOICES`, and of `WALK` where a kernel is one launch of tiles.

        On a CPU, there is one for each question of `intarsia_scheduler.vectors` instead.
        """
        if not target.is_gpu:
            return chosen(kernel, buffers, target, vector_rule)
        made = self.simple.choose(kernel, buffers, target)
        has_tiles = is_tiled(kernel) or is_scan(kernel)
        return {**made, **_walk(kernel, buffers, target)} if has_tiles else made

    def answer(self, word: str, question: Question) -> Choice:
        """Answer a question of `intarsia_scheduler.vectors`, where a plan that is completed has no choice."""
        return vector_rule(word, question)

    def apart(self, kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> Choice:
        """Take it apart."""
        if is_scatter(kernel):
            return Choice("launches", "every point must find the initial value stored", ("launch",))
        return Choice("launches", "no program of a launch sees what another one wrote", ("launch",))

    def spread(self, kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> Choice:
        """Spread the walks of few long rows."""
        if only_meet(kernel, buffers, target.machine):
            return Choice(
                "launches", "points have nothing of the rows beside them, and go in memory's order", ("launch",)
            )
        if is_idle(kernel, buffers, target.machine):
            why = f"a program a row leaves most of {target.machine.processors} processors idle"
            return Choice("launches", why, ("launch",))
        return Choice("launch", "a row stays where it is read, or rows are enough for all processors", ("launches",))

    def cut(self, kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> Choice:
        """Cut long reductions of few rows."""
        machine = target.machine
        cut, n_rows = cut_of(kernel, buffers, machine), product([a.extent for a in kernel.rows]).const()
        programs = None if n_rows is None else -(-n_rows // blocks_of(kernel, buffers, machine).rows)
        others = other_cuts(kernel, cut, programs, machine)
        if cut is None:
            return Choice("whole", "rows are short, or enough for all processors", others)
        return Choice(f"{cut.position} {cut.length}", "more programs work, and sums are shorter", others)

    def chunk(self, kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> Choice:
        """Cut long scans of few rows."""
        n = chunk_of(kernel, buffers, target.machine)
        why = "more programs work" if n else "rows are short, or enough for all processors"
        return Choice(n, why, other_chunks(n))

    def finish(self, kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> Choice:
        """Let the last program finish."""
        return Choice("last program", f"a launch costs {target.machine.launch_us:g} us", ("launch",))

    def merge(self, kernel: Kernel, inner: Sequence[Atom], buffers: Mapping[str, Buffer], target: Target) -> Choice:
        """Merge where a row stays in registers, or else in the cache while there are rows for all processors."""
        if not self.merges:
            return Choice(0, "no kernels are merged")
        if not inner:
            return Choice(1, "each row's numbers are used where they are made")
        machine = target.machine
        blocks = blocks_of(kernel, buffers, machine)
        if blocks.persistent:
            return Choice(1, "a row stays in registers")
        n_rows, n_bytes = product([x.extent for x in kernel.rows]).const(), _row_bytes(kernel, inner, buffers)
        if n_rows is None or n_rows < machine.processors * blocks.rows or n_bytes is None:
            return Choice(0, f"rows are too few for {machine.processors} processors, or of unknown size")
        most = rows_bytes(machine)
        fits = n_bytes <= most
        return Choice(int(fits), f"{n_bytes} bytes of a row are {'not ' if fits else ''}more than {most} of the cache")

    def check(self, kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> Choice:
        """Assert where that leaves the kernel as it is."""
        if not self.merges:
            return Choice(0, "no kernels are merged")
        machine = target.machine
        if not is_scatter(kernel) and (
            (spreads(kernel) and is_idle(kernel, buffers, machine))
            or (cut_steps(kernel) and cut_of(with_one_axis(kernel, buffers), buffers, machine) is not None)
        ):
            return Choice(0, "the kernel is worth several launches")
        return Choice(1, "what is checked is read where it is used")

    def sets(self, target: Target) -> Choice:
        """Return how many sets of buffers a launch of equal kernels takes at most."""
        if not (self.merges and target.is_gpu):
            return Choice(1, "kernels over other buffers are launches of their own")
        return Choice(self.most_sets, "a launch costs more than picking pointers", (1, self.most_sets // 2))


def _row_bytes(kernel: Kernel, inner: Sequence[Atom], buffers: Mapping[str, Buffer]) -> int | None:
    """Return the bytes that a row reads; None where that isn't known."""
    loaded: dict[str, int] = {}
    for v in (v for s in kernel.steps for v in s.body.loads if v.args[0] in buffers):
        points = product([x.extent for x in inner if x in _axes(v)]).const()
        if points is None:
            return None
        loaded[v.args[0]] = points * itemsize(buffers[v.args[0]].dtype)
    return sum(loaded.values())


def _axes(v: Val) -> set[Atom]:
    return {axis for e in v.args[1] if isinstance(e, IndexExpr) for axis in e.axes()}


def _walk(kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> dict[str, Choice]:
    """Return the choices of a launch of tiles."""
    machine = target.machine
    if is_scatter(kernel):
        return _words("scatter", "points fold into their elements", blocks_of(kernel, buffers, machine), machine)
    if is_scan(kernel):
        n = product([a.extent for a in kernel.steps[-1].axes if a not in kernel.steps[-1].red]).const()
        return _words("scan", "a row is walked in order", blocks_of(kernel, buffers, machine), machine, n)
    crossed = across(kernel, buffers)
    if crossed is not None:
        axis, n = crossed
        others, inner = kernel.rows[:-n], kernel.rows[-n:]
        rows = (*(a for a in others if a is not axis), axis, *inner)
        why = "each buffer runs along one of two axes"
        return _words("points", why, Blocks(SQUARE, SQUARE, 8), machine, None, _positions(kernel, rows), n)
    count = product([a.extent for a in kernel.rows]).const()
    rows = memory_order(kernel, buffers)
    n = trailing(kernel, buffers) if rows == kernel.rows else 0
    if n:
        why = "what is the same for many points is loaded once for them"
        return _words("points", why, Blocks(1, flat_points(buffers)), machine, None, _positions(kernel, rows), n)
    blocks = blocks_of(kernel, buffers, machine)
    return _words("rows", "rows are independent", blocks, machine, count, _positions(kernel, rows))


def _positions(kernel: Kernel, order: Sequence[Atom]) -> Choice:
    text = " ".join(str(kernel.rows.index(a)) for a in order)
    return Choice(text, "neighbouring programs' results are neighbours in memory")


def _words(
    kind: str,
    why: str,
    blocks: Blocks,
    machine: Machine,
    rows: int | None = None,
    order: Choice | None = None,
    inner: int = 0,
) -> dict[str, Choice]:
    fits = "a row stays in registers" if blocks.persistent else "registers don't hold a row, or it has one point"
    joins = "" if blocks.persistent else "exp squares" if blocks.parts > 1 else "exp"
    others = other_tiles(kind, blocks, joins, rows, machine)
    made = {
        **({"order": order} if order is not None else {}),
        "walk": Choice(kind, why),
        "inner": Choice(inner, "so many of the last axes have a dimension of the grid"),
        "block": Choice(blocks.rows, "rows of a program"),
        "tile": Choice(blocks.inner, "inner points of a tile"),
        "warps": Choice(blocks.warps, "warps of a program"),
        "stages": Choice(blocks.stages, "tiles whose loads are on their way at once"),
        "persistent": Choice(int(blocks.persistent), fits),
        "parts": Choice(blocks.parts, "points that a thread folds before it keeps anything"),
        "joins": Choice(joins, "what can share a walk does" if joins else "all steps see the row's one tile"),
        "align": Choice(1, "16 bytes a load, also where rows start at odd addresses", (0,)),
    }
    return made | {word: replace(made[word], others=values) for word, values in others.items()}
