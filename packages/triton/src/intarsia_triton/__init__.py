"""Kernels -> Triton source text; nothing is compiled or run here.

Dialect in: kernels. Out: `KernelSource` whose text is a Python module of `@triton.jit` functions.

Example:
    >>> from intarsia_ir.records import Target
    >>> from intarsia_loops.index import axis, lift
    >>> from intarsia_loops.program import Buffer, Kernel, Nest, load
    >>> i, r = axis("i0", 4), axis("r0", 8)
    >>> x, y = Buffer((lift(4), lift(8)), (lift(8), lift(1)), "f32"), Buffer((lift(4),), (lift(1),), "f32")
    >>> total = Nest("y", (i,), (r,), "sum", load("x", (lift(i), lift(r)), "f32"), "f32")
    >>> source = emit(Kernel((i,), (total,)), {"x": x, "y": y}, Target("cuda", "sm_90"))
    >>> ", 1, fold_sum)" in source.text
    True
"""

from intarsia_triton.unit import emit, emit_unit

__all__ = ["emit", "emit_unit"]
__version__ = "0.1.0"
