"""What walks of every kind are written with: fresh names, loops in vectors, and the steps at one point."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from intarsia_loops.index import ZERO, Atom, IndexExpr, axis
from intarsia_loops.ops import FLOATS
from intarsia_loops.program import Val, index_value, load, val
from intarsia_loops.rewrites import rebuild
from intarsia_loops.tiles.program import Acc, Bind, Fold, For, Hold, Put, Statement, Take
from intarsia_loops.vectors.steps import Step

__all__ = [
    "Bounds", "Names", "Numbers", "across", "around", "flushed", "folded", "is_float_sum", "number", "positions",
    "span", "steps_at", "stored", "value", "vectors",
]  # fmt: skip

# what a name of a kernel is at a point, where it isn't in memory or in an array
Numbers = Mapping[str, Val]
# first point of a loop, and ends of which the least is one past the last
Bounds = tuple[IndexExpr, tuple[IndexExpr, ...]]


@dataclass
class Names:
    """Gives out names: a base and a number after an underscore, which buffers of canonical kernels haven't."""

    taken: dict[str, int] = field(default_factory=dict)

    def new(self, base: str) -> str:
        """Return a name that nothing in the launch has."""
        self.taken[base] = self.taken.get(base, -1) + 1
        return f"{base}_{self.taken[base]}"

    def axis(self, base: str, extent: IndexExpr | int) -> Atom:
        """Return a loop variable that no kernel has."""
        return axis(self.new(base), extent)

    def binds(self, unroll: int, lanes: int) -> tuple[Bind, ...]:
        """Return the layout of a tile of vectors."""
        return (Bind("unroll", unroll, self.new("u")), Bind("lanes", lanes, self.new("l")))


# ---- loops ------------------------------------------------------------------------------------------------------


def across(shared: object) -> str:
    """Return who runs a loop, by whether anybody shares it."""
    return "threads" if shared else "serial"


def around(loops: Sequence[Atom], body: Sequence[Statement], who: str = "serial") -> list[Statement]:
    """Return plain loops around statements."""
    statements = list(body)
    for a in reversed(loops):
        statements = [For(a, ZERO, (a.extent,), tuple(statements), who)]
    return statements


def span(a: Atom) -> Bounds:
    """Return the bounds of a whole loop."""
    return ZERO, (a.extent,)


def vectors(a: Atom, bounds: Bounds, body: Sequence[Statement], binds: tuple[Bind, ...]) -> For:
    """Return a loop in tiles of vectors, those left over in vectors of their own, the last of them masked."""
    low, high = bounds
    loop = For(a, low, high, tuple(body), binds=binds, ends="peel")
    n = (high[0] - low).const() if len(high) == 1 else None
    whole = n is not None and n % loop.points == 0
    return For(a, low, high, tuple(body), binds=binds, ends="none") if whole else loop


# ---- values -----------------------------------------------------------------------------------------------------


def number(name: str, dtype: str) -> Val:
    """Return what reads a number that is held."""
    return load(name, (), dtype)


def value(body: Val, numbers: Numbers) -> Val:
    """Return a step's value, with element numbers as one value and what is held read where it is."""

    def leaf(v: Val) -> Val:
        if v.op == "index":
            return v
        name, entries = v.args
        if v.op == "load":
            return numbers.get(name, v)
        moving, fixed = entries
        return load(name, (moving if fixed is ZERO else val("add", moving, index_value(fixed), dtype="i64"),), v.dtype)

    return rebuild(body, leaf)


def stored(step: Step, what: Val) -> Put:
    """Return what keeps a step's value where it belongs, in memory or in the row's array."""
    return Put(step.out, (step.address,), what)


def steps_at(
    steps: Sequence[Step], numbers: Numbers, accs: Mapping[str, str], kept: Collection[str], names: Names
) -> tuple[list[Statement], dict[str, Val]]:
    """Return the statements of steps at one point, and the numbers that they made.

    Args:
        steps: In order.
        numbers: What is held around the point.
        accs: Accumulator of each step that folds.
        kept: What has an array besides what is in memory.
        names: Where names come from.
    """
    statements: list[Statement] = []
    values: dict[str, Val] = {}
    for step in steps:
        body = value(step.body, {**numbers, **values})
        if step.is_fold:
            statements.append(folded(step, accs[step.out], body))
            continue
        name = names.new(f"{step.out}_v")
        statements.append(Hold(name, "reg", (), step.dtype, 0, body))
        values[step.out] = number(name, step.dtype)
        if step.in_memory or step.out in kept:
            statements.append(stored(step, values[step.out]))
    return statements, values


# ---- accumulators -----------------------------------------------------------------------------------------------


def is_float_sum(step: Step) -> bool:
    """Return whether a step is a sum of floats, whose error grows with its length."""
    return step.kind == "sum" and step.body.dtype in FLOATS


def folded(step: Step, acc: str, body: Val) -> Fold:
    """Return what folds a point in."""
    is_search = step.kind in ("argmax", "argmin")
    return Fold(acc, (body, index_value(step.position)) if is_search else (body,))


def flushed(pairs: Sequence[tuple[Acc, Acc]], names: Names, loop: For) -> For:
    """Return a loop that folds each position of accumulators into the same one of others.

    Args:
        pairs: Accumulators, with those that take what they have.
        names: Where names come from.
        loop: Goes through the positions; its body is replaced.
    """
    body: list[Statement] = []
    for source, target in pairs:
        name = names.new(f"{source.name}_p")
        body += [Take(source.name, (name,), "each"), Fold(target.name, (number(name, source.dtype),))]
    return For(loop.axis, loop.low, loop.high, tuple(body), binds=loop.binds, ends=loop.ends)


def positions(binds: tuple[Bind, ...], names: Names) -> For:
    """Return a loop through all positions of some binds, with nothing in it."""
    n = 1
    for b in binds:
        n *= b.size
    a = names.axis("at", n)
    return For(a, ZERO, (a.extent,), (), binds=binds)
