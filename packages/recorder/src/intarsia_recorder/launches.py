"""Launches of interpreted Triton kernels on fake tensors: nothing, as launches of compiled ones are there.

The fake implementation of a `torch.library.triton_op` is its body. On fake tensors torch makes an operator without
results of a launch in it, which does nothing; a kernel that Triton interprets is launched itself, and its interpreter
wants data. Triton has no place to say so but its launchers, which are classes: while one thread is in the block they
are others, which launch as they did for every thread that isn't. Behind the last block they are Triton's own again.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Iterator
from typing import Any

from torch._subclasses.fake_tensor import FakeTensor

__all__ = ["no_launches_of_fakes"]


@contextlib.contextmanager
def no_launches_of_fakes() -> Iterator[None]:
    """Pass over launches of interpreted kernels with a fake tensor, in a block and by the thread that is in it.

    Other launches, and all launches of other threads, are as they were. Blocks may be nested. Triton isn't imported:
    where nobody did, there are no kernels.
    """
    interpreter = sys.modules.get("triton.runtime.interpreter")
    tuning = sys.modules.get("triton.runtime.autotuner")
    if interpreter is None or tuning is None:
        yield
        return
    _LAUNCHERS.enter((interpreter.InterpretedFunction, tuning.Autotuner, tuning.Heuristics))
    _here.blocks = getattr(_here, "blocks", 0) + 1
    try:
        yield
    finally:
        _here.blocks -= 1
        _LAUNCHERS.leave()


class _Launchers:
    """Launchers whose `run` is replaced while any thread is in a block."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks = 0
        self._replaced: list[tuple[type[Any], Any, Any]] = []  # the class, its own `run`, the one in its place

    def enter(self, classes: tuple[type[Any], ...]) -> None:
        with self._lock:
            self._blocks += 1
            if self._blocks == 1:
                for launcher in classes:
                    own, ours = launcher.run, _passing_over_fakes(launcher.run, classes[0])
                    self._replaced.append((launcher, own, ours))
                    launcher.run = ours

    def leave(self) -> None:
        with self._lock:
            self._blocks -= 1
            if self._blocks:
                return
            for launcher, own, ours in self._replaced:
                if launcher.run is ours:  # another's, put over it meanwhile, stays
                    launcher.run = own
            self._replaced.clear()


_LAUNCHERS = _Launchers()
_here = threading.local()  # blocks: in how many of them this thread is


def _passing_over_fakes(run: Any, interpreted: type) -> Any:
    @functools.wraps(run)
    def launch(kernel: Any, *args: Any, **kwargs: Any) -> Any:
        here = getattr(_here, "blocks", 0) and isinstance(_innermost(kernel), interpreted)
        if here and any(isinstance(value, FakeTensor) for value in (*args, *kwargs.values())):
            return None
        return run(kernel, *args, **kwargs)

    return launch


def _innermost(kernel: Any) -> Any:
    """Return what tuning and heuristics are wrapped around."""
    while type(kernel).__module__ == "triton.runtime.autotuner":
        kernel = kernel.fn
    return kernel
