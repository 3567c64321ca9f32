"""The rules of walks of grids.

T18: a walk is all that its launch does; it has layouts of the buffers that it touches, of their types; it writes no
    name twice, and no axis of it has a name twice; the launch's width and warps are those of the walk, numbers of 32
    bits are below 2^31 and beside no size that is a symbol; what is asserted is the result of a map.
T19: tiles are powers of two, of as many parts, in some stages; parts are of tiles of one row which is longer than a
    tile, or may be; a tile that persists spans the one range that all loops walk, of a known size; inner axes are of
    blocks of points, which are of maps alone.
T20: a step is over the rows, and what it walks is what its loop walks; a scan is one step over one axis, and where it
    is cut into chunks, after what these start from, which is the neutral element but under a condition; a scatter is
    one step, perhaps after checks; what a row keeps, and is read before memory, an earlier loop has made; a sum of
    exponentials is relative to a maximum, a sum of squares to a sum, that its own loop takes; tiles are aligned along
    one axis; what is had once for each part is an axis that its lanes share; what is searched for again is an
    extremum's position; inverses are of sums of exponentials.
    A cheaper form (`intarsia_loops.forms`) is of f32 and has its operands; one of a half type is read by one cast to
    such a type only, and a quotient by a sum is by one that has an inverse.
T21: who counts walks rows, and asserts nothing; each program counts in one group, there is a group for each program of
    what is done last, and all of a group arrive; there is one set of buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from intarsia_loops.addresses import indices_of, product
from intarsia_loops.forms import misplaced
from intarsia_loops.grid import COUNTERS, Ending, GridWalk
from intarsia_loops.index import Atom, IndexExpr
from intarsia_loops.launches import Loop
from intarsia_loops.ops import NEST_KINDS, identity_of
from intarsia_loops.program import Buffer, Nest
from intarsia_loops.rewrites import postorder
from intarsia_loops.tiles.program import Launch

__all__ = ["check_grid"]

Add = Callable[[str, str, str], None]
KINDS = ("rows", "points", "scan", "scatter")
LARGEST_32_BIT = 1 << 31


def check_grid(given: GridWalk, launch: Launch, buffers: Mapping[str, Buffer], add: Add) -> None:
    """Check a walk against the rules above.

    Args:
        given: The walk.
        launch: The launch that it is all of.
        buffers: The buffers that it may touch, by their names in it.
        add: Takes a rule, what is wrong, and what it is about.
    """
    layouts = dict(given.layouts)
    used = set().union(*given.touched())
    for name in sorted(used - buffers.keys()):
        add("T18", "is used and no parameter", name)
    for name in sorted({*layouts} ^ (used - {COUNTERS})):
        add("T18", "is used without a layout, or has one and isn't", name)
    for name in sorted(n for n in layouts if n in buffers and buffers[n].dtype != layouts[n].dtype):
        add("T18", f"is laid out as {layouts[name].dtype} and holds {buffers[name].dtype}", name)
    _of_launch(given, launch, add)
    if not {*layouts} >= used - {COUNTERS}:
        return
    _walk(given, layouts, add)
    if given.ending is not None:
        _walk(given.ending.walk, layouts, add)
        _ending(given, given.ending, launch, add)


def _of_launch(given: GridWalk, launch: Launch, add: Add) -> None:
    wide = given.walk.wide or (given.ending is not None and given.ending.walk.walk.wide)
    if launch.width != ("i64" if wide else "i32") or launch.warps != given.walk.blocks.warps:
        add("T18", f"numbers are {launch.width} and warps {launch.warps}, which isn't what is walked", "")


def _walk(given: GridWalk, buffers: Mapping[str, Buffer], add: Add) -> None:
    walk, steps = given.walk, given.steps()
    unknown = [s.out for s in steps if s.kind not in NEST_KINDS]
    if walk.kind not in KINDS or unknown or not steps:
        add("T20", f"no grid of {len(steps)} steps is walked as {walk.kind!r}", ", ".join(unknown))
        return
    _names(given, add)
    if not walk.wide:
        _is_narrow(given, buffers, add)
    _tile(given, add)
    written: set[str] = set()
    for loop in walk.loops:
        _loop(given, loop, written, add)
        joined = (*(s.step for s in loop.sums), *(q.step for q in loop.squares))
        written |= {s.out for s in (*loop.steps, *joined) if s.kind != "map"}
    if not walk.weights <= _exponentials(given):
        add("T20", f"has inverses of {sorted(walk.weights)}, which are no sums of exponentials", "")
    _shape(given, add)
    for body in given.bodies():
        for part in body.args if body.op == "scatter" else (body,):
            for form in misplaced(part, walk.weights):
                add("T20", f"{form} isn't what one cast rounds to a half type, or by no sum that has an inverse", "")


def _names(given: GridWalk, add: Add) -> None:
    outs = [s.out for s in given.steps()]
    for name in sorted({n for n in outs if outs.count(n) > 1}):
        add("T18", "two steps write it", name)
    for loop in given.walk.loops:
        axes = [a.key for a in (*given.walk.rows, *given.walk.inner, *loop.inner)]
        axes = [a.key for a in (*given.walk.rows, *given.walk.inner)] if given.walk.kind == "points" else axes
        for name in sorted({n for n in axes if axes.count(n) > 1}):
            add("T18", f"two axes are called {name}", name)
    maps = {s.out for s in given.steps() if s.kind == "map"}
    for name, _ in given.asserts:
        if name not in maps:
            add("T18", "is asserted and no result of a map", name)


def _is_narrow(given: GridWalk, buffers: Mapping[str, Buffer], add: Add) -> None:
    points = [product([a.extent for a in (*s.axes, *s.red)]) for s in given.steps()]
    used = [buffers[n] for names in given.touched() for n in names if n in buffers and n != COUNTERS]
    numbers = [*points, *(s for b in used for s in b.strides), *(_last(b) for b in used)]
    symbols = any(e.symbols() for body in given.bodies() for v in postorder(body) for e in indices_of(v))
    if symbols or any(n.const() is None or (n.const() or 0) >= LARGEST_32_BIT for n in numbers):
        add("T18", f"numbers of up to {max(n.hi for n in numbers)} in 32 bits", "")


def _last(buffer: Buffer) -> IndexExpr:
    """The number of a buffer's last element."""
    return sum(((n - 1) * s for n, s in zip(buffer.shape, buffer.strides, strict=True)), product([]) - 1)


def _tile(given: GridWalk, add: Add) -> None:
    walk, b = given.walk, given.walk.blocks
    powers = all(n > 0 and n & (n - 1) == 0 for n in (b.rows, b.inner, b.warps, b.parts))
    in_parts = b.parts == 1 or (b.rows == 1 and not b.persistent and walk.kind == "rows" and b.parts <= b.inner)
    if not (powers and in_parts and b.stages > 0):
        add("T19", f"a tile of {b.rows} x {b.inner}, {b.parts} parts, {b.warps} warps, {b.stages} stages", "")
    if b.persistent:
        ranges = {product([a.extent for a in loop.inner]).const() for loop in walk.loops if loop.inner}
        if (
            walk.kind not in ("rows", "scan")
            or len(ranges) != 1
            or not all(n is not None and n <= b.inner for n in ranges)
        ):
            add("T19", f"a tile of {b.inner} points doesn't span {sorted(map(str, ranges))}", "")
    if bool(walk.inner) != (walk.kind == "points"):
        add("T19", f"{walk.kind} have inner axes {[a.key for a in walk.inner]}", "")


def _loop(given: GridWalk, loop: Loop, written: set[str], add: Add) -> None:
    rows, kind = given.walk.rows, given.walk.kind
    for step in loop.steps:
        walked = rows if kind == "scatter" and step.kind != "map" else (*rows, *given.walk.inner, *loop.inner)
        if not _fits(step, kind, rows, loop.inner, walked):
            add(
                "T20",
                f"a {step.kind} over {_keys(step.axes)}; {_keys(step.red)} in a loop over {_keys(loop.inner)}",
                step.out,
            )
    here = {s.out for s in loop.steps if s.kind != "map"}
    bodies = [s.body for s in loop.steps] + [s.exponent for s in loop.sums] + [q.value for q in loop.squares]
    reads = {v.args[0] for body in bodies for v in body.loads}
    if kind == "rows":
        for name in sorted(reads & ((here if loop.inner else set()) | (given.local - written - here))):
            add("T20", "is read in the loop that makes it, or before", name)
    for top, what in (*((s.top, "max") for s in loop.sums), *((_total(loop, q.value), "sum") for q in loop.squares)):
        if not any(s.out == top and s.kind == what for s in loop.steps):
            add("T20", f"is no {what} of its loop", top)
    if loop.shift is not None and (len(loop.inner) != 1 or loop.inner[0].extent.const() is None):
        add("T20", f"tiles over {_keys(loop.inner)} are aligned", "")
    lanes, below = given.walk.blocks.inner // given.walk.blocks.parts, product([])
    for a in reversed(loop.inner):
        if a in loop.by_part and (below.const() is None or (below.const() or 0) % lanes):
            add("T20", f"isn't the same for the {lanes} lanes of a part", a.key)
        below = below * a.extent
    if not loop.by_part <= {*loop.inner} or (loop.by_part and given.walk.blocks.parts == 1):
        add("T20", f"{_keys(sorted(loop.by_part, key=str))} are had once for each part of {_keys(loop.inner)}", "")
    if not loop.by_tile <= {s.out for s in loop.steps if s.kind in ("argmax", "argmin")}:
        add("T20", f"{sorted(loop.by_tile)} are searched for, and are no positions", "")


def _total(loop: Loop, value: object) -> str:
    """The sum that a sum of squares is relative to."""
    return next((s.out for s in loop.steps if s.kind == "sum" and s.body is value), "")


def _fits(step: Nest, kind: str, rows: Sequence[Atom], inner: Sequence[Atom], walked: Sequence[Atom]) -> bool:
    nest = NEST_KINDS[step.kind]
    if nest.scatter:
        return kind == "scatter" and step.red == tuple(walked)
    if nest.scan:
        return kind == "scan" and step.red == tuple(inner) and len(inner) == 1 and inner[0] in step.axes
    if step.kind == "map":
        return set(step.axes) <= set(walked) if kind == "scatter" else set(step.axes) == set(walked)
    return kind == "rows" and set(step.axes) == set(rows) and step.red == tuple(inner)


def _keys(axes: Sequence[Atom]) -> list[str]:
    return [a.key for a in axes]


def _exponentials(given: GridWalk) -> set[str]:
    """Sums of exponentials, in a walk of their own or in that of their maximum."""
    joined = {s.step.out for loop in given.walk.loops for s in loop.sums}
    return joined | {s.out for s in given.steps() if s.kind == "sum" and s.body.op == "exp"}


def _shape(given: GridWalk, add: Add) -> None:
    """What a whole walk of a kind has."""
    steps, kind = given.steps(), given.walk.kind
    heads = [s for s in steps[:-1] if s.kind != "map"]
    asserted = {name for name, _ in given.asserts}
    sound = {
        "rows": True,
        "points": all(s.kind == "map" for s in steps),
        "scan": NEST_KINDS[steps[-1].kind].scan and not heads and all(_starts(s, steps[-1]) for s in steps[:-1]),
        "scatter": NEST_KINDS[steps[-1].kind].scatter and not heads and {s.out for s in steps[:-1]} <= asserted,
    }[kind]
    cut = given.chunk > 0 if kind == "scan" and len(steps) == 2 else not given.chunk
    if not sound or not cut or (kind == "scan" and len(steps) > 2):
        add("T20", f"a walk of {kind} has steps {[s.kind for s in steps]}, in chunks of {given.chunk}", "")
    results = {s.out for s in steps if s.kind != "map" or kind == "scan"}
    if not given.local <= results:
        add("T20", f"keeps {sorted(given.local - results)}, which no row has", "")


def _starts(start: Nest, scan: Nest) -> bool:
    """Whether a map says what the rows of a scan start from: something where a condition holds, else nothing."""
    kind, body = scan.kind.removeprefix("cum"), start.body
    if body.op != "where" or body.args[2].op != "const":
        return False
    return bool(body.args[2].args[0] == identity_of(kind, scan.body.dtype))


def _ending(given: GridWalk, ending: Ending, launch: Launch, add: Add) -> None:
    last = ending.walk
    programs, groups = _programs(given), _programs(last)
    modulus, width = ending.modulus, ending.width
    if given.walk.kind != "rows" or last.walk.kind != "rows" or given.asserts or last.asserts or len(launch.sets) > 1:
        add("T21", f"programs that walk {given.walk.kind} count, for what walks {last.walk.kind}", "")
    elif programs is None or groups is None or modulus < 0 or width < 1:
        add("T21", f"{programs} programs count for {groups}, at {modulus} {width}", "")
    elif not modulus:
        if groups != 1 or ending.arrivals != programs:
            add("T21", f"{ending.arrivals} of {programs} programs arrive, in one group for {groups}", "")
    elif (
        programs % modulus
        or modulus % width
        or modulus // width != groups
        or ending.arrivals != programs // modulus * width
    ):
        add("T21", f"{ending.arrivals} of {programs} programs arrive, at {modulus} {width} for {groups}", "")


def _programs(given: GridWalk) -> int | None:
    n = product([a.extent for a in given.walk.rows]).const()
    return None if n is None else -(-n // given.walk.blocks.rows)
