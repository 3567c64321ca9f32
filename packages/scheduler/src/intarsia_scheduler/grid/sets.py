"""Equal launches over different buffers, side by side in one: an optimizer's step over many tensors.

    kernel0(x0, y0); kernel0(x1, y1); ...      →      kernel0(x0, y0, x1, y1, ...) with a second dimension in its grid

Legal where no kernel writes what another one reads or writes: they then run in any order. Memory is planned afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from intarsia_loops.launches import LaunchPlan, Walk

__all__ = ["side_by_side"]


def side_by_side(launches: Iterable[LaunchPlan], most: int) -> tuple[LaunchPlan, ...]:
    """Return the launches in order, neighbours joined where they may be.

    Args:
        launches: In program order, of one set of buffers each.
        most: Sets of a launch.
    """
    groups: list[list[LaunchPlan]] = []
    for launch in launches:
        if groups and len(groups[-1]) < most and _joins(groups[-1], launch):
            groups[-1].append(launch)
        else:
            groups.append([launch])
    return tuple(_one(group) for group in groups)


def _one(group: list[LaunchPlan]) -> LaunchPlan:
    first, last = group[0], group[-1]
    if len(group) == 1:
        return first
    items = (first.items[0], last.items[1])
    return replace(first, sets=tuple(one.sets[0] for one in group), items=items, key=(first.key, len(group)))


def _joins(group: list[LaunchPlan], launch: LaunchPlan) -> bool:
    last = group[-1]
    if last.key != launch.key or last.items[1] != launch.items[0] or launch.finish is not None:
        return False
    if not isinstance(launch.walk, Walk) or launch.walk.kind == "points":
        return False  # there is no grid, or its second dimension is taken
    writes, touched = _writes(launch), _reads(launch) | _writes(launch)
    return all(_writes(one).isdisjoint(touched) and writes.isdisjoint(_reads(one)) for one in group)


def _real(launch: LaunchPlan, names: Iterable[str]) -> frozenset[str]:
    return frozenset(launch.sets[0][int(name[1:])] for name in names)


def _reads(launch: LaunchPlan) -> frozenset[str]:
    return _real(launch, launch.kernel.reads())


def _writes(launch: LaunchPlan) -> frozenset[str]:
    return _real(launch, set(launch.kernel.writes()) - {name for name, _ in launch.asserts})
