"""Capture of torch: a Python call becomes an FX(torch) graph, guards and replacement bytecode.

`intarsia_pyeval` evaluates Python; this package models tensors, modules, contexts and optimizers, and records what is
computed. Takes a code object with the values of its frame; gives an `intarsia_ir.records.Capture` with a graph in the
torch dialect. Nothing is run and nothing is installed.

Example:
    >>> import torch, intarsia_tensorcapture
    >>> found = intarsia_tensorcapture.capture(lambda x: x.sin() + 1, (torch.ones(3),))
    >>> [node.name for node in found.graph_module.graph.nodes]
    ['x', 'sin', 'add', 'output']
    >>> found.breaks
    ()
"""

from intarsia_tensorcapture.capturing import capture, capture_frame
from intarsia_tensorcapture.marks import allow_in_graph, substitute_in_graph

__version__ = "0.1.1"
__all__ = ["allow_in_graph", "capture", "capture_frame", "substitute_in_graph"]
