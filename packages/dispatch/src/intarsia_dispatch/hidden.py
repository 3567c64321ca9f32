"""Hiding the compiler's own operations from what the user has installed to see those of the program."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks

__all__ = ["AsCalled", "as_called", "hidden_from_user"]

_INNER_PARTS = r"(torch\.(_subclasses|fx|_prims|_prims_common|_meta_registrations|utils\._sympy)|sympy)(\.|$)"


def hidden_from_user() -> contextlib.AbstractContextManager[Any]:
    """Return a context in which modes, tensor subclasses and hooks on saved tensors see nothing of what is done.

    Nor do those who watch warnings: torch's own are for whoever uses fake tensors and graphs by hand.
    """
    stack = contextlib.ExitStack()
    stack.enter_context(_own_warnings_ignored())
    stack.enter_context(torch._C.DisableTorchFunction())
    stack.enter_context(_hooks_allowed())
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
        stack.enter_context(saved_tensors_hooks(_itself, _itself))
    return stack


#: Makes a context.
AsCalled = Callable[[], contextlib.AbstractContextManager[Any]]


def as_called() -> AsCalled:
    """Return what makes a context in which torch asks whom it asks now about its functions: classes, modes, nobody."""
    if torch._C._is_torch_function_enabled():
        return torch._C._EnableTorchFunction
    return _classes_unasked if not torch._C._is_torch_function_all_disabled() else contextlib.nullcontext


@contextlib.contextmanager
def _classes_unasked() -> Iterator[None]:
    with torch._C._EnableTorchFunction(), torch._C.DisableTorchFunctionSubclass():
        yield


@contextlib.contextmanager
def _own_warnings_ignored() -> Iterator[None]:
    """Ignore warnings that arise in the parts of torch with which programs are captured; others are the program's."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=_INNER_PARTS)
        yield


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
