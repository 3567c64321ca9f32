"""Bytecode tracer: a Python call becomes an FX(torch) graph, guards and replacement bytecode.

In: a call of a Python function, or a frame about to run. Out: `intarsia_ir.records.Capture`, whose graph is in the
torch dialect.

Example:
    >>> import torch, intarsia_tracer
    >>> found = intarsia_tracer.capture(lambda x: x.sin() + 1, (torch.ones(3),))
"""

from intarsia_tracer.capture import Frame, FrameInfo, capture, capture_frame
from intarsia_tracer.link import Hole, link

__version__ = "0.1.0"
__all__ = ["Frame", "FrameInfo", "Hole", "capture", "capture_frame", "link"]
