"""What the arguments of a node may be: a graph is Python text as well, so each of them has to have a spelling.

Classes that stand for an element type become that type: `x.to(int)` is `x.to(torch.int64)`. What has no spelling, such
as a function, a generator or any other object, is refused with a name for it.
"""

from __future__ import annotations

import ast
import enum
from typing import Any

import torch
import torch.fx

from intarsia_pyeval.values.base import NotConstantError

__all__ = ["spelled"]


_TYPES: dict[Any, torch.dtype] = {
    bool: torch.bool,
    int: torch.int64,
    float: torch.float64,
    complex: torch.complex128,
}
_TENSOR_CLASS = type(torch.IntTensor)
_SPELLED = frozenset(
    {bool, int, float, complex, str, bytes, type(None), type(...), torch.dtype, torch.device, torch.layout,
     torch.memory_format, torch.qscheme, torch.Size, torch.fx.Node, range}
)  # fmt: skip


def spelled(value: Any) -> Any:
    """Return an argument in a form that has a spelling.

    Raises:
        NotConstantError: It has none.
    """
    kind = type(value)
    if kind in _SPELLED:
        return value
    if kind is list:
        return [spelled(item) for item in value]
    if kind is dict:
        return {key: spelled(item) for key, item in value.items()}
    if kind is slice:
        return slice(spelled(value.start), spelled(value.stop), spelled(value.step))
    if isinstance(value, tuple):
        items = [spelled(item) for item in value]
        return kind._make(items) if hasattr(kind, "_make") else tuple(items)
    return _class_or_object(value)


def _class_or_object(value: Any) -> Any:
    if isinstance(value, _TENSOR_CLASS):  # such as torch.IntTensor, which torch knows by its name too
        return f"{value.__module__}.{value.__name__}"
    if isinstance(value, type) and value in _TYPES:
        return _TYPES[value]
    if type(value).__module__ == "numpy" and type(getattr(value, "item", list)()) in (bool, int, float):
        return value.item()  # a scalar of numpy: operations take it for a number
    if isinstance(value, enum.Enum) and str(value.name).isidentifier():  # by its class and name
        return value
    if isinstance(value, type) or callable(value) or not _parses(repr(value)):
        raise NotConstantError(_described(value))
    return value


def _described(value: Any) -> str:
    kind = type(value)
    shown = value if isinstance(value, type) or callable(value) else kind
    name = f"{shown.__module__}.{getattr(shown, '__qualname__', kind.__qualname__)}"
    return name if shown is value else f"an object of class {name}"


def _parses(text: str) -> bool:
    try:
        ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
