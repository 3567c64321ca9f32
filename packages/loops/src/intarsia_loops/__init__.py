"""The loops, kernels and tiles dialects, the index algebra, and rewrites of nests.

A program is plain frozen data (`Program` of `Nest`, `Kernel` and `Extern`); at package borders it is a GraphModule
view of that data. `intarsia_lowering` makes FX(loops) of FX(aten); the fuser then makes FX(kernels).

Example:
    >>> import torch
    >>> gm = loops.parse_ir('''// dialect: loops 2
    ... graph(%x: f32[2, 3]) {
    ...   # model.py:1 in forward
    ...   %s: f32[2] = sum[i0: 2; r0: 3] load(%x, i0, r0)  #1
    ...   return (%s,)
    ... }
    ... origins
    ...   1 model.py
    ...     forward: 1
    ... ''')
    >>> loops.interpret(gm, torch.ones(2, 3))
    (tensor([3., 3.]),)
    >>> from_fx(gm).items[0].reads()
    frozenset({'x'})
"""

from intarsia_loops import kernels, loops, ops, rewrites
from intarsia_loops.graph import from_fx, to_fx
from intarsia_loops.levels import Buildable, Contract, Emitted, Kernels, Launched, Loops
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
    "from_fx",
    "kernels",
    "loops",
    "ops",
    "rewrites",
    "to_fx",
]

__version__ = "0.2.0"
