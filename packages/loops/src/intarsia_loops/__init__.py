"""The loops and kernels dialects, and the lowerings from ATen to loops.

A program is plain frozen data (`Program` of `Nest`, `Kernel` and `Extern`); at package borders it is a GraphModule
view of that data. Takes FX(aten), gives FX(loops); the fuser then makes FX(kernels).

Example:
    >>> import torch
    >>> from intarsia_ir.aten import parse_ir
    >>> aten = parse_ir('''// dialect: aten 1
    ... graph(%x: f32[2, 3]) {
    ...   %0: f32[2] = aten.sum.dim_IntList(%x, [1])  # model.py:1 in forward
    ...   return (%0,)
    ... }
    ... ''')
    >>> print(loops.print_ir(lower(aten)), end="")
    // dialect: loops 1
    graph(%x: f32[2, 3]) {
      %sum_dim_int_list: f32[2] = sum[i0: 2; r0: 3] load(%x, i0, r0)  # model.py:1 in forward
      return (%sum_dim_int_list,)
    }
"""

from intarsia_loops import kernels, loops, ops, rewrites
from intarsia_loops.graph import from_fx, to_fx
from intarsia_loops.levels import Buildable, Contract, Emitted, Kernels, Launched, Loops
from intarsia_loops.lower import coverage, lower
from intarsia_loops.program import Buffer, Extern, Kernel, Nest, Placement, Program, Refused, TensorRef, Val

__all__ = [
    "Buffer",
    "Buildable",
    "Contract",
    "Emitted",
    "Extern",
    "Kernel",
    "Kernels",
    "Launched",
    "Loops",
    "Nest",
    "Placement",
    "Program",
    "Refused",
    "TensorRef",
    "Val",
    "coverage",
    "from_fx",
    "kernels",
    "loops",
    "lower",
    "ops",
    "rewrites",
    "to_fx",
]

__version__ = "0.1.0"
