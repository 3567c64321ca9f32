"""Launches as text and back: all of them, so that what prints kernels runs from a file.

    // launches 1
    target cpu 'avx2' 'g++' threads 8
    kernels 1
    scratch %part0: f32[64, 4]
    launch (%x, %y) items 0 1 as 0 {  # model.py:3 in f
      layout %b0: f32[64, 100]
      layout %b1: f32[64]
      kernel[i0: 64] {
        %b1: f32[64] = sum[i0: 64; r0: 100] load(%b0, i0, r0)
      }
      grid rows (i0: 64) tile 1 x 128 warps 4 persistent {
        loop (r0: 100) {
          %b1: f32[64] = sum[i0: 64; r0: 100] load(%b0, i0, r0)
        }
      }
    }

A launch names, for each time it is done, the program's buffers that its own `%b0, %b1, ...` stand for; then the items
of the program that it does, and the number of its function: launches of one number are one function. Its body has the
layouts, the kernel, and how that is walked: `grid ...` here, `walk ...` as in `tiles.walks.text`. What stays inside a
kernel has no layout; where a nest makes it, its type is that of the nest's axes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from intarsia_loops._parse import fail, tokens_of
from intarsia_loops._text import buffer_type, item_text, origins_text
from intarsia_loops.index import Atom, row_major
from intarsia_loops.launches import (
    Blocks,
    ExpSum,
    Finish,
    Launches,
    LaunchPlan,
    Loop,
    Shift,
    SquareSum,
    Walk,
)
from intarsia_loops.program import Buffer, Kernel, Nest, Program, Val
from intarsia_loops.tiles.walks.parse import WalkParser
from intarsia_loops.tiles.walks.text import axes_text, target_line, value_lines, walk_lines
from intarsia_loops.vectors.walks import VectorWalk

__all__ = ["HEADER", "launches_lines", "parse_launches"]

HEADER = "// launches 1"


def launches_lines(launches: Launches) -> Iterator[str]:
    """Yield the lines of launches; those of the program that they are of are the kernels dialect's."""
    yield HEADER
    yield target_line(launches.target)
    yield f"kernels {launches.n_kernels}"
    for name, buffer in launches.scratch.items():
        yield f"{'counters' if name == launches.counters else 'scratch'} %{name}: {buffer_type(buffer)}"
    functions: dict[object, int] = {}
    for plan in launches.launches:
        yield from _launch(plan, functions.setdefault(plan.key, len(functions)))


def parse_launches(text: str, program: Program, *, line: int = 0) -> Launches:
    """Return the launches whose lines are `text`.

    Args:
        text: What `launches_lines` gives.
        program: The kernels program that they are of.
        line: Lines before it in what the user wrote.

    Raises:
        InvalidArgumentError: The text is not of this form, with the line where it departs from it.
    """
    head, _, rest = text.partition("\n")
    if head != HEADER:
        fail(f"expected the header {HEADER!r}, found {head!r}", line + 1)
    parser = _LaunchParser(tokens_of(rest, line + 1), {})
    parser.facts = program.facts
    return parser.launches(program)


# ---- writing ----------------------------------------------------------------------------------------------------


def _inside(lines: Iterable[str]) -> Iterator[str]:
    yield from ("  " + line for line in lines)


def _names(names: Iterable[str]) -> str:
    return f"({', '.join(f'%{n}' for n in names)})"


def _launch(plan: LaunchPlan, function: int) -> Iterator[str]:
    text = f"launch {', '.join(map(_names, plan.sets))} items {plan.items[0]} {plan.items[1]}"
    text += (f" chunk {plan.chunk}" if plan.chunk else "") + ("" if plan.initial else " partial")
    yield f"{text} as {function} {{{origins_text(plan.origins)}"
    yield from (f"  layout %{name}: {buffer_type(buffer)}" for name, buffer in plan.layouts.items())
    yield from (f"  assert %{name} {said!r}" for name, said in plan.asserts)
    yield from _inside(_walked(plan.kernel, plan.walk, plan.layouts))
    if plan.finish is not None:
        f = plan.finish
        yield f"  finish {f.modulus} {f.width} arrivals {f.arrivals} counters {f.counters} {{"
        yield from _inside(_inside(_walked(f.kernel, f.walk, plan.layouts)))
        yield "  }"
    yield "}"


def _walked(kernel: Kernel, walk: Walk | VectorWalk | None, layouts: Mapping[str, Buffer]) -> Iterator[str]:
    """Yield a kernel, and how it is walked."""
    known = {**{s.out: _inner_layout(s) for s in kernel.steps}, **layouts}
    yield from item_text(kernel, known).splitlines()
    if isinstance(walk, VectorWalk):
        yield from walk_lines(walk)
    elif walk is not None:
        yield from _grid(walk, known)


def _inner_layout(nest: Nest) -> Buffer:
    """Return what reads back as a nest's type where its output has no layout."""
    shape = tuple(a.extent for a in nest.axes)
    return Buffer(shape, row_major(shape), nest.dtype)


def _grid(walk: Walk, layouts: Mapping[str, Buffer]) -> Iterator[str]:
    b = walk.blocks
    text = f"grid {walk.kind} ({axes_text(walk.rows)}) tile {b.rows} x {b.inner} warps {b.warps}"
    text += (" persistent" if b.persistent else "") + (f" parts {b.parts}" if b.parts != 1 else "")
    text += f" inner ({axes_text(walk.inner)})" if walk.inner else ""
    yield text + (f" weights {_names(sorted(walk.weights))}" if walk.weights else "") + " {"
    for loop in walk.loops:
        yield from _inside(_loop(loop, layouts))
    yield "}"


def _loop(loop: Loop, layouts: Mapping[str, Buffer]) -> Iterator[str]:
    text = f"loop ({axes_text(loop.inner)})" + (" back" if loop.back else "")
    text += f" shift {loop.shift.points} from {loop.shift.start!r}" if loop.shift is not None else ""
    text += "".join(f" keep %{name} {how}" for name, how in loop.keep)
    yield text + (f" by_tile {_names(sorted(loop.by_tile))}" if loop.by_tile else "") + " {"
    for step in loop.steps:
        yield from _inside(_step(step, layouts))
    for e in loop.sums:
        yield f"  exponentials %{e.top}"
        yield from _inside(_inside(_step(e.step, layouts)))
        yield from _inside(_inside([*_value("of", e.exponent), *_value("from", e.shift)]))
    for q in loop.squares:
        yield "  squares"
        yield from _inside(_inside(_step(q.step, layouts)))
        yield from _inside(_inside([*_value("of", q.value), *_value("from", q.shift)]))
    yield "}"


def _step(nest: Nest, layouts: Mapping[str, Buffer]) -> list[str]:
    return item_text(nest, {nest.out: _inner_layout(nest), **layouts}).splitlines()


def _value(word: str, value: Val) -> list[str]:
    return f"{word} {value_lines(value)}".splitlines()


# ---- reading ----------------------------------------------------------------------------------------------------


class _LaunchParser(WalkParser):
    """Adds launches, and walks of grids."""

    def launches(self, program: Program) -> Launches:
        target = self.read_target()
        self.expect("kernels")
        n_kernels, counters = self.integer(), ""
        while self.peek().text in ("scratch", "counters"):
            word = self.take().text
            name = self.typed_buffer()
            counters = name if word == "counters" else counters
        scratch, found = MappingProxyType(self.buffers), list[LaunchPlan]()
        while self.accept("launch"):
            found.append(self._launch())
        if self.peek().kind != "end":
            fail(f"{self.peek().text!r} after the end of the launches", self.peek().line)
        return Launches(program, target, tuple(found), n_kernels, scratch, counters)

    def _launch(self) -> LaunchPlan:
        sets = [self.names_in_brackets()]
        while self.accept(","):
            sets.append(self.names_in_brackets())
        self.expect("items")
        items = (self.integer(), self.integer())
        chunk = self.integer() if self.accept("chunk") else 0
        initial = not self.accept("partial")
        self.expect("as")
        function = self.integer()
        self.expect("{")
        origins = self.origins()
        self.buffers = {}
        while self.accept("layout"):
            self.typed_buffer()
        layouts = MappingProxyType(dict(self.buffers))
        asserts = []
        while self.accept("assert"):
            asserts.append((self.kind("buffer")[1:], self.string()))
        kernel, walk = self._walked(layouts)
        finish = self._finish(layouts) if self.accept("finish") else None
        self.expect("}")
        return LaunchPlan(
            kernel, walk, layouts, tuple(sets), items, tuple(asserts), finish, chunk, initial, function, origins
        )

    def _walked(self, layouts: Mapping[str, Buffer]) -> tuple[Kernel, Walk | VectorWalk | None]:
        self.expect("kernel")
        self.buffers = dict(layouts)
        kernel = self._kernel()
        if self.accept("walk"):
            return kernel, self.read_walk()
        return kernel, self._grid() if self.accept("grid") else None

    def _finish(self, layouts: Mapping[str, Buffer]) -> Finish:
        modulus, width = self.integer(), self.integer()
        self.expect("arrivals")
        arrivals = self.integer()
        self.expect("counters")
        counters = self.integer()
        self.expect("{")
        token = self.peek()
        kernel, walk = self._walked(layouts)
        if not isinstance(walk, Walk):
            fail("what finishes a launch has a `grid`", token.line)
        self.expect("}")
        return Finish(kernel, walk, modulus, width, arrivals, counters)

    def _grid(self) -> Walk:
        kind, rows = self.kind("name"), self.loops()
        self.expect("tile")
        height = self.integer()
        self.expect("x")
        inner_points = self.integer()
        self.expect("warps")
        warps, persistent = self.integer(), self.accept("persistent")
        parts = self.integer() if self.accept("parts") else 1
        inner = self.loops() if self.accept("inner") else ()
        weights = self.names_in_brackets() if self.accept("weights") else ()
        self.expect("{")
        loops = []
        while self.accept("loop"):
            loops.append(self._loop_of(rows))
        self.expect("}")
        blocks = Blocks(height, inner_points, warps, persistent, parts)
        return Walk(kind, rows, blocks, inner, tuple(loops), frozenset(weights))

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
        return Loop(inner, tuple(steps), tuple(sums), tuple(squares), shift, back, tuple(keep), frozenset(by_tile))

    def _nest_of(self) -> Nest:
        name = self.typed_buffer()
        self.expect("=")
        return self._nest(name)

    def _relative(self, step: Nest, around: Mapping[str, Atom]) -> tuple[Val, Val]:
        """Read what a sum is of and what that is relative to."""
        found = list[Val]()
        for word in ("of", "from"):
            self.expect(word)
            self.axes = {**{a.key: a for a in (*step.axes, *step.red)}, **around}
            found.append(self.whole())
        return found[0], found[1]
