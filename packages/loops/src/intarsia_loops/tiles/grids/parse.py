"""Reading walks of grids from text: the inverse of `text`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from intarsia_loops._tokens import fail
from intarsia_loops.grid import Ending, GridWalk
from intarsia_loops.index import Atom
from intarsia_loops.launches import Blocks, ExpSum, Loop, Shift, SquareSum, Walk
from intarsia_loops.program import Buffer, Nest, Val
from intarsia_loops.tiles.walks.parse import WalkParser

__all__ = ["GridParser"]


class GridParser(WalkParser):
    """Adds walks of grids."""

    def read_grid(self) -> GridWalk:
        """Read what follows the word `grid`."""
        kind, rows = self.kind("name"), self.loops()
        self.expect("tile")
        height = self.integer()
        self.expect("x")
        inner_points = self.integer()
        self.expect("warps")
        warps = self.integer()
        stages, persistent = self.integer() if self.accept("stages") else 1, self.accept("persistent")
        parts = self.integer() if self.accept("parts") else 1
        blocks = Blocks(height, inner_points, warps, persistent, parts, stages)
        wide = self.accept("i64")
        inner = self.loops() if self.accept("inner") else ()
        weights = self.names_in_brackets() if self.accept("weights") else ()
        local = self.names_in_brackets() if self.accept("local") else ()
        chunk = self.integer() if self.accept("chunk") else 0
        self.expect("{")
        layouts: list[tuple[str, Buffer]] = []
        while self.accept("layout"):
            name = self.typed_buffer()
            layouts.append((name, self.buffers[name]))
        asserts: list[tuple[str, str]] = []
        while self.accept("assert"):
            asserts.append((self.kind("buffer")[1:], self.string()))
        loops: list[Loop] = []
        while self.accept("loop"):
            loops.append(self._loop_of(rows))
        ending = self._ending() if self.accept("last") else None
        self.expect("}")
        walk = Walk(kind, rows, blocks, inner, tuple(loops), frozenset(weights), wide)
        return GridWalk(walk, frozenset(local), tuple(asserts), chunk, ending, tuple(layouts))

    def _ending(self) -> Ending:
        self.expect("of")
        arrivals = self.integer()
        self.expect("at")
        modulus, width = self.integer(), self.integer()
        self.expect("{")
        self.expect("grid")
        walk = self.read_grid()
        self.expect("}")
        return Ending(walk, modulus, width, arrivals)

    def _loop_of(self, rows: Sequence[Atom]) -> Loop:
        inner = self.loops()
        back, shift = self.accept("back"), None
        around = {a.key: a for a in (*rows, *inner)}
        if self.accept("shift"):
            points = self.integer()
            self.expect("from")
            self.axes = around
            shift = Shift(self.expr(), points)
        keep = []
        while self.accept("keep"):
            keep.append((self.kind("buffer")[1:], self.kind("name")))
        by_tile = self.names_in_brackets() if self.accept("by_tile") else ()
        same = self._of(inner) if self.accept("by_part") else frozenset()
        self.expect("{")
        steps, sums, squares = list[Nest](), list[ExpSum](), list[SquareSum]()
        while not self.accept("}"):
            if self.accept("exponentials"):
                top = self.kind("buffer")[1:]
                step = self._nest_of()
                sums.append(ExpSum(step, top, *self._relative(step, around)))
            elif self.accept("squares"):
                step = self._nest_of()
                squares.append(SquareSum(step, *self._relative(step, around)))
            else:
                steps.append(self._nest_of())
        return Loop(
            inner, tuple(steps), tuple(sums), tuple(squares), shift, back, tuple(keep), frozenset(by_tile), same
        )  # fmt: skip

    def _of(self, axes: Sequence[Atom]) -> frozenset[Atom]:
        """Read some of these axes in brackets."""
        by_key, atoms = {a.key: a for a in axes}, set[Atom]()
        self.expect("(")
        while not self.accept(")"):
            token = self.peek()
            name = self.kind("name")
            if name not in by_key:
                fail(f"no axis of the loop is called {name!r}", token.line)
            atoms.add(by_key[name])
            self.accept(",")
        return frozenset(atoms)

    def _nest_of(self) -> Nest:
        name = self.typed_buffer()
        self.expect("=")
        return self._nest(name)

    def _relative(self, step: Nest, around: Mapping[str, Atom]) -> tuple[Val, Val]:
        """Read what a sum is of and what that is relative to."""
        values = list[Val]()
        for word in ("of", "from"):
            self.expect(word)
            self.axes = {**{a.key: a for a in (*step.axes, *step.red)}, **around}
            values.append(self.whole())
        return values[0], values[1]
