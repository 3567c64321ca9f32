"""What lowerings are written with, to write one's own: `lower(..., lowerings={op: function})`.

A lowering is a function that is given a builder and the arguments of a call, tensors as index maps over buffers,
and adds nests to the builder: the result of the op, element by element. Elements are computed define-by-run: the body
is called once with values that stand for elements (`Val`), and what it does with them is the program. They take
`+ - * /` and the functions below.

Example:
    >>> import torch
    >>> from intarsia_ir.aten import parse_ir
    >>> from intarsia_loops import loops
    >>> from intarsia_lowering import lower
    >>> def softplus(b: Builder, x: Tensor) -> Tensor:
    ...     return b.pointwise(lambda v: unary("log", unary("exp", v) + 1), x)
    >>> aten = parse_ir('''// dialect: aten 2
    ... graph(%x: f32[3]) {
    ...   # model.py:1 in forward
    ...   %0: f32[3] = aten.softplus.default(%x)  #1
    ...   return (%0,)
    ... }
    ... origins
    ...   1 model.py
    ...     forward: 1
    ... ''')
    >>> print(loops.print_ir(lower(aten, lowerings={torch.ops.aten.softplus.default: softplus})), end="")
    // dialect: loops 2
    graph(%x: f32[3]) {
      # model.py:1 in forward
      %softplus_default: f32[3] = map[i0: 3] log(add(exp(load(%x, i0)), f32(1.0)))  #1
      return (%softplus_default,)
    }
    origins
      1 model.py
        forward: 1
"""

from intarsia_loops.program import Val, cast, const, index_value
from intarsia_lowering._builder import Builder, Spec
from intarsia_lowering._math import and_, binary, compare, number, select, unary
from intarsia_lowering._table import DECLINED, Lowering, Lowerings
from intarsia_lowering._values import Point, Tensor, common_type, compute_type, read

__all__ = [
    "DECLINED",
    "Builder",
    "Lowering",
    "Lowerings",
    "Point",
    "Spec",
    "Tensor",
    "Val",
    "and_",
    "binary",
    "cast",
    "common_type",
    "compare",
    "compute_type",
    "const",
    "index_value",
    "number",
    "read",
    "select",
    "unary",
]
