"""Kernels -> vectorised C++ with OpenMP.

Takes kernels (one `Kernel`, or a whole program as FX(kernels)), gives source text as a frozen `KernelSource`; nothing
is compiled here. Modules other than this one are unstable.

Example:
    >>> from intarsia_cpp import emit
    >>> from intarsia_ir.records import Target
    >>> from intarsia_loops.index import axis, lift
    >>> from intarsia_loops.program import Buffer, Kernel, Nest, load, val
    >>> i = axis("i0", 100)
    >>> body = val("exp", load("x", (lift(i),), "f32"), dtype="f32")
    >>> layout = Buffer((lift(100),), (lift(1),), "f32")
    >>> kernel = Kernel((i,), (Nest("y", (i,), (), "map", body, "f32"),))
    >>> source = emit(kernel, {"x": layout, "y": layout}, Target(isa="avx2"))
    >>> source.entry, source.launches[0].buffers
    ('kernel', ('x', 'y'))
    >>> "vexp(" in source.text
    True
"""

from intarsia_cpp.unit import emit, emit_unit

__all__ = ["emit", "emit_unit"]
__version__ = "0.1.0"
