"""Text form of the torch dialect; see `intarsia_ir._print` for its look, `intarsia_ir._literals` for constants.

A method call is written `.name(%self, ...)`. Functions outside torch, operator, math and builtins are written under
their own qualified name and come back from `constants`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch.fx as fx
from torch._ops import OpOverload
from torch._subclasses import FakeTensorMode

from intarsia_ir._names import name_of, object_named, own_name
from intarsia_ir._parse import parse_graph
from intarsia_ir._print import Dialect, collect_constants, print_graph
from intarsia_ir.aten.ops import overload_named
from intarsia_ir.origin_text import OriginWriter, Places
from intarsia_ir.records import SizeFacts
from intarsia_ir.torch.ops import SCHEMA, node_effects

__all__ = ["DIALECT", "constants_of", "parse_ir", "print_ir"]


def print_ir(
    gm: fx.GraphModule, *, facts: SizeFacts | None = None, made_by: str = "", origins: OriginWriter | None = None
) -> str:
    """Return the text of `gm`.

    Args:
        gm: FX(torch).
        facts: Size facts, to print the symbols with their ranges.
        made_by: What made the graph, for the header, such as `"capture"`.
        origins: Writes the user's lines, in a text that this one is part of; its own footer has them when left out.

    Example:
        >>> text = '''// dialect: torch 2
        ... graph(%x: f32[2, 3]) {
        ...   # model.py:12 in forward
        ...   %0 = torch.nn.functional.relu(%x)  #12
        ...   # model.py:13 in forward
        ...   %1 = .sum(%0, -1, keepdim=True)  #13
        ...   return (%1,)
        ... }
        ... origins
        ...   1 model.py
        ...     forward: 12, 13
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
        constants: What the text refers to by name: attributes, functions of the user, objects without a text.
            `constants_of(gm)` collects it.
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
    if isinstance(target, OpOverload):
        return str(target)
    # a local function or a lambda has a name, but not one that is its own
    name = name_of(target) or own_name(target)
    return None if name is None or "<" in name else name


def _target_named(name: str) -> Any:
    try:
        return object_named(name)
    except LookupError:
        return overload_named(name)


DIALECT = Dialect("torch", SCHEMA, _target_name, _target_named, lambda node: node_effects(node).marks())
