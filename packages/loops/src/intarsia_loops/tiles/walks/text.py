"""Walks of vectors and threads as text.

    walk %b3 {
      rows lanes 8 (i0: 64) share 2 of 6400 {
        array %b2: f32[100]@(1) kept
        nest shared (r0: 100) unroll 4 {
          %b1: f32 local max (; r0: 100) [0] = load(%b0, 100*i0 + r0)
        }
        ...
      }
    }

A part names its loops with their extents. A step has its kind with its inner axes and, after `;`, those that are
reduced or scanned, and says where its value goes: an element number of memory or of the row's array. A search says the
type in which it counts, and the number of a point. Parts that compute each value at each point are `unhoisted`, those
that read elements which lie apart one by one are `ungathered`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields

from intarsia_ir.records import Machine, Target
from intarsia_loops._text import shared_values, value_with
from intarsia_loops.index import Atom
from intarsia_loops.program import Val
from intarsia_loops.vectors.steps import Step
from intarsia_loops.vectors.walks import Inner, Manner, Maps, Part, Points, Rows, Share, VectorWalk

__all__ = ["axes_text", "target_line", "value_lines", "walk_lines"]


def target_line(target: Target) -> str:
    """Return the line that names a target."""
    text = f"target {target.device} {target.isa!r} {target.compiler!r} threads {target.threads}"
    if target.measured is None:
        return text
    numbers = ", ".join(f"{f.name}={getattr(target.measured, f.name)!r}" for f in fields(Machine))
    return f"{text} measured({numbers})"


def walk_lines(walk: VectorWalk) -> Iterator[str]:
    """Yield the lines of a walk."""
    outs = ", ".join(f"%{b}" for b in walk.outs)
    yield f"walk {outs} {{"
    for part in walk.parts:
        yield from _inside(_part(part))
    yield "}"


def value_lines(body: Val) -> str:
    """Return the text of a value; what is used more than once is named, in a block."""
    names, lines = shared_values(body)
    last = value_with(body, names)
    return "\n".join(["{", *(f"  {line}" for line in lines), f"  {last}", "}"]) if lines else last


def _inside(lines: Iterable[str]) -> Iterator[str]:
    yield from ("  " + line for line in lines)


def axes_text(axes: Sequence[Atom]) -> str:
    """Return axes with their extents."""
    return ", ".join(f"{a.key}: {a.extent!r}" for a in axes)


def _share(share: Share | None) -> str:
    if share is None:
        return ""
    return f" share {share.threads} of {share.points!r}" + (f" from {share.least}" if share.least else "")


def _manner(manner: Manner) -> str:
    return ("" if manner.hoist else " unhoisted") + ("" if manner.gather else " ungathered")


def _part(part: Part) -> Iterator[str]:
    match part:
        case Maps():
            yield from _maps(part)
        case Rows():
            yield from _rows(part)
        case Points():
            yield from _points(part)


def _maps(part: Maps) -> Iterator[str]:
    pieces = f" pieces {part.pieces}" if part.pieces else ""
    yield f"maps lanes {part.lanes} ({axes_text(part.loops)}){_manner(part.manner)}{pieces}{_share(part.share)} {{"
    if part.tiling is not None:
        t = part.tiling
        operands = ", ".join([*map(value_lines, t.loads), *(f"%{b}" for b in t.stores)])
        yield f"  transpose {t.across.key} in {t.square} ({operands})"
    for step in part.steps:
        yield from _inside(_step(step))
    yield "}"


def _rows(part: Rows) -> Iterator[str]:
    text = f"rows lanes {part.lanes} ({axes_text(part.rows)}){_manner(part.manner)}"
    if part.block is not None:
        text += f" block {part.block.position} of {part.block.width} from {axes_text([part.block.start])}"
    text += (" heap" if part.heap else "") + (f" threads {part.threads}" if part.threads != 1 else "")
    yield f"{text}{_share(part.share)} {{"
    for name, array in part.arrays.items():
        sizes, strides = (", ".join(map(repr, e)) for e in (array.shape, array.strides))
        yield f"  array %{name}: {array.dtype}[{sizes}]@({strides})" + (" kept" if name in part.stored else "")
    for inner in part.inner:
        yield from _inside(_nest(inner))
    yield "}"


def _nest(inner: Inner) -> Iterator[str]:
    text = f"nest {inner.kind} ({axes_text(inner.loops)})" + (f" at ({axes_text(inner.outer)})" if inner.outer else "")
    text += f" unroll {inner.unroll}" if inner.unroll != 1 else ""
    if inner.chain or inner.length or inner.cut:
        text += f" chain {inner.chain} of {inner.length}" + (" cut" if inner.cut else "")
    text += f" parts {inner.parts}" if inner.parts != 1 else ""
    text += f" carry {inner.carry}" if inner.carry != "plain" else ""
    yield f"{text}{_share(inner.share)} {{"
    for step in inner.steps:
        yield from _inside(_step(step))
    yield "}"


def _points(part: Points) -> Iterator[str]:
    text = f"points lanes {part.lanes} ({axes_text(part.loops)}){_manner(part.manner)} along {axes_text([part.lane])}"
    text += (" neighbours" if part.neighbours else "") + (f" threads {part.threads}" if part.threads != 1 else "")
    text += f" split {axes_text([part.split])}" if part.split is not None else ""
    yield f"{text}{_share(part.share)} {{"
    yield from _inside(_step(part.step))
    yield from f"  value {value_lines(part.value)}".splitlines()
    if part.moving is not None:
        yield from f"  moving {value_lines(part.moving)}".splitlines()
    yield f"  fixed {part.fixed!r}"
    yield "}"


def _step(step: Step) -> list[str]:
    where = "memory" if step.in_memory else "local"
    red = f"; {axes_text(step.red)}" if step.red else ""
    position = f" number {step.counted} {step.position!r}" if step.kind in ("argmax", "argmin") else ""
    head = f"%{step.out}: {step.dtype} {where} {step.kind} ({axes_text(step.inner)}{red}) [{step.address!r}]{position}"
    return f"{head} = {value_lines(step.body)}".splitlines()
