"""Text of constants and of node values, shared by the torch and aten dialects.

Constants look like Python: `None`, `3`, `1.5`, `inf`, `nan`, `complex(0.0, -1.0)`, `'text'`, `[1, 2]`, `(1,)`,
`{'a': 1}`, `slice(0, None, 2)`, `...`, element types by short name (`f32`), `device('cpu')`, other things of torch
by qualified name (`torch.channels_last`). A symbolic number is its expression in backquotes. What has no text is
`$0`, `$1`, ...: an entry of the mapping that `constants_of` returns and `parse_ir` takes.

Values are `f32[2, 3]`, with `@(1, 2)` for strides that aren't contiguous, `+4` for a storage offset, `on 'cuda:0'`,
and the flags `grad`, `conj`, `neg`; a tuple or list of values; `=3` for a Python constant; `` int`s0 + 1` `` for a
symbolic number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx as fx

from intarsia_ir._names import name_of
from intarsia_ir.dtypes import DTYPE_NAMES
from intarsia_ir.errors import UnsupportedError

__all__ = ["Opaque", "literal", "value_type"]


class Opaque:
    """Names for objects without a text, in order of first appearance, one name per object.

    `texts` keeps what was written of larger objects: id -> the object and its text, with the names that are in it.
    """

    def __init__(self) -> None:
        self.named: dict[str, Any] = {}
        self.texts: dict[int, tuple[Any, str]] = {}
        self._by_id: dict[int, str] = {}

    def name(self, value: Any) -> str:
        """Return the name of `value`, a new one when it wasn't seen before."""
        if id(value) not in self._by_id:
            self._by_id[id(value)] = f"${len(self._by_id)}"
            self.named[self._by_id[id(value)]] = value
        return self._by_id[id(value)]


def literal(value: Any, node_name: Callable[[fx.Node], str], opaque: Opaque) -> str:
    """Return the text of an argument: a node, a constant, or a nest of these."""

    def text(v: Any) -> str:
        return literal(v, node_name, opaque)

    if isinstance(value, fx.Node):
        return node_name(value)
    if value is None or value is True or value is False or type(value) is int or type(value) is str:
        return repr(value)
    if type(value) is float:
        return _float(value)
    if type(value) is complex:
        return f"complex({_float(value.real)}, {_float(value.imag)})"
    if isinstance(value, _SYMBOLIC):
        number = _known(value)
        return f"`{_expression(value)}`" if number is None else text(number)
    if isinstance(value, torch.Size):
        return f"Size([{', '.join(map(text, value))}])"
    if type(value) is tuple:
        return f"({', '.join(map(text, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, list):
        return f"[{', '.join(map(text, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{text(k)}: {text(v)}" for k, v in value.items()) + "}"
    if type(value) is slice:
        return f"slice({text(value.start)}, {text(value.stop)}, {text(value.step)})"
    if type(value) is range:
        return f"range({value.start}, {value.stop}, {value.step})"
    if value is Ellipsis:
        return "..."
    return _thing(value, text, opaque)


def _thing(value: Any, text: Callable[[Any], str], opaque: Opaque) -> str:
    """Text of what isn't plain Python data."""
    if isinstance(value, torch.dtype) and value in DTYPE_NAMES:
        return DTYPE_NAMES[value]
    if isinstance(value, torch.device):
        return f"device({str(value)!r})"
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        fields = "".join(f", {name}={text(v)}" for name, v in zip(value._fields, value))
        return f"record({opaque.name(type(value))}{fields})"
    return name_of(value) or opaque.name(value)


def _float(value: float) -> str:
    if math.isnan(value):
        return "nan"
    return repr(value)


_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def _known(value: Any) -> Any:
    """Return the number that a symbolic number is whatever the inputs are, or None."""
    expr = value.node.expr
    return None if expr.free_symbols else value.node.pytype(expr)


def _expression(value: Any) -> str:
    """Text of a symbolic number. Never compares symbolic numbers: that could record a guard."""
    return str(value.node.expr)


def value_type(value: Any, opaque: Opaque) -> str:
    """Return the text of what a node produces."""
    if isinstance(value, torch.Tensor):
        return _tensor_type(value)
    if isinstance(value, (tuple, list)) and not isinstance(value, torch.Size):
        inner = ", ".join(value_type(v, opaque) for v in value)
        if isinstance(value, list):
            return f"[{inner}]"
        return f"({inner}{',' if len(value) == 1 else ''})"
    if isinstance(value, _SYMBOLIC) and _known(value) is None:
        return f"{value.node.pytype.__name__}`{_expression(value)}`"
    return "=" + literal(value, _no_node, opaque)


def _no_node(node: fx.Node) -> str:
    raise UnsupportedError(f"the value of a node contains the node {node.name}", code="ir.text")


def _tensor_type(value: torch.Tensor) -> str:
    if value.layout is not torch.strided:
        raise UnsupportedError(
            f"a tensor of layout {value.layout} has no text form",
            code="ir.text",
            hints=("convert to a strided tensor before the compiled region",),
        )
    sizes, strides = tuple(value.shape), tuple(value.stride())
    dtype = DTYPE_NAMES.get(value.dtype) or str(value.dtype)
    text = f"{dtype}[{', '.join(map(_size, sizes))}]"
    if not _is_contiguous(sizes, strides):
        text += f"@({', '.join(map(_size, strides))})"
    offset = value.storage_offset()
    if type(offset) is not int or offset != 0:
        text += f"+{_size(offset)}"
    if value.device.type != "cpu":
        text += f" on {str(value.device)!r}"
    flags = (("grad", value.requires_grad), ("conj", value.is_conj()), ("neg", value.is_neg()))
    return text + "".join(f" {name}" for name, present in flags if present)


def _size(value: Any) -> str:
    number = value if type(value) is int else _known(value)
    if number is not None:
        return str(number)
    # a symbol stands for itself, as it is declared; what is computed from symbols is quoted
    return _expression(value) if value.node.expr.is_Symbol else f"`{_expression(value)}`"


def _is_contiguous(sizes: Sequence[Any], strides: Sequence[Any]) -> bool:
    """Tell whether `strides` are those that `parse` gives to `sizes`; symbolic ones by the form of the expression."""
    expected: Any = 1
    for size, stride in zip(reversed(sizes), reversed(strides)):
        if _plain(stride) != expected:
            return False
        expected = expected * (max(size, 1) if type(size) is int else _plain(size))
    return True


def _plain(value: Any) -> Any:
    if type(value) is int:
        return value
    number = _known(value)
    return value.node.expr if number is None else number
