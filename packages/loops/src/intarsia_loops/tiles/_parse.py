"""Reading tile programs from text: the inverse of `text`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch

from intarsia_ir.origin_text import split_origins
from intarsia_loops._tokens import fail, tokens_after_head
from intarsia_loops.index import ZERO, IndexExpr, axis
from intarsia_loops.program import Extern, Val
from intarsia_loops.tiles.grids.parse import GridParser
from intarsia_loops.tiles.monoids import MONOIDS
from intarsia_loops.tiles.program import (
    SCHEMA,
    Acc,
    Bind,
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
)

__all__ = ["parse_tiles"]

BINDS = ("unroll", "lanes", "parts")
ORDERS = ("tree", "halves", "each", "state")


def parse_tiles(text: str, constants: Mapping[str, torch.Tensor] | None = None) -> Tiles:
    """Return the tile program with this text."""
    text, places = split_origins(text)
    return _Tiles(tokens_after_head(text, "tiles", (SCHEMA, 4)), constants or {}, places).tiles()


class _Tiles(GridParser):
    """Adds launches and their statements; what a launch names is a buffer without a layout while it is read."""

    def tiles(self) -> Tiles:
        target = self.read_target()
        self.read_facts()
        inputs, constants = self.read_head()
        scratch: set[str] = set()
        while self.peek().text in ("buffer", "scratch"):
            is_scratch = self.take().text == "scratch"
            name = self.typed_buffer()
            scratch |= {name} if is_scratch else set()
        items: list[Launch | Extern] = []
        while not self.accept("return"):
            items.append(self._launch() if self.accept("launch") else self._call_of_aten())
        outputs = self.argument()
        self.expect("}")
        placement = self.read_placement()
        if self.peek().kind != "end":
            fail(f"{self.peek().text!r} after the end of the program", self.peek().line)
        missing = sorted(set(constants) - self.given_constants.keys())
        if missing:
            fail(f"the constant {missing[0]} was not given", self.peek().line)
        tensors = MappingProxyType({n: self.given_constants[n] for n in constants})
        buffers = MappingProxyType(self.buffers)
        return Tiles(buffers, inputs, tuple(items), outputs, target, frozenset(scratch), self.facts, placement, tensors)

    def _call_of_aten(self) -> Extern:
        outs = self.outs()
        self.expect("=")
        self.expect("extern")
        return self.extern(outs)

    # ---- launches

    def _launch(self) -> Launch:
        name = self.kind("name")
        params = self.names_in_brackets()
        sets = [params]
        if self.accept("sets"):
            sets = [self.names_in_brackets()]
            while self.accept(","):
                sets.append(self.names_in_brackets())
        width = self.kind("name")
        warps = self.integer() if self.accept("warps") else 0
        self.expect("{")
        origins = self.origins()
        everything = self.buffers
        missing = [n for n in sets[0] if n not in everything]
        if missing:
            fail(f"%{missing[0]} is not defined", self.peek().line)
        self.buffers = {**everything, **{p: everything[n] for p, n in zip(params, sets[0], strict=False)}}
        self.monoids: dict[str, Acc] = {}
        body = self._body()
        self.buffers = everything
        return Launch(name, params, tuple(sets), body, width, warps, origins)

    def _body(self) -> tuple[Statement, ...]:
        statements: list[Statement] = []
        while not self.accept("}"):
            token = self.peek()
            word = self.kind("name")
            read = getattr(self, f"_read_{word}", None)
            if read is None:
                fail(f"no statement is called {word!r}", token.line)
            statements.append(read())
        return tuple(statements)

    def _read_for(self) -> For:
        name = self.kind("name")
        self.expect(":")
        extent = self.expr()
        variable = axis(name, extent)
        low, high = ZERO, [extent]
        if self.accept("from"):
            low = self.expr()
            self.expect("to")
            high = [self.expr()]
            while self.accept(","):
                high.append(self.expr())
        across = self.take().text if self.peek().text in ("threads", "program") else "serial"
        dim = self.integer() if across == "program" else 0
        binds = []
        while self.peek().text in BINDS:
            kind = self.take().text
            bound = self.kind("name")
            binds.append(Bind(kind, self.integer(), bound))
        ends, align, start = self._ends()
        back = self.accept("back")
        hint = self.string() if self.accept("hint") else ""
        self.expect("{")
        before = self.axes
        self.axes = {**before, name: variable}
        body = self._body()
        self.axes = before
        return For(variable, low, tuple(high), body, across, dim, tuple(binds), ends, align, start, back, hint)

    def _ends(self) -> tuple[str, int, IndexExpr | None]:
        if not self.accept("ends"):
            return "none", 0, None
        ends = self.kind("name")
        align = self.integer() if self.peek().kind == "number" else 0
        return ends, align, self.expr() if self.accept("at") else None

    def _read_if(self) -> If:
        left, relation, right = self.expr(), self.take().text, self.expr()
        self.expect("{")
        then = self._body()
        orelse: tuple[Statement, ...] = ()
        if self.accept("else"):
            self.expect("{")
            orelse = self._body()
        return If(left, relation, right, then, orelse)

    def _read_last(self) -> Last:
        counter = self.kind("buffer")[1:]
        self.expect("[")
        group = self.expr()
        self.expect("]")
        self.expect("of")
        arrivals = self.integer()
        self.expect("{")
        return Last(counter, group, arrivals, self._body())

    # ---- statements without others in them

    def _read_hold(self) -> Hold:
        name = self.kind("buffer")[1:]
        self.expect(":")
        dtype = self.kind("name")
        shape = self.exprs("[", "]")
        space = self.kind("name")
        pad = self.integer() if self.accept("pad") else 0
        self.define(name, dtype, shape)
        return Hold(name, space, shape, dtype, pad)

    def _read_reg(self) -> Hold:
        name = self.kind("buffer")[1:]
        self.expect("=")
        value = self.whole()
        self.define(name, value.dtype)
        return Hold(name, "reg", (), value.dtype, 0, value)

    def _read_put(self) -> Put:
        target = self.kind("buffer")[1:]
        index = self.exprs("[", "]")
        self.expect("=")
        value = self.whole()
        return Put(target, index, value, self._when())

    def _when(self) -> Val | None:
        return self.whole() if self.accept("when") else None

    def _read_acc(self) -> Acc:
        name = self.kind("buffer")[1:]
        self.expect(":")
        token = self.peek()
        monoid, dtype = self.kind("name"), self.kind("name")
        if monoid not in MONOIDS:
            fail(f"no monoid is called {monoid!r}", token.line)
        per: list[str] = []
        if self.accept("per"):
            self.expect("(")
            while not self.accept(")"):
                per.append(self.kind("name"))
                self.accept(",")
        self.monoids[name] = Acc(name, monoid, dtype, tuple(per))
        return self.monoids[name]

    def _accumulator(self) -> Acc:
        token = self.peek()
        name = self.kind("buffer")[1:]
        if name not in self.monoids:
            fail(f"no accumulator is called %{name}", token.line)
        return self.monoids[name]

    def _values(self) -> tuple[Val, ...]:
        values = [self.whole()]
        while self.accept(","):
            values.append(self.whole())
        return tuple(values)

    def _read_fold(self) -> Fold:
        acc = self._accumulator()
        values = self._values()
        return Fold(acc.name, values, self._when())

    def _read_run(self) -> Run:
        name = self.kind("buffer")[1:]
        self.expect("=")
        acc = self._accumulator()
        values = self._values()
        self.define(name, self._results(acc)[0])
        return Run(acc.name, values, name)

    def _results(self, acc: Acc) -> tuple[str, ...]:
        return tuple(v.dtype for v in MONOIDS[acc.monoid].rules(acc.dtype).finish)

    def _read_take(self) -> Take:
        names = [self.kind("buffer")[1:]]
        while self.accept(","):
            names.append(self.kind("buffer")[1:])
        self.expect("=")
        acc = self._accumulator()
        order = next((word for word in ORDERS if self.accept(word)), "in order")
        types = MONOIDS[acc.monoid].rules(acc.dtype).types if order == "state" else self._results(acc)
        for name, dtype in zip(names, types, strict=False):
            self.define(name, dtype)
        return Take(acc.name, tuple(names), order)

    def _read_walk(self) -> VectorWalk:
        return self.read_walk()

    def _read_grid(self) -> GridWalk:
        before = self.buffers
        self.buffers = dict(before)
        walk = self.read_grid()
        self.buffers = before
        return walk

    def _read_update(self) -> Update:
        buffer = self.kind("buffer")[1:]
        self.expect("[")
        place: Any
        if self.accept("["):
            place = self.whole()
            self.expect("]")
        else:
            place = self.expr()
        self.expect("]")
        monoid = self.kind("name")
        self.expect("=")
        value = self.whole()
        how = self.kind("name")
        axes = []
        if self.accept("own"):
            self.expect("(")
            while not self.accept(")"):
                axes.append(self.axes[self.kind("name")])
                self.accept(",")
        return Update(monoid, buffer, place, value, how, tuple(axes))

    def _read_turn(self) -> Turn:
        return Turn(self.kind("buffer")[1:])

    def _read_check(self) -> Check:
        value = self.whole()
        return Check(value, self.string())
