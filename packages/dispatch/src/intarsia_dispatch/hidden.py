"""Hiding the compiler's own operations from what the user has installed to see those of the program."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks

__all__ = ["hidden_from_user"]


def hidden_from_user() -> contextlib.AbstractContextManager[Any]:
    """Return a context in which modes, tensor subclasses and hooks on saved tensors see nothing of what is done."""
    stack = contextlib.ExitStack()
    stack.enter_context(torch._C.DisableTorchFunction())
    stack.enter_context(_hooks_allowed())
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
        stack.enter_context(saved_tensors_hooks(_itself, _itself))
    return stack


@contextlib.contextmanager
def _hooks_allowed() -> Iterator[None]:
    """Allow hooks on saved tensors where the user forbids them, for hooks that only the compiler sets."""
    forbidden = torch._C._autograd._saved_tensors_hooks_get_disabled_error_message()
    if forbidden is None:
        yield
        return
    torch._C._autograd._saved_tensors_hooks_enable()
    try:
        yield
    finally:
        torch._C._autograd._saved_tensors_hooks_disable(forbidden)


def _itself(tensor: torch.Tensor) -> torch.Tensor:
    return tensor
