"""FX(aten) -> FX(loops): every op becomes a loop nest or a few, a view an index map, or a call of ATen.

Example:
    >>> import intarsia_loops
    >>> from intarsia_ir.aten import parse_ir
    >>> aten = parse_ir('''// dialect: aten 2
    ... graph(%x: f32[2, 3]) {
    ...   # model.py:1 in forward
    ...   %0: f32[2] = aten.sum.dim_IntList(%x, [1])  #1
    ...   return (%0,)
    ... }
    ... origins
    ...   1 model.py
    ...     forward: 1
    ... ''')
    >>> print(intarsia_loops.loops.print_ir(lower(aten)), end="")
    // dialect: loops 2
    graph(%x: f32[2, 3]) {
      # model.py:1 in forward
      %sum_dim_int_list: f32[2] = sum[i0: 2; r0: 3] load(%x, i0, r0)  #1
      return (%sum_dim_int_list,)
    }
    origins
      1 model.py
        forward: 1
"""

from intarsia_lowering.graphs import coverage, lower

__all__ = ["coverage", "lower"]

__version__ = "0.1.1"
