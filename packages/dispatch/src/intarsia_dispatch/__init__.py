"""Which code runs for a frame: compiled versions behind guards, a compilation, or plain CPython.

It imports no pass: tracer, graph compiler, guard builder and linker are arguments. Dialect in: the captures of a
tracer, whose graphs are in the torch dialect; dialect out: none, it runs code.

Example, with a "tracer" that replaces `x + 1` by `x - 1`:
    >>> from intarsia_dispatch import DispatchConfig, Dispatcher, FrameGuard
    >>> from intarsia_ir.records import Capture, LinkableCode, Signature
    >>> def f(x): return x + 1
    >>> def g(x): return x - 1
    >>> def capture(code, frame, *, fullgraph, number, dynamic):
    ...     return Capture(None, Signature(), (), (), LinkableCode(g.__code__))
    >>> def build_guards(code, frame, capture, graph):
    ...     return FrameGuard(lambda x: x > 0, lambda values, globals: None if values["x"] > 0 else "x > 0")
    >>> dispatcher = Dispatcher(DispatchConfig(
    ...     capture=capture, build_guards=build_guards, link=lambda linkable, holes: linkable.code,
    ...     compile_graph=lambda capture, frame: capture.graph_module))
    >>> fast = dispatcher.compile(f)
    >>> fast(10), f(10), dispatcher.stats().frames_compiled
    (9, 11, 1)
"""

from intarsia_dispatch.config import BuildGuards, CaptureFrame, CompiledGraph, DispatchConfig, FrameGuard
from intarsia_dispatch.dispatcher import Dispatcher, disable
from intarsia_dispatch.events import EventKind, FrameEvent
from intarsia_dispatch.graphs import or_eager
from intarsia_dispatch.logs import configure_logging
from intarsia_dispatch.module import CompiledModule, without_wrapper
from intarsia_dispatch.policy import ErrorPolicy
from intarsia_dispatch.recompiles import recompile_lines
from intarsia_dispatch.reports import FallbackWarning, describe_frame, describe_guard
from intarsia_dispatch.skipping import code_under, debugger_active
from intarsia_dispatch.stats import Counters, DispatchStats, difference

__version__ = "0.1.1"
__all__ = [
    "BuildGuards",
    "CaptureFrame",
    "CompiledGraph",
    "CompiledModule",
    "Counters",
    "DispatchConfig",
    "DispatchStats",
    "Dispatcher",
    "ErrorPolicy",
    "EventKind",
    "FallbackWarning",
    "FrameEvent",
    "FrameGuard",
    "code_under",
    "configure_logging",
    "debugger_active",
    "describe_frame",
    "describe_guard",
    "difference",
    "disable",
    "or_eager",
    "recompile_lines",
    "without_wrapper",
]
