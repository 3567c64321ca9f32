"""Launches as text and back: all of them, so that what prints kernels runs from a file.

    // launches 3
    target cpu 'avx2' 'g++' threads 8
    kernels 1
    scratch %part0: f32[64, 4]
    arena 1024 bytes, at least 1024, %part0 at 0
    launch (%x, %y) items 0 1 as 0 {  #3 sum
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
layouts, the kernel, and how that is walked: `grid` as in `tiles.grids.text`, `walk` as in
`tiles.walks.text`. What stays inside a kernel has no layout; where a nest makes it, its type is that of its axes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from intarsia_ir.origin_text import NO_PLACES, OriginWriter, Places
from intarsia_loops._text import buffer_type, item_lines, placement_lines
from intarsia_loops._tokens import fail, tokens_of
from intarsia_loops.grid import GridWalk
from intarsia_loops.launches import Finish, Launches, LaunchPlan, Walk
from intarsia_loops.program import Buffer, Kernel, Program
from intarsia_loops.tiles.grids.parse import GridParser
from intarsia_loops.tiles.grids.text import grid_lines, inner_layout
from intarsia_loops.tiles.walks.text import target_line, walk_lines
from intarsia_loops.vectors.walks import VectorWalk

__all__ = ["HEADER", "launches_lines", "parse_launches"]

HEADER = "// launches 3"


def launches_lines(launches: Launches, origins: OriginWriter | None = None) -> Iterator[str]:
    """Yield the lines of launches, the memory plan among them; those of their program are the kernels dialect's.

    Args:
        launches: The launches.
        origins: Writes the user's lines, in a value that has them in its footer; in whole when left out.
    """
    origins = origins or OriginWriter()
    yield HEADER
    yield target_line(launches.target)
    yield f"kernels {launches.n_kernels}"
    for name, buffer in launches.scratch.items():
        yield f"{'counters' if name == launches.counters else 'scratch'} %{name}: {buffer_type(buffer)}"
    yield from placement_lines(launches.program)
    functions: dict[object, int] = {}
    for plan in launches.launches:
        yield from _launch(plan, functions.setdefault(plan.key, len(functions)), origins)


def parse_launches(text: str, program: Program, *, line: int = 0, places: Places = NO_PLACES) -> Launches:
    """Return the launches whose lines are `text`.

    Args:
        text: What `launches_lines` gives.
        program: The kernels program that they are of.
        line: Lines before it in what the user wrote.
        places: What numbers of lines stand for: they are in the footer of the value.

    Raises:
        InvalidArgumentError: The text is not of this form, with the line where it departs from it.
    """
    head, _, rest = text.partition("\n")
    if head != HEADER:
        fail(f"expected the header {HEADER!r}, found {head!r}", line + 1)
    parser = _LaunchParser(tokens_of(rest, line + 1), {}, places)
    parser.facts = program.facts
    return parser.launches(program)


# ---- writing ----------------------------------------------------------------------------------------------------


def _inside(lines: Iterable[str]) -> Iterator[str]:
    yield from ("  " + line for line in lines)


def _names(names: Iterable[str]) -> str:
    return f"({', '.join(f'%{n}' for n in names)})"


def _launch(plan: LaunchPlan, function: int, origins: OriginWriter) -> Iterator[str]:
    yield from origins.group(plan.origins)
    text = f"launch {', '.join(map(_names, plan.sets))} items {plan.items[0]} {plan.items[1]}"
    text += (f" chunk {plan.chunk}" if plan.chunk else "") + ("" if plan.initial else " partial")
    yield f"{text} as {function} {{{origins.comment(plan.origins)}"
    yield from (f"  layout %{name}: {buffer_type(buffer)}" for name, buffer in plan.layouts.items())
    yield from (f"  assert %{name} {said!r}" for name, said in plan.asserts)
    yield from _inside(_walked(plan.kernel, plan.walk, plan.layouts, origins))
    if plan.finish is not None:
        f = plan.finish
        yield f"  finish {f.modulus} {f.width} arrivals {f.arrivals} counters {f.counters} {{"
        yield from _inside(_inside(_walked(f.kernel, f.walk, plan.layouts, origins)))
        yield "  }"
    yield "}"


def _walked(
    kernel: Kernel, walk: Walk | VectorWalk | None, layouts: Mapping[str, Buffer], origins: OriginWriter
) -> Iterator[str]:
    """Yield a kernel, and how it is walked."""
    inner = {**{s.out: inner_layout(s) for s in kernel.steps}, **layouts}
    yield from item_lines(kernel, inner, origins)
    if isinstance(walk, VectorWalk):
        yield from walk_lines(walk)
    elif walk is not None:
        yield from grid_lines(GridWalk(walk), inner)


# ---- reading ----------------------------------------------------------------------------------------------------


class _LaunchParser(GridParser):
    """Adds launches."""

    def launches(self, program: Program) -> Launches:
        target = self.read_target()
        self.expect("kernels")
        n_kernels, counters = self.integer(), ""
        while self.peek().text in ("scratch", "counters"):
            word = self.take().text
            name = self.typed_buffer()
            counters = name if word == "counters" else counters
        scratch, plans = MappingProxyType(self.buffers), list[LaunchPlan]()
        program = replace(program, placement=self.read_placement())
        while self.accept("launch"):
            plans.append(self._launch())
        if self.peek().kind != "end":
            fail(f"{self.peek().text!r} after the end of the launches", self.peek().line)
        return Launches(program, target, tuple(plans), n_kernels, scratch, counters)

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
        return kernel, self.read_grid().walk if self.accept("grid") else None

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
