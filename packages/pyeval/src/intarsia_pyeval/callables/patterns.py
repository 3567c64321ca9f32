"""Regular expressions: functions of `re` on known texts. Patterns and matches are atoms."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from intarsia_pyeval.semantics import folding
from intarsia_pyeval.tracer import BuiltinCall
from intarsia_pyeval.values.base import Keywords, Value

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["CALLS"]


def _known(function: Callable[..., Any]) -> BuiltinCall:
    """Return a handler that runs a function on what is known; it fills the cache of patterns, as eager does."""

    def handler(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        return folding.call_pure(tx, function, args, keywords)

    return handler


#: How each is called.
CALLS: dict[Any, BuiltinCall] = {
    function: _known(function)
    for function in (re.compile, re.escape, re.findall, re.fullmatch, re.match, re.search, re.split, re.sub, re.subn)
}
