"""Size facts as Python text: where symbols are read, and the relations that must hold.

A symbol's definition is text over the frame, such as `x.size(0)`, `globals['table'].size(0)` or `cell['n'].shape[1]`.
It is parsed here into sources plus a rest, so that it shares fetched values with the other guards.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import (
    ArgumentSource,
    ArraySource,
    AttributeSource,
    CellSource,
    DictItemSource,
    GlobalSource,
    ItemSource,
    LengthSource,
    ModuleSource,
    PlainAttributeSource,
    Source,
    TypeSource,
)

__all__ = ["SizeTexts", "evaluate", "names_in"]

_ALLOWED_CALLS = frozenset(["max", "min", "abs", "float", "int", "bool", "floor", "ceil", "trunc", "sqrt"])


@dataclass(slots=True)
class SizeTexts:
    """The relations of a predicate, and the symbols that they use, in the order in which they were added.

    Args:
        symbols: Symbol name -> text of where it's read.
        relations: Python expressions over symbol names.
    """

    symbols: dict[str, str] = field(default_factory=dict)
    relations: list[str] = field(default_factory=list)

    def add(self, relation: str, symbols: Mapping[str, str]) -> None:
        """Add a relation over symbols, given by where they are read."""
        self.symbols |= symbols
        self.relations.append(relation)

    @property
    def uses_math(self) -> bool:
        """Whether a relation calls the math module."""
        return any("math." in relation for relation in self.relations)

    def definitions(self, fetch: Callable[[Source], str]) -> Iterator[tuple[str, str]]:
        """Yield (symbol, text that reads it); `fetch` names fetched values."""
        for name, text in self.symbols.items():
            yield name, _translate(text, fetch)


def names_in(relation: str) -> set[str]:
    """Return the symbols in a relation.

    Raises:
        InvalidArgumentError: The text has something besides symbols, numbers, operators and the known functions.
    """
    try:
        tree = ast.parse(relation, mode="eval")
    except SyntaxError as error:
        raise InvalidArgumentError(f"the relation {relation!r} is no expression", code="guards.relation") from error
    names = set()
    for node in ast.walk(tree):
        if not isinstance(node, _ALLOWED):
            raise InvalidArgumentError(f"the relation {relation!r} has a {type(node).__name__}", code="guards.relation")
        if isinstance(node, ast.Name):
            names.add(node.id)
    return names - {"math", "True", "False"} - _ALLOWED_CALLS


_ALLOWED = (
    ast.Expression,
    ast.Name,
    ast.Load,
    ast.Constant,
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.Compare,
    ast.IfExp,
    ast.Call,
    ast.Attribute,
    ast.operator,
    ast.unaryop,
    ast.boolop,
    ast.cmpop,
)


def evaluate(text: str, fetch_value: Callable[[Source], Any], symbols: dict[str, Any] | None = None) -> Any:
    """Return the value of a definition (over the frame) or of a relation (over symbols), the slow way."""
    import math

    values: dict[str, Any] = {}

    def name(source: Source) -> str:
        values[f"_{len(values)}"] = fetch_value(source)
        return f"_{len(values) - 1}"

    translated = text if symbols is not None else _translate(text, name)
    return eval(translated, {"math": math, **values, **(symbols or {})})


def _translate(text: str, fetch: Callable[[Source], str]) -> str:
    """Return `text` with everything that is a source replaced by the name that `fetch` gives it."""
    return ast.unparse(_Sources(fetch).visit(ast.parse(text, mode="eval")))


class _Sources(ast.NodeTransformer):
    """Replaces the longest chains of names, attributes and constant items by fetched values."""

    def __init__(self, fetch: Callable[[Source], str]) -> None:
        self.fetch = fetch

    def visit_Call(self, node: ast.Call) -> ast.AST:
        source = _source(node)
        if source is not None:
            return ast.Name(self.fetch(source), ast.Load())
        # `x.size(0)`: the owner of the method is a source, the method isn't fetched apart
        if isinstance(node.func, ast.Attribute):
            node.func.value = self.visit(node.func.value)
        node.args = [self.visit(argument) for argument in node.args]
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        source = _source(node)
        if source is None or _reads_shape(node):
            return super().generic_visit(node)
        return ast.Name(self.fetch(source), ast.Load())


def _reads_shape(node: ast.AST) -> bool:
    """Whether a node is `.shape` or an item of it: sizes are not shared with guards."""
    if isinstance(node, ast.Subscript):
        return _reads_shape(node.value)
    return isinstance(node, ast.Attribute) and node.attr == "shape"


def _source(node: ast.AST) -> Source | None:
    match node:
        case ast.Subscript(value=ast.Name(id="globals"), slice=ast.Constant(value=str(name))):
            return GlobalSource(name)
        case ast.Subscript(value=ast.Name(id="cell"), slice=ast.Constant(value=str(name))):
            return CellSource(name)
        case ast.Subscript(value=ast.Name(id="modules"), slice=ast.Constant(value=str(name))):
            return ModuleSource(name)
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="dict"), attr="__getitem__"), args=[value, ast.Constant(value=key)]
        ):
            base = _source(value)
            return DictItemSource(base, key) if base is not None else None
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="object"), attr="__getattribute__"),
            args=[value, ast.Constant(value=str(name))],
        ):
            base = _source(value)
            return PlainAttributeSource(base, name) if base is not None else None
        case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr="from_numpy"), args=[value]):
            base = _source(value)
            return ArraySource(base) if base is not None else None
        case ast.Call(func=ast.Name(id="type"), args=[value]):
            base = _source(value)
            return TypeSource(base) if base is not None else None
        case ast.Call(func=ast.Name(id="len"), args=[value]):
            base = _source(value)
            return LengthSource(base) if base is not None else None
        case ast.Name(id=name):
            return ArgumentSource(name)
        case ast.Attribute(value=value, attr=name):
            base = _source(value)
            return AttributeSource(base, name) if base is not None else None
        case ast.Subscript(value=value, slice=ast.Constant(value=key)):
            base = _source(value)
            return ItemSource(base, key) if base is not None else None
        case ast.Subscript(value=value, slice=ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(key)))):
            base = _source(value)
            return ItemSource(base, -key) if base is not None else None
    return None
