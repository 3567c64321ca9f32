"""The ways into a capture, with the plug-in that knows torch; and what the evaluator is told of torch beforehand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import CodeType
from typing import Any

import intarsia_pyeval
from intarsia_ir.records import Capture, Symbolic
from intarsia_pyeval import Frame, Limits
from intarsia_pyeval.breaks import register
from intarsia_pyeval.tracer import ExtensionMaker
from intarsia_pyeval.trust import trust
from intarsia_tensorcapture.breaks import KINDS
from intarsia_tensorcapture.plugin import Tensors

__all__ = ["capture", "capture_frame"]


register(KINDS)
trust("torch", "intarsia_tensorcapture")


def capture(
    fn: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    fullgraph: bool = False,
    number: int = 0,
    extension: ExtensionMaker = Tensors,
    limits: Limits = Limits(),  # noqa: B008  (frozen)
    force: bool = False,
    dynamic: bool | Symbolic | None = None,
) -> Capture:
    """Trace the call `fn(*args, **kwargs)` without running it or installing anything.

    Args:
        fn: A Python function, a bound method, or an object whose class has a Python `__call__` (such as a module).
        args: Positional arguments.
        kwargs: Keyword arguments.
        fullgraph: Raise instead of breaking, but where the program itself seems to raise.
        number: Number in the name of the graph's hole, `__compiled_fn_<number>`.
        extension: Makes the plug-in of value models: `Tensors`, or one derived from it.
        limits: How far one capture goes.
        force: Make replacement code even where there is nothing to compile; for tests of the code itself.
        dynamic: Which sizes and numbers are symbols: those of a `Symbolic` and those that the user marked; None: the
            marked ones; True: all of them; False: none.

    Returns:
        What was learned; `code` replaces the code of the function whose frame was traced.

    Raises:
        UnsupportedError: `fullgraph`, and something can't be captured.
        InvalidArgumentError: `fn` doesn't lead to a Python function.
    """
    return intarsia_pyeval.capture(
        fn,
        args,
        kwargs,
        fullgraph=fullgraph,
        number=number,
        extension=extension,
        limits=limits,
        force=force,
        dynamic=dynamic,
    )


def capture_frame(
    code: CodeType,
    frame: Frame,
    *,
    fullgraph: bool = False,
    number: int = 0,
    extension: ExtensionMaker = Tensors,
    limits: Limits = Limits(),  # noqa: B008  (frozen)
    force: bool = False,
    dynamic: bool | Symbolic | None = None,
) -> Capture:
    """Trace a frame that is about to run, as `intarsia_pyeval.capture_frame` does, with a graph of torch operations.

    Args:
        code: The code of the frame.
        frame: Its globals, closure cells, arguments and function.
        fullgraph: Raise instead of breaking, but where the program itself seems to raise.
        number: Number in the name of the graph's hole, `__compiled_fn_<number>`.
        extension: Makes the plug-in of value models: `Tensors`, or one derived from it.
        limits: How far one capture goes.
        force: Make replacement code even where there is nothing to compile; for tests of the code itself.
        dynamic: Which sizes and numbers are symbols; see `capture`.

    Returns:
        What was learned. When `graph_module` is None and `code.code` is the very code that was given, run the frame
        natively, as long as the guards hold.

    Raises:
        UnsupportedError: `fullgraph`, and something can't be captured.
        InternalError: The capture itself is at fault.
    """
    return intarsia_pyeval.capture_frame(
        code,
        frame,
        fullgraph=fullgraph,
        number=number,
        extension=extension,
        limits=limits,
        force=force,
        dynamic=dynamic,
    )
