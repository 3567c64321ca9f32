"""`warnings.warn`: what the filters make of it is asked behind the graph, in order with the other effects."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from intarsia_pyeval import codegen
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.tracer import BuiltinCall
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.objects import ClassValue
from intarsia_pyeval.values.warned import Warned

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer

__all__ = ["CALLS", "warn_at"]

_NAMES = ("message", "category", "stacklevel", "source")


def _warn(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Give a warning later; where it may raise, or names a frame that isn't evaluated, CPython gives it."""
    named = {**dict(zip(_NAMES, args, strict=False)), **keywords}
    message, category = named.get("message"), named.get("category", ClassValue(UserWarning, None))
    level = named.get("stacklevel", Const(1))
    text: Any = message.value if isinstance(message, Const) else None
    modelled = type(text) is str and isinstance(level, Const) and isinstance(category, ClassValue)
    if not modelled or named.keys() - {*_NAMES[:3]}:
        raise Break("tracer.output", "a warning is given whose text or class isn't known")
    if any(action == "error" for action, *_ in warnings.filters):
        raise Break("tracer.output", "a warning is given, and some are errors")
    depth, cls = max(level.as_python(), 1), cast(Any, category.identity())
    if not issubclass(cls, Warning) or depth > len(tx.frames.stack):
        raise Break("tracer.output", "a warning is given that names the caller of what is captured")
    frame: Any = tx.frames.stack[-depth]
    names = frame.globals.real
    if names is None:
        raise Break("tracer.output", "a warning is given in a frame whose globals aren't known")
    warning = Warned(text, cls, frame.code.co_filename, frame.at.line, names)
    tx.effects.changed(warning)
    return Const(None)


def warn_at(message: str, category: type[Warning], file: str, line: int, names: dict[str, Any]) -> None:
    """Give a warning as `warnings.warn` does in a frame at a line of a file that has these globals."""
    registry = names.setdefault("__warningregistry__", {})
    warnings.warn_explicit(message, category, file, line, names.get("__name__") or "<string>", registry)


@codegen.emit_effects.rule(Warned)
def emit_effects(out: Builder, warning: Warned) -> None:
    """Give the warning."""
    parts = (warning.message, warning.category, warning.file, warning.line, warning.names)
    out.call(partial(out.emit, "LOAD_CONST", warn_at), [partial(out.emit, "LOAD_CONST", part) for part in parts])
    out.emit("POP_TOP")


#: How each is called.
CALLS: dict[Any, BuiltinCall] = {warnings.warn: _warn}
