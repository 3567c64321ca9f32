"""`contextvars.ContextVar`: what is set is read, and relied on; what the program sets is set behind the graph."""

from __future__ import annotations

import contextvars
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from intarsia_pyeval import codegen, do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.tracer import BuiltinCall
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import NONE
from intarsia_pyeval.values.context_variables import Token, Variable
from intarsia_pyeval.values.objects import Object
from intarsia_pyeval.values.signatures import arity

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer

__all__ = ["CALLS"]


def _real(variable: Value) -> contextvars.ContextVar[Any]:
    """Return an existing variable that later calls find again.

    Raises:
        Break: It is none.
    """
    real = variable.identity()
    if not isinstance(variable, Object) or not isinstance(real, contextvars.ContextVar) or variable.source is None:
        raise Break("tracer.call", f"{variable.describe()} is read or set")
    return real


def _get(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Read what is set, or the variable's own default.

    Raises:
        Break: It isn't set and a default is given, or there is none: no guard says that it isn't.
    """
    variable, *_ = arity("get", args, keywords, 1, 2)
    real = _real(variable)
    change = tx.effects.variables.get(real)
    if change is not None and change.content is not None:
        return change.content
    if len(args) == 2 and real not in contextvars.copy_context():
        raise Break("tracer.call", f"the context variable {real.name!r} is asked for with a default, and isn't set")
    try:
        content = real.get()
    except LookupError:
        raise Break("tracer.call", f"the context variable {real.name!r} isn't set") from None
    assert variable.source is not None
    return tx.live.wrap(content, tx.sources.answer(tx.sources.attribute(variable.source, "get")))


def _set(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Set it, for what follows."""
    place, content = arity("set", args, keywords, 2)
    real = _real(place)
    variable = tx.effects.variables.setdefault(real, Variable(real, place))
    token = Token(variable, variable.content)
    tx.effects.changed(variable)
    variable.content = content
    return token


def _reset(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Set it to what it was before."""
    place, token = arity("reset", args, keywords, 2)
    real = _real(place)
    if not isinstance(token, Token) or token.variable.real is not real or token.used:
        raise Break("tracer.exception", f"the context variable {real.name!r} is reset by {token.describe()}")
    tx.effects.changed(token.variable)
    token.used = True
    token.variable.content = token.before
    return NONE


@do.get_attribute.rule(Token)
def get_attribute(tx: Tracer, token: Token, name: str) -> Value:
    """Read the variable, or what it was set to by the program itself."""
    if name == "var":
        return token.variable.place
    if name == "old_value" and token.before is not None:
        return token.before
    return do.get_attribute.default(tx, token, name)


@codegen.emit_effects.rule(Variable)
def emit_effects(out: Builder, variable: Variable) -> None:
    """Set the variable, unless it is as it was."""
    if variable.content is not None:
        out.call_method_of(variable.place, "set", [partial(out.load, variable.content)])


#: How each is called.
CALLS: dict[Any, BuiltinCall] = {
    contextvars.ContextVar.get: _get,
    contextvars.ContextVar.set: _set,
    contextvars.ContextVar.reset: _reset,
}
