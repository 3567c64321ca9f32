"""How composite ops come apart while a program runs on fake tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode

__all__ = ["COMPOSITES_IN_CPP", "composites_in_python"]

#: Functions that run in their C++ form anyway: a dropout returns its operand where nothing is dropped, as in eager; the
#: Python form copies it. The Python form of `channel_shuffle` is row-major, whatever the operand is.
COMPOSITES_IN_CPP = frozenset({torch.dropout, torch.nn.functional.dropout, torch.channel_shuffle})


@contextlib.contextmanager
def composites_in_python(mode: FakeTensorMode) -> Iterator[None]:
    """Take composite ops apart in Python where sizes are symbolic: the C++ forms of some demand plain integers.

    Where sizes are static the C++ forms serve: they are faster, and what eager runs.

    Args:
        mode: Of the fake tensors; its environment tells whether sizes are symbolic.

    Example:
        >>> with composites_in_python(FakeTensorMode()):
        ...     torch.dropout(torch.ones(2), 0.5, False)
        tensor([1., 1.])
    """
    if mode.shape_env is None:
        yield
    else:
        with enable_python_dispatcher(), _AsInEager():
            yield


class _AsInEager(TorchFunctionMode):
    """Runs some composites in their C++ form."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in COMPOSITES_IN_CPP:
            return func(*args, **(kwargs or {}))
        with torch._C._DisablePythonDispatcher():
            return func(*args, **(kwargs or {}))
