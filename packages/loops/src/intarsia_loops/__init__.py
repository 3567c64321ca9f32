"""The loops and kernels dialects, and the lowerings from ATen to loops.

A program is plain frozen data (`Program` of `Nest`, `Kernel` and `Extern`); at package borders it is a GraphModule
view of that data. Takes FX(aten), gives FX(loops); the fuser then makes FX(kernels).
"""

from intarsia_loops import kernels, loops, ops, rewrites
from intarsia_loops.graph import from_fx, to_fx
from intarsia_loops.lower import coverage, lower

__all__ = ["coverage", "from_fx", "kernels", "loops", "lower", "ops", "rewrites", "to_fx"]

__version__ = "0.1.0"
