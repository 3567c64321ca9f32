"""The rules of the tiles dialect.

T1: a name is defined once in its launch, before it is used and around where it is used; loops with a bind of one name
    have its kind and size, and don't lie in one another; a launch's parameters are the buffers that its body touches;
    each set has as many, of the same types; sets write no byte that another one touches.
T2: index expressions, and their parts, fit the launch's index width.
T3: a loop's words are known, its tile is positive, its end within its variable's extent, and a range without ends is a
    multiple of the tile; nothing inside lanes is given to threads or programs; where iterations run side by side, what
    they store in memory, or in what is held outside, differs with the loop's variable, or with that of a loop in it
    which starts where that says.
T4: what is held has a known space and positive sizes; registers have constant ones; what a stack holds fits the
    target's; it is used with an index a dimension.
T5: an accumulator's row, type and operands agree; between it and what folds into it no loop is given to threads or
    programs, and each bind of lanes or parts is one of its `per`; `Take` names each result, or each field; it is
    outside the loops of what is folded, or, where it takes one position, in loops that fold nothing and have its binds.
T6: between a scan's accumulator and `Run`, loops are serial and go forwards, but for those with binds of its `per`.
T7: an update's row has one field of the value's type; unless it is atomic, variables of loops around it whose points
    have no order are its own, and own variables are those of loops around it.
T8: `Last` is in a loop over programs, outside of lanes; its counter is scratch of i32, its group inside it, and
    somebody arrives.
T9: a check has a text, and a value of b8.
T10: what an item reads is defined before; inputs and constants are not written; placed buffers are made by launches,
    are no output, lie inside the arena, and share bytes only when their lives are over.
T11: values obey L5 and L8, but that an index may be of i32, where what doesn't fit is saturated; they have the type of
    what they are stored in; a buffer is read at one element number.
T12: an element number that is affine in variables with one end each is inside its buffer, unless a condition (`when`)
    says at which points it is used.
T13 to T17 are those of a `VectorWalk`, in `walks.rules`, and T18 to T21 those of a `GridWalk`, in `grids.rules`;
the statements that these stand for keep T1 to T12.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from intarsia_ir.dtypes import itemsize
from intarsia_ir.errors import VerifyError
from intarsia_loops._rules import Findings, check_value
from intarsia_loops.index import INF, ONE, ZERO, Atom, IndexExpr, less, lift
from intarsia_loops.kernels.verify import ALIGNMENT, byte_span
from intarsia_loops.program import Buffer, Extern, TensorRef, Val
from intarsia_loops.rewrites import postorder
from intarsia_loops.tiles.grids.rules import check_grid
from intarsia_loops.tiles.monoids import MONOIDS
from intarsia_loops.tiles.names import WIDTHS, defined, numbers_of, parts_of, touched, values_of
from intarsia_loops.tiles.program import (
    Acc,
    Check,
    Fold,
    For,
    GridWalk,
    Hold,
    If,
    Last,
    Launch,
    Put,
    Run,
    Statement,
    Take,
    Tiles,
    Turn,
    Update,
    VectorWalk,
    has_order,
    statements,
)
from intarsia_loops.tiles.walks.expand import written_out
from intarsia_loops.tiles.walks.rules import check_walk

__all__ = ["verify"]

SPACES = ("reg", "stack", "heap")
ACROSS = ("serial", "threads", "program")
ENDS = ("none", "mask", "peel", "always", "align")
BINDS = ("unroll", "lanes", "parts")
ORDERS = ("tree", "in order", "halves", "each", "state")


def verify(tiles: Tiles) -> None:
    """Check a program against the rules above.

    Raises:
        VerifyError: With all findings, and the first lines of the launch concerned.
    """
    findings = Findings("tiles")
    defined = {n for n in (*tiles.inputs, *tiles.constants) if n in tiles.buffers} | tiles.scratch
    given = frozenset(defined - tiles.scratch)
    names: set[str] = set()
    for item in tiles.items:
        if isinstance(item, Launch):
            if item.name in names:
                findings.add("T1", item.name, "two launches have this name")
            names.add(item.name)
            _Body(item, tiles, findings).check()
            _check_sets(item, tiles, findings)
        _check_order(item, given, defined, findings)
    for k, value in enumerate(tiles.outputs):
        if isinstance(value, TensorRef) and value.buffer not in defined:
            findings.add("T10", f"output {k}", f"{value.buffer} is not defined")
    if tiles.placement is not None:
        _check_placement(tiles, findings)
    if findings.found:
        raise _error(tiles, findings)


def _error(tiles: Tiles, findings: Findings) -> VerifyError:
    from intarsia_loops.tiles.text import launch_lines  # the text needs no valid program

    where = findings.found[0][1]
    launch = next((i for i in tiles.items if isinstance(i, Launch) and i.name == where.partition(".")[0]), None)
    lines = list(launch_lines(launch))[:10] if launch is not None else []
    return VerifyError("tiles", findings.found, excerpt="\n".join(lines), where=launch.origins if launch else ())


# ---- one launch -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Scope:
    """What is around a statement.

    Args:
        loops: Loops, outermost first.
        held: Arrays.
        numbers: Types of numbers.
        accs: Accumulators, each with how many loops were around it.
    """

    loops: tuple[For, ...] = ()
    held: Mapping[str, tuple[Hold, int]] = field(default_factory=dict)
    numbers: Mapping[str, str] = field(default_factory=dict)
    accs: Mapping[str, tuple[Acc, int]] = field(default_factory=dict)

    @property
    def axes(self) -> frozenset[Atom]:
        return frozenset(s.axis for s in self.loops)

    @property
    def binds(self) -> frozenset[str]:
        return frozenset(b.name for s in self.loops for b in s.binds)


class _Body:
    """Checks the statements of a launch."""

    def __init__(self, launch: Launch, tiles: Tiles, findings: Findings) -> None:
        self.launch, self.tiles, self.findings = launch, tiles, findings
        first = launch.sets[0] if launch.sets else ()
        self.buffers: dict[str, Buffer] = {
            p: tiles.buffers[n] for p, n in zip(launch.params, first, strict=False) if n in tiles.buffers
        }
        self.limit = WIDTHS.get(launch.width, INF)
        self.accs = {s.name: s for s in statements(launch.body) if isinstance(s, Acc)}
        self.binds = {b.name: b for s in statements(launch.body) if isinstance(s, For) for b in s.binds}

    def add(self, rule: str, message: str, name: str = "") -> None:
        self.findings.add(rule, f"{self.launch.name}.{name}" if name else self.launch.name, message)

    def check(self) -> None:
        names = [n for s in statements(self.launch.body) for n in defined(s)]
        names += self.binds
        for name in sorted({n for n in names if names.count(n) > 1} | ({*names} & {*self.launch.params})):
            self.add("T1", "is defined twice", name)
        if self.launch.width not in WIDTHS:
            self.add("T2", f"no index width is called {self.launch.width!r}")
        reads, writes = touched(self.launch)
        if reads | writes != {*self.launch.params}:
            self.add("T1", f"takes {sorted(self.launch.params)} and touches {sorted(reads | writes)}")
        held = [s for s in statements(self.launch.body) if isinstance(s, Hold) and s.space == "stack"]
        n_bytes = sum(_bytes(s) for s in held)
        if n_bytes > self.tiles.target.machine.stack_bytes:
            self.add("T4", f"{n_bytes} bytes on a stack of {self.tiles.target.machine.stack_bytes}")
        self.body(self.launch.body, _Scope())

    def body(self, body: Iterable[Statement], scope: _Scope) -> None:
        for s in body:
            self.numbers(s, scope)
            always = not (isinstance(s, Put | Fold) and s.when is not None)
            for value in values_of(s):
                self.value(value, scope, always)
            getattr(self, f"_{type(s).__name__.lower()}")(s, scope)
            scope = _after(s, scope)

    def numbers(self, s: Statement, scope: _Scope) -> None:
        """Rules T1 and T2 for index expressions."""
        for e in numbers_of(s):
            if not e.axes() <= scope.axes:
                self.add("T1", f"{e} uses a loop variable that isn't around it")
            if self.limit < INF and not all(-self.limit <= p.lo and p.hi < self.limit for p in parts_of(e)):
                self.add("T2", f"{e} doesn't fit {self.launch.width}")

    def value(self, body: Val, scope: _Scope, always: bool) -> None:
        """Rules T1, T4, T11 and T12 for a value."""
        findings = Findings("tiles")
        for v in postorder(body):
            narrow = v.op == "index" and v.dtype == "i32"
            sound = narrow or check_value(v, self.launch.name, findings)
            if sound and v.op in ("load", "gather"):
                self.element(v.args[0], v.args[1], v.dtype, scope, always)
        for rule, _, message in findings.found:
            self.add("T11", f"{rule}: {message}")

    def element(self, name: str, index: tuple[IndexExpr | Val, ...], dtype: str, scope: _Scope, always: bool) -> None:
        if name in scope.numbers:
            if index or scope.numbers[name] != dtype:
                self.add("T11", f"is a number of {scope.numbers[name]}, used as {dtype} at {list(index)}", name)
        elif name in scope.held:
            hold, _ = scope.held[name]
            if len(index) != len(hold.shape):
                self.add("T4", f"has {len(hold.shape)} dimensions and {len(index)} indices", name)
            if hold.dtype != dtype:
                self.add("T11", f"holds {hold.dtype}, not {dtype}", name)
        elif name in self.buffers:
            if len(index) != 1 or self.buffers[name].dtype != dtype:
                self.add("T11", f"holds {self.buffers[name].dtype}, used as {dtype} at {list(index)}", name)
            elif always and isinstance(index[0], IndexExpr) and _is_outside(index[0], self.buffers[name], scope):
                self.add("T12", f"is used at {index[0]}, outside of {list(self.buffers[name].shape)}", name)
        else:
            self.add("T1", "is used before it is defined, or outside of where it is", name)

    # ---- statements

    def _for(self, s: For, scope: _Scope) -> None:
        words = s.across in ACROSS and s.ends in ENDS and all(b.kind in BINDS for b in s.binds)
        if not words or any(b.size < 1 for b in s.binds):
            self.add("T3", f"the loop over {s.axis.key} is malformed")
            return
        if s.ends == "none" and s.points > 1 and len(s.high) == 1 and (s.high[0] - s.low) % s.points is not ZERO:
            self.add("T3", f"{s.high[0] - s.low} points of {s.axis.key} in tiles of {s.points} have ends")
        if (s.ends == "align") != (s.align > 0 and s.start is not None):
            self.add("T3", f"the loop over {s.axis.key} is aligned to nothing")
        for b in s.binds:
            if b.name in scope.binds or self.binds[b.name] != b:
                self.add("T1", f"is {b.kind} of {b.size}, and {self.binds[b.name].kind} elsewhere or around", b.name)
        if s.axis in scope.axes:
            self.add("T1", f"two loops, one in the other, are over {s.axis.key}")
        if s.is_parallel and any(map(self.lanes, scope.loops)):
            self.add("T3", f"the loop over {s.axis.key} is given to {s.across} inside lanes")
        if s.axis.extent is not lift(0) and len(s.high) == 1 and not _within(s.high[0], s.axis.extent):
            self.add("T3", f"the loop over {s.axis.key} ends at {s.high[0]}, beyond {s.axis.extent}")
        self.body(s.body, _Scope((*scope.loops, s), scope.held, scope.numbers, scope.accs))

    def _if(self, s: If, scope: _Scope) -> None:
        if s.relation not in ("<", "<=", "==", "!="):
            self.add("T3", f"no relation is called {s.relation!r}")
        self.body(s.then, scope)
        self.body(s.orelse, scope)

    def _hold(self, s: Hold, scope: _Scope) -> None:
        if s.space not in SPACES or s.pad < 0 or any(n.lo < 0 for n in s.shape):
            self.add("T4", f"is held in {s.space!r} with sizes {list(s.shape)}", s.name)
        if s.space == "reg" and any(n.const() is None for n in s.shape):
            self.add("T4", "is held in registers with a size known at run time only", s.name)
        if s.value is not None and (s.shape or s.value.dtype != s.dtype):
            self.add("T11", f"is a number of {s.dtype} with a value of {s.value.dtype}", s.name)

    def _put(self, s: Put, scope: _Scope) -> None:
        self.element(s.target, s.index, s.value.dtype, scope, s.when is None)
        self._condition(s.when)
        depth = scope.held[s.target][1] if s.target in scope.held else 0
        for k, loop in enumerate(scope.loops[depth:], depth):
            apart = loop.is_parallel or self.lanes(loop)
            moving = _moved_by(scope.loops[k:])
            if apart and loop.axis.extent.hi > 1 and not any(moving & e.axes() for e in s.index):
                self.add("T3", f"is stored at {list(s.index)} by every point of {loop.axis.key}", s.target)

    def _condition(self, when: Val | None) -> None:
        if when is not None and when.dtype != "b8":
            self.add("T11", f"a condition of {when.dtype}")

    def _acc(self, s: Acc, scope: _Scope) -> None:
        row = MONOIDS.get(s.monoid)
        if row is None or s.dtype not in row.types:
            self.add("T5", f"no monoid {s.monoid} of {s.dtype}", s.name)

    def _folded(self, name: str, values: tuple[Val, ...], scope: _Scope) -> tuple[Acc, int] | None:
        entry = scope.accs.get(name)
        if entry is None:
            self.add("T1", "is folded into before it is defined, or outside of where it is", name)
            return None
        acc, depth = entry
        row = MONOIDS.get(acc.monoid)
        types = tuple(t or acc.dtype for t in row.operand_types) if row is not None else ()
        if tuple(v.dtype for v in values) != types:
            self.add("T5", f"folds {[v.dtype for v in values]} into a {acc.monoid} of {acc.dtype}", name)
        if not {*acc.per} <= scope.binds:
            self.add("T5", f"is per {list(acc.per)}, and only {sorted(scope.binds)} are around", name)
        for loop in scope.loops[depth:]:
            apart = [b.name for b in loop.binds if b.kind != "unroll" and b.name not in acc.per]
            if loop.is_parallel:
                self.add("T5", f"is shared by {loop.across} along {loop.axis.key}", name)
            if apart and loop.axis.extent is not ONE and not has_order(loop, {name: acc}):
                self.add("T5", f"is shared by the lanes {apart}", name)
        return entry

    def _fold(self, s: Fold, scope: _Scope) -> None:
        self._condition(s.when)
        self._folded(s.acc, s.values, scope)

    def _run(self, s: Run, scope: _Scope) -> None:
        entry = self._folded(s.acc, s.values, scope)
        if entry is None:
            return
        acc, depth = entry
        between = [x for x in scope.loops[depth:] if not {*acc.per} & {b.name for b in x.binds}]
        if not between or (acc.per and not {*acc.per} <= scope.binds):
            self.add("T6", f"a scan is per {list(acc.per)}", s.acc)
        if any(x.is_parallel or x.back for x in between):
            self.add("T6", "a scan's points are in no order, or go backwards", s.acc)
        row = MONOIDS.get(acc.monoid)
        if row is not None and len(row.results) != 1:
            self.add("T6", f"a {acc.monoid} has {len(row.results)} results at every point", s.acc)

    def _take(self, s: Take, scope: _Scope) -> None:
        entry = scope.accs.get(s.acc)
        if entry is None:
            self.add("T1", "is taken before it is defined, or outside of where it is", s.acc)
            return
        (acc, depth), row = entry, MONOIDS.get(entry[0].monoid)
        given = () if row is None else row.fields if s.order == "state" else row.results
        if s.order not in ORDERS or (given and len(given) != len(s.names)):
            self.add("T5", f"{len(s.names)} names for the results of a {acc.monoid}, {s.order}", s.acc)
        between = scope.loops[depth:]
        folds = any(isinstance(x, Fold | Run) and x.acc == s.acc for loop in between for x in statements(loop.body))
        if folds or (between and s.order not in ("each", "state")):
            self.add("T5", "is taken inside of a loop that folds into it", s.acc)
        if s.order == "halves" and any(
            self.binds[b].size & (self.binds[b].size - 1) for b in acc.per if b in self.binds
        ):
            self.add(
                "T5", f"positions of {list(acc.per)} aren't joined by halves: their numbers aren't powers of two", s.acc
            )
        if s.order in ("each", "state") and not {*acc.per} <= scope.binds:
            self.add(
                "T5", f"one position of {list(acc.per)} is taken, and only {sorted(scope.binds)} are around", s.acc
            )

    def _update(self, s: Update, scope: _Scope) -> None:
        row = MONOIDS.get(s.monoid)
        if row is None or len(row.fields) != 1 or s.value.dtype not in row.types:
            self.add("T7", f"no update by {s.monoid} of {s.value.dtype}", s.buffer)
        if s.buffer in self.buffers and self.buffers[s.buffer].dtype != s.value.dtype:
            self.add("T11", f"holds {self.buffers[s.buffer].dtype}, not {s.value.dtype}", s.buffer)
        elif s.buffer not in self.buffers:
            self.add("T1", "is updated and no parameter", s.buffer)
        elif isinstance(s.place, IndexExpr) and _is_outside(s.place, self.buffers[s.buffer], scope):
            self.add("T12", f"is updated at {s.place}, outside of {list(self.buffers[s.buffer].shape)}", s.buffer)
        if isinstance(s.place, Val) and s.place.dtype != "i64":
            self.add("T11", f"a place of {s.place.dtype}", s.buffer)
        if s.how not in ("ordered", "vector", "atomic") or not {*s.own} <= scope.axes:
            self.add("T7", f"is updated {s.how}, with {list(s.own)} its own", s.buffer)
        shared = [x.axis.key for x in scope.loops if (x.is_parallel or self.lanes(x)) and x.axis not in s.own]
        if s.how != "atomic" and shared:
            self.add("T7", f"is updated {s.how} by points of {shared}, which have no order", s.buffer)

    def _turn(self, s: Turn, scope: _Scope) -> None:
        entry = scope.held.get(s.name)
        if entry is None:
            self.add("T1", "is turned and not held", s.name)
        elif len(entry[0].shape) != 2 or entry[0].shape[0] is not entry[0].shape[1]:
            self.add("T4", f"is turned and no square: {list(entry[0].shape)}", s.name)

    def _last(self, s: Last, scope: _Scope) -> None:
        real = dict(zip(self.launch.params, self.launch.sets[0], strict=False)).get(s.counter)
        counter = self.buffers.get(s.counter)
        if counter is None or counter.dtype != "i32" or real not in self.tiles.scratch or len(counter.shape) != 1:
            self.add("T8", "counts programs and is no scratch of i32", s.counter)
        elif not less(s.group, counter.shape[0]):
            self.add("T8", f"counts at {s.group} of {counter.shape[0]}", s.counter)
        if s.arrivals < 1 or not any(x.across == "program" for x in scope.loops) or any(map(self.lanes, scope.loops)):
            self.add("T8", f"{s.arrivals} programs arrive, outside of programs or inside lanes", s.counter)
        # what the others stored is read; what is stored depends on the group, not on who is last
        self.body(s.body, _Scope(tuple(replace(x, across="serial") for x in scope.loops)))

    def lanes(self, loop: For) -> bool:
        """Whether points of a tile are side by side, which those of a scan are not."""
        return any(b.kind != "unroll" for b in loop.binds) and not has_order(loop, self.accs)

    def _vectorwalk(self, s: VectorWalk, scope: _Scope) -> None:
        before = len(self.findings.found)
        check_walk(s, self.buffers, self.tiles.target, self.add)
        self._alone(s, "T13", scope, before)

    def _gridwalk(self, s: GridWalk, scope: _Scope) -> None:
        before = len(self.findings.found)
        check_grid(s, self.launch, self.buffers, self.add)
        self._alone(s, "T18", scope, before)

    def _alone(self, s: VectorWalk | GridWalk, rule: str, scope: _Scope, before: int) -> None:
        """A walk is all that its launch does, and what it stands for keeps the other rules."""
        if scope != _Scope() or len(self.launch.body) > 1:
            self.add(rule, "shares a launch with other statements")
        if len(self.findings.found) == before:  # else it may stand for nothing
            _Body(written_out(self.launch, s), self.tiles, self.findings).check()

    def _check(self, s: Check, scope: _Scope) -> None:
        if s.value.dtype != "b8" or not s.text:
            self.add("T9", f"a check of {s.value.dtype} that says {s.text!r}")


def _after(s: Statement, scope: _Scope) -> _Scope:
    """The scope of what follows a statement."""
    depth = len(scope.loops)
    held, numbers, accs = scope.held, scope.numbers, scope.accs
    if isinstance(s, Hold):
        if s.value is None:
            held = {**held, s.name: (s, depth)}
        else:
            numbers = {**numbers, s.name: s.dtype}
    elif isinstance(s, Acc):
        accs = {**accs, s.name: (s, depth)}
    elif isinstance(s, Run | Take) and s.acc in accs:
        acc = accs[s.acc][0]
        row = MONOIDS.get(acc.monoid)
        rules = row.rules(acc.dtype) if row is not None and acc.dtype in row.types else None
        types = () if rules is None else tuple(v.dtype for v in rules.finish)
        if rules is not None and isinstance(s, Take) and s.order == "state":
            types = rules.types
        names = s.names if isinstance(s, Take) else (s.name,)
        numbers = {**numbers, **dict(zip(names, types, strict=False))}
    else:
        return scope
    return _Scope(scope.loops, held, numbers, accs)


def _moved_by(loops: tuple[For, ...]) -> frozenset[Atom]:
    """The variable of the first of loops, one in the other, and those of loops in it that start where that one says."""
    moved = {loops[0].axis}
    for loop in loops[1:]:
        if moved & loop.low.axes():
            moved.add(loop.axis)
    return frozenset(moved)


def _within(end: IndexExpr, extent: IndexExpr) -> bool:
    return end is extent or (extent - end).lo >= 0


def _is_outside(e: IndexExpr, buffer: Buffer, scope: _Scope) -> bool:
    """Whether an affine element number reaches beyond a buffer; others may be inside for reasons that nobody sees."""
    if any(n is ZERO for n in buffer.shape) or any(a.extent is ZERO for a in e.axes()):
        return False
    if any(len(x.high) > 1 for x in scope.loops if x.axis in e.axes()):
        return False
    if any(a.kind != "axis" for a in e.atoms()) or any(len(m) > 1 for m, _ in e.terms):
        return False
    end = ONE
    for n, s in zip(buffer.shape, buffer.strides, strict=True):
        end = end + (n - 1) * s
    return end.const() is not None and not (e.lo >= 0 and e.hi < (end.const() or 0))


def _bytes(s: Hold) -> int:
    n = 1
    for size in s.shape:
        n *= size.const() if size.const() is not None else INF  # type: ignore[operator]
    return (n + s.pad) * itemsize(s.dtype)


# ---- the program ------------------------------------------------------------------------------------------------


def _check_sets(launch: Launch, tiles: Tiles, findings: Findings) -> None:
    """Rule T1 for the sets of a launch."""
    _, writes = touched(launch)
    seen: dict[str, int] = {}
    for k, names in enumerate(launch.sets):
        if len(names) != len(launch.params) or any(n not in tiles.buffers for n in names):
            findings.add("T1", launch.name, f"set {k} is {list(names)} for {list(launch.params)}")
            continue
        theirs = [tiles.buffers[n] for n in names]
        ours = [tiles.buffers[n] for n in launch.sets[0]]
        if any(
            (a.dtype, a.shape, a.strides) != (b.dtype, b.shape, b.strides) for a, b in zip(ours, theirs, strict=True)
        ):
            findings.add("T1", launch.name, f"set {k} has other types than the first")
        for p, n in zip(launch.params, names, strict=True):
            if seen.get(n, k) != k and (p in writes or n in _written(launch, writes)):
                findings.add("T1", launch.name, f"{n} is written by one set and touched by another")
            seen.setdefault(n, k)
    if not launch.sets:
        findings.add("T1", launch.name, "has no set of buffers")


def _written(launch: Launch, writes: set[str]) -> set[str]:
    return {n for names in launch.sets for p, n in zip(launch.params, names, strict=False) if p in writes}


def _read(launch: Launch, reads: set[str]) -> set[str]:
    return {n for names in launch.sets for p, n in zip(launch.params, names, strict=False) if p in reads}


def _check_order(item: Launch | Extern, given: frozenset[str], defined: set[str], findings: Findings) -> None:
    """Rule T10: what is read is there. What a launch also writes, it may read after its own stores."""
    if isinstance(item, Extern):
        written, read, where = {o for o in item.outs if o}, set(item.reads()), str(item.target)
    else:
        reads, writes = touched(item)
        written, where = _written(item, writes), item.name
        read = _read(item, reads) - written
        made_by_update = {s.buffer for s in statements(item.body) if isinstance(s, Update)}
        made_by_update |= {n for s in statements(item.body) if isinstance(s, GridWalk) for n in s.updated()}
        read |= _read(item, made_by_update - {s.target for s in statements(item.body) if isinstance(s, Put)})
    for name in sorted(read - defined):
        findings.add("T10", where, f"reads {name} before it is defined")
    for name in sorted(written & given):
        findings.add("T10", where, f"writes {name}, an input or a constant")
    defined |= written


def _check_placement(tiles: Tiles, findings: Findings) -> None:
    placement = tiles.placement
    assert placement is not None
    lives = {name: _life(name, tiles) for name in placement.offsets}
    returned = {v.buffer for v in tiles.outputs if isinstance(v, TensorRef)}
    spans: dict[str, tuple[int, int]] = {}
    for name, offset in placement.offsets.items():
        n_bytes = byte_span(tiles.buffers[name]) if name in tiles.buffers else None
        if lives[name] is None or name in returned or name in tiles.inputs:
            findings.add("T10", name, "has a place, but is not an intermediate made by a launch")
        elif n_bytes is not None:
            if offset % ALIGNMENT or offset < 0 or offset + n_bytes > placement.arena_bytes:
                findings.add("T10", name, f"{n_bytes} bytes at {offset} in an arena of {placement.arena_bytes}")
            spans[name] = (offset, offset + n_bytes)
    for name, (low, high) in spans.items():
        for other, (start, end) in spans.items():
            a, b = lives[name], lives[other]
            if name < other and low < end and start < high and a and b and a[0] <= b[1] and b[0] <= a[1]:
                findings.add("T10", name, f"shares bytes with {other} while both are in use")


def _life(name: str, tiles: Tiles) -> tuple[int, int] | None:
    """Positions of the first and last item that touches a buffer; None when no launch does first."""
    positions = [k for k, item in enumerate(tiles.items) if name in _touched_by(item)]
    return (positions[0], positions[-1]) if positions and isinstance(tiles.items[positions[0]], Launch) else None


def _touched_by(item: Launch | Extern) -> set[str]:
    if isinstance(item, Extern):
        return {*item.outs} | set(item.reads())
    return {n for names in item.sets for n in names}
