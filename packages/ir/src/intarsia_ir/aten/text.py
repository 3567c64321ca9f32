"""Text form of the aten dialect; see `intarsia_ir._print` for its look, `intarsia_ir._literals` for constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch.fx as fx
from torch._ops import OpOverload
from torch._subclasses import FakeTensorMode

from intarsia_ir._names import name_of, object_named
from intarsia_ir._parse import parse_graph
from intarsia_ir._print import Dialect, collect_constants, print_graph
from intarsia_ir.aten.ops import SCHEMA, is_op, node_effects, overload_named
from intarsia_ir.origin_text import OriginWriter, Places
from intarsia_ir.records import SizeFacts

__all__ = ["DIALECT", "constants_of", "parse_ir", "print_ir"]


def print_ir(
    gm: fx.GraphModule, *, facts: SizeFacts | None = None, made_by: str = "", origins: OriginWriter | None = None
) -> str:
    """Return the text of `gm`.

    Args:
        gm: FX(aten).
        facts: Size facts, to print the symbols with their ranges.
        made_by: What made the graph, for the header, such as `"functionalize"`.
        origins: Writes the user's lines, in a text that this one is part of; its own footer has them when left out.

    Example:
        >>> text = '''// dialect: aten 2
        ... graph(%x: f32[2, 3]) {
        ...   # model.py:12 in forward
        ...   %0: f32[2, 3] = aten.add.Tensor(%x, 1, alpha=2)  #12 add
        ...   return (%0,)
        ... }
        ... origins
        ...   1 model.py
        ...     forward: 12
        ... '''
        >>> print_ir(parse_ir(text)) == text
        True
    """
    return print_graph(gm, DIALECT, facts=facts, made_by=made_by, origins=origins)


def parse_ir(
    text: str,
    *,
    constants: Mapping[str, Any] | None = None,
    symbols: Callable[[str, str], Any] | None = None,
    fake_mode: FakeTensorMode | None = None,
    places: Places | None = None,
) -> fx.GraphModule:
    """Return the graph that `print_ir` wrote as `text`, with values and origins.

    Args:
        text: One graph.
        constants: What the text refers to by name: attributes, objects without a text. `constants_of(gm)` collects it.
        symbols: Makes a symbolic number from its expression and kind: `"int"`, `"float"`, `"bool"`, or `"size"` for a
            number of a tensor.
        fake_mode: The mode that owns the values; a new one when left out.
        places: What numbers of lines stand for, in a part of a text; its own footer says it when left out.

    Raises:
        InvalidArgumentError: The text can't be read; the message has the line.
        UnsupportedError: The text is another dialect, or a newer version of it.
    """
    return parse_graph(text, DIALECT, constants=constants or {}, symbols=symbols, fake_mode=fake_mode, places=places)


def constants_of(gm: fx.GraphModule) -> dict[str, Any]:
    """Return what `parse_ir(print_ir(gm), constants=...)` needs."""
    return collect_constants(gm, DIALECT)


def _target_name(target: Any) -> str | None:
    return str(target) if isinstance(target, OpOverload) else name_of(target)


def _target_named(name: str) -> Any:
    try:
        target = object_named(name)
    except LookupError:
        return overload_named(name)
    if not is_op(target):
        raise LookupError(name)
    return target


DIALECT = Dialect("aten", SCHEMA, _target_name, _target_named, lambda node: node_effects(node).marks())
