"""Steps of a row that share one loop."""

from __future__ import annotations

from dataclasses import dataclass, replace

from intarsia_loops.index import Atom, lift
from intarsia_loops.vectors.steps import Step

__all__ = ["Group", "group_steps"]


@dataclass(frozen=True, slots=True)
class Group:
    """Steps that run in one nest of loops; no loops means once per row.

    Args:
        loops: Loop variables; the steps are renamed to them.
        steps: In order. A step reads earlier ones of the group only at its own point.
    """

    loops: tuple[Atom, ...]
    steps: tuple[Step, ...]


def group_steps(steps: tuple[Step, ...]) -> tuple[Group, ...]:
    """Return the loops of a row: each step joins the first loop of its extents that it may, or opens one.

    It may join when everything it reads was made before that loop, or in it, at the same point, by a map.
    """
    groups: list[Group] = []
    place: dict[str, int] = {}
    for step in steps:
        k = _home(step, groups, place)
        if k == len(groups):
            groups.append(Group(_loops(step), ()))
        group = groups[k]
        renamed = _onto(step, group.loops)
        groups[k] = Group(group.loops, (*group.steps, renamed))
        place[step.out] = k
    return tuple(groups)


def _loops(step: Step) -> tuple[Atom, ...]:
    return step.inner + tuple(r for r in step.red if r not in step.inner)


def _home(step: Step, groups: list[Group], place: dict[str, int]) -> int:
    """The first group that the step may join, or the number of a new one."""
    made = {v.args[0] for v in step.body.loads if v.args[0] in place}
    earliest = max((place[b] for b in made), default=0)
    for k in range(earliest, len(groups)):
        if _may_join(step, groups[k]):
            return k
    return len(groups)


def _may_join(step: Step, group: Group) -> bool:
    """Whether the step may run in the loops of the group; earlier groups are done by then."""
    loops = _loops(step)
    if [a.extent for a in loops] != [a.extent for a in group.loops] or _is_mixed(step):
        return False
    if any(_is_mixed(s) for s in group.steps):
        return False
    renamed = _onto(step, group.loops)
    made = {s.out: s for s in group.steps}
    for v in renamed.body.loads:
        maker = made.get(v.args[0])
        if maker is None:
            continue
        if not loops:
            continue  # statements of a row run in order
        if maker.red or v.op == "gather" or v.args[1][0] is not maker.address:
            return False
    return True


def _is_mixed(step: Step) -> bool:
    """Whether the step has loops of its own kind: scans, and folds for every point of inner axes."""
    return step.is_scan or (step.is_fold and bool(step.inner))


def _onto(step: Step, loops: tuple[Atom, ...]) -> Step:
    own = _loops(step)
    env = {a: lift(b) for a, b in zip(own, loops, strict=True) if a is not b}
    if not env:
        return step
    names = dict(zip(own, loops, strict=True))
    inner, red = (tuple(names[a] for a in axes) for axes in (step.inner, step.red))
    return replace(step.substituted(env), inner=inner, red=red)
