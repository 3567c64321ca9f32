"""What emitted code does for a kernel, counted: vector operations, loads by how they walk memory, loops.

Emitters run vector lanes along one row axis of the whole kernel, or along the inner axes of each step; whichever moves
fewer vectors through memory, by the weights below, is what they choose, and what is counted here. A value is computed
once a point of the axes that it depends on: what is the same for a whole lane loop is one scalar outside of it.

Terms. The lane of a step is the axis that its innermost loop runs along. An access is contiguous when neighbours on the
lane are neighbours in memory, held when they are one element, strided otherwise, as gathers are.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, fields

from intarsia_loops.index import ONE, ZERO, Atom, IndexExpr
from intarsia_loops.ops import NEST_KINDS
from intarsia_loops.program import Buffer, Kernel, Nest, Val
from intarsia_loops.rewrites import operands, postorder
from intarsia_loops.sizes import Sizes

__all__ = ["Counter", "Emitted"]

LANES = 8  # of a vector, where a stride has to be walked element by element
HEAVY = 4


@dataclass(frozen=True, slots=True)
class Emitted:
    """Counts of emitted code, of one kernel.

    Args:
        light: Points times cheap operations that differ along the lane.
        heavy: The same for dear ones, each by its weight (an addition is 1).
        scalar: Operations outside of the lane loop, by weight.
        loads: Points times contiguous loads.
        stores: Points of results, in memory or in a row's array.
        strided: Points times strided loads, stores and gathers.
        folds: Points that a reduction takes in.
        serial: Points of scans and scatters, one after the other.
        loops: Lane loops that are entered.
    """

    light: float = 0.0
    heavy: float = 0.0
    scalar: float = 0.0
    loads: float = 0.0
    stores: float = 0.0
    strided: float = 0.0
    folds: float = 0.0
    serial: float = 0.0
    loops: float = 0.0

    def __add__(self, other: Emitted) -> Emitted:
        return Emitted(*map(operator.add, _counts(self), _counts(other)))

    @property
    def vectors(self) -> float:
        """Points weighted as emitters weigh them when they choose the lane."""
        work = 0.25 * (self.light + self.heavy) + self.loads + self.stores
        return work + LANES * (self.strided + self.loops + self.scalar) + 2.0 * self.folds

    @property
    def operations(self) -> float:
        """Additions that take as long: what a roofline divides by its rate."""
        work = self.light + self.heavy + 0.5 * (self.loads + self.stores) + self.folds
        return work + LANES * (self.strided + self.serial + self.scalar + 2.0 * self.loops)


_counts = operator.attrgetter(*[field.name for field in fields(Emitted)])


class Counter:
    """Counts kernels of one program; what it counted for a nest, it remembers.

    Args:
        buffers: Layout of every buffer.
        sizes: Numbers for symbolic sizes.
        weights: Scalar op -> what it costs relative to an addition, where that is more than 1; 0 where nothing.
    """

    def __init__(self, buffers: Mapping[str, Buffer], sizes: Sizes, weights: Mapping[str, int]) -> None:
        self._buffers, self._sizes, self._weights = buffers, sizes, weights
        # the nest is kept beside its counts: its id is in the key
        self._known: dict[tuple[int, Atom | None], tuple[Emitted, Nest]] = {}

    def __call__(self, kernel: Kernel) -> Emitted:
        """Return the counts of a kernel as emitters would run it."""
        depth = len(kernel.rows)
        ways: list[list[Emitted]] = []
        if any(len(s.axes) > depth or s.red for s in kernel.steps):
            ways.append([self._inner(step, depth) for step in kernel.steps])
        if not any(NEST_KINDS[s.kind].scan or NEST_KINDS[s.kind].scatter for s in kernel.steps):
            ways += [[self._step(step, row) for step in kernel.steps] for row in kernel.rows]
        ways = ways or [[self._step(step, None) for step in kernel.steps]]
        return min((sum(way, Emitted()) for way in ways), key=lambda counted: counted.vectors)

    def _inner(self, step: Nest, depth: int) -> Emitted:
        """A step with lanes along the best of its own loops."""
        loops = tuple(dict.fromkeys((*step.axes[depth:], *step.red)))
        return min((self._step(step, a) for a in loops or (None,)), key=lambda counted: counted.vectors)

    def _step(self, step: Nest, lane: Atom | None) -> Emitted:
        key = (id(step), lane)
        if key not in self._known:
            self._known[key] = (self._counted(step, lane), step)
        return self._known[key][0]

    def _counted(self, step: Nest, lane: Atom | None) -> Emitted:
        every = tuple(dict.fromkeys((*step.axes, *step.red)))
        points = self._sizes.product(every)
        extent = self._sizes(lane.extent) if lane is not None and lane in every else 1
        waste = -(-extent // LANES) * LANES / max(extent, 1) if extent > 1 else 1.0
        light = heavy = scalar = loads = strided = 0.0
        reached: dict[Val, frozenset[Atom]] = {}
        for v in postorder(step.body):
            axes = reached[v] = self._axes(v, reached, every)
            if v.op in ("load", "gather"):
                walk = self._walk(v, lane)
                loads += points * waste * (walk == "contiguous")
                strided += points * (walk == "strided")
                scalar += self._sizes.product(axes) * (walk == "held")
            elif v.op not in ("const", "scatter"):
                weight = self._weights.get(v.op, 1)
                if lane is None or lane not in axes:
                    scalar += weight * self._sizes.product(axes)
                elif weight < HEAVY:
                    light += weight * points * waste
                else:
                    heavy += weight * points * waste
        kind, stored = NEST_KINDS[step.kind], self._sizes.product(step.axes)
        across = step.kind == "map" and lane in step.axes and not self._neighbours(step, lane)
        serial = points if kind.scan or kind.scatter else 0
        folds = 0 if step.kind == "map" or serial else points * waste
        strided += stored if across else 0
        loops = points / max(extent, 1)
        return Emitted(light, heavy, scalar, loads, 0.0 if across else stored, strided, folds, serial, loops)

    def _axes(self, v: Val, reached: Mapping[Val, frozenset[Atom]], every: tuple[Atom, ...]) -> frozenset[Atom]:
        """The loop variables that a value depends on."""
        found = frozenset[Atom]().union(*(reached[a] for a in operands(v)))
        if v.op in ("load", "gather"):
            entries = [e for e in v.args[1] if isinstance(e, IndexExpr)]
        elif v.op == "index":
            entries = [v.args[0]]
        else:
            return found
        return found | {a for e in entries for a in e.axes() if a in every}

    def _walk(self, v: Val, lane: Atom | None) -> str:
        """How neighbours on the lane are read: `contiguous`, `held` or `strided`."""
        if v.op == "gather":
            return "strided"
        if lane is None:
            return "held"
        address = _address(v.args[1], self._buffers[v.args[0]].strides)
        if lane not in address.axes():
            return "held"
        split = address.coef(lane)
        return "contiguous" if split is not None and split[0] is ONE else "strided"

    def _neighbours(self, step: Nest, lane: Atom | None) -> bool:
        """Whether neighbours on the lane are neighbours in the result."""
        return any(a is lane and s is ONE for a, s in zip(step.axes, self._buffers[step.out].strides, strict=True))


def _address(index: tuple[IndexExpr, ...], strides: tuple[IndexExpr, ...]) -> IndexExpr:
    address = ZERO
    for entry, stride in zip(index, strides, strict=True):
        address = address + entry * stride
    return address
