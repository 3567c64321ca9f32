"""Launches, or tiles -> Triton source text; nothing is decided, compiled or run here.

In: `intarsia_loops.launches.Launches`, or the `Tiles` that say what these mean; `intarsia_scheduler` makes both of
FX(kernels). Out: `KernelSource` whose text is a Python module of `@triton.jit` functions.

Example:
    >>> from intarsia_ir.records import Target
    >>> from intarsia_loops.index import axis, lift
    >>> from intarsia_loops.launches import Blocks, Launches, LaunchPlan, Loop, Walk
    >>> from intarsia_loops.program import Buffer, Kernel, Nest, Program, const, load, val
    >>> i, layout = axis("i0", 100), Buffer((lift(100),), (lift(1),), "f32")
    >>> body = val("add", load("b0", (lift(i),), "f32"), const(1.0, "f32"), dtype="f32")
    >>> kernel = Kernel((i,), (Nest("b1", (i,), (), "map", body, "f32"),))
    >>> walk = Walk("rows", (i,), Blocks(128, 1), loops=(Loop((), kernel.steps),))
    >>> plan = LaunchPlan(kernel, walk, {"b0": layout, "b1": layout}, (("x", "y"),), (0, 1), key=0)
    >>> program = Program({"x": layout, "y": layout}, ("x",), (kernel,), ())
    >>> source = emit_unit(Launches(program, Target("cuda", "sm_90"), (plan,), 1))
    >>> [(launch.entry, launch.buffers, launch.grid) for launch in source.launches]
    [('kernel0', ('x', 'y'), ('(100 + 127) // 128',))]
"""

from intarsia_triton.unit import emit_unit

__all__ = ["emit_unit"]
__version__ = "0.1.1"
