"""Tile programs as text and back.

    // dialect: tiles 5
    target cpu 'avx2' 'g++' threads 8
    graph(%x: f32[4096, 1003]) {
      buffer %y: f32[4096, 1003]
      launch softmax(%x, %y) i64 {
        for i: 4096 threads {
          acc %m: max f32 per (u, l)
          for j: 1003 unroll u 4 lanes l 8 ends mask {
            fold %m load(%x, j + 1003*i)
          }
          take %M = %m tree
          ...
        }
      }
      return (%y,)
    }

A loop names its variable with its extent; `from .. to` follows where the range is another one, of which more than one
end means the least. A number is `reg %v = value`, an array `hold %e: type space`. A value that is used more than once
in a statement is named in a block, as in the loops dialect, and so are buffers, types, extern calls and facts written.
Walks of vectors and threads are in `walks.text`, those of grids in `grids.text`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch

from intarsia_ir.fact_text import fact_lines
from intarsia_ir.origin_text import OriginTable, OriginWriter
from intarsia_loops._text import (
    argument_text,
    buffer_type,
    head_lines,
    item_lines,
    placement_lines,
)
from intarsia_loops.index import ZERO
from intarsia_loops.program import Extern, Program, Val
from intarsia_loops.tiles._parse import parse_tiles
from intarsia_loops.tiles.grids.text import grid_lines
from intarsia_loops.tiles.program import (
    SCHEMA,
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
)
from intarsia_loops.tiles.walks.text import target_line, value_lines, walk_lines

__all__ = ["launch_lines", "parse_ir", "print_ir", "simple_text"]

_IN_FULL = OriginWriter()


def print_ir(tiles: Tiles, *, made_by: str = "") -> str:
    """Return the text of a tile program.

    Args:
        tiles: The program.
        made_by: For the header: how the program was made.
    """
    shell = Program(
        tiles.buffers, tiles.inputs, (), tiles.outputs, tiles.facts, tiles.placement, tiles.constants
    )  # fmt: skip
    head = f"// dialect: tiles {SCHEMA}"
    lines = [f"{head}          made by: {made_by}" if made_by else head, target_line(tiles.target)]
    origins = OriginTable()
    lines += [*fact_lines(shell.facts, origins.comment), *head_lines(shell)]
    written = {name for item in tiles.items if isinstance(item, Extern) for name in item.outs}
    for name, buffer in tiles.buffers.items():
        if name not in written and name not in tiles.inputs and name not in tiles.constants:
            lines.append(f"  {'scratch' if name in tiles.scratch else 'buffer'} %{name}: {buffer_type(buffer)}")
    for item in tiles.items:
        if isinstance(item, Extern):
            text: Iterable[str] = item_lines(item, tiles.buffers, origins)
        else:
            text = launch_lines(item, origins)
        lines += ["  " + line for line in text]
    returned = [argument_text(v, tiles.buffers) for v in tiles.outputs]
    lines += [f"  return ({', '.join(returned)}{',' if len(returned) == 1 else ''})", "}", *placement_lines(shell)]
    lines += origins.lines()
    return "\n".join(lines) + "\n"


def parse_ir(text: str, *, constants: Mapping[str, torch.Tensor] | None = None) -> Tiles:
    """Return the tile program with this text; `parse_ir(print_ir(tiles))` is the same program.

    Args:
        text: What `print_ir` gives.
        constants: Tensor of every constant; the text has only their types.

    Raises:
        InvalidArgumentError: The text is not of this form, with the line where it departs from it.
    """
    return parse_tiles(text, constants)


def launch_lines(launch: Launch, origins: OriginWriter = _IN_FULL) -> Iterator[str]:
    """Yield the text of a launch; works on broken programs too."""
    yield from origins.group(launch.origins)
    text = f"launch {launch.name}({_names(launch.params)})"
    if launch.sets != (launch.params,):
        text += " sets " + ", ".join(f"({_names(s)})" for s in launch.sets)
    text += f" {launch.width}" + (f" warps {launch.warps}" if launch.warps else "")
    yield f"{text} {{" + origins.comment(launch.origins)
    yield from _inside(launch.body)
    yield "}"


def _names(names: Sequence[str]) -> str:
    return ", ".join(f"%{n}" for n in names)


def _inside(body: Sequence[Statement]) -> Iterator[str]:
    for s in body:
        for line in _statement(s):
            yield "  " + line


def _statement(s: Statement) -> Iterator[str]:
    match s:
        case For():
            yield _for(s)
            yield from _inside(s.body)
            yield "}"
        case If():
            yield f"if {s.left!r} {s.relation} {s.right!r} {{"
            yield from _inside(s.then)
            if s.orelse:
                yield "} else {"
                yield from _inside(s.orelse)
            yield "}"
        case Last():
            yield f"last %{s.counter}[{s.group!r}] of {s.arrivals} {{"
            yield from _inside(s.body)
            yield "}"
        case VectorWalk():
            yield from walk_lines(s)
        case GridWalk():
            yield from grid_lines(s)
        case _:
            yield from simple_text(s).splitlines()


def _for(s: For) -> str:
    text = f"for {s.axis.key}: {s.axis.extent!r}"
    if s.low is not ZERO or s.high != (s.axis.extent,):
        text += f" from {s.low!r} to {', '.join(map(repr, s.high))}"
    if s.across != "serial":
        text += f" {s.across}" + (f" {s.dim}" if s.across == "program" else "")
    text += "".join(f" {b.kind} {b.name} {b.size}" for b in s.binds)
    if s.ends != "none":
        text += f" ends {s.ends}"
    if s.align:
        text += f" {s.align}" + (f" at {s.start!r}" if s.start is not None else "")
    return text + (" back" if s.back else "") + (f" hint {s.hint!r}" if s.hint else "") + " {"


def simple_text(s: Statement) -> str:
    """Text of a statement without others in it."""
    match s:
        case Hold(value=None):
            pad = f" pad {s.pad}" if s.pad else ""
            return f"hold %{s.name}: {s.dtype}[{', '.join(map(repr, s.shape))}] {s.space}{pad}"
        case Hold():
            return f"reg %{s.name} = {value_lines(s.value)}" if s.value is not None else ""
        case Put():
            return f"put %{s.target}[{', '.join(map(repr, s.index))}] = {value_lines(s.value)}{_when(s.when)}"
        case Acc():
            per = f" per ({', '.join(s.per)})" if s.per else ""
            return f"acc %{s.name}: {s.monoid} {s.dtype}{per}"
        case Fold():
            return f"fold %{s.acc} {', '.join(map(value_lines, s.values))}{_when(s.when)}"
        case Run():
            return f"run %{s.name} = %{s.acc} {', '.join(map(value_lines, s.values))}"
        case Take():
            return f"take {_names(s.names)} = %{s.acc}{f' {s.order}' if s.order != 'in order' else ''}"
        case Update():
            place = f"[{value_lines(s.place)}]" if isinstance(s.place, Val) else repr(s.place)
            axes_text = f" own ({', '.join(f'{a.key}' for a in s.own)})" if s.own else ""
            return f"update %{s.buffer}[{place}] {s.monoid} = {value_lines(s.value)} {s.how}{axes_text}"
        case Turn():
            return f"turn %{s.name}"
        case Check():
            return f"check {value_lines(s.value)} {s.text!r}"
    raise AssertionError(s)


def _when(condition: Val | None) -> str:
    return f" when {value_lines(condition)}" if condition is not None else ""
