"""Make a recorded ATen program functional: no writes, no views that anybody could tell from copies.

Dialect in: FX(torch) for `to_aten`, FX(aten, effects) for `functionalize`. Dialect out: FX(aten), pure; writes to
inputs and outputs that share memory are in the `Signature` next to it.

Example:
    >>> import torch
    >>> from intarsia_functionalizer import functionalize, to_aten
    >>> def program(x, buffer):
    ...     buffer.mul_(2)
    ...     return x + buffer
    >>> done = functionalize(to_aten(program, (torch.zeros(3), torch.zeros(3))))
    >>> [str(node.target) for node in done.graph_module.graph.nodes if node.op == "call_function"]
    ['aten.mul.Tensor', 'aten.add.Tensor']
    >>> done.signature.writes
    (Write(input=1, result=0),)
"""

from intarsia_functionalizer.decompositions import default_decompositions
from intarsia_functionalizer.functionalize import functionalize
from intarsia_functionalizer.to_aten import to_aten

__all__ = ["default_decompositions", "functionalize", "to_aten"]

__version__ = "0.1.1"
