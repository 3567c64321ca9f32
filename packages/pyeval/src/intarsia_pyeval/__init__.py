"""Symbolic evaluation of Python bytecode: a call becomes guards, and code that does the same where they hold.

Takes a code object with the values of its frame; gives an `intarsia_ir.records.Capture`. A plug-in may model values of
a library and record what is computed with them as a graph. Nothing is run and nothing is installed. Imports no torch.

Example:
    >>> import intarsia_pyeval
    >>> def total(prices): return sum(price * count for price, count in prices.items())
    >>> found = intarsia_pyeval.capture(total, ({3: 2, 5: 1},), force=True)
    >>> found.breaks
    ()
    >>> total.__code__ = intarsia_pyeval.link(found.code, {})
    >>> total({3: 2, 5: 1}), len(total.__code__.co_names)
    (11, 0)
"""

from intarsia_pyeval.capture import Frame, FrameInfo, Options, capture, capture_frame
from intarsia_pyeval.extension import Graph
from intarsia_pyeval.link import Hole, link
from intarsia_pyeval.state.frames import Limits
from intarsia_pyeval.tracer import Extension

__version__ = "0.2.0"
__all__ = ["Extension", "Frame", "FrameInfo", "Graph", "Hole", "Limits", "Options", "capture", "capture_frame", "link"]
