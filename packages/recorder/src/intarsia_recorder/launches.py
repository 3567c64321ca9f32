"""Launches of interpreted Triton kernels on fake tensors: nothing, as launches of compiled ones are there.

The fake implementation of a `torch.library.triton_op` is its body. On fake tensors torch makes an operator without
results of a launch in it, which does nothing; a kernel that Triton interprets is launched itself, and its interpreter
wants data.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from torch._subclasses.fake_tensor import FakeTensor

__all__ = ["launch_nothing_on_fakes"]


def launch_nothing_on_fakes() -> None:
    """Make launches of interpreted kernels pass over calls with a fake tensor; others are as they were.

    To be called before a fake implementation runs, from any thread, as often as one likes. Triton isn't imported: where
    nobody did, there are no kernels.
    """
    interpreter = sys.modules.get("triton.runtime.interpreter")
    tuning = sys.modules.get("triton.runtime.autotuner")
    if interpreter is None or tuning is None:
        return
    for launcher in (interpreter.InterpretedFunction, tuning.Autotuner, tuning.Heuristics):
        if not hasattr(launcher.run, "_intarsia_fakes"):
            launcher.run = _passing_over_fakes(launcher.run, interpreter.InterpretedFunction)


def _passing_over_fakes(run: Any, interpreted: type) -> Any:
    @functools.wraps(run)
    def launch(kernel: Any, *args: Any, **kwargs: Any) -> Any:
        has_fakes = any(isinstance(value, FakeTensor) for value in (*args, *kwargs.values()))
        return None if has_fakes and isinstance(_innermost(kernel), interpreted) else run(kernel, *args, **kwargs)

    launch._intarsia_fakes = True  # type: ignore[attr-defined]
    return launch


def _innermost(kernel: Any) -> Any:
    """Return what tuning and heuristics are wrapped around."""
    while type(kernel).__module__ == "triton.runtime.autotuner":
        kernel = kernel.fn
    return kernel
