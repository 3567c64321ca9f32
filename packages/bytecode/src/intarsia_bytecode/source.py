"""Bytecode as Python source that does the same, where there is such: what runs instead of a function, to be read.

Instructions are run on a stack of expressions. An expression becomes part of a larger one where nothing happens between
its evaluation and its use; else it is kept in a local, `t0`, `t1`, ... A branch is written with all that follows it, up
to its `return`: code that was made for a capture has no loops, and its branches don't meet again.

A local that is deleted while an expression holds it is not: the expression lets go of it a statement later.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from types import CodeType, MappingProxyType
from typing import Any

from intarsia_bytecode._source_steps import STEPS
from intarsia_bytecode._source_writer import UnwrittenError, Writer, identifier, word_of

__all__ = ["Source", "source_of"]


@dataclass(frozen=True, slots=True)
class Source:
    """A function in Python.

    Args:
        text: Its definition.
        names: Names in it of what has no literal: holes, code of functions that are made, other constants.
    """

    text: str
    names: Mapping[str, Any]


def source_of(code: CodeType, name: str = "") -> Source | None:
    """Return a function that does what `code` does, or None where that can't be written.

    Args:
        code: May have holes, which are named.
        name: Of the function; that of the code where it isn't given, with an underscore for what isn't in a name.

    Example:
        >>> def f(a, b):
        ...     c = [a, b]
        ...     return (c[0] + 1) * 2
        >>> print(source_of(f.__code__).text)
        def f(a, b):
            c = [a, b]
            return (c[0] + 1) * 2
    """
    try:
        head = f"def {word_of(name or code.co_name)}({_parameters(code)}):"
        writer = Writer(code, STEPS)
        writer.run(0, [])
    except UnwrittenError:
        return None
    declared = [f"    {word} {', '.join(names)}" for word, names in writer.declared.items() if names]
    return Source("\n".join([head, *declared, *writer.lines]), MappingProxyType(writer.names))


def _parameters(code: CodeType) -> str:
    """The parameters; none has a default, which belongs to the function."""
    if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise UnwrittenError
    names = [identifier(name) for name in code.co_varnames]
    n_plain, n_named = code.co_argcount, code.co_kwonlyargcount
    parts = names[:n_plain]
    if code.co_posonlyargcount:
        parts.insert(code.co_posonlyargcount, "/")
    rest = names[n_plain + n_named :]
    if code.co_flags & inspect.CO_VARARGS:
        parts.append(f"*{rest.pop(0)}")
    elif n_named:
        parts.append("*")
    parts += names[n_plain : n_plain + n_named]
    if code.co_flags & inspect.CO_VARKEYWORDS:
        parts.append(f"**{rest.pop(0)}")
    return ", ".join(parts)
