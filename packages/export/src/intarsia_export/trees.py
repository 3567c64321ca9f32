"""What a program returns, as JSON: how its results nest, and what each leaf is.

    {"tuple": [{"result": 0}, {"dict": [["'n'", {"size": "(s0 * 2)"}]]}]}

Leaves: a result of the graph by its number, an argument or a part of one, a weight by its name, a number computed from
sizes, a Python value as text. A container of another class than Python's own is written by the name of the class: it is
looked up among the modules that are loaded, and nothing is imported for it.
"""

from __future__ import annotations

import ast
import collections
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch.utils._pytree as pytree

from intarsia_ir.errors import InvalidArgumentError, UnsupportedError

__all__ = ["Node", "build", "leaves_of", "resolved", "tree_of"]

Node = Mapping[str, Any]
_LEAVES = ("result", "argument", "weight", "size", "value")


def tree_of(value: Any, leaf: Callable[[Any, str], Node], path: str = "the result") -> Node:
    """Return the tree of a value.

    Args:
        value: What a program returned.
        leaf: What a leaf is; it is given its place for messages too.
        path: Where `value` is.

    Raises:
        UnsupportedError: `export.result`: a container has no text.
    """
    kind = type(value)
    if kind in (tuple, list):
        return {kind.__name__: [tree_of(item, leaf, f"{path}[{n}]") for n, item in enumerate(value)]}
    if kind is dict:
        keys = [_key(key, path) for key in value]
        return {"dict": [[k, tree_of(v, leaf, f"{path}[{k}]")] for k, v in zip(keys, value.values(), strict=True)]}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        items = [tree_of(item, leaf, f"{path}.{name}") for name, item in zip(value._fields, value, strict=True)]
        return {"class": _class_name(kind, path), "context": list(value._fields), "items": items}
    if kind in pytree.SUPPORTED_NODES:
        children, context = pytree.SUPPORTED_NODES[kind].flatten_fn(value)
        if not _is_plain(context):
            raise UnsupportedError(
                f"{path} is a {kind.__qualname__}, of which {context!r} has no text", code="export.result"
            )
        items = [tree_of(item, leaf, f"{path}[{n}]") for n, item in enumerate(children)]
        return {"class": _class_name(kind, path), "context": context, "items": items}
    return leaf(value, path)


def _key(key: Any, path: str) -> str:
    if type(key) not in (str, int, bool, float, type(None)):
        raise UnsupportedError(f"{path} has the key {key!r}, which has no text", code="export.result")
    return repr(key)


def _class_name(cls: type, path: str) -> str:
    name = f"{cls.__module__}:{cls.__qualname__}"
    if _class_named(name) is not cls:
        raise UnsupportedError(
            f"{path} is a {cls.__qualname__}, a class that its module doesn't have under that name",
            code="export.result",
        )
    return name


def _class_named(name: str) -> Any:
    module, _, qualname = name.partition(":")
    value: Any = sys.modules.get(module)
    for part in qualname.split("."):
        value = getattr(value, part, None)
    return value


def _is_plain(context: Any) -> bool:
    """Tell whether JSON gives a context back as it was."""
    if isinstance(context, list):
        return all(map(_is_plain, context))
    return context is None or type(context) in (str, int, float, bool)


def leaves_of(node: Node) -> list[Node]:
    """Return the leaves of a tree, in order."""
    (kind, inner), *_ = node.items()
    if kind in _LEAVES:
        return [node]
    items = node["items"] if kind == "class" else [v for _, v in inner] if kind == "dict" else inner
    return [leaf for item in items for leaf in leaves_of(item)]


def resolved(node: Node, *, plain: bool = False) -> Callable[[Callable[[Node], Any]], Any]:
    """Return a function from what leaves are to the value.

    Args:
        node: A tree.
        plain: A container of a class that isn't loaded becomes a tuple, or a dictionary where it has names.

    Raises:
        InvalidArgumentError: `export.class`: the class of a container isn't loaded.
    """
    makers = {name: _maker(name, plain) for name in _classes(node)}
    return lambda leaf: build(node, leaf, makers)


def build(node: Node, leaf: Callable[[Node], Any], makers: Mapping[str, Callable[..., Any]]) -> Any:
    """Return the value of a tree.

    Args:
        node: The tree.
        leaf: What a leaf is.
        makers: Name of a class -> what makes one of items and context.
    """
    (kind, inner), *_ = node.items()
    match kind:
        case "tuple":
            return tuple([build(item, leaf, makers) for item in inner])
        case "list":
            return [build(item, leaf, makers) for item in inner]
        case "dict":
            return {ast.literal_eval(key): build(item, leaf, makers) for key, item in inner}
        case "class":
            return makers[inner]([build(item, leaf, makers) for item in node["items"]], node["context"])
    return leaf(node)


def _classes(node: Node) -> set[str]:
    (kind, inner), *_ = node.items()
    if kind in _LEAVES:
        return set()
    items = node["items"] if kind == "class" else [v for _, v in inner] if kind == "dict" else inner
    return {*([inner] if kind == "class" else []), *(name for item in items for name in _classes(item))}


def _maker(name: str, plain: bool) -> Callable[..., Any]:
    cls = _class_named(name)
    if cls is collections.OrderedDict:
        return lambda items, keys: collections.OrderedDict(zip(keys, items, strict=True))
    if isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return lambda items, names: cls(**dict(zip(names, items, strict=True)))
    if cls in pytree.SUPPORTED_NODES:
        return pytree.SUPPORTED_NODES[cls].unflatten_fn
    if plain:
        return _plain
    raise _no_class(name)


def _plain(items: list[Any], context: Any) -> Any:
    named = isinstance(context, list) and len(context) == len(items) and all(isinstance(n, str) for n in context)
    return dict(zip(context, items, strict=True)) if named else tuple(items)


def _no_class(name: str) -> InvalidArgumentError:
    module = name.partition(":")[0]
    return InvalidArgumentError(
        f"the results are of the class {name.replace(':', '.')}, which isn't loaded",
        code="export.class",
        hints=(f"import {module} first, or load with plain=True, for a dictionary or tuple in its place",),
    )
