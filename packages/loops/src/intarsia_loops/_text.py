"""Programs as text: what both dialects share of printing.

    // dialect: loops 2          made by: lower(aten)
    symbol s0 in [2, 4096] from 'x.size(0)' hint 7
    graph(%x: f32[s0, 128]) {
      # model.py:12 in forward
      %m: f32[s0] = max[i0: s0; r0: 128] load(%x, i0, r0)  #12 softmax
      %y: f32[s0, 128] = map[i0: s0, i1: 128] {
        t0 = sub(load(%x, i0, i1), load(%m, i0))
        mul(t0, t0)
      }
      %z: f32[128, s0] = extern aten.t_copy.default(%y)
      return (view(%z, f32[4]@(2)+1),)
    }
    origins
      1 model.py
        forward: 12

A type is an element type, sizes in [], strides after @ unless row-major, an offset after +, a device after `on`
unless it is the CPU. A nest names its axes with their extents, reduced (or scanned) ones after `;`. A value used more
than once is named t0, t1, ... . A constant is written as a conversion of a number: `f32(1.0)`. In the arguments of an
extern call a tensor is `%x`, or `view(%x, type)` with sizes, strides and offset; a size expression, or a comparison of
two, is in backquotes. The user's lines are as in `intarsia_ir.origin_text`.
A result without a `%` is a number, and a size symbol from there on.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from intarsia_ir.dtypes import DTYPE_NAMES
from intarsia_ir.errors import UnsupportedError
from intarsia_ir.fact_text import fact_lines
from intarsia_ir.origin_text import OriginTable, OriginWriter
from intarsia_loops._subgraphs import target_text
from intarsia_loops.called import Called, KernelCall
from intarsia_loops.index import ZERO, Atom, IndexExpr, row_major
from intarsia_loops.program import SCHEMA, Buffer, Condition, Extern, Item, Kernel, Nest, Program, TensorRef, Val
from intarsia_loops.rewrites import operands, postorder

__all__ = [
    "argument_text",
    "buffer_type",
    "head_lines",
    "item_lines",
    "item_text",
    "program_lines",
    "program_text",
    "shared_values",
    "value_text",
    "value_with",
]

_IN_FULL = OriginWriter()


def program_text(program: Program | Called, dialect: str, made_by: str = "") -> str:
    """Return the text of a program, ending in a newline."""
    origins = OriginTable()
    lines = program_lines(program, dialect, origins, made_by)
    return "\n".join([*lines, *origins.lines()]) + "\n"


def program_lines(program: Program | Called, dialect: str, origins: OriginWriter, made_by: str = "") -> list[str]:
    """Return the lines of a program before its footer, the part of them that a value shares with what is beside it."""
    head = f"// dialect: {dialect} {SCHEMA}"
    lines = [f"{head}          made by: {made_by}" if made_by else head]
    lines += fact_lines(program.facts, origins.comment)
    lines += head_lines(program)
    for item in program.items:
        lines += ["  " + line for line in item_lines(item, program.buffers, origins)]
    returned = [argument_text(v, program.buffers) for v in program.outputs]
    lines.append(f"  return ({', '.join(returned)}{',' if len(returned) == 1 else ''})")
    return [*lines, "}", *placement_lines(program)]


def placement_lines(program: Program | Called) -> list[str]:
    """Return the line about a program's memory, if that is planned."""
    p = program.placement
    if p is None:
        return []
    places = "".join(f", %{name} at {offset}" for name, offset in p.offsets.items())
    return [f"arena {p.arena_bytes} bytes, at least {p.lower_bound_bytes}{places}"]


def head_lines(program: Program | Called) -> list[str]:
    texts = []
    for name in program.inputs:
        buffer = program.buffers.get(name)
        texts.append(f"%{name}: {buffer_type(buffer)}" if buffer is not None else name)
    texts += [f"constant %{name}: {buffer_type(program.buffers[name])}" for name in program.constants]
    line = f"graph({', '.join(texts)}) {{"
    return [line] if len(line) <= 120 else ["graph(", *[f"    {text}," for text in texts], ") {"]


# ---- types --------------------------------------------------------------------------------------------------


def buffer_type(buffer: Buffer | None) -> str:
    return _type(buffer.dtype, buffer.shape, buffer.strides, ZERO, buffer.device) if buffer is not None else "?"


def _type(
    dtype: str, shape: Sequence[IndexExpr], strides: Sequence[IndexExpr], offset: IndexExpr, device: str = "cpu"
) -> str:
    text = f"{dtype}[{', '.join(map(repr, shape))}]"
    if tuple(strides) != row_major(shape):
        text += f"@({', '.join(map(repr, strides))})"
    if offset is not ZERO:
        text += f"+({offset!r})"
    return text if device == "cpu" else f"{text} on {device!r}"


# ---- items --------------------------------------------------------------------------------------------------


def item_text(item: Item | KernelCall, buffers: Mapping[str, Buffer]) -> str:
    """Return the text of one item, without indentation; works on broken programs too."""
    return "\n".join(item_lines(item, buffers, _IN_FULL))


def item_lines(item: Item | KernelCall, buffers: Mapping[str, Buffer], origins: OriginWriter) -> list[str]:
    """Return the lines of one item, with the comments of groups that begin in it."""
    if isinstance(item, Kernel):
        lines = [f"kernel[{_axes(item.rows)}] {{"]
        for step in item.steps:
            prefix = "local " if step.out in item.local else ""
            lines += ["  " + line for line in (*origins.group(step.origins), *_nest(step, buffers, prefix, origins))]
        return [*lines, "}"]
    group = origins.group(item.origins)
    if isinstance(item, Extern):
        return [*group, *_extern(item, buffers, origins).splitlines()]
    if isinstance(item, Nest):
        return [*group, *_nest(item, buffers, "", origins)]
    outs = ", ".join(f"%{name}: {buffer_type(buffers.get(name))}" for name in item.outs)
    operands = ", ".join(f"%{name}" for name in item.operands)
    return [*group, f"{outs} = kernel({operands}){origins.comment(item.origins)}"]


def _nest(nest: Nest, buffers: Mapping[str, Buffer], prefix: str, origins: OriginWriter) -> list[str]:
    head = f"{prefix}%{nest.out}: {buffer_type(buffers.get(nest.out))} = {nest.kind}[{_axes(nest.axes)}"
    head += f"; {_axes(nest.red)}] " if nest.red else "] "
    names, lines = shared_values(nest.body)
    last, where = value_with(nest.body, names), origins.comment(nest.origins)
    if not lines:
        return [head + last + where]
    return [head + "{" + where, *[f"  {line}" for line in lines], f"  {last}", "}"]


def _axes(axes: Iterable[Atom]) -> str:
    return ", ".join(f"{a.key}: {a.extent!r}" for a in axes)


def shared_values(body: Val) -> tuple[dict[Val, str], list[str]]:
    """Names of the values that are used more than once, and the lines that define them."""
    uses: Counter[Val] = Counter()
    order = list(postorder(body))
    for v in order:
        uses.update(operands(v))
    names: dict[Val, str] = {}
    lines = []
    for v in order:
        if uses[v] > 1 and operands(v):
            text = value_with(v, names)
            names[v] = f"t{len(names)}"
            lines.append(f"{names[v]} = {text}")
    return names, lines


def value_text(v: Val) -> str:
    """Return the text of a value on one line; what is used more than once is written out each time."""
    return value_with(v, {})


def value_with(v: Val, names: Mapping[Val, str]) -> str:
    """Text of a value; operands are written out unless they have names. Depth is not limited."""
    done: dict[Val, str] = dict(names)
    for u in postorder(v, names):
        done[u] = _call(u, done)
    return done[v]


def _call(v: Val, done: Mapping[Val, str]) -> str:
    if v.op == "const":
        return f"{v.dtype}({_number(v.args[0])})"
    if v.op == "index":
        return f"index({v.args[0]!r})" if v.dtype == "i64" else f"index({v.args[0]!r}, {v.dtype})"
    if v.op in ("load", "gather"):
        entries = [f"[{done[i]}]" if isinstance(i, Val) else repr(i) for i in v.args[1]]
        return f"{v.op}({', '.join([f'%{v.args[0]}', *entries])})"
    inner = [done[a] if isinstance(a, Val) else repr(a) for a in v.args]
    return f"{v.op}({', '.join([*inner, v.dtype] if v.op == 'cast' else inner)})"


def _number(value: bool | int | float) -> str:
    return "nan" if isinstance(value, float) and math.isnan(value) else repr(value)


# ---- extern calls -------------------------------------------------------------------------------------------


def _extern(item: Extern, buffers: Mapping[str, Buffer], origins: OriginWriter) -> str:
    outs = ", ".join((f"%{o}: {buffer_type(buffers[o])}" if o in buffers else o) if o else "_" for o in item.outs)
    args = [argument_text(a, buffers) for a in item.args]
    args += [f"{k}={argument_text(v, buffers)}" for k, v in item.kwargs]
    target = target_text(item.target, origins)
    return f"{outs}{' ' if outs else ''}= extern {target}({', '.join(args)}){origins.comment(item.origins)}"


def argument_text(value: Any, buffers: Mapping[str, Buffer]) -> str:
    if isinstance(value, TensorRef):
        return _ref(value, buffers)
    if isinstance(value, IndexExpr):
        return f"`{value!r}`"
    if isinstance(value, Condition):
        return f"`{value.left!r} {value.op} {value.right!r}`"
    if isinstance(value, (tuple, list)):
        inner = ", ".join([argument_text(v, buffers) for v in value])
        return f"({inner}{',' if len(value) == 1 else ''})"
    if isinstance(value, torch.dtype) and value in DTYPE_NAMES:
        return DTYPE_NAMES[value]
    if isinstance(value, torch.device):
        return f"device({str(value)!r})"
    if isinstance(value, (torch.layout, torch.memory_format)):
        return str(value)
    if isinstance(value, (bool, int, str)) or value is None:
        return repr(value)
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, complex):
        return f"complex({_number(value.real)}, {_number(value.imag)})"
    raise UnsupportedError(f"{value!r} has no text form", code="loops.text")


def _ref(ref: TensorRef, buffers: Mapping[str, Buffer]) -> str:
    buffer = buffers.get(ref.buffer)
    whole = buffer is not None and (ref.shape, ref.strides) == (buffer.shape, buffer.strides) and ref.offset is ZERO
    dtype = buffer.dtype if buffer is not None else "?"
    return f"%{ref.buffer}" if whole else f"view(%{ref.buffer}, {_type(dtype, ref.shape, ref.strides, ref.offset)})"
