"""The values that a call gives to guards, and fetching from them what a source names."""

from __future__ import annotations

import builtins
import inspect
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from intarsia_guards import lookup
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

__all__ = ["Frame", "bind", "fetch", "parameter_names"]


@dataclass(frozen=True, slots=True)
class Frame:
    """What guards can look at when a frame is entered.

    Args:
        arguments: Parameter name -> value; `*args` and `**kwargs` under their own names.
        cells: Free variable name -> content.
        globals: The globals of the function.
    """

    arguments: Mapping[str, Any]
    cells: Mapping[str, Any] = field(default_factory=dict)
    globals: Mapping[str, Any] = field(default_factory=dict)


def fetch(source: Source, frame: Frame) -> Any:
    """Return the value that `source` names in `frame`, without running code of the user.

    Raises:
        Exception: Whatever fetching raises: a missing name, or something that only code of the user could tell.
    """
    match source:
        case ArgumentSource(name=name):
            return frame.arguments[name]
        case CellSource(name=name):
            return frame.cells[name]
        case GlobalSource(name=name):
            return frame.globals[name] if name in frame.globals else getattr(builtins, name)
        case ModuleSource(name=name):
            return sys.modules[name]
        case AttributeSource(base=base, name=name):
            return lookup.attribute(fetch(base, frame), name)
        case PlainAttributeSource(base=base, name=name):
            return lookup.plain_attribute(fetch(base, frame), name)
        case ItemSource(base=base, key=key):
            return lookup.item(fetch(base, frame), key)
        case DictItemSource(base=base, key=key):
            return lookup.dict_item(fetch(base, frame), key)
        case TypeSource(base=base):
            return type(fetch(base, frame))
        case LengthSource(base=base):
            return lookup.length(fetch(base, frame))
        case ArraySource(base=base):
            return lookup.array_tensor(fetch(base, frame))
        case AnswerSource(base=base):
            return fetch(base, frame)()
        case ReferentSource(base=base):
            return lookup.referent(fetch(base, frame))
        case SizeSource(base=base, kind=kind, dim=dim):
            tensor = fetch(base, frame)
            if lookup.is_tensor(tensor):
                return getattr(tensor, kind)(*(() if dim is None else (dim,)))
            raise TypeError(f"{base} is no tensor")
    raise InvalidArgumentError(f"{source!r} is no source that guards know", code="guards.source")


def parameter_names(code: types.CodeType) -> tuple[str, ...]:
    """Return the parameters of a code object in the order of its local variables: plain, keyword-only, `*`, `**`."""
    stars = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + stars]


def bind(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Frame:
    """Return the frame that calling `function` with these arguments enters.

    Args:
        function: A Python function, a bound method, or an object with a `forward` method (a module).
        args: Positional arguments.
        kwargs: Keyword arguments.

    Raises:
        TypeError: The arguments don't fit the function.
    """
    plain, args = _plain_function(function, tuple(args))
    # a decorator's wrapper is what is called, whatever function it says that it wraps
    bound = inspect.signature(plain, follow_wrapped=False).bind(*args, **kwargs)
    bound.apply_defaults()
    cells = zip(plain.__code__.co_freevars, plain.__closure__ or ())
    contents = {name: cell.cell_contents for name, cell in cells if _is_set(cell)}
    return Frame(dict(bound.arguments), contents, plain.__globals__)


def _plain_function(function: Any, args: tuple[Any, ...]) -> tuple[types.FunctionType, tuple[Any, ...]]:
    if not isinstance(function, (types.FunctionType, types.MethodType)) and hasattr(function, "forward"):
        function = function.forward
    if isinstance(function, types.MethodType):
        return _plain_function(function.__func__, (function.__self__, *args))
    if not isinstance(function, types.FunctionType):
        raise InvalidArgumentError(
            f"guards check calls of Python functions, not of {type(function).__name__}", code="guards.function"
        )
    return function, args


def _is_set(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not _NOTHING
    except ValueError:
        return False


_NOTHING = object()
