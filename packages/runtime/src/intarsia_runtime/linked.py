"""The last value of a program on its way: a function that runs one of its graphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from intarsia_ir.records import GuardRecord, Signature

__all__ = ["Linked"]


@dataclass(frozen=True, slots=True)
class Linked:
    """One graph, ready to run.

    Args:
        run: What `link` returned, or any function of the graph's inputs that gives its results.
        signature: What inputs and results mean to the caller.
        guards: What it relies on besides size facts.
        device: Where its kernels run.
    """

    run: Callable[..., Any]
    signature: Signature
    guards: tuple[GuardRecord, ...] = ()
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
