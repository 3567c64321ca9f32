"""The ways into a capture, with the plug-in that knows torch; and what the evaluator is told of torch beforehand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import CodeType
from typing import Any, Unpack

import torch

import intarsia_pyeval
from intarsia_ir.records import Capture
from intarsia_pyeval import Frame, Options
from intarsia_pyeval.breaks import register
from intarsia_pyeval.extension import Symbols
from intarsia_pyeval.tracer import Tracer
from intarsia_pyeval.trust import trust
from intarsia_tensorcapture.breaks import KINDS
from intarsia_tensorcapture.plugin import Tensors

__all__ = ["capture", "capture_frame"]


register(KINDS)
trust("torch", "numpy", "intarsia_tensorcapture")


def capture(
    fn: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Unpack[Options]
) -> Capture:
    """Do as `intarsia_pyeval.capture` does, and record a graph of torch operations.

    Args:
        fn: A Python function, a bound method, or an object whose class has a Python `__call__` (such as a module).
        args: Positional arguments.
        kwargs: Keyword arguments.
        options: Those of `intarsia_pyeval.Options`; `extension` is `Tensors`, unless one derived from it is given.
    """
    options = _with_tensors(options)
    with torch._C.DisableTorchFunction():  # who is asked about a function of torch is found by evaluation
        return intarsia_pyeval.capture(fn, args, kwargs, **options)


def capture_frame(code: CodeType, frame: Frame, **options: Unpack[Options]) -> Capture:
    """Do as `intarsia_pyeval.capture_frame` does, and record a graph of torch operations; see `capture`."""
    options = _with_tensors(options)
    with torch._C.DisableTorchFunction():
        return intarsia_pyeval.capture_frame(code, frame, **options)


def _with_tensors(options: Options) -> Options:
    """Return the options with the plug-in for torch, which is told whom torch asks at entry."""
    make: Any = options.get("extension", Tensors)
    enabled, all_off = torch._C._is_torch_function_enabled(), torch._C._is_torch_function_all_disabled()

    def extension(tx: Tracer, symbols: Symbols) -> Tensors:
        made: Tensors = make(tx, symbols)
        made.state.functions.begin(asks_classes=enabled, asks_modes=not all_off)
        return made

    return {**options, "extension": extension}
