"""Reading walks of vectors and threads from text: the inverse of `text`."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

from intarsia_ir.records import Machine, Target
from intarsia_loops._parse import Parser
from intarsia_loops._tokens import fail
from intarsia_loops.index import ZERO, Atom, IndexExpr, axis
from intarsia_loops.program import Buffer, Val
from intarsia_loops.vectors.steps import Array, Block, Step
from intarsia_loops.vectors.walks import Inner, Manner, Maps, Part, Points, Rows, Share, Tiling, VectorWalk

__all__ = ["WalkParser"]


class WalkParser(Parser):
    """Adds walks; what stays inside a kernel is a buffer without a layout while it is read."""

    def read_walk(self) -> VectorWalk:
        """Read what follows the word `walk`."""
        outs = self._buffers("{")
        before, parts = dict(self.buffers), []
        while not self.accept("}"):
            token = self.peek()
            word = self.kind("name")
            if word not in ("maps", "rows", "points"):
                fail(f"no part of a walk is called {word!r}", token.line)
            parts.append(self._part(word))
            self.axes = {}
        self.buffers = before
        return VectorWalk(tuple(parts), outs)

    def whole(self) -> Val:
        """Read a value, in a block when some of it is named."""
        self.values = {}
        if not self.accept("{"):
            return self.value()
        self.origins()
        return self.block()

    def read_target(self) -> Target:
        """Read the line that names a target."""
        self.expect("target")
        device, isa, compiler = self.kind("name"), self.string(), self.string()
        self.expect("threads")
        threads = self.integer()
        if not self.accept("measured"):
            return Target(device, isa, compiler, threads)
        self.expect("(")
        numbers: dict[str, Any] = {}
        while not self.accept(")"):
            key = self.kind("name")
            self.expect("=")
            numbers[key] = self.argument()
            self.accept(",")
        return Target(device, isa, compiler, threads, Machine(**numbers))

    # ---- parts

    def _part(self, word: str) -> Part:
        self.expect("lanes")
        lanes = self.integer()
        loops = self.loops()
        manner = Manner(not self.accept("unhoisted"), not self.accept("ungathered"))
        if word == "maps":
            return self._maps(lanes, loops, manner)
        return self._rows(lanes, loops, manner) if word == "rows" else self._points(lanes, loops, manner)

    def _maps(self, lanes: int, loops: tuple[Atom, ...], manner: Manner) -> Maps:
        pieces = self.integer() if self.accept("pieces") else 0
        share = self._share()
        self.axes = {a.key: a for a in loops}
        self.expect("{")
        tiling = self._tiling() if self.accept("transpose") else None
        return Maps(lanes, loops, self._steps(), pieces, tiling, share, manner)

    def _tiling(self) -> Tiling:
        across = self._variable()
        self.expect("in")
        square = self.integer()
        self.expect("(")
        loads: list[Val] = []
        stores: list[str] = []
        while not self.accept(")"):
            if self.peek().kind == "buffer":
                stores.append(self.kind("buffer")[1:])
            else:
                loads.append(self.whole())
            self.accept(",")
        return Tiling(across, tuple(loads), tuple(stores), square)

    def _variable(self) -> Atom:
        token = self.peek()
        name = self.kind("name")
        if name not in self.axes:
            fail(f"no loop is called {name!r}", token.line)
        return self.axes[name]

    def _rows(self, lanes: int, rows: tuple[Atom, ...], manner: Manner) -> Rows:
        block = None
        if self.accept("block"):
            position = self.integer()
            self.expect("of")
            width = self.integer()
            self.expect("from")
            block = Block(position, self._loop(), width)
        heap = self.accept("heap")
        threads = self.integer() if self.accept("threads") else 1
        share = self._share()
        self.expect("{")
        arrays: dict[str, Array] = {}
        stored: set[str] = set()
        while self.accept("array"):
            name = self.kind("buffer")[1:]
            self.expect(":")
            dtype, shape = self.kind("name"), self.exprs("[", "]")
            self.expect("@")
            arrays[name] = Array(shape, self.exprs("(", ")"), dtype, block)
            self.define(name, dtype)
            stored |= {name} if self.accept("kept") else set()
        around = (*rows, *([block.start] if block is not None else []))
        inner = []
        while not self.accept("}"):
            self.expect("nest")
            inner.append(self._inner(around))
        kept = MappingProxyType(arrays)
        return Rows(lanes, rows, tuple(inner), block, kept, frozenset(stored), heap, share, threads, manner)

    def _inner(self, around: Sequence[Atom]) -> Inner:
        kind, loops = self.kind("name"), self.loops()
        outer = self.loops() if self.accept("at") else ()
        unroll = self.integer() if self.accept("unroll") else 1
        chain, length, cut = 0, 0, False
        if self.accept("chain"):
            chain = self.integer()
            self.expect("of")
            length, cut = self.integer(), self.accept("cut")
        parts = self.integer() if self.accept("parts") else 1
        carry = self.kind("name") if self.accept("carry") else "plain"
        share = self._share()
        self.axes = {a.key: a for a in (*around, *outer, *loops)}
        self.expect("{")
        return Inner(kind, loops, self._steps(), outer, unroll, chain, length, cut, parts, share, carry)

    def _points(self, lanes: int, loops: tuple[Atom, ...], manner: Manner) -> Points:
        self.expect("along")
        lane = self._loop()
        neighbours = self.accept("neighbours")
        threads = self.integer() if self.accept("threads") else 1
        split = self._loop() if self.accept("split") else None
        share = self._share()
        self.expect("{")
        step = self._step(alone=True)
        self.axes = {a.key: a for a in (*loops, lane)}
        self.expect("value")
        value = self.whole()
        moving = self.whole() if self.accept("moving") else None
        self.expect("fixed")
        fixed = self.expr()
        self.expect("}")
        return Points(lanes, step, loops, value, moving, fixed, lane, neighbours, split, share, threads, manner)

    # ---- steps

    def _steps(self) -> tuple[Step, ...]:
        steps: list[Step] = []
        while not self.accept("}"):
            steps.append(self._step())
        return tuple(steps)

    def _step(self, *, alone: bool = False) -> Step:
        """Read a step; one that is `alone` is over its own axes, not over loops around it."""
        name = self.kind("buffer")[1:]
        self.expect(":")
        dtype, where = self.kind("name"), self.kind("name")
        if name not in self.buffers:
            self.define(name, dtype)
        kind = self.kind("name")
        self.expect("(")
        inner = self._axes(")", ";")
        red = self._axes(")") if self.accept(";") else ()
        self.expect(")")
        if alone:
            self.axes = {a.key: a for a in (*inner, *red)}
        self.expect("[")
        place = self.expr()
        self.expect("]")
        counted, position = "i64", ZERO
        if self.accept("number"):
            counted, position = self.kind("name"), self.expr()
        self.expect("=")
        return Step(name, inner, red, kind, self.whole(), place, dtype, where == "memory", position, counted)

    # ---- words

    def define(self, name: str, dtype: str, shape: tuple[IndexExpr, ...] = ()) -> None:
        """Make a name of the launch known, for what reads it."""
        self.buffers[name] = Buffer(shape, shape, dtype)

    def _buffers(self, end: str) -> tuple[str, ...]:
        buffers: list[str] = []
        while not self.accept(end):
            buffers.append(self.kind("buffer")[1:])
            self.accept(",")
        return tuple(buffers)

    def names_in_brackets(self) -> tuple[str, ...]:
        """Read buffers in brackets."""
        self.expect("(")
        names: list[str] = []
        while not self.accept(")"):
            names.append(self.kind("buffer")[1:])
            self.accept(",")
        return tuple(names)

    def loops(self) -> tuple[Atom, ...]:
        """Read axes with their extents, in brackets."""
        self.expect("(")
        axes = self._axes(")")
        self.expect(")")
        return axes

    def _loop(self) -> Atom:
        name = self.kind("name")
        self.expect(":")
        return axis(name, self.expr())

    def _share(self) -> Share | None:
        if not self.accept("share"):
            return None
        threads = self.integer()
        self.expect("of")
        points: IndexExpr = self.expr()
        return Share(threads, points, self.integer() if self.accept("from") else 0)
