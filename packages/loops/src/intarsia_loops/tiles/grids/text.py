"""Walks of grids as text.

    grid rows (i0: 64) tile 1 x 128 warps 4 persistent local (%b2) {
      layout %b0: f32[64, 100]
      layout %b1: f32[64, 100]
      loop (r0: 100) {
        %b2: f32[64] = max[i0: 64; r0: 100] load(%b0, i0, r0)
      }
      loop (i1: 100) {
        %b1: f32[64, 100] = map[i0: 64, i1: 100] sub(load(%b0, i0, i1), load(%b2, i0))
      }
    }

The axes of rows, then the tile, rows by points; what is `local` is in no memory; `i64` where numbers have 64 bits. A
loop names the axes that it walks; its steps are nests, and what has no layout is of the type of its own axes. What a
launch asserts comes before its loops, and what its last programs do after them, as `last of 512 at 8 1 { grid ... }`:
the programs of a group, the modulus and the width of its number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from intarsia_loops._text import buffer_type, item_text
from intarsia_loops.grid import GridWalk
from intarsia_loops.index import row_major
from intarsia_loops.launches import Loop, Walk
from intarsia_loops.program import Buffer, Nest, Val
from intarsia_loops.tiles.walks.text import axes_text, value_lines

__all__ = ["grid_lines", "inner_layout"]

NOTHING: Mapping[str, Buffer] = MappingProxyType({})


def grid_lines(given: GridWalk, known: Mapping[str, Buffer] = NOTHING) -> Iterator[str]:
    """Yield the lines of a grid's walk.

    Args:
        given: The walk.
        known: Layouts that were written before.
    """
    layouts = {**known, **dict(given.layouts)}
    yield _head(given.walk, given) + " {"
    yield from (f"  layout %{name}: {buffer_type(buffer)}" for name, buffer in given.layouts)
    yield from (f"  assert %{name} {said!r}" for name, said in given.asserts)
    for loop in given.walk.loops:
        yield from _inside(_loop(loop, layouts))
    if given.ending is not None:
        e = given.ending
        yield f"  last of {e.arrivals} at {e.modulus} {e.width} {{"
        yield from _inside(_inside(grid_lines(e.walk, layouts)))
        yield "  }"
    yield "}"


def inner_layout(nest: Nest) -> Buffer:
    """Return what reads back as a nest's type where its output has no layout."""
    shape = tuple(a.extent for a in nest.axes)
    return Buffer(shape, row_major(shape), nest.dtype)


def _head(walk: Walk, given: GridWalk) -> str:
    b = walk.blocks
    text = f"grid {walk.kind} ({axes_text(walk.rows)}) tile {b.rows} x {b.inner} warps {b.warps}"
    text += f" stages {b.stages}" if b.stages != 1 else ""
    text += (" persistent" if b.persistent else "") + (f" parts {b.parts}" if b.parts != 1 else "")
    text += (" i64" if walk.wide else "") + (f" inner ({axes_text(walk.inner)})" if walk.inner else "")
    text += f" weights {_names(sorted(walk.weights))}" if walk.weights else ""
    text += f" local {_names(sorted(given.local))}" if given.local else ""
    return text + (f" chunk {given.chunk}" if given.chunk else "")


def _inside(lines: Iterable[str]) -> Iterator[str]:
    yield from ("  " + line for line in lines)


def _names(names: Iterable[str]) -> str:
    return f"({', '.join(f'%{n}' for n in names)})"


def _loop(loop: Loop, layouts: Mapping[str, Buffer]) -> Iterator[str]:
    text = f"loop ({axes_text(loop.inner)})" + (" back" if loop.back else "")
    text += f" shift {loop.shift.points} from {loop.shift.start!r}" if loop.shift is not None else ""
    text += "".join(f" keep %{name} {how}" for name, how in loop.keep)
    text += f" by_tile {_names(sorted(loop.by_tile))}" if loop.by_tile else ""
    same = [a.key for a in loop.inner if a in loop.by_part]
    yield text + (f" by_part ({', '.join(same)})" if same else "") + " {"
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
    return item_text(nest, {nest.out: inner_layout(nest), **layouts}).splitlines()


def _value(word: str, value: Val) -> list[str]:
    return f"{word} {value_lines(value)}".splitlines()
