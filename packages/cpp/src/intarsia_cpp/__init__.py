"""Launches -> vectorised C++ with OpenMP.

Takes launches that a schedule made of kernels, gives source text as a frozen `KernelSource`; nothing is decided and
nothing is compiled here. Modules other than this one are unstable.

Example:
    >>> from intarsia_cpp import emit_unit
    >>> from intarsia_ir.records import Target
    >>> from intarsia_loops.index import axis, lift
    >>> from intarsia_loops.launches import Launches, LaunchPlan
    >>> from intarsia_loops.program import Buffer, Kernel, Nest, Program, load, val
    >>> from intarsia_loops.vectors.steps import flat_steps
    >>> from intarsia_loops.vectors.walks import Maps, VectorWalk
    >>> i = axis("i0", 100)
    >>> body = val("exp", load("b0", (lift(i),), "f32"), dtype="f32")
    >>> layouts = dict.fromkeys(("b0", "b1"), Buffer((lift(100),), (lift(1),), "f32"))
    >>> kernel = Kernel((i,), (Nest("b1", (i,), (), "map", body, "f32"),))
    >>> walk = VectorWalk((Maps(8, (i,), flat_steps(kernel, layouts, {})),), ("b1",))
    >>> launch = LaunchPlan(kernel, walk, layouts, (("x", "y"),), (0, 1))
    >>> source = emit_unit(Launches(Program({}, (), (), ()), Target(isa="avx2"), (launch,), 1))
    >>> source.launches[0].entry, source.launches[0].buffers
    ('seg0', ('x', 'y'))
    >>> "vexp(" in source.text
    True
"""

from intarsia_cpp.unit import emit_unit

__all__ = ["emit_unit"]
__version__ = "0.1.1"
