"""Records as text: calls that read like Python, with the fields that aren't what they are by default.

    InputSpec('w', Role('parameter'), source('self.w'), requires_grad=True)
    AliasOfInput(0, ((`s0`, 3), (3, 1), 0))

An enumeration is its class and value; a source is the expression that fetches it, where that reads back as the same
one, and else a record; a size expression is in backquotes, as symbolic numbers of graphs are.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
import torch.utils._pytree as pytree

from intarsia_ir import guards, records
from intarsia_ir._literals import Opaque, literal
from intarsia_ir.errors import InvalidArgumentError, UnsupportedError
from intarsia_ir.records import InputSpec, SizeExpression, Source
from intarsia_ir.source_text import parse_source

__all__ = ["MAKERS", "InputSources", "arguments_text", "record_text"]


@dataclass(frozen=True, slots=True)
class InputSources:
    """Sources of inputs, by the positions of these: `"0:12, 14"` are 0 to 11, and 14."""

    text: str

    def sources(self, inputs: Sequence[InputSpec]) -> tuple[Source | None, ...]:
        """Return the sources.

        Raises:
            ValueError: It isn't a list of numbers and ranges of inputs that are there.
        """
        sources: list[Source | None] = []
        for part in self.text.split(", "):
            low, _, high = part.partition(":")
            numbers = range(int(low), int(high or int(low) + 1))
            if not numbers or numbers[0] < 0 or numbers[-1] >= len(inputs):
                raise ValueError(part)
            sources += [inputs[number].source for number in numbers]
        return tuple(sources)


def record_text(value: Any, opaque: Opaque) -> str:
    """Return the text of a record, of what records hold, or of a nest of these."""
    match value:
        case SizeExpression(text=text):
            return f"`{text}`"
        case Source():
            return _source_text(value, opaque)
        case enum.Enum():
            return f"{type(value).__name__}({value.value!r})"
        case pytree.TreeSpec():
            return _tree_text(value, opaque)
        case torch.Size():
            return literal(value, _no_node, opaque)
        case tuple() if type(value) is tuple:
            return f"({', '.join(record_text(v, opaque) for v in value)}{',' if len(value) == 1 else ''})"
        case list():
            return f"[{', '.join(record_text(v, opaque) for v in value)}]"
        case _ if type(value).__name__ in MAKERS and dataclasses.is_dataclass(value):
            return f"{type(value).__name__}({arguments_text(value, opaque)})"
    return literal(value, _no_node, opaque)


def arguments_text(value: Any, opaque: Opaque, *, without: tuple[str, ...] = ()) -> str:
    """Return the fields of a record as arguments of its class, those that are what they are by default left out."""
    parts: list[str] = []
    named = False
    # those that are given by name alone are inherited ones here, and come last
    for field in sorted(dataclasses.fields(value), key=lambda field: bool(field.kw_only)):
        named = named or bool(field.kw_only)
        item = getattr(value, field.name)
        if field.name in without or _is_default(item, field):
            named = True
            continue
        text = record_text(item, opaque)
        parts.append(f"{field.name}={text}" if named else text)
    return ", ".join(parts)


def _is_default(item: Any, field: dataclasses.Field[Any]) -> bool:
    if field.default_factory is not dataclasses.MISSING:
        return bool(item == field.default_factory())
    return field.default is not dataclasses.MISSING and type(item) is type(field.default) and item == field.default


def _source_text(source: Source, opaque: Opaque) -> str:
    """Return the text of a source, written once for one object: guards name the same ones again and again."""
    entry = opaque.texts.get(id(source))
    if entry is None:
        entry = opaque.texts[id(source)] = (source, _written_source(source, opaque))
    return entry[1]


def _written_source(source: Source, opaque: Opaque) -> str:
    text = str(source)
    try:
        if parse_source(text) == source:
            return f"source({text!r})"
    except InvalidArgumentError:
        pass  # a key of it has no text of its own, or a name is none of Python's
    return f"{type(source).__name__}({arguments_text(source, opaque)})"


def _tree_text(tree: pytree.TreeSpec, opaque: Opaque) -> str:
    try:
        return f"tree({pytree.treespec_dumps(tree)!r})"
    except NotImplementedError:  # a container of the user's
        return opaque.name(tree)


def _no_node(node: Any) -> str:
    raise UnsupportedError(f"a record holds the node {node.name}", code="ir.text")


def _enum(cls: type[enum.Enum]) -> Callable[[Any], enum.Enum]:
    return lambda value: cls(value)


_CLASSES: list[Any] = [*(getattr(records, name) for name in records.__all__), *guards.GUARDS.values()]
MAKERS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        **{c.__name__: c for c in _CLASSES if not issubclass(c, enum.Enum)},
        **{c.__name__: _enum(c) for c in _CLASSES if issubclass(c, enum.Enum)},
        "InputSources": InputSources,
        "source": parse_source,
        "tree": pytree.treespec_loads,
    }
)
