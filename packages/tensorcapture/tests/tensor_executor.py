"""Runs captures with the plug-in that knows torch, without a frame hook."""

from __future__ import annotations

import executor

from intarsia_tensorcapture.plugin import Tensors


class Executor(executor.Executor):
    """Calls functions by their captures."""

    def __init__(self, force: bool = False) -> None:
        super().__init__(Tensors, force)
