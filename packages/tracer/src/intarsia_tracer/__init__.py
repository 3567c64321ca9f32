"""Bytecode tracer: a Python call becomes an FX(torch) graph, guards and replacement bytecode.

In: a call of a Python function, or a frame about to run. Out: `intarsia_ir.records.Capture`, whose graph is in the
torch dialect. Nothing is run and nothing is installed.

Example:
    >>> import torch, intarsia_tracer
    >>> found = intarsia_tracer.capture(lambda x: x.sin() + 1, (torch.ones(3),))
    >>> [node.name for node in found.graph_module.graph.nodes]
    ['x', 'sin', 'add', 'output']
    >>> found.breaks
    ()
"""

from intarsia_bytecode import raise_inside
from intarsia_tracer.capture import Frame, FrameInfo, capture, capture_frame
from intarsia_tracer.extension import Extension, Graph
from intarsia_tracer.link import Hole, link
from intarsia_tracer.state.frames import Limits

__version__ = "0.1.0"
__all__ = [
    "Extension",
    "Frame",
    "FrameInfo",
    "Graph",
    "Hole",
    "Limits",
    "capture",
    "capture_frame",
    "link",
    "raise_inside",
]
