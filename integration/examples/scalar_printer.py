"""A third printer of tiles, as plain scalar C: `print_c` gives the text of a program whose walks are written out.

It knows nothing of kernels, targets or vectors: all it needs is in the tiles. Lanes come one after the other, an
accumulator is an array over the positions of its `per`, and a monoid's rules are printed like any body.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from intarsia_loops.index import IndexExpr
from intarsia_loops.ops import FLOATS
from intarsia_loops.program import Val, load
from intarsia_loops.rewrites import postorder
from intarsia_loops.tiles import MONOIDS, Acc, For, Launch, Tiles, statements

PRELUDE = (Path(__file__).parent / "scalar_prelude.h").read_text(encoding="utf-8")


def print_c(tiles: Tiles) -> str:
    """Return the C of all launches; each is `const char *name(void **buffers, const int64_t *sizes)`."""
    return PRELUDE + "".join(_Launch(tiles, item).text() for item in tiles.items if isinstance(item, Launch))


class _Launch:
    def __init__(self, tiles: Tiles, launch: Launch) -> None:
        self.tiles, self.launch, self.temps = tiles, launch, itertools.count()
        self.types = {p: tiles.buffers[n].dtype for p, n in zip(launch.params, launch.sets[0], strict=True)}
        loops = [s for s in statements(launch.body) if isinstance(s, For)]
        self.sizes = {b.name: b.size for s in loops for b in s.binds}
        self.accs = {s.name: s for s in statements(launch.body) if isinstance(s, Acc)}
        self.shapes: dict[str, Sequence[IndexExpr]] = {}

    def text(self) -> str:
        lines = [f"const char *{self.launch.name}(void **buffers, const int64_t *sizes) {{"]
        lines += [f"{t} *{p}_ = buffers[{k}];" for k, (p, t) in enumerate(self.types.items())]
        lines += [f"const int64_t {s} = sizes[{k}];" for k, s in enumerate(symbols(self.tiles))]
        return "\n".join([*lines, *self.body(self.launch.body), "return 0; }\n"])

    def body(self, body: Sequence[Any]) -> Iterator[str]:
        for s in body:
            yield from getattr(self, f"_{type(s).__name__.lower()}")(s)

    def _for(self, s: Any) -> Iterator[str]:
        a, n, low = f"{s.axis.key}_", next(self.temps), self.number(s.low)
        yield f"int64_t end{n} = {self.number(s.high[0])};"
        yield from (f"if ({e} < end{n}) end{n} = {e};" for e in map(self.number, s.high[1:]))
        head = f"{a} = end{n} - 1; {a} >= {low}; {a}--" if s.back else f"{a} = {low}; {a} < end{n}; {a}++"
        yield f"for (int64_t {head}) {{"
        below = 1
        for b in reversed(s.binds):
            yield f"const int64_t {b.name}_ = ({a} - {low}) / {below} % {b.size};"
            below *= b.size
        yield from self.body(s.body)
        yield "}"

    def _if(self, s: Any) -> Iterator[str]:
        head = f"if ({self.number(s.left)} {s.relation} {self.number(s.right)}) {{"
        yield from (head, *self.body(s.then), "} else {", *self.body(s.orelse), "}")

    def _hold(self, s: Any) -> Iterator[str]:
        self.shapes[s.name] = s.shape
        array = f"{s.dtype} {s.name}_[{' * '.join(f'({self.number(n)})' for n in s.shape)} + 1];"
        yield from [array] if s.value is None else self.assigned(f"{s.dtype} {s.name}_;", s.name + "_", s.value)

    def _put(self, s: Any) -> Iterator[str]:
        yield from self.when(s.when, self.assigned("", self.element(s.target, s.index, {}), s.value))

    def _acc(self, s: Any) -> Iterator[str]:
        rules, n = MONOIDS[s.monoid].rules(s.dtype), math.prod(self.sizes[b] for b in s.per)
        for f, t, start in zip(MONOIDS[s.monoid].fields, rules.types, rules.identity, strict=True):
            yield from self.assigned(f"{t} {s.name}_{f}[{n}], {s.name}_{f}_;", f"{s.name}_{f}_", start)
            yield f"for (int k = 0; k < {n}; k++) {s.name}_{f}[k] = {s.name}_{f}_;"

    def _fold(self, s: Any) -> Iterator[str]:
        yield from self.when(s.when, self.added(s))

    def place(self, acc: Acc) -> str:
        below = [math.prod(self.sizes[b] for b in acc.per[k + 1 :]) for k in range(len(acc.per))]
        return " + ".join([f"{b}_ * {n}" for b, n in zip(acc.per, below, strict=True)]) or "0"

    def added(self, s: Any) -> Iterator[str]:
        acc, row, place = self.accs[s.acc], MONOIDS[self.accs[s.acc].monoid], self.place(self.accs[s.acc])
        names = {f: f"{acc.name}_{f}[{place}]" for f in row.fields}
        lines, found = self.values(s.values, {})
        more, made = self.values(row.rules(acc.dtype).fold, names | dict(zip(row.operands, found, strict=True)))
        stores = [f"{names[f]} = {r};" for f, r in zip(row.fields, made, strict=True)]
        yield from ("{", *lines, *more, *stores, "}")

    def _run(self, s: Any) -> Iterator[str]:
        yield from self.added(s)
        yield from self.results(self.accs[s.acc], (s.name,), self.place(self.accs[s.acc]))

    def _take(self, s: Any) -> Iterator[str]:
        acc = self.accs[s.acc]
        row, n = MONOIDS[acc.monoid], math.prod(self.sizes[b] for b in acc.per)
        if s.order in ("each", "state"):
            yield from self.results(acc, s.names, self.place(acc), s.order == "state")
            return
        names = {f: f"{acc.name}_{f}[0]" for f in row.fields}
        lines, merged = self.values(
            row.rules(acc.dtype).merge, names | {f"other_{f}": f"{acc.name}_{f}[k]" for f in row.fields}
        )
        stores = [f"{names[f]} = {r};" for f, r in zip(row.fields, merged, strict=True)]
        yield from (f"for (int k = 1; k < {n}; k++) {{", *lines, *stores, "}")
        yield from self.results(acc, s.names)

    def results(self, acc: Acc, names: Sequence[str], place: str = "0", raw: bool = False) -> Iterator[str]:
        row, rules = MONOIDS[acc.monoid], MONOIDS[acc.monoid].rules(acc.dtype)
        state = {f: f"{acc.name}_{f}[{place}]" for f in row.fields}
        fields = [load(f, (), t) for f, t in zip(row.fields, rules.types, strict=True)]
        for name, value in zip(names, fields if raw else rules.finish, strict=True):
            yield from self.assigned(f"{value.dtype} {name}_;", f"{name}_", value, state)

    def _update(self, s: Any) -> Iterator[str]:
        rules, (field,) = MONOIDS[s.monoid].rules(s.value.dtype), MONOIDS[s.monoid].fields
        lines, (value,) = self.values((s.value,), {})
        more, (place,) = self.values((s.place,), {}) if isinstance(s.place, Val) else ([], [self.number(s.place)])
        last, (folded,) = self.values(rules.fold, {field: f"{s.buffer}_[{place}]", "x": value})
        yield from ("{", *lines, *more, *last, f"{s.buffer}_[{place}] = {folded};", "}")

    def _turn(self, s: Any) -> Iterator[str]:
        n, a = self.number(self.shapes[s.name][0]), f"{s.name}_"
        yield f"for (int i = 0; i < {n}; i++) for (int j = 0; j < i; j++) {{ __auto_type t = {a}[i * {n} + j];"
        yield f"{a}[i * {n} + j] = {a}[j * {n} + i]; {a}[j * {n} + i] = t; }}"

    def _last(self, s: Any) -> Iterator[str]:
        counter = f"{s.counter}_[{self.number(s.group)}]"
        yield from (f"if (++{counter} == {s.arrivals}) {{ {counter} = 0;", *self.body(s.body), "}")

    def _check(self, s: Any) -> Iterator[str]:
        lines, (value,) = self.values((s.value,), {})
        text = s.text.replace("\\", "\\\\").replace('"', '\\"')
        yield from ("{", *lines, f'if (!{value}) return "{text}"; }}')

    def when(self, condition: Val | None, body: Iterator[str]) -> Iterator[str]:
        lines, found = self.values((condition,), {}) if condition is not None else ([], ["1"])
        yield from ("{", *lines, f"if ({found[0]}) {{", *body, "} }")

    def assigned(self, declared: str, name: str, value: Val, names: Mapping[str, str] | None = None) -> Iterator[str]:
        lines, (result,) = self.values((value,), names or {})
        yield from (declared, "{", *lines, f"{name} = {result};", "}")

    def values(self, bodies: Sequence[Val], names: Mapping[str, str]) -> tuple[list[str], list[str]]:
        """Statements that compute values, and what they are called."""
        lines: list[str] = []
        done: dict[Val, str] = {}
        for v in (v for body in bodies for v in postorder(body) if v not in done):
            done[v] = f"v{next(self.temps)}"
            lines.append(f"const {v.dtype} {done[v]} = {self.expression(v, done, names)};")
        return lines, [done[b] for b in bodies]

    def expression(self, v: Val, done: Mapping[Val, str], names: Mapping[str, str]) -> str:
        if v.op == "const":
            x = v.args[0]
            special = isinstance(x, float) and not math.isfinite(x)
            return f"({v.dtype}){'NAN' if x != x else ('-' if x < 0 else '') + 'INFINITY'}" if special else _number(x)
        if v.op == "index":
            return self.number(v.args[0]) if v.dtype != "i32" else f"saturated({self.number(v.args[0])})"
        if v.op in ("load", "gather"):
            return names.get(v.args[0]) or self.element(v.args[0], v.args[1], done)
        args = [done[a] for a in v.args if isinstance(a, Val)]
        types = [a.dtype for a in v.args if isinstance(a, Val)]
        if v.op == "cast":
            x = f"wide({args[0]})" if types[0] == "bf16" else args[0]
            return {"b8": f"{x} != 0", "bf16": f"narrow({x})"}.get(v.dtype) or f"({v.dtype})({x})"
        kind = "b" if v.dtype == "b8" and v.op == "not" else "f" if types[-1] in FLOATS else "i"
        name = next((n for n in (f"{kind}_{v.op}", f"op_{v.op}") if f" {n}(" in PRELUDE), v.op)
        return f"{name}({', '.join(args)})"

    def element(self, name: str, index: Sequence[Any], done: Mapping[Val, str]) -> str:
        at = [done[i] if isinstance(i, Val) else self.number(i) for i in index]
        if not at and name not in self.types:
            return f"{name}_"
        flat = at[0] if at else "0"
        for i, n in zip(at[1:], self.shapes.get(name, ())[1:], strict=True):
            flat = f"(({flat}) * ({self.number(n)}) + {i})"
        return f"{name}_[{flat}]"

    def number(self, e: IndexExpr) -> str:
        terms = ["*".join([f"INT64_C({k})", *map(self.atom, m)]) for m, k in e.terms]
        return f"({' + '.join(terms) or '0'})"

    def atom(self, a: Any) -> str:
        if a.kind in "/%":
            return f"{'fd' if a.kind == '/' else 'fm'}({self.number(a.a)}, {self.number(a.b)})"
        return f"{a.key}_" if a.kind == "axis" else str(a.key)


def _number(x: bool | int | float) -> str:
    return repr(x) if isinstance(x, float) else f"INT64_C({int(x)})" if int(x) > -(1 << 63) else "INT64_MIN"


def symbols(tiles: Tiles) -> list[str]:
    """Return the size symbols of a program, sorted."""
    return sorted({s for b in tiles.buffers.values() for e in (*b.shape, *b.strides) for s in e.symbols()})
