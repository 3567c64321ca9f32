"""The two ways in: `capture` for a call that somebody describes, `capture_frame` for a frame about to run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import CellType, CodeType, FunctionType
from typing import Any, Protocol

from intarsia_ir.records import Capture, GraphBreak, LinkableCode, Signature

__all__ = ["Frame", "FrameInfo", "capture", "capture_frame"]


class Frame(Protocol):
    """A frame that is about to run, as the frame hook describes it (its `FrameInfo` fits)."""

    @property
    def globals(self) -> dict[str, Any]:
        """The global namespace."""

    @property
    def closure(self) -> tuple[CellType, ...] | None:
        """The cells of the free variables, in the order of `co_freevars`; None or empty when there are none."""

    @property
    def locals(self) -> Mapping[str, Any]:
        """The arguments by parameter name."""

    @property
    def function(self) -> FunctionType | None:
        """The function whose body runs."""


@dataclass(frozen=True, slots=True)
class FrameInfo:
    """A `Frame` made by hand.

    Args:
        globals: The global namespace.
        closure: The cells of the free variables, in the order of `co_freevars`.
        locals: The arguments by parameter name, `*args` and `**kwargs` under their own names.
        function: The function whose body runs, when known.
    """

    globals: dict[str, Any]
    closure: tuple[CellType, ...] | None = None
    locals: Mapping[str, Any] = field(default_factory=dict)
    function: FunctionType | None = None


def capture(
    fn: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    fullgraph: bool = False,
    number: int = 0,
) -> Capture:
    """Trace the call `fn(*args, **kwargs)` without running it or installing anything.

    Args:
        fn: A Python function, a bound method, or an object whose class has a Python `__call__` (such as a module).
        args: Positional arguments.
        kwargs: Keyword arguments.
        fullgraph: Raise instead of breaking.
        number: Number in the name of the graph's hole, `__compiled_fn_<number>`.

    Returns:
        What was learned; `code` replaces the code of the function whose frame was traced.

    Raises:
        UnsupportedError: `fullgraph`, and something can't be captured.
    """
    from intarsia_tracer.arguments import frame_of_call

    code, frame = frame_of_call(fn, tuple(args), dict(kwargs or {}))
    return capture_frame(code, frame, fullgraph=fullgraph, number=number)


def capture_frame(code: CodeType, frame: Frame, *, fullgraph: bool = False, number: int = 0) -> Capture:
    """Trace a frame that is about to run.

    Args:
        code: The code of the frame.
        frame: Its globals, closure cells, arguments and function.
        fullgraph: Raise instead of breaking.
        number: Number in the name of the graph's hole, `__compiled_fn_<number>`.

    Returns:
        What was learned. `code` has the parameters and free variables of the original, so it can run in the same
        frame. When nothing can be gained, `graph_module` is None and `code.code` is the very code that was given:
        run the frame natively. When `graph_module` is None and `code.code` is other code, there was nothing to
        compile before the first break, but the code calls a resume function worth capturing: install it.

    Raises:
        UnsupportedError: `fullgraph`, and something can't be captured.
    """
    reason = GraphBreak("tracer.frame", "frames are not evaluated yet")
    return Capture(None, Signature(), (), (), LinkableCode(code), (reason,))
