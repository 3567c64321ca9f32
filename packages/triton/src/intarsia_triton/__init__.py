"""Launches -> Triton source text; nothing is decided, compiled or run here.

In: `intarsia_loops.launches.Launches`, which `intarsia_scheduler` makes of FX(kernels). Out: `KernelSource` whose text
is a Python module of `@triton.jit` functions. The example is that of `emit_unit`.
"""

from intarsia_triton.unit import emit_unit

__all__ = ["emit_unit"]
__version__ = "0.1.0"
