"""Sources as text: the Python expression that fetches the value, and back.

ArgumentSource("x")                              x
AttributeSource(ArgumentSource("self"), "w")     self.w
ItemSource(GlobalSource("layers"), 0)            globals['layers'][0]
SizeSource(ArgumentSource("x"), "size", 1)       x.size(1)
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable
from typing import Any

from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import (
    AnswerSource,
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
    ReferentSource,
    SizeSource,
    Source,
    TypeSource,
)

__all__ = ["parse_source"]

_SPACES: dict[str, Callable[[str], Source]] = {"globals": GlobalSource, "cell": CellSource, "modules": ModuleSource}
_SIZES = ("size", "stride", "storage_offset")
# an attribute, or an item of plain text, of what comes before it
_LAST = re.compile(r"(.+)(?:\.([A-Za-z_]\w*)|\['([^'\\\[\]\n]*)'\])", re.ASCII)


@functools.lru_cache(maxsize=8192)
def parse_source(text: str) -> Source:
    """Return the source whose `str` is `text`.

    Raises:
        InvalidArgumentError: `ir.source`: no source reads like this.

    Example:
        >>> parse_source("self.layers[0].weight")
        AttributeSource(base=ItemSource(base=AttributeSource(base=ArgumentSource(name='self'), ...
    """
    last = _LAST.fullmatch(text)
    if last and not last[1].isidentifier():  # sources of one module share almost all of their text
        base = parse_source(last[1])
        return ItemSource(base, last[3]) if last[2] is None else AttributeSource(base, last[2])
    try:
        return _source(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError):
        raise InvalidArgumentError(f"{text!r} reads like no source", code="ir.source") from None


def _source(node: ast.expr) -> Source:
    match node:
        case ast.Name(id=name):
            return ArgumentSource(name)
        case ast.Subscript(value=ast.Name(id=space), slice=ast.Constant(value=str(name))) if space in _SPACES:
            return _SPACES[space](name)
        case ast.Subscript(value=base, slice=key):
            return ItemSource(_source(base), ast.literal_eval(key))
        case ast.Attribute(value=base, attr=name):
            return AttributeSource(_source(base), name)
        case ast.Call(func=function, args=args, keywords=[]):
            return _call(ast.unparse(function), function, args)
    raise ValueError(ast.dump(node))


def _call(name: str, function: ast.expr, args: list[ast.expr]) -> Source:
    match name, function, args:
        case "object.__getattribute__", _, [base, ast.Constant(value=str(attribute))]:
            return PlainAttributeSource(_source(base), attribute)
        case "dict.__getitem__", _, [base, key]:
            return DictItemSource(_source(base), ast.literal_eval(key))
        case "torch.from_numpy", _, [base]:
            return ArraySource(_source(base))
        case "operator.call", _, [base]:
            return AnswerSource(_source(base))
        case "type", _, [base]:
            return TypeSource(_source(base))
        case "len", _, [base]:
            return LengthSource(_source(base))
        case _, ast.Attribute(value=base, attr=kind), _ if kind in _SIZES:
            dims: list[Any] = [ast.literal_eval(arg) for arg in args]
            return SizeSource(_source(base), kind, dims[0] if dims else None)
        case _, base, []:
            return ReferentSource(_source(base))
    raise ValueError(name)
