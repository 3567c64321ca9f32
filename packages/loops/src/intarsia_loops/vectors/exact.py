"""Numbers that a half type holds exactly aren't rounded to it again.

before: cast(cast(neg(cast(load(x: bf16), f32)), bf16), f32)        after: neg(cast(load(x: bf16), f32))
Side condition: the f32 number is one of the half type: read from it or rounded to it, and since then at most negated,
made absolute, chosen, or compared. Law: rounding gives back what the type holds; of a NaN the bits may be others, and
no operation on f32 tells. What is stored is rounded as before, so that memory has one NaN.
"""

from __future__ import annotations

import struct
from dataclasses import replace

from intarsia_loops.ops import HALVES
from intarsia_loops.program import Kernel, Nest, Val, val
from intarsia_loops.rewrites import operands, postorder

__all__ = ["rounded_once"]

# results are one of the operands, or it with another sign; a choice's first operand is the condition
_KEEP = {"neg": 0, "abs": 0, "max": 0, "min": 0, "where": 1}


def rounded_once(kernel: Kernel) -> Kernel:
    """Return the kernel without what rounds to a half type, and back, what that type holds anyway.

    Args:
        kernel: Any.
    """
    steps = tuple(_of_nest(s) for s in kernel.steps)
    return kernel if steps == kernel.steps else replace(kernel, steps=steps)


def _of_nest(nest: Nest) -> Nest:
    values = list(postorder(nest.body))
    if not any(v.op == "cast" and v.dtype in HALVES for v in values):
        return nest
    new: dict[Val, Val] = {}
    held: dict[Val, frozenset[str]] = {}  # of new values: which half types hold it exactly
    for v in values:
        new[v] = made = _shorter(_rebuilt(v, new), held)
        if made not in held:
            held[made] = _holders(made, held)
    return replace(nest, body=new[nest.body])


def _rebuilt(v: Val, new: dict[Val, Val]) -> Val:
    if not operands(v):
        return v
    if v.op == "gather":
        return val("gather", v.args[0], tuple(new[i] if type(i) is Val else i for i in v.args[1]), dtype=v.dtype)
    args = tuple(new[a] if type(a) is Val else a for a in v.args)
    return v if args == v.args else val(v.op, *args, dtype=v.dtype)


def _shorter(v: Val, held: dict[Val, frozenset[str]]) -> Val:
    if v.op != "cast" or v.dtype != "f32":
        return v
    (narrow,) = v.args
    if narrow.op != "cast" or narrow.dtype not in HALVES:
        return v
    wide: Val = narrow.args[0]
    return wide if wide.dtype == "f32" and narrow.dtype in held[wide] else v


def _holders(v: Val, held: dict[Val, frozenset[str]]) -> frozenset[str]:
    """The half types that hold every value of `v`, an f32, exactly."""
    if v.dtype != "f32":
        return frozenset()
    if v.op == "const":
        return frozenset(t for t in HALVES if _holds(t, float(v.args[0])))
    if v.op == "cast":
        return frozenset({v.args[0].dtype}) & frozenset(HALVES)
    if v.op not in _KEEP:
        return frozenset()
    first, *others = (held[a] for a in operands(v)[_KEEP[v.op] :])
    return first.intersection(*others)


def _holds(dtype: str, number: float) -> bool:
    form = "<f" if dtype == "bf16" else "<e"
    try:
        bits = struct.pack(form, number)
    except OverflowError:
        return False
    same = bool(struct.unpack(form, bits)[0] == number)
    return same and (dtype != "bf16" or bits[:2] == b"\0\0")  # bfloat16 is the upper half of f32
