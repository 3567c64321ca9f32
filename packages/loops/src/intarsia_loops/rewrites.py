"""Rewrites of nests and kernels that the fuser and the emitters share. Each is a pure function of frozen values.

A rewrite that can be illegal returns `Refused` (falsy, with a stable code and a sentence) and changes nothing.
`x[i]` in the before/after sketches is a load of buffer x.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from intarsia_loops.index import ZERO, Atom, IndexExpr, axis, lift
from intarsia_loops.ops import NEST_KINDS
from intarsia_loops.positions import is_computable, placed
from intarsia_loops.program import Kernel, Nest, Refused, Val, load, val

__all__ = [
    "as_kernel",
    "at",
    "canonical",
    "fuse_rows",
    "inline",
    "localise",
    "matching_buffers",
    "operands",
    "postorder",
    "reads_in_order",
    "rebuild",
    "rename",
    "rename_buffers",
    "split_reduction",
]


# ---- bodies -------------------------------------------------------------------------------------------------


def operands(v: Val) -> tuple[Val, ...]:
    """Return the Vals that `v` is computed from; for a gather, its data-dependent indices."""
    if v.op in ("load", "const", "index"):
        return ()
    entries = v.args[1] if v.op == "gather" else v.args
    return tuple(a for a in entries if type(a) is Val)


def postorder(body: Val, known: Iterable[Val] = ()) -> Iterator[Val]:
    """Yield every distinct value of a body once, operands first, in a fixed order. Depth is not limited.

    Args:
        body: Where to start.
        known: Values that are left out, with what only they need.
    """
    done: set[Val] = set(known)
    stack: list[tuple[Val, bool]] = [(body, False)]
    while stack:
        v, ready = stack.pop()
        if v in done:
            continue
        if ready:
            done.add(v)
            yield v
            continue
        stack.append((v, True))
        stack.extend((a, False) for a in reversed(operands(v)) if a not in done)


def rebuild(body: Val, leaf: Callable[[Val], Val]) -> Val:
    """Return `body` with every load, gather and index replaced by `leaf` of it.

    before: add(load(x, i0), index(i0))        after: add(leaf(load(x, i0)), leaf(index(i0)))

    The data-dependent indices of a gather are rebuilt before `leaf` sees the gather.
    """
    if body.op in ("load", "index"):
        return leaf(body)
    memo: dict[Val, Val] = {}
    for v in postorder(body):
        if v.op in ("load", "index"):
            memo[v] = leaf(v)
        elif v.op == "const":
            memo[v] = v
        elif v.op == "gather":
            entries = tuple(memo[i] if type(i) is Val else i for i in v.args[1])
            memo[v] = leaf(load(v.args[0], entries, v.dtype))
        else:
            args = tuple(memo[a] for a in v.args)
            memo[v] = v if args == v.args else val(v.op, *args, dtype=v.dtype)
    return memo[body]


def at(body: Val, env: Mapping[Atom, IndexExpr]) -> Val:
    """Return `body` at another point: every axis in `env` is replaced by its expression, all at once.

    before: mul(x[i0, i1], index(i0))   env {i0: 2*i1}        after: mul(x[2*i1, i1], index(2*i1))
    """
    # an axis that stands for itself changes nothing; most inlines of pointwise chains are only that
    env = {axis: e for axis, e in env.items() if e is not lift(axis)}
    if not env:
        return body

    def leaf(v: Val) -> Val:
        if v.op == "index":
            return val("index", v.args[0].subst(env), dtype=v.dtype)
        entries = tuple(i if type(i) is Val else i.subst(env) for i in v.args[1])
        return v if entries == v.args[1] else load(v.args[0], entries, v.dtype)

    return rebuild(body, leaf)


# ---- nests --------------------------------------------------------------------------------------------------


def inline(consumer: Nest, producer: Nest) -> Nest | Refused:
    """Compute a map where it is read instead of reading it.

    before: x[i] = map g(i);  y[j] = kind f(x[e(j)])        after: y[j] = kind f(g(e(j)))

    Only the consumer is returned; the producer can be dropped when nobody else reads it. Work may be repeated, the
    values are the same: a map is a function of its index. Where the index depends on data, the producer's loads become
    gathers. Refused for producers that are no maps (`inline.not_a_map`), and for data-dependent reads of a producer
    with a quotient or a remainder by a symbol (`inline.gather`), which no scalar op computes.
    """
    if producer.kind != "map":
        return Refused("inline.not_a_map", f"{producer.out} is a {producer.kind}")
    refused: list[Val] = []

    def leaf(v: Val) -> Val:
        if v.op == "index" or v.args[0] != producer.out:
            return v
        body = _at_data(producer.body, dict(zip(producer.axes, v.args[1], strict=True)))
        if body is None:
            refused.append(v)
        return body or v

    body = rebuild(consumer.body, leaf)
    if refused:
        return Refused("inline.gather", f"{consumer.out} reads {producer.out} at a data-dependent index")
    return replace(consumer, body=body, origins=tuple(dict.fromkeys(producer.origins + consumer.origins)))


def _at_data(body: Val, places: Mapping[Atom, IndexExpr | Val]) -> Val | None:
    """`at`, where positions may depend on data; None where one can't be computed."""
    indices = {a: i for a, i in places.items() if isinstance(i, IndexExpr)}
    if len(indices) == len(places):
        return at(body, indices)
    leaves = [v for v in postorder(body) if v.op in ("load", "gather", "index")]
    entries = [e for v in leaves for e in (v.args[:1] if v.op == "index" else v.args[1]) if isinstance(e, IndexExpr)]
    if not is_computable(entries):
        return None

    def leaf(v: Val) -> Val:
        if v.op == "index":
            position = placed(v.args[0], places)
            return position if isinstance(position, Val) else val("index", position, dtype=v.dtype)
        return load(v.args[0], tuple(i if type(i) is Val else placed(i, places) for i in v.args[1]), v.dtype)

    return rebuild(body, leaf)


def rename(nest: Nest, axes: Sequence[Atom]) -> Nest:
    """Return the same nest over other axes of the same extents; reduced axes that would collide get new names.

    before: y[i0, i1] = sum over r0 of x[i0, i1, r0]   axes (j, i1)        after: y[j, i1] = sum over r0 of x[j, i1, r0]
    """
    axes = tuple(axes)
    taken = {a.key for a in axes}
    target = dict(zip(nest.axes, axes, strict=True))
    for r in nest.red:
        if r not in target:
            target[r] = _fresh(r, taken)
    env = {a: lift(b) for a, b in target.items() if a is not b}
    if not env:
        return nest
    return replace(nest, axes=axes, red=tuple(target[r] for r in nest.red), body=at(nest.body, env))


def _fresh(loop: Atom, taken: set[str]) -> Atom:
    """The axis itself, or one of the same extent whose name isn't taken; the name is then taken."""
    name = loop.key
    while name in taken:
        name += "_"
    taken.add(name)
    return loop if name == loop.key else axis(name, loop.extent)


def rename_buffers(nest: Nest, names: Mapping[str, str]) -> Nest:
    """Return the nest with buffers renamed, the one written and those read; names not in the map stay."""

    def leaf(v: Val) -> Val:
        return v if v.op == "index" or v.args[0] not in names else load(names[v.args[0]], v.args[1], v.dtype)

    touched = any(v.args[0] in names for v in nest.body.loads)
    body = rebuild(nest.body, leaf) if touched else nest.body
    return replace(nest, out=names.get(nest.out, nest.out), body=body)


def split_reduction(nest: Nest, factor: int, *, part: str | None = None) -> tuple[Nest, Nest] | Refused:
    """Fold in two levels, so that the first has parallel work.

    before: y[i] = sum over r < n of g(i, r)
    after:  p[i, o] = sum over q < factor of g(i, o*factor + q);   y[i] = sum over o < n // factor of p[i, o]

    The first reduced axis is the one split; others stay in the first nest. Floats are summed in another order.
    Refused for maps, scans and arg reductions (`split.kind`) and when `factor` doesn't divide the extent
    (`split.remainder`).

    Args:
        nest: A reduction.
        factor: Elements folded by one point of the first nest.
        part: Name of the buffer between; `<out>_part` when not given. Its shape is that of `out` plus [n // factor].
    """
    if nest.kind not in ("sum", "prod", "max", "min", "any", "all"):
        return Refused("split.kind", f"{nest.out} is a {nest.kind}")
    r = nest.red[0]
    if (r.extent % factor) is not ZERO:
        return Refused("split.remainder", f"{r.extent} is not a multiple of {factor}")
    taken = {a.key for a in nest.axes + nest.red[1:]}
    outer = _fresh(axis(r.key + "o", r.extent // factor), taken)
    inner = _fresh(axis(r.key + "i", factor), taken)
    body = at(nest.body, {r: lift(outer) * factor + lift(inner)})
    name = part or nest.out + "_part"
    first = replace(nest, out=name, axes=(*nest.axes, outer), red=(inner, *nest.red[1:]), body=body)
    final = replace(nest, red=(outer,), body=load(name, (*map(lift, nest.axes), lift(outer)), nest.dtype))
    return first, final


# ---- kernels ------------------------------------------------------------------------------------------------


def as_kernel(nest: Nest, depth: int) -> Kernel | Refused:
    """Return the kernel whose rows are the first `depth` axes of the nest.

    before: y[i0, i1] = kind f        after: kernel rows (i0,): y[i0, i1] = kind f

    Refused when a scanned axis would become a row (`kernel.scanned_row`), when a scatter would get one
    (`kernel.scattered_row`), and when the nest has fewer axes (`kernel.depth`).
    """
    if depth > len(nest.axes):
        return Refused("kernel.depth", f"{nest.out} has {len(nest.axes)} axes, not {depth}")
    rows = nest.axes[:depth]
    if rows and NEST_KINDS[nest.kind].scatter:
        return Refused("kernel.scattered_row", f"{nest.out} is written at any place by any point")
    if NEST_KINDS[nest.kind].scan and nest.red[0] in rows:
        return Refused("kernel.scanned_row", f"{nest.out} scans along {nest.red[0].key}")
    return Kernel(rows, (nest,))


def fuse_rows(a: Kernel, b: Kernel) -> Kernel | Refused:
    """Merge two kernels over equal rows; `a` comes first.

    before: kernel rows (i): P;   kernel rows (j): Q        after: kernel rows (i): P; Q with i for j

    The one rule: b reads what a makes only in its own row. It covers epilogues (Q maps over what P reduced), later
    reductions over the same row, and horizontal merges (Q reads nothing of P). Refused when the rows' extents differ
    (`fuse.rows`), when Q reads another row (`fuse.crosses_rows`) and when both write one buffer (`fuse.writes`).
    A scatter is a kernel of its own (`fuse.scatter`): its rows are done when all of its points are.
    Whether items between the two kernels allow them to move together is for the caller to know.
    """
    scattered = [s.out for s in a.steps + b.steps if NEST_KINDS[s.kind].scatter]
    if scattered:
        return Refused("fuse.scatter", f"{scattered[0]} is a scatter")
    if [r.extent for r in a.rows] != [r.extent for r in b.rows]:
        return Refused("fuse.rows", f"rows {_extents(a.rows)} and {_extents(b.rows)} differ")
    written = {s.out for s in a.steps}
    clash = written.intersection(s.out for s in b.steps)
    if clash:
        return Refused("fuse.writes", f"both write {min(clash)}")
    depth = len(a.rows)
    row = tuple(map(lift, b.rows))
    for step in b.steps:
        crossing = [v for v in step.body.loads if v.args[0] in written and v.args[1][:depth] != row]
        if crossing:
            return Refused("fuse.crosses_rows", f"{step.out} reads another row by {min(map(repr, crossing))}")
    return Kernel(a.rows, a.steps + tuple(_onto(s, a.rows) for s in b.steps), a.local | b.local)


def _extents(axes: Iterable[Atom]) -> str:
    return "(" + ", ".join(repr(a.extent) for a in axes) + ")"


def _onto(step: Nest, rows: tuple[Atom, ...]) -> Nest:
    """The step with its leading axes named as `rows`; inner axes of the same name are renamed."""
    depth = len(rows)
    if step.axes[:depth] == rows:
        return step
    taken = {r.key for r in rows}
    return rename(step, rows + tuple(_fresh(a, taken) for a in step.axes[depth:]))


def localise(kernel: Kernel, live_out: Iterable[str]) -> Kernel:
    """Keep what nobody outside reads out of memory.

    before: local {}, steps p; q        after: local {p} when only q is in `live_out`

    Args:
        kernel: The kernel.
        live_out: Buffers read by other items or returned.
    """
    return replace(kernel, local=frozenset(s.out for s in kernel.steps) - frozenset(live_out))


def canonical(kernel: Kernel) -> tuple[Kernel, tuple[str, ...]]:
    """Return the kernel with positional names and without origins, and the real names of its buffers.

    Two kernels that do the same to different buffers have equal canonical forms, so one piece of code serves both.
    Buffer k of the second result is called `b<k>` in the first. Axes are named `i0..` (rows, then inner) and `r0..`.

    Example:
        >>> from intarsia_loops.index import axis, lift
        >>> i = axis("i0", 4)
        >>> f = lambda x, y: Kernel((i,), (Nest(y, (i,), (), "map", load(x, (lift(i),), "f32"), "f32"),))
        >>> canonical(f("a", "b"))[0] == canonical(f("c", "d"))[0], canonical(f("c", "d"))[1]
        (True, ('c', 'd'))
    """
    names: dict[str, str] = {}
    steps = []
    for step in kernel.steps:
        step = _positional_axes(step)
        for name in reads_in_order(step):
            names.setdefault(name, f"b{len(names)}")
        names.setdefault(step.out, f"b{len(names)}")
        steps.append(replace(rename_buffers(step, names), origins=()))
    rows = steps[0].axes[: len(kernel.rows)] if steps else kernel.rows
    return Kernel(rows, tuple(steps), frozenset([names[b] for b in kernel.local])), tuple(names)


def matching_buffers(a: Sequence[Nest], b: Sequence[Nest]) -> dict[str, str] | None:
    """Return which buffer of `b` stands for which of `a` if the nests do the same, else None.

    What the canonical forms would show, without building them: layers of a model are compared this way.

    Args:
        a: Nests, in order.
        b: As many nests.
    """
    if len(a) != len(b):
        return None
    names: dict[str, str] = {}
    for x, y in zip(a, b, strict=True):
        if (x.kind, x.dtype, len(x.axes), len(x.red)) != (y.kind, y.dtype, len(y.axes), len(y.red)):
            return None
        if (x.axes, x.red) != (y.axes, y.red):
            x, y = _positional_axes(x), _positional_axes(y)
        if (x.axes, x.red) != (y.axes, y.red) or not _match(x.body, y.body, names):
            return None
        if names.setdefault(x.out, y.out) != y.out:
            return None
    return names if len(set(names.values())) == len(names) else None


def _match(a: Val, b: Val, names: dict[str, str]) -> bool:
    """Whether two bodies are equal up to buffer names, which are entered into `names`."""
    seen: set[tuple[Val, Val]] = set()
    stack = [(a, b)]
    while stack:
        x, y = stack.pop()
        if (x, y) in seen:
            continue
        seen.add((x, y))
        if x.op != y.op or x.dtype != y.dtype:
            return False
        if x.op in ("load", "gather"):
            if names.setdefault(x.args[0], y.args[0]) != y.args[0] or len(x.args[1]) != len(y.args[1]):
                return False
            for i, j in zip(x.args[1], y.args[1], strict=True):
                if type(i) is Val and type(j) is Val:
                    stack.append((i, j))
                elif i is not j:
                    return False
        elif x.op in ("const", "index"):
            if x is not y:
                return False
        elif len(x.args) != len(y.args):
            return False
        else:
            # also where both are one value: its buffers stand for themselves
            stack += zip(x.args, y.args, strict=True)
    return True


def reads_in_order(nest: Nest) -> tuple[str, ...]:
    """Return the buffers that a nest loads from, by first appearance in its body."""
    loads = nest.body.loads
    if len(loads) <= 1:
        return tuple([v.args[0] for v in loads])
    return tuple(dict.fromkeys([v.args[0] for v in postorder(nest.body) if v.op in ("load", "gather")]))


def _positional_axes(step: Nest) -> Nest:
    axes = tuple(axis(f"i{k}", a.extent) for k, a in enumerate(step.axes))
    target = dict(zip(step.axes, axes, strict=True))
    for k, r in enumerate(step.red):
        target.setdefault(r, axis(f"r{k}", r.extent))
    env = {a: lift(b) for a, b in target.items() if a is not b}
    if not env:
        return step
    return replace(step, axes=axes, red=tuple(target[r] for r in step.red), body=at(step.body, env))
